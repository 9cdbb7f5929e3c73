//! What a curation did.

mod flow;
mod lengths;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_schema::{Pool, Trajectory, Turn};

use crate::apply::Decided;
use crate::documents::DocumentReport;
use crate::mask::class_name;
use crate::rules::Rules;
pub use flow::FlowStep;
pub use lengths::Lengths;

/// Written as `report.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Trajectories and turns read, dropped, masked and written.
    pub counts: BTreeMap<String, u64>,
    /// The rules in the order in which they were asked, with what each took and left.
    pub flow: Vec<FlowStep>,
    /// Trajectories by the rule that dropped them.
    pub dropped_trajectories: BTreeMap<String, u64>,
    /// Turns by the rule that removed them from trajectories that stay.
    pub removed_turns: BTreeMap<String, u64>,
    /// Secrets masked, by kind.
    pub masked_secrets: BTreeMap<String, u64>,
    /// Each pool.
    pub pools: BTreeMap<String, PoolReport>,
    /// Each domain.
    pub domains: BTreeMap<String, PartReport>,
    /// Each source.
    pub sources: BTreeMap<String, PartReport>,
    /// The documents, where some were given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<DocumentReport>,
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
    /// Task groups, counted on the file written.
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

/// One domain or source.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// Trajectories read.
    pub trajectories_read: u64,
    /// Turns read.
    pub turns_read: u64,
    /// Trajectories by the rule that dropped them.
    pub dropped_trajectories: BTreeMap<String, u64>,
    /// Turns by the rule that removed them from trajectories that stay.
    pub removed_turns: BTreeMap<String, u64>,
    /// Trajectories written.
    pub trajectories: u64,
    /// Turns written.
    pub turns: u64,
    /// Trajectories written, by pool.
    pub pools: BTreeMap<String, u64>,
    /// Turns of a trajectory written.
    pub turns_per_trajectory: Lengths,
    /// Characters of an action written.
    pub action_chars: Lengths,
    /// Characters of an observation written.
    pub observation_chars: Lengths,
    /// Share of the turns written that have an error.
    pub error_share: f64,
    /// Share of the turns written that equal one kept elsewhere.
    pub duplicate_share: f64,
    /// Turns written, by class of the turn mask.
    pub keep_classes: BTreeMap<String, u64>,
    #[serde(skip)]
    errors: u64,
    #[serde(skip)]
    duplicates: u64,
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
    fn add(&mut self, trajectory: &Trajectory) {
        self.trajectories += 1;
        self.turns += trajectory.turns.len() as u64;
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

impl PartReport {
    fn add(&mut self, decided: &Decided) {
        self.trajectories_read += 1;
        self.turns_read += decided.turns_read;
        let pool = match &decided.fate {
            Ok(pool) => pool,
            Err(rule) => return increase(&mut self.dropped_trajectories, rule),
        };
        self.trajectories += 1;
        increase(&mut self.pools, pool.as_str());
        decided.removed.iter().for_each(|rule| increase(&mut self.removed_turns, rule));
        let turns = &decided.trajectory.turns;
        self.turns += turns.len() as u64;
        self.turns_per_trajectory.add(turns.len() as u64);
        for turn in turns {
            self.action_chars.add(turn.action.chars().count() as u64);
            self.observation_chars.add(turn.observation.chars().count() as u64);
            self.errors += u64::from(turn.is_error == Some(true));
            self.duplicates += u64::from(turn.flag("duplicate").is_some());
            if let Some(class) = turn.keep_class {
                increase(&mut self.keep_classes, class_name(class));
            }
        }
    }

    fn finish(&mut self) {
        self.error_share = ratio(self.errors, self.turns);
        self.duplicate_share = ratio(self.duplicates, self.turns);
        [&mut self.turns_per_trajectory, &mut self.action_chars, &mut self.observation_chars]
            .into_iter()
            .for_each(Lengths::finish);
    }
}

impl Report {
    /// An empty report that knows the rules and their order.
    pub(crate) fn start(rules: &Rules) -> Self {
        let pools = Pool::ALL.into_iter().map(|pool| (pool.as_str().to_string(), PoolReport::default()));
        Self { flow: flow::steps(rules), pools: pools.collect(), ..Self::default() }
    }

    /// Counts a trajectory.
    pub(crate) fn add(&mut self, decided: &Decided) {
        let trajectory = &decided.trajectory;
        self.domains.entry(trajectory.domain.as_str().into()).or_default().add(decided);
        self.sources.entry(trajectory.source.clone()).or_default().add(decided);
        self.count("trajectories_read", 1);
        self.count("turns_read", decided.turns_read);
        decided
            .secrets
            .iter()
            .for_each(|(kind, number)| *self.masked_secrets.entry(kind.clone()).or_default() += number);
        let pool = match &decided.fate {
            Ok(pool) => pool,
            Err(rule) => return increase(&mut self.dropped_trajectories, rule),
        };
        self.count("trajectories", 1);
        self.count("turns", trajectory.turns.len() as u64);
        decided.removed.iter().for_each(|rule| increase(&mut self.removed_turns, rule));
        let duplicates = trajectory.turns.iter().filter(|turn| turn.flag("duplicate").is_some()).count();
        if duplicates > 0 {
            self.count("duplicate_turns", duplicates as u64);
        }
        self.pools.entry(pool.as_str().into()).or_default().add(trajectory);
    }

    fn count(&mut self, name: &str, number: u64) {
        *self.counts.entry(name.into()).or_default() += number;
    }

    /// Works out the shares once everything is counted.
    pub(crate) fn finish(&mut self) {
        let total: u64 = self.pools.values().map(|pool| pool.trajectories).sum();
        for pool in self.pools.values_mut() {
            pool.share = ratio(pool.trajectories, total);
            for counts in pool.keep_classes.values_mut() {
                counts.kept_share = ratio(counts.kept, counts.turns);
            }
        }
        self.domains.values_mut().chain(self.sources.values_mut()).for_each(PartReport::finish);
        let sums = [
            ("dropped_trajectories", self.dropped_trajectories.values().sum()),
            ("removed_turns", self.removed_turns.values().sum()),
        ];
        sums.into_iter().for_each(|(name, number)| self.count(name, number));
        if !self.masked_secrets.is_empty() {
            self.count("masked_secrets", self.masked_secrets.values().sum());
        }
        if let Some(documents) = &self.documents {
            let (read, written) = (documents.documents_read, documents.documents);
            self.count("documents_read", read);
            self.count("documents", written);
        }
        flow::fill(self);
        if let Some(eval) = self.pools.get(Pool::Eval.as_str()) {
            let classed: u64 = eval.classes.values().sum();
            self.eval_class_shares =
                eval.classes.iter().map(|(class, turns)| (class.clone(), ratio(*turns, classed))).collect();
        }
    }
}

fn increase(counts: &mut BTreeMap<String, u64>, name: &str) {
    *counts.entry(name.into()).or_default() += 1;
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
