//! Rollout v2 (v1 had no thinking, label and reason): one sampled completion with everything that was decided about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Version of the rollout format.
pub const ROLLOUT_VERSION: u32 = 2;

/// What the scorer said. A policy fault stays in the group statistics with reward 0; an unavailable judge leaves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Scored.
    Scored,
    /// No closed tag, several blocks, or cut by length: the policy's fault.
    PolicyFault,
    /// The judge failed: nobody knows.
    Unavailable,
}

/// One completion of one prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rollout {
    /// The optimizer step that sampled it.
    pub step: u64,
    /// The prompt.
    pub prompt_id: String,
    /// Number inside the group, from 0.
    pub sample: u32,
    /// Prompt tokens followed by completion tokens.
    pub tokens: Vec<u32>,
    /// True where the policy sampled the token.
    pub sampled: Vec<bool>,
    /// The sampler's log-probs of the completion.
    pub sampler_log_probs: Vec<f32>,
    /// The trainer's own, recomputed before the first update.
    pub trainer_log_probs: Vec<f32>,
    /// Whether it ended with a stop token.
    pub stopped: bool,
    /// What the scorer said.
    pub outcome: Outcome,
    /// Named scores, such as `factuality`, and reward parts.
    pub scores: Vec<f64>,
    /// Names of `scores`.
    pub score_names: Vec<String>,
    /// The reward, if there is one.
    pub reward: Option<f64>,
    /// The advantage used.
    pub advantage: Option<f64>,
    /// Steps between the weights that sampled and those that trained.
    pub staleness: u32,
    /// The completion as text, where the caller knows one.
    pub text: Option<String>,
    /// The thinking in it, where there is some.
    pub thinking: Option<String>,
    /// What the prompt is grouped by, such as its domain.
    pub label: Option<String>,
    /// The kind of fault, or of the scorer's failure.
    pub reason: Option<String>,
}

impl Table for Rollout {
    const NAME: &'static str = "rollout";
    const VERSION: u32 = ROLLOUT_VERSION;
}
