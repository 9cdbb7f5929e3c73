//! The figures of a data set by domain and source.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, HashSet};
use std::hash::{Hash, Hasher};

use serde::Serialize;
use worldloom_schema::{ObservationKind, Trajectory, Turn};

use crate::html::{NONE, grouped};
use crate::terminal::layout;

/// Names are cut to this width.
const NAME_WIDTH: usize = 32;

/// Figures of a data set.
#[derive(Debug, Default, Serialize)]
pub struct Stats {
    /// Everything.
    pub all: GroupStats,
    /// By domain, then by source.
    pub domains: BTreeMap<String, DomainStats>,
}

/// Figures of one domain.
#[derive(Debug, Default, Serialize)]
pub struct DomainStats {
    /// All its sources.
    pub all: GroupStats,
    /// By source.
    pub sources: BTreeMap<String, GroupStats>,
}

/// Figures of a group of trajectories.
#[derive(Debug, Default, Serialize)]
pub struct GroupStats {
    /// Trajectories.
    pub trajectories: u64,
    /// Their turns.
    pub turns: u64,
    /// Different task groups.
    pub task_groups: u64,
    /// Trajectories whose content stood before in the group.
    pub repeated_trajectories: u64,
    /// Turns per trajectory.
    pub turns_per_trajectory: Lengths,
    /// Characters per action.
    pub action_chars: Lengths,
    /// Characters per observation that is text.
    pub observation_chars: Lengths,
    /// Turns whose observation is not empty and stood before in the group.
    pub repeated_observations: u64,
    /// Turns whose observation is empty text.
    pub empty_observations: u64,
    /// Turns with an image only.
    pub image_only: u64,
    /// Turns whose observation is that of the turn before, or the first state.
    pub unchanged: u64,
    /// Turns of which it is known whether there was an error.
    pub turns_with_known_error: u64,
    /// Turns with an error.
    pub errors: u64,
    /// Turns by kind of action.
    pub action_kinds: BTreeMap<String, u64>,
    /// Turns by kind of observation.
    pub observation_kinds: BTreeMap<String, u64>,
    /// Turns by `class:*` flag.
    pub classes: BTreeMap<String, u64>,
    /// Turns by class of the turn mask, where curate has set it.
    pub keep_classes: BTreeMap<String, u64>,
    /// Trajectories by pool, where curate has set it.
    pub pools: BTreeMap<String, u64>,
    #[serde(skip)]
    seen: Seen,
}

/// What stood before in a group, as hashes: two texts with one hash are taken for one.
#[derive(Debug, Default)]
struct Seen {
    task_groups: HashSet<u64>,
    trajectories: HashSet<u64>,
    observations: HashSet<u64>,
}

/// A distribution of lengths: every length with its number, so that its quantiles are exact.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lengths {
    counts: BTreeMap<u64, u64>,
}

impl Lengths {
    fn add(&mut self, length: u64) {
        *self.counts.entry(length).or_default() += 1;
    }

    /// Sum of all lengths.
    pub fn total(&self) -> u64 {
        self.counts.iter().map(|(length, count)| length * count).sum()
    }

    /// The smallest length that at least this share of all is no longer than; 0 where there is none.
    pub fn quantile(&self, share: f64) -> u64 {
        let all: u64 = self.counts.values().sum();
        let wanted = (share * all as f64).ceil() as u64;
        let mut below = 0;
        for (length, count) in &self.counts {
            below += count;
            if below >= wanted {
                return *length;
            }
        }
        0
    }

    /// The longest; 0 where there is none.
    pub fn longest(&self) -> u64 {
        self.counts.last_key_value().map_or(0, |(length, _)| *length)
    }
}

impl Serialize for Lengths {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let figures = [
            ("total", self.total()),
            ("median", self.quantile(0.5)),
            ("p90", self.quantile(0.9)),
            ("max", self.longest()),
        ];
        serializer.collect_map(figures)
    }
}

impl Stats {
    /// Counts a trajectory.
    pub fn add(&mut self, trajectory: &Trajectory) {
        let domain = self.domains.entry(trajectory.domain.to_string()).or_default();
        let source = domain.sources.entry(trajectory.source.clone()).or_default();
        [&mut self.all, &mut domain.all, source].into_iter().for_each(|group| group.add(trajectory));
    }

    /// The figures as a table for a terminal.
    pub fn table(&self) -> String {
        let header = "|trajectories|turns|turns each|observation characters, 50 / 90 / max|error|same|repeated";
        let mut rows = vec![header.split('|').map(str::to_string).collect()];
        for (domain, stats) in &self.domains {
            rows.push(stats.all.row(domain));
            rows.extend(stats.sources.iter().map(|(source, group)| group.row(&format!("  {source}"))));
        }
        if self.domains.len() > 1 {
            rows.push(Vec::new());
            rows.push(self.all.row("all"));
        }
        let legend = "turns each: median / longest; error: share of turns with an error, where that is known; same: \
                      screen or state unchanged;\nrepeated: observation stood before in the group";
        format!("{}\n{legend}\n\n{}", layout(&rows, NAME_WIDTH), self.classes())
    }

    /// Kinds and classes by domain.
    fn classes(&self) -> String {
        let mut out = String::new();
        for (domain, stats) in &self.domains {
            let all = &stats.all;
            let shares = |name: &str, counts: &BTreeMap<String, u64>| {
                let total: u64 = counts.values().sum();
                let parts: Vec<String> =
                    counts.iter().map(|(key, count)| format!("{key} {}", percent(*count, total))).collect();
                if parts.is_empty() { String::new() } else { format!("  {name:<12} {}\n", parts.join(", ")) }
            };
            out += &format!("{domain}\n");
            out += &shares("actions", &all.action_kinds);
            out += &shares("observations", &all.observation_kinds);
            out += &shares("classes", &all.classes);
            out += &shares("turn mask", &all.keep_classes);
            out += &shares("pools", &all.pools);
        }
        out
    }
}

impl GroupStats {
    fn add(&mut self, trajectory: &Trajectory) {
        self.trajectories += 1;
        self.turns += trajectory.turns.len() as u64;
        self.turns_per_trajectory.add(trajectory.turns.len() as u64);
        self.seen.task_groups.insert(hash(&trajectory.task_group));
        self.task_groups = self.seen.task_groups.len() as u64;
        self.repeated_trajectories += u64::from(!self.seen.trajectories.insert(hash(&trajectory.trajectory_id)));
        if let Some(pool) = trajectory.pool {
            *self.pools.entry(pool.to_string()).or_default() += 1;
        }
        let mut before = trajectory.system.initial_state.as_deref();
        for turn in &trajectory.turns {
            self.add_turn(turn, before);
            before = Some(&turn.observation);
        }
    }

    fn add_turn(&mut self, turn: &Turn, before: Option<&str>) {
        self.action_chars.add(turn.action.chars().count() as u64);
        let is_image = turn.observation_kind == ObservationKind::Image;
        if !is_image {
            self.observation_chars.add(turn.observation.chars().count() as u64);
        }
        let is_filled = !turn.observation.is_empty();
        self.image_only += u64::from(is_image);
        self.empty_observations += u64::from(!is_filled && !is_image);
        self.repeated_observations += u64::from(is_filled && !self.seen.observations.insert(hash(&turn.observation)));
        self.unchanged += u64::from(is_filled && before == Some(&turn.observation));
        self.turns_with_known_error += u64::from(turn.is_error.is_some());
        self.errors += u64::from(turn.is_error == Some(true));
        let mut add = |counts: fn(&mut Self) -> &mut BTreeMap<String, u64>, key: Option<String>| {
            if let Some(key) = key {
                *counts(self).entry(key).or_default() += 1;
            }
        };
        add(|group| &mut group.action_kinds, name(&turn.action_kind));
        add(|group| &mut group.observation_kinds, name(&turn.observation_kind));
        add(|group| &mut group.classes, turn.flag("class").map(str::to_string));
        add(|group| &mut group.keep_classes, turn.keep_class.as_ref().and_then(name));
    }

    fn row(&self, name: &str) -> Vec<String> {
        let (turns, chars) = (&self.turns_per_trajectory, &self.observation_chars);
        let lengths = [chars.quantile(0.5), chars.quantile(0.9), chars.longest()].map(grouped).join(" / ");
        let image_only = self.image_only == self.turns && self.turns > 0;
        vec![
            name.into(),
            grouped(self.trajectories),
            grouped(self.turns),
            format!("{} / {}", grouped(turns.quantile(0.5)), grouped(turns.longest())),
            if image_only { "image only".into() } else { lengths },
            percent(self.errors, self.turns_with_known_error),
            percent(self.unchanged, self.turns - self.image_only),
            percent(self.repeated_observations, self.turns - self.image_only),
        ]
    }
}

/// How a value is stored: its serde name.
fn name(value: &impl Serialize) -> Option<String> {
    serde_json::to_value(value).ok()?.as_str().map(str::to_string)
}

fn percent(part: u64, whole: u64) -> String {
    match 100.0 * part as f64 / whole as f64 {
        _ if whole == 0 => NONE.into(),
        share if part > 0 && share < 0.5 => "<1 %".into(),
        share => format!("{share:.0} %"),
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
