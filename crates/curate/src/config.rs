//! What a user says about curation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_schema::{Domain, Pool};

use crate::documents::Documents;
use crate::error::{Error, Result};
use crate::mask::TurnMask;
use crate::rules::Rules;
use crate::secrets::Secrets;
use crate::settings::{Decontaminate, Limits, Mixture, NearDuplicates};

/// Configuration of [`run`](crate::run).
///
/// ```toml
/// seed = 7
/// pools = { cpt = 0.7, sft = 0.2, rl = 0.1 }
/// eval_groups = ["copy+glob", "find+pipe"]
/// eval_share = 0.0
/// turns_per_trajectory = { sft = 1, rl = 1 }
/// min_turns = 2
/// max_turns = 30
/// max_observation_chars = 8000
/// drop_exact_duplicates = true
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CurateConfig {
    /// Decides the pool of a group, the keep draws and the targets.
    pub seed: u64,
    /// Shares of the groups that are not for evaluation, by trajectories.
    pub pools: PoolShares,
    /// Task groups for evaluation; where the list is empty, `eval_share` decides.
    pub eval_groups: Vec<String>,
    /// Share of trajectories for evaluation where `eval_groups` is empty; 0 with a list.
    pub eval_share: f64,
    /// Task groups whose pool is not left to the draw.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub group_pools: BTreeMap<String, Pool>,
    /// Sources that are for evaluation as a whole, with every task group that one of their trajectories has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holdout_sources: Vec<String>,
    /// Classes of turns and how many of each CPT trains; as published unless said otherwise.
    #[serde(default)]
    pub turn_mask: TurnMask,
    /// How many turns of a trajectory become targets.
    pub turns_per_trajectory: TurnsPerTrajectory,
    /// A trajectory with fewer turns is dropped.
    pub min_turns: u32,
    /// A trajectory is cut after this many turns.
    pub max_turns: u32,
    /// A trajectory is cut before the first observation that is longer, in characters.
    pub max_observation_chars: u64,
    /// A trajectory is cut before the first action that is longer, in characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_action_chars: Option<u64>,
    /// A trajectory with more characters of actions and observations is dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_trajectory_chars: Option<u64>,
    /// Other limits for some domains.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<Domain, Limits>,
    /// Whether of equal trajectories one is kept, and of equal turns (same history, action and observation) one is
    /// trained or evaluated.
    pub drop_exact_duplicates: bool,
    /// What the rules need to know; those of the recipe are on unless said otherwise.
    #[serde(default, skip_serializing_if = "is_as_published")]
    pub rules: Rules,
    /// Whether and how near duplicates are found; of each cluster one is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub near_duplicates: Option<NearDuplicates>,
    /// Whether and against what training trajectories are compared with evaluation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decontaminate: Option<Decontaminate>,
    /// What is asked of documents, where some are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<Documents>,
    /// Whether and which secrets are masked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<Secrets>,
    /// Whether and how training pools are balanced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<Mixture>,
}

fn is_as_published(rules: &Rules) -> bool {
    *rules == Rules::default()
}

/// Shares of the training pools; they sum to 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PoolShares {
    /// Continued pretraining.
    pub cpt: f64,
    /// Supervised fine-tuning.
    pub sft: f64,
    /// Reinforcement learning.
    pub rl: f64,
}

/// Targets per trajectory; the recipe has one in both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnsPerTrajectory {
    /// In the SFT pool.
    pub sft: u32,
    /// In the RL pool.
    pub rl: u32,
}

impl CurateConfig {
    /// Checks what the types cannot.
    pub(crate) fn check(&self) -> Result<()> {
        let shares = [("pools.cpt", self.pools.cpt), ("pools.sft", self.pools.sft), ("pools.rl", self.pools.rl)];
        for (field, share) in shares.into_iter().chain([("eval_share", self.eval_share)]) {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::config(field, share, "0 to 1"));
            }
        }
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        if (sum - 1.0).abs() > 1e-6 {
            let rounded = (sum * 1e6).round() / 1e6;
            return Err(Error::config("pools.cpt + pools.sft + pools.rl", rounded, "1"));
        }
        if !self.eval_groups.is_empty() && self.eval_share != 0.0 {
            return Err(Error::config("eval_share", self.eval_share, "0, since eval_groups decides"));
        }
        for (field, number) in [
            ("min_turns", self.min_turns),
            ("max_turns", self.max_turns),
            ("turns_per_trajectory.sft", self.turns_per_trajectory.sft),
            ("turns_per_trajectory.rl", self.turns_per_trajectory.rl),
        ] {
            if number == 0 {
                return Err(Error::config(field, number, "1 or more"));
            }
        }
        if self.max_turns < self.min_turns {
            return Err(Error::config("max_turns", self.max_turns, "min_turns or more"));
        }
        for (domain, limits) in &self.limits {
            let (least, most) =
                (limits.min_turns.unwrap_or(self.min_turns), limits.max_turns.unwrap_or(self.max_turns));
            if least == 0 || most < least {
                let found = format!("{least} to {most}");
                return Err(Error::config(&format!("limits.{domain}: turns"), found, "1 or more, and a range"));
            }
        }
        if let Some(group) = self.eval_groups.iter().find(|group| self.group_pools.contains_key(*group)) {
            return Err(Error::config("group_pools", group, "groups that eval_groups does not name"));
        }
        self.near_duplicates.as_ref().map_or(Ok(()), NearDuplicates::check)?;
        self.decontaminate.as_ref().map_or(Ok(()), Decontaminate::check)?;
        self.documents.as_ref().map_or(Ok(()), Documents::check)?;
        self.mixture.as_ref().map_or(Ok(()), Mixture::check)?;
        self.rules.check()?;
        self.turn_mask.check()
    }

    /// Each pool with its share of all trajectories, as far as shares decide.
    pub(crate) fn shares(&self) -> [(Pool, f64); 4] {
        let rest = 1.0 - self.eval_share;
        [
            (Pool::Cpt, self.pools.cpt * rest),
            (Pool::Sft, self.pools.sft * rest),
            (Pool::Rl, self.pools.rl * rest),
            (Pool::Eval, self.eval_share),
        ]
    }
}
