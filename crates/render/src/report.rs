//! What a render made, and what became of every document and every token.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Refusal, Result};
use crate::renderer::Rendered;
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

/// What became of the documents of one domain, or of the texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct DomainReport {
    /// Documents, refused ones included.
    pub documents: u64,
    /// Those that are in a row or a prompt.
    pub kept: u64,
    /// Of these, longer than a row or prompt.
    pub truncated: u64,
    /// Tokens in rows or prompts.
    pub tokens: u64,
    /// Tokens with a loss weight.
    pub trained_tokens: u64,
    /// Tokens left out, of documents dropped or cut.
    pub lost_tokens: u64,
    /// Room left in its rows, in tokens; a row's room is split among its documents by their tokens.
    pub empty_tokens: f64,
}

/// The report of one render.
///
/// `tokens_rendered + tokens_repeated = tokens + tokens_shared + Σ dropped.tokens + tokens_cut`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RenderReport {
    /// The stage.
    pub stage: Stage,
    /// The template family or folder.
    pub family: String,
    /// Documents by template version, such as `v2`.
    pub versions: BTreeMap<String, u64>,
    /// Hashes of those templates.
    #[serde(default)]
    pub templates: BTreeMap<String, String>,
    /// Documents whose trajectory has a part that the template does not show, by part.
    #[serde(default)]
    pub omitted: BTreeMap<String, u64>,
    /// Hash of the tokenizer file.
    pub tokenizer: String,
    /// Ids the tokenizer can produce.
    pub vocab_size: u64,
    /// `trajectories`, `texts`, `documents`, `rows`, `prompts`, `tokens`, `trained_tokens`, `tokens_rendered`,
    /// `tokens_repeated`, `tokens_shared`, `tokens_cut`, `truncated`, `windows_without_target`, `control_text_documents`,
    /// `instructions`.
    pub counts: BTreeMap<String, u64>,
    /// Sum of the loss weights of all rows: the denominator of one epoch.
    pub weight_sum: f64,
    /// Share of the rows' capacity that holds no token.
    pub waste: f64,
    /// What was left out, by reason.
    pub dropped: BTreeMap<String, Dropped>,
    /// By domain; texts under `documents`.
    #[serde(default)]
    pub domains: BTreeMap<String, DomainReport>,
    /// Documents by length: upper bound in tokens (powers of two) to number. Those refused before they were encoded have
    /// none.
    pub lengths: BTreeMap<u64, u64>,
    /// Documents longer than a row or prompt by how many of their tokens are in none: upper bound (powers of two) to
    /// number. Of a document that is left out as too long, all are.
    #[serde(default)]
    pub cuts: BTreeMap<u64, u64>,
}

/// Counts while a render goes on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) versions: BTreeMap<String, u64>,
    pub(crate) dropped: BTreeMap<String, Dropped>,
    pub(crate) lengths: BTreeMap<u64, u64>,
    pub(crate) cuts: BTreeMap<u64, u64>,
    pub(crate) omitted: BTreeMap<String, u64>,
    pub(crate) domains: BTreeMap<&'static str, DomainReport>,
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

    /// The figures of a domain.
    pub(crate) fn of(&mut self, label: &'static str) -> &mut DomainReport {
        self.domains.entry(label).or_default()
    }

    pub(crate) fn drop_document(&mut self, label: &'static str, refusal: Refusal, tokens: usize) {
        self.of(label).lost_tokens += tokens as u64;
        let dropped = self.dropped.entry(refusal.as_str().into()).or_default();
        dropped.documents += 1;
        dropped.tokens += tokens as u64;
        self.empty += u64::from(refusal.is_empty_target());
    }

    /// Counts a document as it was encoded.
    pub(crate) fn rendered(&mut self, rendered: &Rendered) {
        let tokens = rendered.tokens.len() as u64;
        self.add("tokens_rendered", tokens);
        self.add("control_text_documents", u64::from(rendered.has_control_text));
        *self.lengths.entry(tokens.next_power_of_two()).or_default() += 1;
    }

    /// Counts what a long document lost, if anything.
    pub(crate) fn cut(&mut self, lost: usize) {
        if lost > 0 {
            *self.cuts.entry((lost as u64).next_power_of_two()).or_default() += 1;
        }
    }

    pub(crate) fn empty_documents(&self) -> u64 {
        self.empty
    }

    /// Documents that are in no row, for whatever reason.
    pub(crate) fn lost_documents(&self) -> u64 {
        self.dropped.values().map(|dropped| dropped.documents).sum()
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
    /// The figures by domain as a table: rows (of a full row's tokens), tokens, trained share, truncation, waste.
    pub fn table(&self) -> Vec<String> {
        let head = ["", "documents", "kept", "tokens", "trained", "truncated", "lost tokens", "waste"];
        let share =
            |part: f64, whole: f64| if whole > 0.0 { format!("{:.1} %", 100.0 * part / whole) } else { "–".into() };
        let line = |name: &str, of: &DomainReport| {
            [
                name.to_string(),
                of.documents.to_string(),
                of.kept.to_string(),
                of.tokens.to_string(),
                share(of.trained_tokens as f64, of.tokens as f64),
                share(of.truncated as f64, of.kept as f64),
                share(of.lost_tokens as f64, (of.tokens + of.lost_tokens) as f64),
                share(of.empty_tokens, of.tokens as f64 + of.empty_tokens),
            ]
        };
        let mut all = DomainReport::default();
        for of in self.domains.values() {
            all.documents += of.documents;
            all.kept += of.kept;
            all.truncated += of.truncated;
            all.tokens += of.tokens;
            all.trained_tokens += of.trained_tokens;
            all.lost_tokens += of.lost_tokens;
            all.empty_tokens += of.empty_tokens;
        }
        let mut cells = vec![head.map(String::from)];
        cells.extend(self.domains.iter().map(|(name, of)| line(name, of)));
        cells.push(line("all", &all));
        let widths: Vec<usize> =
            (0..head.len()).map(|at| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0)).collect();
        let row = |row: &[String; 8]| {
            let cells = row.iter().zip(&widths).enumerate();
            let text = cells.map(
                |(at, (cell, &width))| if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") },
            );
            text.collect::<Vec<_>>().join("  ").trim_end().to_string()
        };
        cells.iter().map(row).collect()
    }

    /// Writes `report.json`.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        write_json(&out.join(REPORT_FILE), self)
    }
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(std::io::Error::other)?;
    Ok(fs_err::write(path, text + "\n")?)
}
