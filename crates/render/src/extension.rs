//! More tokens for a published tokenizer: tags become one id each.

use std::path::Path;

use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer};

/// A token that was added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedToken {
    /// Its text.
    pub text: String,
    /// Its id.
    pub id: u32,
    /// The tokens that spelled it until now.
    pub pieces: Vec<u32>,
}

/// Adds tokens to the tokenizer in `folder`: the next ids after the last one, found in text of ours, kept when special
/// tokens are skipped. Writes `tokenizer.json` and, where it lists added tokens, `tokenizer_config.json`. All other ids
/// stay as they are.
///
/// # Errors
/// An empty text, or one that is a token already.
pub fn extend_tokenizer(folder: &Path, texts: &[String]) -> Result<Vec<AddedToken>> {
    let file = folder.join(TOKENIZER_FILE);
    let before = Tokenizer::open(&file)?;
    let mut json: Value = read(&file)?;
    let mut added: Vec<AddedToken> = Vec::new();
    for text in texts {
        let id = (before.vocab_size() + added.len()) as u32;
        if text.trim().is_empty() || before.encode_trusted(text)?.len() < 2 || added.iter().any(|one| one.text == *text)
        {
            let detail = format!("`{text}` is empty, a token already, or listed twice");
            return Err(Error::Config { field: "tokens", detail });
        }
        let pieces = before.encode_untrusted(text)?.unwrap_or_default();
        added.push(AddedToken { text: text.clone(), id, pieces });
    }
    let listed = json.get_mut("added_tokens").and_then(Value::as_array_mut);
    let listed = listed.ok_or_else(|| bad(&file, "no list `added_tokens`"))?;
    listed.extend(added.iter().map(|token| entry(token, true)));
    write(&file, &json)?;
    let config = folder.join(TOKENIZER_CONFIG_FILE);
    if config.exists() {
        let mut json: Value = read(&config)?;
        if let Some(decoder) = json.get_mut("added_tokens_decoder").and_then(Value::as_object_mut) {
            decoder.extend(added.iter().map(|token| (token.id.to_string(), entry(token, false))));
        }
        write(&config, &json)?;
    }
    let after = Tokenizer::open(&file)?;
    for token in &added {
        if after.encode_trusted(&token.text)? != [token.id] {
            return Err(bad(&file, &format!("`{}` does not become id {}", token.text, token.id)));
        }
    }
    Ok(added)
}

fn entry(token: &AddedToken, has_id: bool) -> Value {
    let mut entry = json!({
        "id": token.id, "content": token.text, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": false,
    });
    if let (false, Some(map)) = (has_id, entry.as_object_mut()) {
        map.shift_remove("id");
    }
    entry
}

fn read(path: &Path) -> Result<Value> {
    serde_json::from_slice(&fs_err::read(path)?).map_err(|error| bad(path, &error.to_string()))
}

fn write(path: &Path, value: &Value) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    Ok(fs_err::write(path, text + "\n")?)
}

fn bad(path: &Path, detail: &str) -> Error {
    Error::Tokenizer { path: path.into(), detail: detail.into() }
}
