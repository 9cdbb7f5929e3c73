//! `model init`: an untrained model of a given shape, for a tokenizer.

use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worldloom_model::{Decoder, ModelConfig, SaveDType, Start};
use worldloom_render::Tokenizer;

use super::{Counts, Role, Step, StepContext, copy_tokenizer, resolve_as};
use crate::device::cpu;

/// The shape of a Qwen3 dense decoder; the vocabulary is the tokenizer's.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct InitConfig {
    /// Seed of the weights.
    seed: u64,
    /// Width of the residual stream.
    hidden_size: usize,
    /// Width inside the feed-forward part.
    intermediate_size: usize,
    /// Number of blocks.
    num_hidden_layers: usize,
    /// Query heads.
    num_attention_heads: usize,
    /// Key and value heads; divides the query heads.
    num_key_value_heads: usize,
    /// Width of a head.
    head_dim: usize,
    /// Longest context.
    max_position_embeddings: usize,
    /// Base of the rotary frequencies.
    #[serde(default = "rope_theta")]
    rope_theta: f64,
    /// Whether the head shares the embedding's weights.
    #[serde(default = "tied")]
    tie_word_embeddings: bool,
    /// Deviation of the initial weights.
    #[serde(default = "initializer_range")]
    initializer_range: f64,
    /// `random`, or `copying`: heads that repeat earlier text are there from the start.
    #[serde(default)]
    start: Start,
}

impl InitConfig {
    fn model_config(&self, vocab_size: usize, eos_token: Option<u32>) -> Result<ModelConfig> {
        let config = json!({
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": vocab_size,
            "hidden_size": self.hidden_size,
            "intermediate_size": self.intermediate_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "max_position_embeddings": self.max_position_embeddings,
            "rope_theta": self.rope_theta,
            "rms_norm_eps": 1e-6,
            "tie_word_embeddings": self.tie_word_embeddings,
            "initializer_range": self.initializer_range,
            "hidden_act": "silu",
            "attention_bias": false,
            "eos_token_id": eos_token,
        });
        ModelConfig::from_json(&config.to_string()).context("the model's shape")
    }
}

/// The shape that `model init` would make of its resolved config.
pub(crate) fn planned_shape(config: &Value, vocab_size: usize) -> Result<ModelConfig> {
    serde_json::from_value::<InitConfig>(config.clone())?.model_config(vocab_size, None)
}

fn rope_theta() -> f64 {
    10_000.0
}

fn tied() -> bool {
    true
}

fn initializer_range() -> f64 {
    0.02
}

/// Makes the untrained model.
pub(super) struct Init;

impl Step for Init {
    fn name(&self) -> &'static str {
        "model init"
    }

    fn about(&self) -> &'static str {
        "Make an untrained Qwen3 model of a given shape for a tokenizer"
    }

    fn artifact(&self) -> &'static str {
        "model"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] =
            &[Role::required("tokenizer", None, "artifact of `tokenizer train`, or a folder with `tokenizer.json`")];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<InitConfig>(table, origin)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let shape: InitConfig = context.config()?;
        let folder = context.input("tokenizer")?;
        let tokenizer = Tokenizer::open(&folder.join("tokenizer.json"))?;
        let stops = tokenizer.stop_tokens();
        let config = shape.model_config(tokenizer.vocab_size(), stops.first().copied())?;
        let decoder = Decoder::init_from(&config, shape.seed, shape.start, &cpu()).context("the model's start")?;
        worldloom_model::save(&decoder, &config, &context.out, SaveDType::F32)?;
        copy_tokenizer(folder, &context.out)?;
        Ok([("parameters".to_string(), decoder.num_parameters() as u64)].into())
    }
}
