//! The figures of an evaluation by name: one list of measures for the terminal, the page and `report.json`.

use worldloom_schema::{Interval, Measures};

/// One measure of the stage table.
#[derive(Debug)]
pub(crate) struct Measure {
    /// As the evaluation names it.
    pub(crate) name: &'static str,
    /// As the tables name it.
    pub(crate) title: &'static str,
    /// What it says, for the page.
    pub(crate) meaning: &'static str,
    /// Factor to the 0–100 scale.
    pub(crate) scale: f64,
    /// Where it stands.
    pub(crate) of: fn(&Measures) -> &Interval,
}

/// In the order of the tables.
pub(crate) const MEASURES: [Measure; 4] = [
    Measure {
        name: "exact",
        title: "exact",
        meaning: "share of predictions equal to the truth",
        scale: 100.0,
        of: |measures| &measures.exact,
    },
    Measure {
        name: "normalised",
        title: "normalised",
        meaning: "share equal after masking times, inode and process numbers, temporary names and trailing blanks",
        scale: 100.0,
        of: |measures| &measures.normalised,
    },
    Measure {
        name: "line_f1",
        title: "line F1",
        meaning: "mean F1 over lines",
        scale: 100.0,
        of: |measures| &measures.line_f1,
    },
    Measure {
        name: "rubric",
        title: "rubric",
        meaning: "mean of five judged dimensions",
        scale: 1.0,
        of: |measures| &measures.rubric,
    },
];

/// Share of completions without a usable prediction.
pub(crate) fn fault_share(measures: &Measures) -> f64 {
    measures.faults.values().sum()
}
