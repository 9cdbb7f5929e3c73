//! Training a tokenizer of our own: byte-level BPE on what CPT will read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};
use worldloom_schema::{DOCUMENT_FILE, Document as TextDocument, Pool, TableReader, Trajectory};

use crate::document::{Content, Control, Document};
use crate::error::{Error, Result};
use crate::layout::{PromptStyle, cpt_document, prompt_document};
use crate::renderer::CPT_VERSION;
use crate::report::{REPORT_FILE, write_json};
use crate::rows::TEXTS;
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
    /// `trajectories`, `texts`, `vocab_size`, `bytes`, `tokens`.
    pub counts: BTreeMap<String, u64>,
    /// Bytes per token of what CPT reads, by domain; texts under `documents`.
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

/// Trains on the CPT pool as it will be rendered, on the texts of `documents.parquet` where that stands beside the pool,
/// and on the words of the other templates; writes `tokenizer.json`, `tokenizer_config.json` and `report.json` into `out`.
pub fn run_tokenizer(
    config: &TokenizerConfig,
    pools: &Path,
    out: &Path,
    progress: Progress,
) -> Result<TokenizerReport> {
    let templates = Templates::bundled(&config.family)?;
    let reading = Reading::open(pools)?;
    // Two passes: training and measuring.
    let (half, total) = (reading.rows, 2 * reading.rows);
    let failure = Mutex::new(None);
    let texts = reading.texts(&templates, &failure, |done| progress(done, total))?;
    let trained = train_tokenizer(config.vocab_size, config.min_frequency, config.split, texts)?;
    if let Some(error) = failure.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    let json = trained.to_string(true).map_err(failed)?;
    let path = out.join(TOKENIZER_FILE);
    fs_err::write(&path, &json)?;
    write_json(&out.join(TOKENIZER_CONFIG_FILE), &tokenizer_config())?;
    let report = reading.measure(&Tokenizer::open(&path)?, &templates, |done| progress(half + done, total))?;
    write_json(&out.join(REPORT_FILE), &report)?;
    Ok(report)
}

/// What CPT will read.
struct Reading {
    pool: PathBuf,
    documents: Option<PathBuf>,
    rows: u64,
}

impl Reading {
    fn open(pools: &Path) -> Result<Self> {
        let pool = pools.join(format!("{}.parquet", Pool::Cpt));
        let documents = Some(pools.join(DOCUMENT_FILE)).filter(|path| path.exists());
        let mut rows = TableReader::<Trajectory>::open(&pool)?.num_rows();
        if let Some(documents) = &documents {
            rows += TableReader::<TextDocument>::open(documents)?.num_rows();
        }
        Ok(Self { pool, documents, rows })
    }

    fn documents(&self) -> Result<impl Iterator<Item = worldloom_schema::Result<TextDocument>> + Send + use<>> {
        let reader = self.documents.as_deref().map(TableReader::<TextDocument>::open).transpose()?;
        Ok(reader.into_iter().flatten())
    }

    /// All texts. An error ends them and is left in `failure`.
    fn texts<'a, P: Fn(u64) + Send + 'a>(
        &self,
        templates: &'a Templates,
        failure: &'a Mutex<Option<Error>>,
        progress: P,
    ) -> Result<impl Iterator<Item = String> + Send + use<'a, P>> {
        let trajectories = TableReader::<Trajectory>::open(&self.pool)?.enumerate();
        let of_pool = trajectories.map(|(number, trajectory)| texts_of(templates, &trajectory?, number));
        let of_documents = self.documents()?.map(|document| Ok(vec![document?.text]));
        let texts = of_pool.chain(of_documents).enumerate().map_while(move |(number, texts)| {
            progress(number as u64 + 1);
            let fail = |error| *failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            texts.map_err(fail).ok()
        });
        Ok(texts.flatten())
    }

    fn measure(&self, tokenizer: &Tokenizer, templates: &Templates, progress: impl Fn(u64)) -> Result<TokenizerReport> {
        let mut sizes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        let mut add = |label: &'static str, text: &str| -> Result<()> {
            let (bytes, tokens) = sizes.entry(label).or_default();
            *bytes += text.len() as u64;
            *tokens += tokenizer.encode_untrusted(text)?.map_or(0, |tokens| tokens.len() as u64);
            Ok(())
        };
        let (mut trajectories, mut texts) = (0, 0);
        for trajectory in TableReader::<Trajectory>::open(&self.pool)? {
            let trajectory = trajectory?;
            trajectories += 1;
            match cpt_document(templates, &trajectory, CPT_VERSION) {
                Ok(document) => {
                    texts_in(document).iter().try_for_each(|text| add(trajectory.domain.as_str(), text))?;
                }
                Err(Error::Refused { .. }) => {}
                Err(error) => return Err(error),
            }
            progress(trajectories);
        }
        for document in self.documents()? {
            texts += 1;
            add(TEXTS, &document?.text)?;
            progress(trajectories + texts);
        }
        let (bytes, tokens) = sizes.values().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let vocab_size = tokenizer.vocab_size() as u64;
        let counts = [
            ("trajectories", trajectories),
            ("texts", texts),
            ("vocab_size", vocab_size),
            ("bytes", bytes),
            ("tokens", tokens),
        ];
        let read = sizes.into_iter().filter(|(_, (_, tokens))| *tokens > 0);
        Ok(TokenizerReport {
            tokenizer: tokenizer.hash().into(),
            counts: counts.map(|(name, number)| (name.to_string(), number)).into(),
            bytes_per_token: read
                .map(|(label, (bytes, tokens))| (label.to_string(), bytes as f64 / tokens as f64))
                .collect(),
        })
    }
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
