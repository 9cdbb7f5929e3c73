//! What became of the queries and of the candidates.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Name of the report inside an artifact.
pub const TRACE_REPORT_FILE: &str = "trace-report.json";

/// Queries of one domain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retention {
    /// Queries.
    pub queries: u64,
    /// Those that have a trace now.
    pub traced: u64,
}

/// The report of one run. `queries = traced + untraced + unavailable`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TraceReport {
    /// Kept turns that had a trace before, which stays; they are no queries.
    pub had_before: u64,
    /// Traces that were there and are none, by what is wrong with them; their turns are asked about where SFT can train on
    /// them.
    #[serde(default)]
    pub notes_rejected: BTreeMap<String, u64>,
    /// Kept turns that SFT cannot train on: images, and observations with a tag of the answer in them.
    pub not_trainable: u64,
    /// Turns that the teacher was asked about.
    pub queries: u64,
    /// Those that got a trace.
    pub traced: u64,
    /// Those of which no candidate was good enough.
    pub untraced: u64,
    /// Those without an answer of teacher or judge; a further run asks again.
    pub unavailable: u64,
    /// Candidates by what became of them.
    pub candidates: BTreeMap<String, u64>,
    /// Mean score of the traces that were kept, 1 to 5.
    pub mean_score: Option<f64>,
    /// By domain.
    pub domains: BTreeMap<String, Retention>,
}

impl TraceReport {
    /// For a person: retention by domain, then the candidates.
    pub fn table(&self) -> Vec<String> {
        let line = |name: &str, of: Retention| {
            let share = 100.0 * of.traced as f64 / of.queries.max(1) as f64;
            format!("{name:<12} {:>8} of {:>8} queries have a trace ({share:.1} %)", of.traced, of.queries)
        };
        let mut lines: Vec<String> = self.domains.iter().map(|(name, &of)| line(name, of)).collect();
        lines.push(line("all", Retention { queries: self.queries, traced: self.traced }));
        lines.extend(
            self.notes_rejected.iter().map(|(fault, count)| format!("traces that were there: {fault} {count}")),
        );
        lines.extend(self.candidates.iter().map(|(fate, count)| format!("candidates: {fate} {count}")));
        lines
    }

    /// Counts for a manifest.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = [
            ("had_before", self.had_before),
            ("notes_rejected", self.notes_rejected.values().sum()),
            ("not_trainable", self.not_trainable),
            ("queries", self.queries),
            ("traced", self.traced),
            ("untraced", self.untraced),
            ("unavailable", self.unavailable),
        ];
        counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect()
    }
}
