//! Synthetic trajectories, and a curation of them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use worldloom_curate::{
    CurateConfig, PoolShares, Report, Resources, Result, Rules, TurnMask, TurnsPerTrajectory, pool_file, run,
};
use worldloom_schema::{
    ActionKind, Domain, ObservationKind, Outcome, Pool, REJECT_FILE, Reject, System, Trajectory, Turn, read_table,
    trajectory_id, write_table,
};

/// A turn of these texts.
pub(crate) fn turn(action: &str, observation: &str) -> Turn {
    Turn {
        index: 0,
        action: action.into(),
        action_kind: ActionKind::Command,
        observation: observation.into(),
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: None,
        trace: None,
        is_error: Some(false),
        truncated: false,
        flags: vec!["class:state".into()],
        keep_class: None,
        keep: None,
    }
}

/// A trajectory of this group and state.
pub(crate) fn trajectory(group: &str, state: &str, turns: Vec<Turn>) -> Trajectory {
    let turns: Vec<Turn> = turns.into_iter().enumerate().map(|(at, turn)| Turn { index: at as u32, ..turn }).collect();
    let system =
        System { task_description: format!("In {group}"), initial_state: Some(state.into()), ..System::default() };
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: "synthetic".into(),
        source_path: "x.jsonl".into(),
        source_row: 0,
        format: "chat".into(),
        domain: Domain::Terminal,
        task_group: group.into(),
        licence: None,
        system,
        turns,
        outcome: Outcome::default(),
        pool: None,
    }
}

/// Trajectories of two turns that nothing else equals: `groups` groups of `each`.
pub(crate) fn crowd(groups: usize, each: usize) -> Vec<Trajectory> {
    let mut all = Vec::new();
    for group in 0..groups {
        for at in 0..each {
            let state = format!("state {group} {at}");
            let turns = vec![turn("ls", &format!("fig{group} plum{at}")), turn("cat fig", "one two three four")];
            let row = all.len() as u64;
            all.push(Trajectory { source_row: row, ..trajectory(&format!("group-{group:02}"), &state, turns) });
        }
    }
    all
}

/// Everything is trained, half of it in CPT.
pub(crate) fn config() -> CurateConfig {
    CurateConfig {
        seed: 7,
        pools: PoolShares { cpt: 0.5, sft: 0.3, rl: 0.2 },
        eval_groups: Vec::new(),
        eval_share: 0.2,
        turn_mask: TurnMask::default(),
        turns_per_trajectory: TurnsPerTrajectory { sft: 1, rl: 1 },
        min_turns: 2,
        max_turns: 30,
        max_observation_chars: 1000,
        drop_exact_duplicates: true,
        group_pools: BTreeMap::new(),
        holdout_sources: Vec::new(),
        max_action_chars: None,
        max_trajectory_chars: None,
        limits: BTreeMap::new(),
        rules: Rules::default(),
        near_duplicates: None,
        decontaminate: None,
        documents: None,
        secrets: None,
        mixture: None,
    }
}

/// All in CPT.
pub(crate) fn only_cpt() -> CurateConfig {
    CurateConfig { pools: PoolShares { cpt: 1.0, sft: 0.0, rl: 0.0 }, eval_share: 0.0, ..config() }
}

/// What a curation wrote.
pub(crate) struct Output {
    pub(crate) report: Report,
    pub(crate) pools: BTreeMap<Pool, Vec<Trajectory>>,
    pub(crate) rejects: Vec<Reject>,
}

impl Output {
    pub(crate) fn all(&self) -> impl Iterator<Item = &Trajectory> {
        self.pools.values().flatten()
    }

    /// The trajectories left, as the names they were given.
    pub(crate) fn states(&self) -> Vec<String> {
        let mut states: Vec<String> = self.all().filter_map(|one| one.system.initial_state.clone()).collect();
        states.sort();
        states
    }

    /// Trajectories that a rule dropped.
    pub(crate) fn dropped(&self, rule: &str) -> u64 {
        self.report.dropped_trajectories.get(rule).copied().unwrap_or(0)
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.report.counts.get(name).copied().unwrap_or(0)
    }
}

/// Curates trajectories written to one file.
pub(crate) fn curate(config: &CurateConfig, trajectories: &[Trajectory]) -> Result<Output> {
    let folder = tempfile::tempdir().unwrap();
    let input = write(folder.path(), "in.parquet", trajectories);
    let out = tempfile::tempdir().unwrap();
    let report = run(config, &[input], &[], out.path(), Resources::default(), &|done, total| assert!(done <= total))?;
    let pools: BTreeMap<Pool, Vec<Trajectory>> =
        Pool::ALL.into_iter().map(|pool| (pool, read_table(&out.path().join(pool_file(pool))).unwrap())).collect();
    let rejects: Vec<Reject> = read_table(&out.path().join(REJECT_FILE)).unwrap();
    let output = Output { report, pools, rejects };
    let written = output.all().count() as u64;
    assert_eq!(trajectories.len() as u64, written + output.count("dropped_trajectories"), "trajectories are conserved");
    assert_eq!(output.rejects.len() as u64, output.count("dropped_trajectories") + output.count("removed_turns"));
    let files = fs_err::read_dir(out.path()).unwrap().count();
    assert_eq!(files, 6, "four pools, rejects and the report; no scratch is left");
    Ok(output)
}

pub(crate) fn write(folder: &std::path::Path, name: &str, trajectories: &[Trajectory]) -> PathBuf {
    let path = folder.join(name);
    write_table(&path, trajectories.iter().cloned()).unwrap();
    path
}
