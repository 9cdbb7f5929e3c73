//! The figures of an evaluation by name: one list of measures for the terminal, the page and `report.json`.

use worldloom_schema::{Interval, Measures};

use crate::html::is_known;

/// One measure of a table.
#[derive(Debug)]
pub(crate) struct Measure {
    /// As the evaluation names it.
    pub(crate) name: &'static str,
    /// As the tables name it.
    pub(crate) title: &'static str,
    /// What it says, for the page; empty where the title says it.
    pub(crate) meaning: &'static str,
    /// Factor to the 0–100 scale.
    pub(crate) scale: f64,
}

impl Measure {
    /// Where it stands, if it was taken.
    pub(crate) fn of<'a>(&self, measures: &'a Measures) -> Option<&'a Interval> {
        let interval = match self.name {
            "exact" => &measures.exact,
            "normalised" => &measures.normalised,
            "line_f1" => &measures.line_f1,
            "rubric" => &measures.rubric,
            name => measures.more.get(name)?,
        };
        Some(interval).filter(|interval| is_known(interval))
    }
}

const fn measure(name: &'static str, title: &'static str, scale: f64, meaning: &'static str) -> Measure {
    Measure { name, title, meaning, scale }
}

/// The stage table's, in its order.
pub(crate) const MEASURES: [Measure; 4] = [
    measure("exact", "exact", 100.0, "share of predictions equal to the truth"),
    measure(
        "normalised",
        "normalised",
        100.0,
        "share equal after masking times, inode and process numbers, temporary names and trailing blanks",
    ),
    measure("line_f1", "line F1", 100.0, "mean F1 over lines"),
    measure("rubric", "rubric", 1.0, "mean of five judged dimensions"),
];

/// The rubric's dimensions.
pub(crate) const DIMENSIONS: [Measure; 5] = [
    measure("format", "format", 1.0, ""),
    measure("factuality", "factuality", 1.0, ""),
    measure("consistency", "consistency", 1.0, ""),
    measure("realism", "realism", 1.0, ""),
    measure("quality", "quality", 1.0, ""),
];

/// What turns on a rule axis have besides.
pub(crate) const CHECKS: Measure =
    measure("checks", "rule", 100.0, "share of the checks made from the truth that a prediction passes");

/// What code measures by itself.
pub(crate) const WITHOUT_JUDGE: [Measure; 7] = [
    measure("unit_precision", "precision", 100.0, ""),
    measure("unit_recall", "recall", 100.0, ""),
    measure("unit_f1", "unit F1", 100.0, "lines, nodes or leaves that changed, in common"),
    measure("no_change", "no change", 100.0, "screens that stay, predicted to stay"),
    measure("error_class", "error class", 100.0, "the same class of error, or none in both"),
    measure("valid", "valid", 100.0, "of the kind that the observation is"),
    measure("length_ratio", "length", 100.0, "the shorter length over the longer"),
];

/// The dimensions, then what code measures by itself.
pub(crate) fn further() -> impl Iterator<Item = &'static Measure> {
    DIMENSIONS.iter().chain(&WITHOUT_JUDGE)
}

/// Whether a key of `by_axis` is an axis at one distance, as `long, distance  4`.
pub(crate) fn is_distance(key: &str) -> bool {
    key.contains(", distance ")
}

/// Share of completions without a usable prediction.
pub(crate) fn fault_share(measures: &Measures) -> f64 {
    measures.faults.values().sum()
}
