//! Next-state matching by the kind of observation: what changed, and how much of it a prediction gets right.
//!
//! An observation is cut into *units* that stand on their own: lines, leaves of JSON by their path, nodes of a tree by
//! the nodes above them, cells of a table by row and column, changed lines of a diff by their file. The *change* is
//! what is new and what is gone against the observation before; a node that was updated is both.

mod table;
mod tree;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use table::cells as table_cells;
pub(crate) use tree::looks_like_one as is_tree;
pub(crate) use tree::paths as tree_paths;
pub(crate) use tree::{Node, is_screen, node};

use crate::rubric::JudgeQuery;
use crate::text::{LineF1, comparable, lines};

/// The kind of an observation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One JSON value.
    Json,
    /// A unified diff.
    Diff,
    /// An accessibility tree or view hierarchy: indented nodes, or nested tags.
    Tree,
    /// Rows with separators.
    Table,
    /// Lines of text.
    Text,
}

impl Form {
    /// What a text looks like, the strictest kind first.
    pub fn of(text: &str) -> Form {
        let is_json = || text.trim_start().starts_with(['{', '[']) && serde_json::from_str::<Value>(text).is_ok();
        if is_json() {
            Form::Json
        } else if is_diff(text) {
            Form::Diff
        } else if table::cells(text).is_some() {
            Form::Table
        } else if tree::looks_like_one(text) {
            Form::Tree
        } else {
            Form::Text
        }
    }
}

fn is_diff(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("@@ ")) && text.lines().any(|line| line.starts_with("+++ "))
}

/// The units of a text with how often each stands in it. Volatile parts are masked first. A text that is not of the
/// form has its lines as units.
pub fn units(form: Form, text: &str) -> BTreeMap<String, usize> {
    let mut units = BTreeMap::new();
    let mut add = |unit: String| *units.entry(unit).or_default() += 1;
    let masked = comparable(text);
    match form {
        Form::Json => match serde_json::from_str::<Value>(text) {
            Ok(value) => leaves("", &value, &mut add),
            Err(_) => lines(&masked).for_each(|line| add(line.into())),
        },
        Form::Diff => diff_units(&masked, &mut add),
        Form::Tree => tree::units(&masked, &mut add),
        Form::Table => match table::cells(&masked) {
            Some(cells) => cells.into_iter().for_each(&mut add),
            None => lines(&masked).for_each(|line| add(line.into())),
        },
        Form::Text => lines(&masked).for_each(|line| add(line.into())),
    }
    units
}

fn leaves(path: &str, value: &Value, add: &mut dyn FnMut(String)) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| leaves(&format!("{path}.{name}"), value, add));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, item)| leaves(&format!("{path}[{at}]"), item, add));
        }
        Value::String(text) => add(format!("{path}={:?}", comparable(text))),
        leaf => add(format!("{path}={leaf}")),
    }
}

fn diff_units(text: &str, add: &mut dyn FnMut(String)) {
    let mut file = "";
    for line in lines(text) {
        match line.strip_prefix("+++ ") {
            Some(name) => file = name,
            None if line.starts_with("--- ") => {}
            None if line.starts_with(['+', '-']) => add(format!("{file}: {line}")),
            None => {}
        }
    }
}

/// Whether two texts say the same in this form, whatever their layout: fields in another order, cells with other
/// padding, a diff with other context.
pub fn is_same_state(form: Form, truth: &str, prediction: &str) -> bool {
    let of_form = |text: &str| match form {
        Form::Text => false,
        _ => Form::of(text) == form,
    };
    of_form(prediction) && units(form, truth) == units(form, prediction)
}

/// F1 over the units of the change, as multisets: new and gone against `before` (RLVR-World, arXiv 2505.13934, with
/// updated nodes as gone and new). Nothing changed and nothing predicted to is 1.
pub fn change_f1(before: &str, truth: &str, prediction: &str) -> f64 {
    let form = Form::of(truth);
    let before = units(form, before);
    let (truth, prediction) = (change(&before, &units(form, truth)), change(&before, &units(form, prediction)));
    agreement(&truth, &prediction).f1
}

/// Precision, recall and F1 of units, as multisets. Nothing against nothing agrees fully, against something not at all.
pub(crate) fn agreement(truth: &BTreeMap<String, usize>, prediction: &BTreeMap<String, usize>) -> LineF1 {
    let (num_truth, num_prediction): (usize, usize) = (truth.values().sum(), prediction.values().sum());
    if num_truth == 0 || num_prediction == 0 {
        let agreement = if num_truth == num_prediction { 1.0 } else { 0.0 };
        return LineF1 { precision: agreement, recall: agreement, f1: agreement };
    }
    let common: usize = truth.iter().map(|(unit, &count)| count.min(prediction.get(unit).copied().unwrap_or(0))).sum();
    LineF1 {
        precision: common as f64 / num_prediction as f64,
        recall: common as f64 / num_truth as f64,
        f1: 2.0 * common as f64 / (num_truth + num_prediction) as f64,
    }
}

/// The same against the last observation of a query's history.
pub fn change_f1_of(query: &JudgeQuery<'_>) -> f64 {
    let before = query.context.history.last().map_or("", |(_, observation)| *observation);
    change_f1(before, query.truth, query.prediction)
}

/// What is new, marked `+`, and what is gone, marked `-`.
pub(crate) fn change(before: &BTreeMap<String, usize>, after: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut change = BTreeMap::new();
    for (mark, one, other) in [("+", after, before), ("-", before, after)] {
        for (unit, &count) in one {
            let more = count.saturating_sub(other.get(unit).copied().unwrap_or(0));
            if more > 0 {
                change.insert(format!("{mark}{unit}"), more);
            }
        }
    }
    change
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "RootWebArea 'Shop'\n\t[1] link 'Home'\n\t[2] list\n\t\t[3] listitem 'Fig'";
    const TABLE: &str = "| name | n |\n|------|---|\n| fig  | 1 |\n| plum | 2 |";
    const DIFF: &str = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+three";

    #[test]
    fn forms_are_told_apart() {
        for (text, form) in [
            (r#"{"a": 1}"#, Form::Json),
            ("[1, 2", Form::Text),
            (DIFF, Form::Diff),
            (TREE, Form::Tree),
            ("<node a=\"1\">\n  <node text=\"x\"/>\n</node>", Form::Tree),
            (TABLE, Form::Table),
            ("total 8\n-rw-r--r-- 1 u u 4 fig", Form::Text),
            ("def f():\n    return 1\n", Form::Text),
            ("", Form::Text),
        ] {
            assert_eq!(Form::of(text), form, "{text}");
        }
    }

    #[test]
    fn the_same_state_in_another_layout_is_the_same() {
        assert!(is_same_state(Form::Json, r#"{"a": 1, "b": [2]}"#, r#"{ "b":[2],"a":1 }"#));
        assert!(!is_same_state(Form::Json, r#"{"a": 1}"#, r#"{"a": "1"}"#));
        assert!(!is_same_state(Form::Json, r#"{"a": 1}"#, "a is 1"));
        assert!(is_same_state(Form::Table, TABLE, "|name|n|\n|-|-|\n|fig|1|\n|plum|2|"));
        assert!(!is_same_state(Form::Table, TABLE, "|name|n|\n|-|-|\n|fig|2|\n|plum|1|"));
        assert!(is_same_state(Form::Diff, DIFF, "--- a/x\n+++ b/x\n@@ -2 +2 @@\n-two\n+three"));
        assert!(!is_same_state(Form::Tree, TREE, &TREE.replace("Fig", "Plum")));
        assert!(!is_same_state(Form::Text, "a\nb", "b\na"), "order of lines is state");
    }

    #[test]
    fn change_is_what_is_new_and_gone() {
        let after = TREE.replace("'Fig'", "'Plum'");
        assert_eq!(change_f1(TREE, &after, &after), 1.0);
        assert_eq!(change_f1(TREE, &after, TREE), 0.0, "a stale copy gets nothing of the change right");
        assert_eq!(change_f1(TREE, TREE, TREE), 1.0);
        // One of two changes: gone Fig is right, new Pear is not Plum.
        assert_eq!(change_f1(TREE, &after, &TREE.replace("'Fig'", "'Pear'")), 0.5);
        assert_eq!(change_f1("", "a\nb", "a"), 2.0 / 3.0);
        assert_eq!(change_f1("", r#"{"a": 1, "b": 2}"#, r#"{"b": 2, "a": 3}"#), 0.5);
        assert_eq!(change_f1("", "a", ""), 0.0);
    }
}
