//! `model extend`: a model and its tokenizer with more tokens, such as the tags of an answer.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::Path;
use worldloom_model::NewToken;

use super::{Counts, Role, Step, StepContext, StoredType, copy_tokenizer, model_folder, resolve_as};
use crate::device::cpu;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExtendConfig {
    /// Texts that become one token each.
    tokens: Vec<String>,
    /// Type of the written weights.
    dtype: StoredType,
}

/// Adds tokens; their rows are the means of what spelled them.
pub(super) struct Extend;

impl Step for Extend {
    fn name(&self) -> &'static str {
        "model extend"
    }

    fn about(&self) -> &'static str {
        "Add tokens to a model and its tokenizer; a new token starts as the mean of what spelled it"
    }

    fn artifact(&self) -> &'static str {
        "model"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] =
            &[Role::required("model", None, "folder with `config.json`, weights and `tokenizer.json`, or an artifact")];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<ExtendConfig>(table, origin)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config: ExtendConfig = context.config()?;
        let (from, device) = (model_folder(context.input("model")?), cpu());
        copy_tokenizer(&from, &context.out)?;
        let added = worldloom_render::extend_tokenizer(&context.out, &config.tokens).context("extend the tokenizer")?;
        let (decoder, model) = worldloom_model::load(&from, &device)?;
        let tokens: Vec<NewToken> =
            added.iter().map(|token| NewToken { id: token.id, pieces: token.pieces.clone() }).collect();
        let (decoder, model) = decoder.extend_vocabulary(&model, &tokens, &device)?;
        worldloom_model::save(&decoder, &model, &context.out, config.dtype.save_dtype())?;
        let counts = [
            ("added_tokens", added.len() as u64),
            ("vocab_size", model.vocab_size as u64),
            ("parameters", decoder.num_parameters() as u64),
        ];
        Ok(counts.map(|(name, count)| (name.to_string(), count)).into())
    }
}
