//! What a recording holds, counted.

use std::collections::BTreeMap;

use serde::Serialize;

use super::episode::Episode;
use crate::Error;

/// Counts over a whole recording.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RecordSummary {
    /// Episodes written.
    pub episodes: u64,
    /// Turns written.
    pub turns: u64,
    /// Turns whose command was killed, or whose shell ended.
    pub killed: u64,
    /// Turns by class.
    pub classes: BTreeMap<String, u64>,
    /// Turns by command family.
    pub families: BTreeMap<String, u64>,
    /// By task group.
    pub groups: BTreeMap<String, GroupSummary>,
}

/// Counts over one task group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct GroupSummary {
    /// Episodes of the group.
    pub episodes: u64,
    /// Its turns by class.
    pub classes: BTreeMap<String, u64>,
}

impl RecordSummary {
    pub(crate) fn add(&mut self, episode: &Episode) -> Result<(), Error> {
        let group = self.groups.entry(episode.task_group.clone()).or_default();
        self.episodes += 1;
        group.episodes += 1;
        for turn in episode.turns()? {
            let class = turn.metadata.class.name();
            self.turns += 1;
            self.killed += u64::from(turn.metadata.exit_code.is_none());
            *self.classes.entry(class.to_owned()).or_default() += 1;
            *self.families.entry(turn.metadata.family.clone()).or_default() += 1;
            *group.classes.entry(class.to_owned()).or_default() += 1;
        }
        Ok(())
    }
}
