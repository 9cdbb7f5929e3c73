//! Runs an ingest over paths and tells what came out as text.

use std::fmt::Write;
use std::path::PathBuf;

use worldloom_ingest::{IngestConfig, Report, run};
use worldloom_schema::{REJECT_FILE, Reject, TRAJECTORY_FILE, Trajectory, Turn, read_table};

/// What an ingest wrote.
pub(crate) struct Output {
    pub(crate) report: Report,
    pub(crate) trajectories: Vec<Trajectory>,
    pub(crate) rejects: Vec<Reject>,
}

/// A config of these inputs that refuses nothing.
pub(crate) fn config(inputs: &[PathBuf]) -> IngestConfig {
    let told = serde_json::json!({"inputs": inputs, "max_reject_share": 1.0, "strict": false});
    serde_json::from_value(told).unwrap()
}

/// Ingests paths, each format found from the content.
pub(crate) fn ingest(inputs: &[PathBuf]) -> Output {
    let out = tempfile::tempdir().unwrap();
    let config = config(inputs);
    let report = match run(&config, out.path(), &|_, _| {}) {
        Ok(report) => report,
        Err(error) => {
            let rejects: Vec<Reject> = read_table(&out.path().join(REJECT_FILE)).unwrap_or_default();
            panic!("{error}: {rejects:#?}")
        }
    };
    let trajectories = read_table(&out.path().join(TRAJECTORY_FILE)).unwrap();
    let rejects = read_table(&out.path().join(REJECT_FILE)).unwrap();
    Output { report, trajectories, rejects }
}

impl Output {
    /// Turns in all.
    pub(crate) fn turns(&self) -> usize {
        self.trajectories.iter().map(|trajectory| trajectory.turns.len()).sum()
    }

    /// A count of the report; 0 where there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report.counts.get(name).copied().unwrap_or(0)
    }

    /// Everything that came out, for a person to read.
    pub(crate) fn told(&self) -> String {
        let mut told = String::new();
        self.trajectories.iter().for_each(|trajectory| tell(trajectory, &mut told));
        for Reject { file, row, byte_offset, rule, detail, .. } in &self.rejects {
            writeln!(told, "reject {file} row {row} byte {byte_offset} {rule}: {detail}").unwrap();
        }
        let known = ["files", "files_skipped", "rows", "trajectories", "turns", "rejects"];
        for (name, number) in self.report.counts.iter().filter(|(name, _)| !known.contains(&name.as_str())) {
            writeln!(told, "{name} = {number}").unwrap();
        }
        told
    }
}

fn tell(trajectory: &Trajectory, told: &mut String) {
    let Trajectory { source_path, source_row, format, domain, task_group, system, outcome, .. } = trajectory;
    writeln!(told, "{format} {domain} {task_group} ({source_path} row {source_row})").unwrap();
    writeln!(told, "  task {:?}", system.task_description).unwrap();
    for (name, text) in [("actions", &system.action_space), ("state", &system.initial_state)] {
        text.iter().for_each(|text| writeln!(told, "  {name} {text:?}").unwrap());
    }
    for (name, value) in [("reward", outcome.reward), ("success", outcome.success.map(|yes| f64::from(u8::from(yes))))]
    {
        value.iter().for_each(|value| writeln!(told, "  {name} {value}").unwrap());
    }
    trajectory.turns.iter().for_each(|turn| tell_turn(turn, told));
}

fn tell_turn(turn: &Turn, told: &mut String) {
    let mut notes: Vec<String> = turn.flags.clone();
    notes.extend(turn.is_error.map(|is_error| if is_error { "error".into() } else { "fine".into() }));
    notes.extend(turn.truncated.then(|| "truncated".into()));
    writeln!(told, "  {} {:?} {:?}", turn.index, turn.action_kind, turn.action).unwrap();
    for (name, text) in [("thought", &turn.reasoning), ("before", &turn.pre_state)] {
        text.iter().for_each(|text| writeln!(told, "    {name} {text:?}").unwrap());
    }
    writeln!(told, "    {:?} {:?} [{}]", turn.observation_kind, turn.observation, notes.join(" ")).unwrap();
}
