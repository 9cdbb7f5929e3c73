//! Any `tokenizer.json`, read so that text from outside can never become a control token.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokenizers::AddedVocabulary;

use crate::document::Control;
use crate::error::{Error, Result};

/// Name of the tokenizer file inside a folder.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Name of the file that `transformers` reads beside it.
pub const TOKENIZER_CONFIG_FILE: &str = "tokenizer_config.json";
/// The token that ends a document in many vocabularies.
pub(crate) const END_OF_TEXT: &str = "<|endoftext|>";

/// A tokenizer with its control tokens; cheap to clone.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    hash: String,
    /// As published: added tokens are found in text.
    full: tokenizers::Tokenizer,
    /// The same model without added tokens: everything is plain text to it.
    plain: tokenizers::Tokenizer,
    added: BTreeMap<String, u32>,
    added_ids: HashSet<u32>,
    vocab_size: usize,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`, or the one in a folder.
    pub fn open(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(TOKENIZER_FILE) } else { path.to_path_buf() };
        let bytes = fs_err::read(&file)?;
        Self::from_bytes(&bytes, &file)
    }

    /// Reads the text of a `tokenizer.json`; `path` is what errors name.
    pub fn from_bytes(bytes: &[u8], path: &Path) -> Result<Self> {
        let read = tokenizers::Tokenizer::from_bytes(bytes);
        let mut full = read.map_err(|error| Error::Tokenizer { path: path.into(), detail: error.to_string() })?;
        full.with_padding(None);
        full.with_truncation(None).map_err(failed)?;
        let mut plain = full.clone();
        plain.with_added_vocabulary(AddedVocabulary::new());
        let decoder = full.get_added_tokens_decoder();
        let added: BTreeMap<String, u32> = decoder.into_iter().map(|(id, token)| (token.content, id)).collect();
        check_added_ids(bytes, &added, path)?;
        let added_ids = added.values().copied().collect();
        let vocab_size = full.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        let hash = blake3::hash(bytes).to_hex()[..32].to_string();
        Ok(Self { inner: Arc::new(Inner { path: path.into(), hash, full, plain, added, added_ids, vocab_size }) })
    }

    /// Hash of the file, as [`worldloom_schema::hash_file`] gives it.
    pub fn hash(&self) -> &str {
        &self.inner.hash
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// One more than the largest id: rows of the embedding that the tokenizer can use.
    pub fn vocab_size(&self) -> usize {
        self.inner.vocab_size
    }

    /// The id of a control token, if it is one token here.
    pub fn control(&self, control: Control) -> Option<u32> {
        self.inner.added.get(control.as_str()).copied()
    }

    /// The id of a control token that the chat form cannot do without.
    pub fn require(&self, control: Control) -> Result<u32> {
        let missing = || Error::NoControl { path: self.inner.path.clone(), token: control.as_str() };
        self.control(control).ok_or_else(missing)
    }

    /// The ids that end a completion: end of turn, and end of text where the vocabulary has it.
    pub fn stop_tokens(&self) -> Vec<u32> {
        let end_of_text = self.inner.added.get(END_OF_TEXT).copied();
        self.control(Control::TurnEnd).into_iter().chain(end_of_text).collect()
    }

    /// Whether the id is an added token.
    pub fn is_added(&self, id: u32) -> bool {
        self.inner.added_ids.contains(&id)
    }

    /// Whether the text holds the text of an added token.
    pub fn has_control_text(&self, text: &str) -> bool {
        self.inner.added.keys().any(|token| !token.is_empty() && text.contains(token.as_str()))
    }

    /// Encodes text from outside: no added token comes out of it, or `None` where the vocabulary leaves no other way.
    pub fn encode_untrusted(&self, text: &str) -> Result<Option<Vec<u32>>> {
        let tokens = self.inner.plain.encode_fast(text, false).map_err(failed)?.get_ids().to_vec();
        let is_plain = !tokens.iter().any(|&token| self.is_added(token));
        Ok(is_plain.then_some(tokens))
    }

    /// Encodes text of ours as everybody else would: added tokens in it are added tokens.
    pub fn encode_trusted(&self, text: &str) -> Result<Vec<u32>> {
        Ok(self.inner.full.encode_fast(text, false).map_err(failed)?.get_ids().to_vec())
    }

    /// The added tokens in text of ours: where they stand, in bytes, and their ids.
    pub(crate) fn added_in(&self, text: &str) -> Result<Vec<(Range<usize>, u32)>> {
        let encoding = self.inner.full.encode(text, false).map_err(failed)?;
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets());
        let added = tokens.filter(|&(&id, _)| self.is_added(id));
        Ok(added.map(|(&id, &(start, end))| (start..end, id)).collect())
    }

    /// Where the first added token in text of ours ends.
    pub(crate) fn first_added(&self, text: &str) -> Result<Option<usize>> {
        Ok(self.added_in(text)?.first().map(|(range, _)| range.end))
    }

    /// The text of tokens, control tokens included.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.inner.full.decode(tokens, false).map_err(failed)
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("path", &self.inner.path).field("hash", &self.inner.hash).finish()
    }
}

/// The library renumbers added tokens that neither the vocabulary holds nor its end leads to; such a file means other
/// ids to everybody else.
fn check_added_ids(bytes: &[u8], added: &BTreeMap<String, u32>, path: &Path) -> Result<()> {
    #[derive(serde::Deserialize)]
    struct Listed {
        #[serde(default)]
        added_tokens: Vec<ListedToken>,
    }
    #[derive(serde::Deserialize)]
    struct ListedToken {
        id: u32,
        content: String,
    }
    let bad = |detail: String| Error::Tokenizer { path: path.into(), detail };
    let listed: Listed = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    for token in listed.added_tokens {
        if let Some(&read) = added.get(&token.content).filter(|&&read| read != token.id) {
            let ListedToken { id, content } = token;
            return Err(bad(format!("added token `{content}` has id {id} in the file, but reads as {read}")));
        }
    }
    Ok(())
}

pub(crate) fn failed(error: tokenizers::Error) -> Error {
    Error::Encode(error.to_string())
}
