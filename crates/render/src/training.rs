//! Training a tokenizer of our own: byte-level BPE on what CPT will read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};
use worldloom_schema::{Domain, Pool, TableReader, Trajectory};

use crate::document::{Content, Control, Document};
use crate::error::{Error, Result};
use crate::layout::{PromptStyle, cpt_document, prompt_document};
use crate::renderer::CPT_VERSION;
use crate::report::{REPORT_FILE, write_json};
use crate::run::Progress;
use crate::template::Templates;
use crate::tokenizer::{END_OF_TEXT, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer, failed};

/// Qwen's pre-tokenizer: a word takes the one character before it along, be it a space, a slash or a quote.
pub(crate) const QWEN_SPLIT: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// A word is a piece of its own, whatever stands before it; so are a digit, an escape such as `\n`, a line break, and
/// Markdown's headings and fences, which frame every turn.
const WORD_SPLIT: &str = concat!(
    r"\*\*[\p{L} ]+:\*\*\n?|#+ \p{L}+ |\n```|```\p{L}*\n?|",
    r"\\+\p{L}?|\p{L}+|\p{N}|[^\s\p{L}\p{N}\\]+ ?|[\r\n]+|[^\S\r\n]+"
);
/// Plain ChatML: what [`Document::chat`] writes.
pub const CHAT_TEMPLATE: &str = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}";
/// The 256 bytes, the seven added tokens, and at least one merge.
const MIN_VOCAB: usize = 256 + 7 + 1;

/// Where text is cut before pairs are merged: no token reaches over a cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordSplit {
    /// As the published Qwen tokenizers: fewest tokens, and ` coast`, `/coast` and `'coast` are three tokens or more.
    #[default]
    Qwen,
    /// Words apart: `coast` is the same token after a space, a slash and a quote. A quarter more tokens; a small model
    /// trained from nothing learns to repeat a name at once, where it otherwise has to learn how to spell it.
    Words,
}

impl WordSplit {
    fn pattern(self) -> &'static str {
        match self {
            Self::Qwen => QWEN_SPLIT,
            Self::Words => WORD_SPLIT,
        }
    }
}

/// How a tokenizer is trained.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerConfig {
    /// Number of tokens, the added ones included; fewer come out if the text is too small.
    pub vocab_size: usize,
    /// Pairs seen less often are not merged.
    pub min_frequency: u64,
    /// The bundled family of templates that CPT, SFT and RL will use.
    pub family: String,
    /// `qwen` (the default) or `words`.
    #[serde(default)]
    pub split: WordSplit,
}

/// What a training made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenizerReport {
    /// Hash of `tokenizer.json`.
    pub tokenizer: String,
    /// `trajectories`, `vocab_size`, `bytes`, `tokens`.
    pub counts: BTreeMap<String, u64>,
    /// Bytes per token of the CPT pool's text, by domain.
    pub bytes_per_token: BTreeMap<String, f64>,
}

/// Trains on texts; the same texts in the same order give the same tokenizer. Added tokens take the first ids, are never
/// merged into and are not looked for in the texts.
pub fn train_tokenizer(
    vocab_size: usize,
    min_frequency: u64,
    split: WordSplit,
    texts: impl Iterator<Item = String> + Send,
) -> Result<tokenizers::Tokenizer> {
    if vocab_size < MIN_VOCAB {
        return Err(Error::Config {
            field: "vocab_size",
            detail: format!("{vocab_size}, expected {MIN_VOCAB} or more"),
        });
    }
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .vocab_size(vocab_size)
        .min_frequency(min_frequency)
        .special_tokens(added_tokens())
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let mut tokenizer = tokenizers::Tokenizer::new(BPE::default());
    let bytes = ByteLevel::new(false, false, false);
    let split = Split::new(SplitPattern::Regex(split.pattern().into()), SplitDelimiterBehavior::Isolated, false);
    let stages: Vec<PreTokenizerWrapper> = vec![split.map_err(failed)?.into(), bytes.into()];
    tokenizer.with_pre_tokenizer(Some(Sequence::new(stages)));
    tokenizer.with_decoder(Some(bytes));
    tokenizer.with_post_processor(Some(bytes));
    tokenizer.train(&mut TrainerWrapper::from(trainer), texts).map_err(failed)?;
    Ok(tokenizer)
}

fn added_tokens() -> Vec<AddedToken> {
    let special = [END_OF_TEXT, Control::TurnStart.as_str(), Control::TurnEnd.as_str()];
    let special = special.iter().map(|&text| AddedToken::from(text, true));
    // Tags stay visible when special tokens are skipped: they are part of the answer.
    let tags = Control::TAGS.iter().map(|tag| AddedToken::from(tag.as_str(), false).normalized(false));
    special.chain(tags).collect()
}

/// Trains on the CPT pool as it will be rendered, and on the words of the other templates; writes `tokenizer.json`,
/// `tokenizer_config.json` and `report.json` into `out`.
pub fn run_tokenizer(
    config: &TokenizerConfig,
    pools: &Path,
    out: &Path,
    progress: Progress,
) -> Result<TokenizerReport> {
    let templates = Templates::bundled(&config.family)?;
    let pool = pools.join(format!("{}.parquet", Pool::Cpt));
    let reader = TableReader::<Trajectory>::open(&pool)?;
    // Two passes: training and measuring.
    let total = 2 * reader.num_rows();
    let failure = Mutex::new(None);
    let texts = texts_of_pool(reader, &templates, &failure, |done| progress(done, total));
    let trained = train_tokenizer(config.vocab_size, config.min_frequency, config.split, texts)?;
    if let Some(error) = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let json = trained.to_string(true).map_err(failed)?;
    let path = out.join(TOKENIZER_FILE);
    fs_err::write(&path, &json)?;
    write_json(&out.join(TOKENIZER_CONFIG_FILE), &tokenizer_config())?;
    let report = measure(&Tokenizer::open(&path)?, &templates, &pool, |done| progress(total / 2 + done, total))?;
    write_json(&out.join(REPORT_FILE), &report)?;
    Ok(report)
}

/// The text pieces of the pool. An error ends the texts and is left in `failure`.
fn texts_of_pool<'a>(
    reader: TableReader<Trajectory>,
    templates: &'a Templates,
    failure: &'a Mutex<Option<Error>>,
    progress: impl Fn(u64) + Send + 'a,
) -> impl Iterator<Item = String> + Send + 'a {
    let texts = reader.enumerate().map_while(move |(number, trajectory)| {
        let texts = trajectory.map_err(Error::from).and_then(|trajectory| texts_of(templates, &trajectory, number));
        progress(number as u64 + 1);
        texts.map_err(|error| *failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error)).ok()
    });
    texts.flatten()
}

/// The text pieces of a trajectory as CPT reads it, and a prompt of another template, so that every template is known.
fn texts_of(templates: &Templates, trajectory: &Trajectory, number: usize) -> Result<Vec<String>> {
    let mut texts = match cpt_document(templates, trajectory, CPT_VERSION) {
        Ok(document) => texts_in(document),
        Err(Error::Refused { .. }) => Vec::new(),
        Err(error) => return Err(error),
    };
    let others: Vec<u8> = templates.versions().iter().copied().filter(|&version| version != CPT_VERSION).collect();
    if !others.is_empty() && !trajectory.turns.is_empty() {
        let style = PromptStyle::Tagged { version: others[number % others.len()] };
        texts.extend(texts_in(prompt_document(templates, trajectory, 0, style)?));
    }
    Ok(texts)
}

fn texts_in(document: Document) -> Vec<String> {
    let pieces = document.pieces.into_iter();
    pieces
        .filter_map(|piece| match piece.content {
            Content::Text(text) => Some(text),
            Content::Control(_) | Content::Template(_) => None,
        })
        .collect()
}

fn measure(
    tokenizer: &Tokenizer,
    templates: &Templates,
    pool: &Path,
    progress: impl Fn(u64),
) -> Result<TokenizerReport> {
    let mut sizes: BTreeMap<Domain, (u64, u64)> = BTreeMap::new();
    let mut trajectories = 0;
    for trajectory in TableReader::<Trajectory>::open(pool)? {
        let trajectory = trajectory?;
        trajectories += 1;
        let (bytes, tokens) = sizes.entry(trajectory.domain).or_default();
        match cpt_document(templates, &trajectory, CPT_VERSION) {
            Ok(document) => {
                for text in texts_in(document) {
                    *bytes += text.len() as u64;
                    *tokens += tokenizer.encode_untrusted(&text)?.map_or(0, |tokens| tokens.len() as u64);
                }
            }
            Err(Error::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
        progress(trajectories);
    }
    let (bytes, tokens) = sizes.values().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
    let vocab_size = tokenizer.vocab_size() as u64;
    let counts = [("trajectories", trajectories), ("vocab_size", vocab_size), ("bytes", bytes), ("tokens", tokens)];
    Ok(TokenizerReport {
        tokenizer: tokenizer.hash().into(),
        counts: counts.map(|(name, number)| (name.to_string(), number)).into(),
        bytes_per_token: sizes
            .into_iter()
            .filter(|(_, (_, tokens))| *tokens > 0)
            .map(|(domain, (bytes, tokens))| (domain.to_string(), bytes as f64 / tokens as f64))
            .collect(),
    })
}

/// What `transformers` reads beside `tokenizer.json`.
fn tokenizer_config() -> serde_json::Value {
    serde_json::json!({
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": null,
        "eos_token": Control::TurnEnd.as_str(),
        "pad_token": END_OF_TEXT,
        "unk_token": null,
        "add_bos_token": false,
        "clean_up_tokenization_spaces": false,
        "chat_template": CHAT_TEMPLATE,
    })
}
