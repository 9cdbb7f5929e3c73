//! A `tokenizer.json` from the vocabulary in the metadata of a GGUF file.
//!
//! Such a vocabulary is a list of pieces with the *kind* of each, a list of merges, and the name of a *pre-tokenizer*: how
//! text is cut before pieces are merged. Byte-level BPE is made; other models of pieces are refused.

use serde_json::{Map, Value, json};
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use crate::training::QWEN_SPLIT;

/// What a GGUF says of its tokenizer, below `tokenizer.ggml` but for the template.
#[derive(Debug, Clone, Default)]
pub struct GgufVocabulary<'a> {
    /// The file, for errors.
    pub path: PathBuf,
    /// `model`: `gpt2` is byte-level BPE.
    pub model: &'a str,
    /// `pre`: how text is cut first.
    pub pre: &'a str,
    /// `tokens`: the pieces, by id.
    pub tokens: Vec<&'a str>,
    /// `token_type`: what each piece is.
    pub kinds: Vec<i64>,
    /// `merges`: pairs of pieces with a space between them, by rank.
    pub merges: Vec<&'a str>,
    /// `bos_token_id`.
    pub bos: Option<usize>,
    /// `eos_token_id`.
    pub eos: Option<usize>,
    /// `unknown_token_id`.
    pub unknown: Option<usize>,
    /// `padding_token_id`.
    pub padding: Option<usize>,
    /// `tokenizer.chat_template`.
    pub chat_template: Option<&'a str>,
    /// Tokens the model is made for.
    pub max_length: usize,
}

/// Pieces that text cannot form: `<|im_end|>`.
const CONTROL: i64 = 3;
/// Whole words that are found in text before anything else.
const USER_DEFINED: i64 = 4;

impl GgufVocabulary<'_> {
    /// The text of `tokenizer.json`; it reads as a tokenizer with the same ids.
    pub fn tokenizer_json(&self) -> Result<String> {
        if self.model != "gpt2" {
            return Err(self.wrong(format!("`tokenizer.ggml.model` is `{}`, and only gpt2 is read", self.model)));
        }
        if self.kinds.len() != self.tokens.len() {
            let (kinds, tokens) = (self.kinds.len(), self.tokens.len());
            return Err(self.wrong(format!("{kinds} kinds of tokens for {tokens} tokens")));
        }
        let [normalizer, pre_tokenizer] = self.pre_tokenizer()?;
        let vocabulary: Map<String, Value> =
            self.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), json!(id))).collect();
        if vocabulary.len() != self.tokens.len() {
            let twice = self.tokens.iter().enumerate().find(|(id, token)| vocabulary[**token] != json!(id));
            return Err(self.wrong(format!("token `{}` is there twice", twice.map_or("", |(_, token)| token))));
        }
        let merges: Option<Vec<Value>> = self.merges.iter().map(|merge| pair(merge)).collect();
        let merges = merges.ok_or_else(|| self.wrong("a merge is no pair of pieces".to_owned()))?;
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let tokenizer = json!({
            "version": "1.0",
            "truncation": null,
            "padding": null,
            "added_tokens": self.added_tokens(),
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": null,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": null,
                "unk_token": null,
                "continuing_subword_prefix": null,
                "end_of_word_suffix": null,
                "fuse_unk": false,
                "byte_fallback": false,
                "ignore_merges": false,
                "vocab": vocabulary,
                "merges": merges,
            },
        });
        let text = format!("{tokenizer:#}\n");
        Tokenizer::from_bytes(text.as_bytes(), &self.path)?;
        Ok(text)
    }

    /// The text of `tokenizer_config.json`.
    pub fn tokenizer_config(&self) -> String {
        let token = |id: Option<usize>| id.and_then(|id| self.tokens.get(id));
        let config = json!({
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": token(self.bos),
            "eos_token": token(self.eos),
            "pad_token": token(self.padding),
            "unk_token": token(self.unknown),
            "model_max_length": self.max_length,
            "add_prefix_space": false,
            "clean_up_tokenization_spaces": false,
            "chat_template": self.chat_template,
        });
        let known = config.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        let config: Map<String, Value> = known.map(|(key, value)| (key.clone(), value.clone())).collect();
        format!("{:#}\n", Value::Object(config))
    }

    fn added_tokens(&self) -> Vec<Value> {
        let added = |(id, (token, kind)): (usize, (&&str, &i64))| {
            let is_added = matches!(*kind, CONTROL | USER_DEFINED);
            is_added.then(|| {
                json!({
                    "id": id,
                    "content": token,
                    "single_word": false,
                    "lstrip": false,
                    "rstrip": false,
                    "normalized": false,
                    "special": *kind == CONTROL,
                })
            })
        };
        self.tokens.iter().zip(&self.kinds).enumerate().filter_map(added).collect()
    }

    /// The normalizer and the pre-tokenizer that go by this name.
    fn pre_tokenizer(&self) -> Result<[Value; 2]> {
        let byte_level = |use_regex: bool| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex});
        let sequence = |parts: [Value; 2]| json!({"type": "Sequence", "pretokenizers": parts});
        match self.pre {
            "gpt-2" => Ok([Value::Null, byte_level(true)]),
            "smollm" => {
                let digits = json!({"type": "Digits", "individual_digits": true});
                Ok([Value::Null, sequence([digits, byte_level(true)])])
            }
            "qwen2" => {
                let split =
                    json!({"type": "Split", "pattern": {"Regex": QWEN_SPLIT}, "behavior": "Isolated", "invert": false});
                Ok([json!({"type": "NFC"}), sequence([split, byte_level(false)])])
            }
            other => {
                Err(self.wrong(format!("`tokenizer.ggml.pre` is `{other}`, and only gpt-2, smollm and qwen2 are read")))
            }
        }
    }

    fn wrong(&self, detail: String) -> Error {
        Error::Tokenizer { path: self.path.clone(), detail }
    }
}

/// `a bc` as a pair; pieces of byte-level BPE have no spaces.
fn pair(merge: &str) -> Option<Value> {
    let (left, right) = merge.split_once(' ')?;
    (!left.is_empty() && !right.is_empty() && !right.contains(' ')).then(|| json!([left, right]))
}
