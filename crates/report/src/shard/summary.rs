//! What a set of rows is made of: tokens by who says them, and how long rows, documents and their trained parts are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::html::grouped;

/// Columns of the longest bar.
const BAR: usize = 40;

/// Tokens of one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// All.
    pub tokens: u64,
    /// Those with a loss weight.
    pub trained_tokens: u64,
}

/// Tokens of one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Why {
    /// All.
    pub tokens: u64,
    /// Sum of their weights.
    pub weight_sum: f64,
}

/// The figures of a set of rows. Lengths are counted by their upper bound, a power of two.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ShardSummary {
    /// Rows.
    pub rows: u64,
    /// Segments.
    pub documents: u64,
    /// Tokens.
    pub tokens: u64,
    /// Tokens with a loss weight.
    pub trained_tokens: u64,
    /// Sum of the weights.
    pub weight_sum: f64,
    /// Tokens of the longest row.
    pub longest_row: u64,
    /// Tokens by who says them.
    pub parts: BTreeMap<String, Part>,
    /// Tokens by why they have the weight they have; empty where that was not recorded.
    pub reasons: BTreeMap<String, Why>,
    /// Rows by length.
    pub row_lengths: BTreeMap<u64, u64>,
    /// Segments by length.
    pub document_lengths: BTreeMap<u64, u64>,
    /// Rows by trained tokens.
    pub trained_lengths: BTreeMap<u64, u64>,
}

impl ShardSummary {
    /// Adds a row: tokens and trained tokens of each segment, the sum of weights, tokens and trained tokens by who says
    /// them, tokens and weights by reason.
    pub fn add(
        &mut self,
        segments: &[(usize, usize)],
        weight_sum: f64,
        parts: &[(&str, usize, usize)],
        whys: &[(&str, usize, f64)],
    ) {
        let (tokens, trained) = segments.iter().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        let bound = |length: usize| (length as u64).next_power_of_two();
        self.rows += 1;
        self.documents += segments.len() as u64;
        self.tokens += tokens as u64;
        self.trained_tokens += trained as u64;
        self.weight_sum += weight_sum;
        self.longest_row = self.longest_row.max(tokens as u64);
        *self.row_lengths.entry(bound(tokens)).or_default() += 1;
        *self.trained_lengths.entry(bound(trained)).or_default() += 1;
        for &(length, _) in segments {
            *self.document_lengths.entry(bound(length)).or_default() += 1;
        }
        for &(name, tokens, trained) in parts {
            let part = self.parts.entry(name.into()).or_default();
            part.tokens += tokens as u64;
            part.trained_tokens += trained as u64;
        }
        for &(reason, tokens, weight) in whys {
            let why = self.reasons.entry(reason.into()).or_default();
            why.tokens += tokens as u64;
            why.weight_sum += weight;
        }
    }

    /// As text, with bars.
    pub fn table(&self) -> String {
        let share = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
        let room = self.rows * self.longest_row;
        let mut out = format!(
            "{} rows, {} documents, {} tokens, {} trained ({:.1} %), weights {:.1}; the longest row has {}, others leave {:.1} % of that\n",
            grouped(self.rows),
            grouped(self.documents),
            grouped(self.tokens),
            grouped(self.trained_tokens),
            share(self.trained_tokens, self.tokens),
            self.weight_sum,
            grouped(self.longest_row),
            share(room - self.tokens, room)
        );
        out += "\nsaid by          tokens   of all  trained\n";
        for (name, part) in &self.parts {
            let (of_all, trained) = (share(part.tokens, self.tokens), share(part.trained_tokens, part.tokens));
            out += &format!("{name:<12} {:>10}  {of_all:5.1} %  {trained:5.1} %\n", grouped(part.tokens));
        }
        if !self.reasons.is_empty() {
            out += "\nbecause it is     tokens   of all  mean weight\n";
        }
        for (reason, why) in &self.reasons {
            let (of_all, weight) = (share(why.tokens, self.tokens), why.weight_sum / why.tokens.max(1) as f64);
            out += &format!("{reason:<12} {:>10}  {of_all:5.1} %  {weight:11.2}\n", grouped(why.tokens));
        }
        for (title, lengths) in [
            ("tokens of a row", &self.row_lengths),
            ("tokens of a document", &self.document_lengths),
            ("trained tokens of a row", &self.trained_lengths),
        ] {
            out += &format!("\n{}\n", histogram(title, lengths).join("\n"));
        }
        out
    }
}

/// Numbers by their upper bound as bars, below a title.
pub fn histogram(title: &str, lengths: &BTreeMap<u64, u64>) -> Vec<String> {
    let most = lengths.values().copied().max().unwrap_or(1).max(1);
    let line = |(&bound, &count): (&u64, &u64)| {
        let bar = "█".repeat((count as usize * BAR).div_ceil(most as usize));
        format!("up to {:>9} {:>10} {bar}", grouped(bound), grouped(count))
    };
    std::iter::once(title.to_string()).chain(lengths.iter().map(line)).collect()
}
