//! Checks that follow from a true observation, by its form.

use std::collections::BTreeSet;

use serde_json::Value;

use super::check::{Check, ErrorClass, JsonKind, exit_status};
use super::path;
use crate::next_state::{Form, tree_paths};
use crate::text::{comparable, lines, normalise};

/// Leaves of JSON and nodes of a tree that are checked at most.
const MOST: usize = 24;

/// Candidates, none of them tried yet. `before` is the observation of the turn before.
pub(super) fn candidates(truth: &str, before: Option<&str>) -> Vec<Check> {
    let mut checks = vec![Check::ErrorClass { class: ErrorClass::of(truth) }];
    checks.extend(exit_status(truth).map(|status| Check::ExitStatus { status }));
    match Form::of(truth) {
        Form::Json => json(truth, &mut checks),
        Form::Tree => tree(truth, before.unwrap_or_default(), &mut checks),
        Form::Diff => {
            let changed = lines_of(truth).into_iter().filter(|line| line.starts_with(['+', '-'])).collect();
            checks.push(Check::LineOrder { lines: changed });
            let masked = comparable(truth);
            let count = |text: &str| masked.matches(text).count();
            let exactly = |text: &str| Check::Count { text: text.into(), least: count(text), most: count(text) };
            checks.extend([exactly("\n+"), exactly("\n-")]);
        }
        Form::Table | Form::Text => text(truth, &mut checks),
    }
    checks.retain(|check| check.validate().is_ok());
    checks
}

fn lines_of(text: &str) -> Vec<String> {
    lines(&normalise(text)).map(str::to_string).collect()
}

fn text(truth: &str, checks: &mut Vec<Check>) {
    let all = lines_of(truth);
    checks.push(Check::Equals { text: normalise(truth) });
    if !all.is_empty() {
        checks.push(Check::LineSet { lines: all.clone() });
        checks.push(Check::LineOrder { lines: all });
    }
}

fn json(truth: &str, checks: &mut Vec<Check>) {
    let Ok(value) = serde_json::from_str::<Value>(truth) else { return };
    checks.push(Check::JsonType { path: String::new(), kind: JsonKind::of(&value) });
    let mut open = vec![(String::new(), &value)];
    let mut leaves = 0;
    while let Some((at, value)) = open.pop() {
        match value {
            Value::Object(fields) => {
                open.extend(fields.iter().map(|(name, value)| (path::field(&at, name), value)));
            }
            Value::Array(items) => {
                checks.push(Check::JsonType { path: at.clone(), kind: JsonKind::Array });
                open.extend(items.iter().enumerate().map(|(number, item)| (format!("{at}[{number}]"), item)));
            }
            leaf if leaves < MOST => {
                leaves += 1;
                checks.push(Check::JsonEquals { path: at, value: leaf.clone() });
            }
            leaf => checks.push(Check::JsonType { path: at, kind: JsonKind::of(leaf) }),
        }
    }
}

/// Nodes that came and nodes that went.
fn tree(truth: &str, before: &str, checks: &mut Vec<Check>) {
    let (now, then) = (tree_paths(&comparable(truth)), tree_paths(&comparable(before)));
    let (had, has): (BTreeSet<_>, BTreeSet<_>) = (then.iter().collect(), now.iter().collect());
    let came = now.iter().filter(|path| !had.contains(path)).take(MOST);
    checks.extend(came.map(|path| Check::TreeNode { path: path.clone() }));
    let names: BTreeSet<&String> = now.iter().filter_map(|path| path.last()).collect();
    let went = then.iter().filter(|path| !has.contains(path)).filter_map(|path| path.last());
    let went: BTreeSet<&String> = went.filter(|node| !names.contains(node) && node.len() > 3).collect();
    checks.extend(went.into_iter().take(MOST).map(|node| Check::MustNotContain { text: node.clone() }));
    checks.extend(now.first().map(|root| Check::TreeNode { path: root.clone() }));
    checks.push(Check::LineSet { lines: lines_of(truth) });
}
