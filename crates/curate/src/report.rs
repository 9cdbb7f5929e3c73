//! What a curation did.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use worldloom_schema::{Pool, Trajectory, Turn};

use crate::mask::class_name;

/// Written as `report.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Trajectories and turns read, dropped, masked and written.
    pub counts: BTreeMap<String, u64>,
    /// Trajectories by the rule that dropped them.
    pub dropped_trajectories: BTreeMap<String, u64>,
    /// Turns by the rule that removed them from trajectories that stay.
    pub removed_turns: BTreeMap<String, u64>,
    /// Each pool.
    pub pools: BTreeMap<String, PoolReport>,
    /// What pools share, counted on the files written: nothing.
    pub shared: Vec<SharedBetween>,
    /// Shares of the classes (`class:*` flags) among the evaluation turns.
    pub eval_class_shares: BTreeMap<String, f64>,
}

/// One pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolReport {
    /// Trajectories.
    pub trajectories: u64,
    /// Their turns.
    pub turns: u64,
    /// Task groups.
    pub groups: u64,
    /// Share of all trajectories written.
    pub share: f64,
    /// Characters of all observations.
    pub observation_chars: u64,
    /// Turns with an error.
    pub error_turns: u64,
    /// Turns whose `keep` is true: trained, targets, or evaluated.
    pub kept_turns: u64,
    /// Turns that equal one kept elsewhere.
    pub duplicate_turns: u64,
    /// Trajectories without a kept turn.
    pub trajectories_without_kept_turn: u64,
    /// Turns by `class:*` flag.
    pub classes: BTreeMap<String, u64>,
    /// Turns by class of the turn mask.
    pub keep_classes: BTreeMap<String, KeepCounts>,
    #[serde(skip)]
    pub(crate) group_names: BTreeSet<String>,
}

/// A class of the turn mask in one pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeepCounts {
    /// Turns that are no duplicates.
    pub turns: u64,
    /// Those whose `keep` is true.
    pub kept: u64,
    /// The realised share.
    pub kept_share: f64,
}

/// What two pools have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedBetween {
    /// One pool.
    pub first: Pool,
    /// The other.
    pub second: Pool,
    /// Task groups in both.
    pub groups: u64,
    /// Trajectory ids in both.
    pub ids: u64,
}

impl PoolReport {
    pub(crate) fn add(&mut self, trajectory: &Trajectory) {
        self.trajectories += 1;
        self.turns += trajectory.turns.len() as u64;
        self.group_names.insert(trajectory.task_group.clone());
        let has_kept = trajectory.turns.iter().any(|turn| turn.keep == Some(true));
        self.trajectories_without_kept_turn += u64::from(!has_kept);
        trajectory.turns.iter().for_each(|turn| self.add_turn(turn));
    }

    fn add_turn(&mut self, turn: &Turn) {
        self.observation_chars += turn.observation.chars().count() as u64;
        self.error_turns += u64::from(turn.is_error == Some(true));
        let is_kept = turn.keep == Some(true);
        self.kept_turns += u64::from(is_kept);
        if let Some(class) = turn.flag("class") {
            *self.classes.entry(class.into()).or_default() += 1;
        }
        if turn.flag("duplicate").is_some() {
            self.duplicate_turns += 1;
        } else if let Some(class) = turn.keep_class {
            let counts = self.keep_classes.entry(class_name(class).into()).or_default();
            counts.turns += 1;
            counts.kept += u64::from(is_kept);
        }
    }
}

impl Report {
    pub(crate) fn add(&mut self, name: &str, number: u64) {
        *self.counts.entry(name.into()).or_default() += number;
    }

    /// Works out the shares once everything is counted.
    pub(crate) fn finish(&mut self) {
        let total: u64 = self.pools.values().map(|pool| pool.trajectories).sum();
        for pool in self.pools.values_mut() {
            pool.groups = pool.group_names.len() as u64;
            pool.share = ratio(pool.trajectories, total);
            for counts in pool.keep_classes.values_mut() {
                counts.kept_share = ratio(counts.kept, counts.turns);
            }
        }
        for (name, number) in
            [("dropped_trajectories", &self.dropped_trajectories), ("removed_turns", &self.removed_turns)]
        {
            *self.counts.entry(name.into()).or_default() += number.values().sum::<u64>();
        }
        if let Some(eval) = self.pools.get(Pool::Eval.as_str()) {
            let classed: u64 = eval.classes.values().sum();
            self.eval_class_shares =
                eval.classes.iter().map(|(class, turns)| (class.clone(), ratio(*turns, classed))).collect();
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
