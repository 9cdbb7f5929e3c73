//! Trajectories as text that a person can check against the file they came from.

use std::fmt::Write;

use worldloom_schema::{Trajectory, Turn};

use crate::common::Output;

/// All an ingest wrote.
pub(crate) fn show(output: &Output) -> String {
    let mut text: String = output.trajectories.iter().map(trajectory).collect();
    for reject in &output.rejects {
        writeln!(text, "reject {} row {}: {}: {}", reject.file, reject.row, reject.rule, reject.detail).unwrap();
    }
    let left_out = output.report.counts.iter().filter(|(name, number)| **number > 0 && !is_total(name));
    left_out.for_each(|(name, number)| writeln!(text, "{name} {number}").unwrap());
    text
}

fn is_total(name: &str) -> bool {
    ["bytes", "files", "files_skipped", "rejects", "rows", "trajectories", "turns"].contains(&name)
}

fn trajectory(trajectory: &Trajectory) -> String {
    let system = &trajectory.system;
    let mut text = format!(
        "=== {} {} row {}, {}, group {}, reward {:?}, success {:?}\n",
        trajectory.format,
        trajectory.source_path,
        trajectory.source_row,
        trajectory.domain,
        trajectory.task_group,
        trajectory.outcome.reward,
        trajectory.outcome.success
    );
    writeln!(text, "task: {}", system.task_description).unwrap();
    for (name, part) in [("actions", &system.action_space), ("initial", &system.initial_state)] {
        part.iter().for_each(|part| writeln!(text, "{name}:\n{part}").unwrap());
    }
    text + &trajectory.turns.iter().map(turn).collect::<String>()
}

fn turn(turn: &Turn) -> String {
    let mut text = format!("--- {} {:?} {}\n", turn.index, turn.action_kind, turn.flags.join(" "));
    turn.reasoning.iter().for_each(|thoughts| writeln!(text, "thoughts: {thoughts}").unwrap());
    turn.is_error.iter().for_each(|is_error| writeln!(text, "error: {is_error}").unwrap());
    writeln!(text, "{}\n-> {:?}\n{}", turn.action, turn.observation_kind, turn.observation).unwrap();
    text
}
