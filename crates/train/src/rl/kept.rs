//! What an RL checkpoint holds beside weights and optimizer: the batch that was sampled ahead, and what was seen of prompts.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::config::RlConfig;
use super::drawer::{Drawer, Seen};
use super::records;
use super::rollout::{Notes, RlPrompt, Rollouts};
use crate::checkpoint::write_json;
use crate::error::{Error, Result};

const FACTS: &str = "rl.json";
const AHEAD: &str = "ahead.parquet";

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Facts {
    /// Of the batch in `ahead.parquet`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ahead: Option<Ahead>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seen: BTreeMap<usize, Seen>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ahead {
    refilled_groups: usize,
    drawn: u64,
    rested: u64,
    staleness: u64,
    /// Figures as their bits: JSON numbers may come back with another last one.
    figures: Vec<(String, u64)>,
    alarms: Vec<String>,
}

/// Writes what there is into a checkpoint's folder. `step` is that of the batch ahead, from 1.
pub(super) fn write(
    folder: &Path,
    step: u64,
    prompts: &[RlPrompt],
    ahead: Option<&Rollouts>,
    drawer: &Drawer,
) -> Result<()> {
    let facts = |rollouts: &Rollouts| Ahead {
        refilled_groups: rollouts.refilled_groups,
        drawn: rollouts.drawn,
        rested: rollouts.rested,
        staleness: rollouts.staleness.unwrap_or_default(),
        figures: rollouts.notes.figures.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect(),
        alarms: rollouts.notes.alarms.clone(),
    };
    let facts = Facts { ahead: ahead.map(facts), seen: drawer.seen.clone() };
    if let Some(rollouts) = ahead {
        records::write(&folder.join(AHEAD), step, prompts, &rollouts.groups)?;
    }
    match facts.ahead.is_none() && facts.seen.is_empty() {
        true => Ok(()),
        false => write_json(&folder.join(FACTS), &facts),
    }
}

/// Reads it back; the batch ahead, where there is one.
pub(super) fn read(
    folder: &Path,
    config: &RlConfig,
    prompts: &[RlPrompt],
    drawer: &mut Drawer,
) -> Result<Option<Rollouts>> {
    let path = folder.join(FACTS);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs_err::read_to_string(&path)?;
    let Facts { ahead, seen } = serde_json::from_str(&text).map_err(|error| Error::file(&path, error))?;
    drawer.seen = seen;
    let Some(Ahead { refilled_groups, drawn, rested, staleness, figures, alarms }) = ahead else { return Ok(None) };
    let figures = figures.into_iter().map(|(name, bits)| (name, f64::from_bits(bits))).collect();
    Ok(Some(Rollouts {
        refilled_groups,
        drawn,
        rested,
        staleness: Some(staleness),
        notes: Notes { figures, alarms },
        ..records::read(&folder.join(AHEAD), config, prompts)?
    }))
}
