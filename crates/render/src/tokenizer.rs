//! Any `tokenizer.json`, read so that text from outside can never become a control token.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tokenizers::{AddedVocabulary, PostProcessorWrapper};

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
    /// The same for text that goes on from other text; none where the beginning of a text is nothing special.
    going_on: Option<GoingOn>,
    /// Tokens of a letter, where a decoder takes the space off what comes first; empty where it does not.
    anchor: Vec<u32>,
    added: BTreeMap<String, u32>,
    added_ids: HashSet<u32>,
    vocab_size: usize,
}

/// SentencePiece's vocabularies put a space before a text. That belongs where a text begins, not where our pieces do.
struct GoingOn {
    /// Puts nothing before.
    plain: tokenizers::Tokenizer,
    /// Whether a text begins after each added token, and not only once.
    begins_after_added: bool,
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
        let plain = without_added(&mut full)?;
        let going_on = going_on(bytes, path)?;
        let anchor = anchor_for(&full, going_on.as_ref().map_or(&plain, |going_on| &going_on.plain))?;
        let decoder = full.get_added_tokens_decoder();
        let added: BTreeMap<String, u32> = decoder.into_iter().map(|(id, token)| (token.content, id)).collect();
        check_added_ids(bytes, &added, path)?;
        let added_ids = added.values().copied().collect();
        let vocab_size = full.get_vocab(true).values().max().map_or(0, |&id| id as usize + 1);
        let hash = blake3::hash(bytes).to_hex()[..32].to_string();
        let path = path.into();
        let inner = Inner { path, hash, full, plain, going_on, anchor, added, added_ids, vocab_size };
        Ok(Self { inner: Arc::new(inner) })
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

    /// The id that ends a text: the vocabulary's end of text, else the `eos_token` of the `tokenizer_config.json` beside
    /// it, else the end of a turn.
    pub(crate) fn text_end(&self) -> Result<Option<u32>> {
        let added = |token: &str| self.inner.added.get(token).copied();
        if let Some(end) = added(END_OF_TEXT) {
            return Ok(Some(end));
        }
        let folder = self.inner.path.parent().unwrap_or(Path::new("."));
        let eos = eos_in(&folder.join(TOKENIZER_CONFIG_FILE))?;
        Ok(eos.and_then(|eos| added(&eos)).or_else(|| self.control(Control::TurnEnd)))
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
        self.encode_after(None, text)
    }

    /// The same for text that stands after a token; none: for the beginning.
    pub(crate) fn encode_after(&self, before: Option<u32>, text: &str) -> Result<Option<Vec<u32>>> {
        let tokens = self.plain_after(before).encode_fast(text, false).map_err(failed)?.get_ids().to_vec();
        let is_plain = !tokens.iter().any(|&token| self.is_added(token));
        Ok(is_plain.then_some(tokens))
    }

    /// The same, each token with the byte of the text at which it starts.
    pub(crate) fn encode_with_starts(&self, before: Option<u32>, text: &str) -> Result<Option<Vec<(u32, usize)>>> {
        let encoding = self.plain_after(before).encode(text, false).map_err(failed)?;
        let tokens = encoding.get_ids().iter().zip(encoding.get_offsets()).map(|(&id, &(start, _))| (id, start));
        let tokens: Vec<(u32, usize)> = tokens.collect();
        let is_plain = !tokens.iter().any(|&(token, _)| self.is_added(token));
        Ok(is_plain.then_some(tokens))
    }

    fn plain_after(&self, before: Option<u32>) -> &tokenizers::Tokenizer {
        match (&self.inner.going_on, before) {
            (Some(going_on), Some(before)) if !(going_on.begins_after_added && self.is_added(before)) => {
                &going_on.plain
            }
            _ => &self.inner.plain,
        }
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

    /// The text of tokens that go on from others: it keeps a space at its beginning, which some decoders take off.
    pub fn decode_going_on(&self, tokens: &[u32]) -> Result<String> {
        let anchor = self.inner.anchor.as_slice();
        if anchor.is_empty() {
            return self.decode(tokens);
        }
        let text = self.decode(&[anchor, tokens].concat())?;
        match text.strip_prefix(&self.decode(anchor)?) {
            Some(rest) => Ok(rest.into()),
            None => self.decode(tokens),
        }
    }

    /// Refuses a tokenizer that does not give back what it is given in pieces: rows would hold something else than was
    /// said.
    pub(crate) fn check_pieces(&self) -> Result<()> {
        let [before, piece] = PROBE;
        let first = self.encode_untrusted(before)?.unwrap_or_default();
        let tokens = self.encode_after(first.last().copied(), piece)?.unwrap_or_default();
        let read = self.decode_going_on(&tokens)?;
        if read == piece {
            return Ok(());
        }
        let detail = format!(
            "{piece:?}, encoded after {before:?}, reads as {read:?}: its rows would hold something else than was said; \
             use a tokenizer that keeps white space and case, such as byte-level BPE"
        );
        Err(Error::Tokenizer { path: self.inner.path.clone(), detail })
    }
}

/// What stands before, and a piece with what white space and letters may become.
const PROBE: [&str; 2] = ["A:\n", "  a\n\n\tB  c "];

/// The model without added tokens, padding and truncation; the latter two go from the model itself too.
fn without_added(full: &mut tokenizers::Tokenizer) -> Result<tokenizers::Tokenizer> {
    full.with_padding(None);
    full.with_truncation(None).map_err(failed)?;
    let mut plain = full.clone();
    plain.with_added_vocabulary(AddedVocabulary::new());
    // It adds nothing to a piece, and takes white space out of where tokens start.
    plain.with_post_processor(None::<PostProcessorWrapper>);
    Ok(plain)
}

/// A letter's tokens, where a decoder takes the space off what comes first; none where it does not.
fn anchor_for(full: &tokenizers::Tokenizer, plain: &tokenizers::Tokenizer) -> Result<Vec<u32>> {
    let encode = |text: &str| Ok(plain.encode_fast(text, false).map_err(failed)?.get_ids().to_vec());
    match full.decode(&encode(" a")?, false).map_err(failed)? == " a" {
        true => Ok(Vec::new()),
        false => encode("a"),
    }
}

/// The encoder of text that goes on, where the file puts something before each text.
fn going_on(bytes: &[u8], path: &Path) -> Result<Option<GoingOn>> {
    /// What of the file may put something before a text.
    #[derive(serde::Deserialize)]
    struct Stages {
        #[serde(default)]
        normalizer: Value,
        #[serde(default)]
        pre_tokenizer: Value,
    }
    let bad = |error: String| Error::Tokenizer { path: path.into(), detail: error };
    let mut stages: Stages = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    let (first, then) = (take_prefixes(&mut stages.normalizer), take_prefixes(&mut stages.pre_tokenizer));
    let begins_after_added = first.each || then.each;
    if !(begins_after_added || first.once || then.once) {
        return Ok(None);
    }
    let mut file: Value = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
    (file["normalizer"], file["pre_tokenizer"]) = (stages.normalizer, stages.pre_tokenizer);
    let read = tokenizers::Tokenizer::from_bytes(file.to_string());
    let plain = without_added(&mut read.map_err(|error| bad(error.to_string()))?)?;
    Ok(Some(GoingOn { plain, begins_after_added }))
}

/// What is put before texts: once, or after each added token.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    once: bool,
    each: bool,
}

/// Takes what puts something before a text out of a normalizer or pre-tokenizer, and says when it would.
fn take_prefixes(part: &mut Value) -> Prefixes {
    let mut found = Prefixes::default();
    for name in ["normalizers", "pretokenizers"] {
        let Some(Value::Array(parts)) = part.get_mut(name) else { continue };
        for one in parts.iter_mut().map(take_prefixes) {
            found = Prefixes { once: found.once || one.once, each: found.each || one.each };
        }
        parts.retain(|part| !part.is_null());
    }
    match part["type"].as_str() {
        Some("Prepend") => {
            *part = Value::Null;
            Prefixes { each: true, ..found }
        }
        Some("Metaspace") if part["prepend_scheme"] == "never" => found,
        Some("Metaspace") => {
            let once = part["prepend_scheme"] == "first";
            part["prepend_scheme"] = json!("never");
            part["add_prefix_space"] = json!(false);
            Prefixes { once, each: !once }
        }
        Some("ByteLevel") if part["add_prefix_space"] == true => {
            part["add_prefix_space"] = json!(false);
            Prefixes { each: true, ..found }
        }
        _ => found,
    }
}

/// `eos_token` of a `tokenizer_config.json`, where there is one.
fn eos_in(config: &Path) -> Result<Option<String>> {
    if !config.exists() {
        return Ok(None);
    }
    let bad = |error: serde_json::Error| Error::Tokenizer { path: config.into(), detail: error.to_string() };
    let options: Value = serde_json::from_slice(&fs_err::read(config)?).map_err(bad)?;
    let eos = &options["eos_token"];
    Ok(eos.as_str().or_else(|| eos["content"].as_str()).map(String::from))
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
