//! What a render made, and what became of every document and every token.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Refusal, Result};
use crate::stage::Stage;

/// Name of the report inside an artifact.
pub const REPORT_FILE: &str = "report.json";

/// Documents and tokens that were left out for one reason. Documents refused before they were encoded have no tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Documents.
    pub documents: u64,
    /// Their tokens.
    pub tokens: u64,
}

/// The report of one render.
///
/// `tokens_rendered + tokens_repeated = tokens + Σ dropped.tokens + tokens_cut`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenderReport {
    /// The stage.
    pub stage: Stage,
    /// The template family or folder.
    pub family: String,
    /// Documents by template version, such as `v2`.
    pub versions: BTreeMap<String, u64>,
    /// Hash of the tokenizer file.
    pub tokenizer: String,
    /// Ids the tokenizer can produce.
    pub vocab_size: u64,
    /// `trajectories`, `documents`, `rows`, `prompts`, `tokens`, `trained_tokens`, `tokens_rendered`,
    /// `tokens_repeated`, `tokens_cut`, `truncated`, `control_text_documents`.
    pub counts: BTreeMap<String, u64>,
    /// Sum of the loss weights of all rows: the denominator of one epoch.
    pub weight_sum: f64,
    /// Share of the rows' capacity that holds no token.
    pub waste: f64,
    /// What was left out, by reason.
    pub dropped: BTreeMap<String, Dropped>,
    /// Documents by length: upper bound in tokens (powers of two) to number.
    pub lengths: BTreeMap<u64, u64>,
}

/// Counts while a render goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) versions: BTreeMap<String, u64>,
    pub(crate) dropped: BTreeMap<String, Dropped>,
    pub(crate) lengths: BTreeMap<u64, u64>,
    pub(crate) weight_sum: f64,
    empty: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, name: &'static str, number: u64) {
        *self.counts.entry(name).or_default() += number;
    }

    pub(crate) fn get(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    pub(crate) fn drop_document(&mut self, refusal: Refusal, tokens: usize) {
        let dropped = self.dropped.entry(refusal.as_str().into()).or_default();
        dropped.documents += 1;
        dropped.tokens += tokens as u64;
        self.empty += u64::from(refusal.is_empty_target());
    }

    pub(crate) fn length(&mut self, tokens: usize) {
        *self.lengths.entry((tokens as u64).next_power_of_two()).or_default() += 1;
    }

    pub(crate) fn empty_documents(&self) -> u64 {
        self.empty
    }

    pub(crate) fn reasons(&self) -> String {
        let reasons: Vec<_> = self.dropped.iter().map(|(reason, at)| format!("{reason} {}", at.documents)).collect();
        if reasons.is_empty() { "no reason counted".into() } else { reasons.join(", ") }
    }

    /// Tokens that came in and are not accounted for; 0 by law.
    pub(crate) fn lost_tokens(&self) -> i128 {
        let dropped: u64 = self.dropped.values().map(|dropped| dropped.tokens).sum();
        let incoming = i128::from(self.get("tokens_rendered")) + i128::from(self.get("tokens_repeated"));
        let written = i128::from(self.get("tokens")) + i128::from(self.get("tokens_shared"));
        incoming - written - i128::from(dropped) - i128::from(self.get("tokens_cut"))
    }
}

impl RenderReport {
    /// Writes `report.json`.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        write_json(&out.join(REPORT_FILE), self)
    }
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    Ok(fs_err::write(path, text + "\n")?)
}
