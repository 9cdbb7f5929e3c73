//! What token ids and sources mean, for a trainer that knows them as numbers: bytes, domains, ends of answers.

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use worldloom_render::{PromptForm, TOKENIZER_FILE, Tokenizer};
use worldloom_schema::{Artifact, TableReader, Trajectory};
use worldloom_train::Labels;

/// The ids that end an answer; none where the model has no tokenizer beside it.
pub(super) fn stop_tokens(model: &Path, form: Option<&PromptForm>) -> Result<Vec<u32>> {
    match (form, model.join(TOKENIZER_FILE).exists()) {
        (Some(form), true) => Ok(form.renderer(Tokenizer::open(model)?)?.stop_tokens()),
        (None, true) => Ok(Tokenizer::open(model)?.stop_tokens()),
        (_, false) => Ok(Vec::new()),
    }
}

/// Bytes of every token, and the domains of the trajectories that rows were rendered from, as far as both are found: a
/// training can go on without.
pub(super) fn labels(model: &Path, rows: &[&Path]) -> Result<Option<Labels>> {
    let file = model.join(TOKENIZER_FILE);
    let token_bytes = match file.exists() {
        true => token_bytes(&fs_err::read_to_string(&file)?).with_context(|| format!("read `{}`", file.display()))?,
        false => Vec::new(),
    };
    let mut domains = HashMap::new();
    for folder in rows {
        if let Err(error) = add_domains(folder, &mut domains) {
            tracing::info!(folder = %folder.display(), %error, "no domains: the pools that rows came from are not there");
        }
    }
    Ok((!token_bytes.is_empty() || !domains.is_empty()).then_some(Labels { token_bytes, domains }))
}

/// Bytes of text behind every id of a `tokenizer.json`. In a byte-level vocabulary a character of a piece is a byte; in
/// others a piece is its text, with a mark for the space. Added tokens are no text.
fn token_bytes(text: &str) -> Result<Vec<u32>> {
    let tokenizer: Value = serde_json::from_str(text)?;
    let is_byte_level =
        ["decoder", "pre_tokenizer"].iter().any(|part| tokenizer[part].to_string().contains("ByteLevel"));
    let mut bytes = Vec::new();
    let mut set = |id: u64, length: usize| {
        let at = id as usize;
        bytes.resize(bytes.len().max(at + 1), 0);
        bytes[at] = length as u32;
    };
    if let Some(vocabulary) = tokenizer["model"]["vocab"].as_object() {
        for (piece, id) in vocabulary {
            let is_byte = piece.len() == 6 && piece.starts_with("<0x") && piece.ends_with('>');
            let length = match (is_byte_level, is_byte) {
                (true, _) => piece.chars().count(),
                (false, true) => 1,
                (false, false) => piece.replace('\u{2581}', " ").len(),
            };
            set(id.as_u64().unwrap_or(0), length);
        }
    }
    for added in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        set(added["id"].as_u64().unwrap_or(0), 0);
    }
    Ok(bytes)
}

/// The pool that rows were rendered from, by the manifest of the rows.
fn add_domains(rows: &Path, domains: &mut HashMap<String, String>) -> Result<()> {
    let manifest = Artifact::open_any(rows)?.manifest;
    let pools = manifest.inputs.get("pools").context("no pools among the inputs")?;
    let stage = manifest.config["stage"].as_str().context("no stage in the config")?;
    for trajectory in TableReader::<Trajectory>::open(&pools.path.join(format!("{stage}.parquet")))? {
        let trajectory = trajectory?;
        let domain = serde_json::to_value(trajectory.domain)?;
        domains.insert(trajectory.trajectory_id, domain.as_str().unwrap_or("other").to_string());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_text_and_added_tokens_have_none() {
        let byte_level = r#"{"decoder": {"type": "ByteLevel"}, "model": {"vocab": {"a": 0, "\u0120the": 1, "\u00c3\u00a9": 3}},
            "added_tokens": [{"id": 2, "content": "<|im_end|>"}]}"#;
        assert_eq!(token_bytes(byte_level).unwrap(), [1, 4, 0, 2]);
        let pieces = r#"{"model": {"vocab": {"\u2581the": 0, "<0x0A>": 1, "\u00e9": 2}}}"#;
        assert_eq!(token_bytes(pieces).unwrap(), [4, 1, 2]);
    }
}
