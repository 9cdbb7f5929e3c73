//! What code can say of a prediction beside the truth, without a judge.
//!
//! A *unit* is what an observation of its kind is made of: a line of text, a node of a tree (a line without its
//! indentation), a leaf of a JSON document with its path, an added or removed line of a diff. Where the screen before is
//! known, units that were on it already and stay are left out: copying a page is no achievement.

use std::collections::HashMap;

use serde_json::Value;
use worldloom_schema::ObservationKind;

use crate::text::{LineF1, comparable, lines, normalised_match};

/// The figures of one prediction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Over the units that changed, or all of them; none where nothing changed, in truth and prediction.
    pub units: Option<LineF1>,
    /// Where the truth is the screen before: whether the prediction is too. None elsewhere.
    pub no_change: Option<bool>,
    /// Whether both show the same class of error, or both none.
    pub error_class: bool,
    /// Whether the prediction is of the kind that it should be: JSON that parses, a tree with nodes, a diff with hunks.
    pub is_valid: bool,
    /// The shorter length over the longer, in characters; 1 for two empty texts.
    pub length_ratio: f64,
}

impl Observed {
    /// Of a completion without a prediction.
    pub const FAULT: Observed = Observed {
        units: Some(LineF1 { precision: 0.0, recall: 0.0, f1: 0.0 }),
        no_change: None,
        error_class: false,
        is_valid: false,
        length_ratio: 0.0,
    };

    /// Name and value of each figure that there is.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let share = |is_met: bool| if is_met { 1.0 } else { 0.0 };
        let mut named = vec![
            ("error_class", share(self.error_class)),
            ("valid", share(self.is_valid)),
            ("length_ratio", self.length_ratio),
        ];
        if let Some(LineF1 { precision, recall, f1 }) = self.units {
            named.extend([("unit_precision", precision), ("unit_recall", recall), ("unit_f1", f1)]);
        }
        named.extend(self.no_change.map(|no_change| ("no_change", share(no_change))));
        named
    }
}

/// Compares a prediction with the truth; `before` is the observation that stood before, where there was one.
pub fn observe(kind: ObservationKind, before: Option<&str>, truth: &str, prediction: &str) -> Observed {
    let screen = before.filter(|_| kind == ObservationKind::Tree);
    let stays = screen.is_some_and(|screen| normalised_match(screen, truth));
    let lengths = (truth.chars().count(), prediction.chars().count());
    Observed {
        units: changed_units(kind, screen, truth, prediction),
        no_change: screen.filter(|_| stays).map(|screen| normalised_match(screen, prediction)),
        error_class: error_class(truth) == error_class(prediction),
        is_valid: is_valid(kind, truth, prediction),
        length_ratio: match lengths {
            (0, 0) => 1.0,
            (a, b) => a.min(b) as f64 / a.max(b) as f64,
        },
    }
}

fn changed_units(kind: ObservationKind, screen: Option<&str>, truth: &str, prediction: &str) -> Option<LineF1> {
    let (truth, prediction) = (units(kind, truth), units(kind, prediction));
    let Some(screen) = screen else { return Some(agreement(&counts(&truth), &counts(&prediction))) };
    // What is new counts, and so does what is gone.
    let before = counts(&units(kind, screen));
    let (truth, prediction) = (changes(&before, &counts(&truth)), changes(&before, &counts(&prediction)));
    (!(truth.is_empty() && prediction.is_empty())).then(|| agreement(&truth, &prediction))
}

type Counts = HashMap<String, u64>;

fn counts(units: &[String]) -> Counts {
    let mut counts = Counts::new();
    units.iter().for_each(|unit| *counts.entry(unit.clone()).or_default() += 1);
    counts
}

/// Units that came (`+`) and went (`-`).
fn changes(before: &Counts, after: &Counts) -> Counts {
    let count = |counts: &Counts, unit: &String| counts.get(unit).copied().unwrap_or(0);
    let came = after.iter().map(|(unit, n)| (format!("+{unit}"), n.saturating_sub(count(before, unit))));
    let went = before.iter().map(|(unit, n)| (format!("-{unit}"), n.saturating_sub(count(after, unit))));
    came.chain(went).filter(|(_, n)| *n > 0).collect()
}

fn agreement(truth: &Counts, prediction: &Counts) -> LineF1 {
    let (num_truth, num_prediction): (u64, u64) = (truth.values().sum(), prediction.values().sum());
    if num_truth == 0 || num_prediction == 0 {
        let agreement = if num_truth == num_prediction { 1.0 } else { 0.0 };
        return LineF1 { precision: agreement, recall: agreement, f1: agreement };
    }
    let common = prediction.iter().map(|(unit, n)| (*n).min(truth.get(unit).copied().unwrap_or(0))).sum::<u64>() as f64;
    LineF1 {
        precision: common / num_prediction as f64,
        recall: common / num_truth as f64,
        f1: 2.0 * common / (num_truth + num_prediction) as f64,
    }
}

fn units(kind: ObservationKind, text: &str) -> Vec<String> {
    let comparable = comparable(text);
    let all = || lines(&comparable).map(String::from).collect();
    match kind {
        ObservationKind::Json => match serde_json::from_str::<Value>(text) {
            Ok(value) => {
                let mut leaves = Vec::new();
                add_leaves(&value, String::new(), &mut leaves);
                leaves
            }
            Err(_) => all(),
        },
        ObservationKind::Tree => {
            lines(&comparable).map(str::trim).filter(|node| !node.is_empty()).map(String::from).collect()
        }
        ObservationKind::Diff => lines(&comparable).filter(|line| is_change(line)).map(String::from).collect(),
        ObservationKind::Text | ObservationKind::Image => all(),
    }
}

fn add_leaves(value: &Value, path: String, leaves: &mut Vec<String>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(key, value)| add_leaves(value, format!("{path}.{key}"), leaves));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, item)| add_leaves(item, format!("{path}[{at}]"), leaves));
        }
        leaf => leaves.push(format!("{path}={leaf}")),
    }
}

fn is_change(line: &str) -> bool {
    line.starts_with(['+', '-']) && !line.starts_with("+++") && !line.starts_with("---")
}

/// Classes of errors by the words that environments use, the first that is found.
const ERRORS: [(&str, &[&str]); 9] = [
    ("not found", &["no such file", "not found", "does not exist", "cannot find", "unknown tool", "404"]),
    (
        "not allowed",
        &["permission denied", "operation not permitted", "access denied", "forbidden", "unauthorized", "403"],
    ),
    ("exists", &["file exists", "already exists"]),
    ("kind", &["is a directory", "not a directory", "directory not empty"]),
    ("time", &["timed out", "timeout"]),
    ("space", &["no space left", "quota exceeded", "out of memory"]),
    (
        "usage",
        &["invalid option", "missing operand", "usage:", "invalid argument", "unrecognized option", "validation error"],
    ),
    ("syntax", &["syntax error", "unexpected token", "unexpected eof", "parse error"]),
    ("other", &["traceback (most recent call last)", "error:", "exception", "failed", "fatal:"]),
];

/// The class of error that a text shows; none where it shows none.
pub fn error_class(text: &str) -> Option<&'static str> {
    let lower = text.to_lowercase();
    ERRORS.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word))).map(|(class, _)| *class)
}

fn is_valid(kind: ObservationKind, truth: &str, prediction: &str) -> bool {
    let parses = |text: &str| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let has_changes = |text: &str| text.lines().any(is_change);
    match kind {
        // A truth that does not keep to its kind holds nobody to it.
        ObservationKind::Json => parses(prediction) || !parses(truth),
        ObservationKind::Diff => has_changes(prediction) || !has_changes(truth),
        ObservationKind::Tree => !prediction.trim().is_empty() || truth.trim().is_empty(),
        ObservationKind::Text | ObservationKind::Image => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f1(kind: ObservationKind, before: Option<&str>, truth: &str, prediction: &str) -> Option<f64> {
        observe(kind, before, truth, prediction).units.map(|units| units.f1)
    }

    #[test]
    fn units_are_those_of_the_kind() {
        use ObservationKind::{Diff, Json, Text, Tree};
        assert_eq!(f1(Text, None, "a\nb", "b\nc"), Some(0.5));
        assert_eq!(f1(Json, None, r#"{"a": 1, "b": [2, 3]}"#, r#"{"b": [2, 4], "a": 1}"#), Some(2.0 / 3.0));
        assert_eq!(f1(Json, None, "no json", "no json"), Some(1.0));
        assert_eq!(f1(Tree, None, "root\n  [1] ok", "root\n    [1] ok"), Some(1.0));
        assert_eq!(f1(Diff, None, "@@ -1 +1 @@\n-a\n+b", "--- x\n+++ y\n@@ -9 +9 @@\n-a\n+c"), Some(0.5));
    }

    #[test]
    fn of_a_screen_only_what_changed_counts() {
        let (before, truth) = ("[1] ok\n[2] field", "[1] ok\n[2] field full\n[3] menu");
        let of = |prediction| f1(ObservationKind::Tree, Some(before), truth, prediction);
        assert_eq!(of(truth), Some(1.0));
        assert_eq!(of(before), Some(0.0), "a copy of the old screen is worth nothing");
        // Of three changes (one gone, two come) the prediction has one right and none wrong.
        assert_eq!(of("[1] ok\n[2] field\n[3] menu"), Some(0.5));
        let same = observe(ObservationKind::Tree, Some(before), before, before);
        assert_eq!((same.units, same.no_change), (None, Some(true)));
        let moved = observe(ObservationKind::Tree, Some(before), before, truth);
        assert_eq!((moved.units.map(|units| units.f1), moved.no_change), (Some(0.0), Some(false)));
        assert_eq!(observe(ObservationKind::Text, Some("a"), "a", "a").no_change, None, "text has no screen");
    }

    #[test]
    fn errors_are_told_apart_by_class() {
        let same = |truth, prediction| observe(ObservationKind::Text, None, truth, prediction).error_class;
        assert!(same("cat: x: No such file or directory", "bash: y: command not found"));
        assert!(!same("cat: x: No such file or directory", "cat: x: Permission denied"));
        assert!(!same("cat: x: Is a directory", "a.txt"));
        assert!(same("a.txt", ""));
    }

    #[test]
    fn validity_and_length_are_those_of_the_prediction() {
        let json = |truth, prediction| observe(ObservationKind::Json, None, truth, prediction);
        assert!(json("{}", "[1]").is_valid && !json("{}", "{").is_valid && json("oops", "{").is_valid);
        assert_eq!(json("ab", "abcd").length_ratio, 0.5);
        assert_eq!(json("", "").length_ratio, 1.0);
        assert_eq!(Observed::FAULT.named().len(), 6);
    }
}
