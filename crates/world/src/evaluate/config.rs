//! What decides an evaluation.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use worldloom_model::Precision;
use worldloom_model::generate::Limits;
use worldloom_render::{ChatForm, FormSettings};

use crate::error::{Error, Result};
use crate::model::Decoding;

/// Configuration of [`run`](super::run).
///
/// ```toml
/// seed = 7
/// max_turns = 1000
/// max_new_tokens = 160
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvaluateConfig {
    /// Seed of the sampled turns, decoding, bootstrap and examples.
    pub seed: u64,
    /// The chat format, for models that say nothing of it. Default: that of each model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chat: Option<ChatForm>,
    /// A bundled family of templates. Default: those that each model was trained with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<String>,
    /// A folder of templates of the user's, in place of a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
    /// At most this many turns of the pool, drawn by seed, the same for all predictors. Default: all turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u64>,
    /// Longest completion in tokens, thinking and tags included.
    pub max_new_tokens: usize,
    /// Temperature of decoding. Default: 0, the most probable token each time.
    #[serde(default)]
    pub temperature: f32,
    /// Bootstrap resamples. Default: 1,000.
    #[serde(default = "default_resamples")]
    pub resamples: usize,
    /// Sampled predictions to show. Default: one for 20 turns, at least 10 and at most 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examples: Option<usize>,
    /// What the models' matrices are held in. Default: f32.
    #[serde(default, skip_serializing_if = "Precision::is_single")]
    pub precision: Precision,
    /// Sequences decoded together: memory and speed, not results. Default: 64.
    #[serde(default = "default_max_active_sequences")]
    pub max_active_sequences: usize,
}

fn default_resamples() -> usize {
    1000
}

fn default_max_active_sequences() -> usize {
    64
}

impl EvaluateConfig {
    pub(super) fn check(&self) -> Result<()> {
        let counts = [
            ("max_turns", self.max_turns.unwrap_or(1) as usize),
            ("max_new_tokens", self.max_new_tokens),
            ("resamples", self.resamples),
            ("max_active_sequences", self.max_active_sequences),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(Error::config(field, "0, expected at least 1"));
        }
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return Err(Error::config("temperature", format!("{}, expected 0 or more", self.temperature)));
        }
        Ok(())
    }

    pub(super) fn form(&self) -> FormSettings {
        FormSettings { chat: self.chat, family: self.family.clone(), templates: self.templates.clone() }
    }

    pub(super) fn decoding(&self) -> Decoding {
        Decoding { max_new_tokens: self.max_new_tokens, temperature: self.temperature, seed: self.seed }
    }

    pub(super) fn limits(&self) -> Limits {
        Limits { max_active_sequences: self.max_active_sequences, ..Limits::default() }
    }
}
