//! The words of the language.

use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{compile, path};
use crate::next_state::tree_paths;
use crate::text::{lines, pattern};

/// One check. Texts are compared after normalising and masking; JSON is that of the whole prediction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "check", rename_all = "snake_case", deny_unknown_fields)]
pub enum Check {
    /// The whole text.
    Equals {
        /// Expected.
        text: String,
    },
    /// A part of it.
    Contains {
        /// Expected.
        text: String,
    },
    /// No part of it.
    MustNotContain {
        /// Not expected.
        text: String,
    },
    /// A match anywhere; `^` and `$` are those of lines.
    Regex {
        /// The pattern.
        pattern: String,
    },
    /// The lines, in any order, no more and no fewer.
    LineSet {
        /// Expected.
        lines: Vec<String>,
    },
    /// Lines that stand in this order, others between them.
    LineOrder {
        /// Expected.
        lines: Vec<String>,
    },
    /// A JSON value is there.
    JsonExists {
        /// Such as `items[0].name`.
        path: String,
    },
    /// A JSON value.
    JsonEquals {
        /// Where.
        path: String,
        /// Expected.
        value: Value,
    },
    /// The type of a JSON value.
    JsonType {
        /// Where.
        path: String,
        /// Expected.
        kind: JsonKind,
    },
    /// A node of a tree under the nodes above it, from the root; ids do not count.
    TreeNode {
        /// From the root to the node.
        path: Vec<String>,
    },
    /// How often a text stands in it.
    Count {
        /// The text.
        text: String,
        /// At least.
        least: usize,
        /// At most.
        most: usize,
    },
    /// A number within a range: at a path in JSON, or the first after a text.
    Number {
        /// Where in JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        /// After which text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<String>,
        /// The least.
        low: f64,
        /// The most.
        high: f64,
    },
    /// An exit status that is named in the text.
    ExitStatus {
        /// Expected.
        status: i64,
    },
    /// The class of error the text reports, or none.
    ErrorClass {
        /// Expected.
        class: ErrorClass,
    },
}

/// Types of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JsonKind {
    /// `{…}`.
    Object,
    /// `[…]`.
    Array,
    /// `"…"`.
    String,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// `null`.
    Null,
}

impl JsonKind {
    /// The type of a value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Object(_) => JsonKind::Object,
            Value::Array(_) => JsonKind::Array,
            Value::String(_) => JsonKind::String,
            Value::Number(_) => JsonKind::Number,
            Value::Bool(_) => JsonKind::Boolean,
            Value::Null => JsonKind::Null,
        }
    }
}

/// What went wrong, by the words of tools and services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Nothing.
    None,
    /// A file, page, id or command that is not there.
    NotFound,
    /// No permission.
    Denied,
    /// Something that is there already.
    Exists,
    /// A wrong kind: a folder for a file and the like.
    WrongKind,
    /// Arguments or syntax.
    Invalid,
    /// A time-out.
    Timeout,
    /// Anything else that calls itself an error.
    Other,
}

static ERRORS: LazyLock<Vec<(ErrorClass, Regex)>> = LazyLock::new(|| {
    [
        (ErrorClass::NotFound, r"(?i)no such (?:file|directory|option|table|column|element)|not found|\b404\b|does not exist|cannot find|unknown (?:tool|id)"),
        (ErrorClass::Denied, r"(?i)permission denied|access denied|forbidden|unauthori[sz]ed|operation not permitted|\b40[13]\b"),
        (ErrorClass::Exists, r"(?i)(?:file|directory|already) exists"),
        (ErrorClass::WrongKind, r"(?i)is a directory|not a directory|directory not empty|not a regular file|is not a git repository|not a git repository"),
        (ErrorClass::Timeout, r"(?i)timed? ?out\b"),
        (ErrorClass::Invalid, r"(?i)invalid|illegal|missing (?:operand|argument|required)|usage:|syntax error|unrecognized|bad (?:request|argument)|\b400\b|traceback \(most recent"),
        (ErrorClass::Other, r"(?im)\b(?:error|exception|failed|failure|fatal)\b"),
    ]
    .into_iter()
    .map(|(class, source)| (class, pattern(source)))
    .collect()
});

impl ErrorClass {
    /// The class of a text: that of the first words that match, in the order of the list.
    pub fn of(text: &str) -> Self {
        ERRORS.iter().find(|(_, words)| words.is_match(text)).map_or(ErrorClass::None, |(class, _)| *class)
    }
}

static STATUS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)(?:\bexit(?:ed)?[ _-]?(?:with )?(?:status|code)\b|"returncode"|\breturn ?code\b|\[exit)[^\w-]{0,4}(-?\d{1,10})"#,
    )
});

/// The exit status that a text names last.
pub(crate) fn exit_status(text: &str) -> Option<i64> {
    STATUS.captures_iter(text).last()?.get(1)?.as_str().parse().ok()
}

static NUMBER: LazyLock<Regex> = LazyLock::new(|| pattern(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"));

impl Check {
    /// What is wrong with it, if anything.
    pub(super) fn validate(&self) -> Result<(), String> {
        let filled = |is_empty: bool| if is_empty { Err("it is empty".to_string()) } else { Ok(()) };
        match self {
            Check::Equals { .. } | Check::ExitStatus { .. } | Check::ErrorClass { .. } => Ok(()),
            Check::Contains { text } | Check::MustNotContain { text } => filled(text.is_empty()),
            Check::Regex { pattern } => compile(pattern).map(|_| ()),
            Check::LineSet { lines } | Check::LineOrder { lines } => filled(lines.is_empty()),
            Check::JsonExists { path } | Check::JsonEquals { path, .. } | Check::JsonType { path, .. } => {
                path::validate(path)
            }
            Check::TreeNode { path } => filled(path.is_empty()),
            Check::Count { text, least, most } => {
                filled(text.is_empty())?;
                if least > most { Err(format!("from {least} to {most}")) } else { Ok(()) }
            }
            Check::Number { path, after, low, high } => {
                if !(low <= high && low.is_finite() && high.is_finite()) {
                    return Err(format!("from {low} to {high}"));
                }
                match (path, after) {
                    (Some(path), None) => path::validate(path),
                    (None, Some(after)) => filled(after.is_empty()),
                    _ => Err("one of `path` and `after` is expected".into()),
                }
            }
        }
    }

    /// Whether a prediction passes; `view` normalises and masks.
    pub(super) fn passes(&self, prediction: &str, view: &dyn Fn(&str) -> String) -> bool {
        let json = || serde_json::from_str::<Value>(prediction).ok();
        match self {
            Check::Equals { text } => view(prediction) == view(text),
            Check::Contains { text } => view(prediction).contains(&view(text)),
            Check::MustNotContain { text } => !view(prediction).contains(&view(text)),
            Check::Regex { pattern } => compile(pattern).is_ok_and(|pattern| pattern.is_match(prediction)),
            Check::LineSet { lines: expected } => {
                let sorted = |text: &str| {
                    let text = view(text);
                    let mut found: Vec<String> = lines(&text).map(str::to_string).collect();
                    found.sort_unstable();
                    found
                };
                sorted(prediction) == sorted(&expected.join("\n"))
            }
            Check::LineOrder { lines: expected } => {
                let (found, expected) = (view(prediction), view(&expected.join("\n")));
                let mut found = lines(&found);
                lines(&expected).all(|line| found.any(|other| other == line))
            }
            Check::JsonExists { path } => json().is_some_and(|value| path::find(&value, path).is_some()),
            Check::JsonEquals { path, value: expected } => json()
                .is_some_and(|value| path::find(&value, path).is_some_and(|found| is_equal(found, expected, view))),
            Check::JsonType { path, kind } => {
                json().is_some_and(|value| path::find(&value, path).is_some_and(|found| JsonKind::of(found) == *kind))
            }
            Check::TreeNode { path } => tree_paths(&view(prediction)).contains(path),
            Check::Count { text, least, most } => {
                (*least..=*most).contains(&view(prediction).matches(view(text).as_str()).count())
            }
            Check::Number { path, after, low, high } => {
                let found = match (path, after) {
                    (Some(path), _) => json().and_then(|value| path::find(&value, path)?.as_f64()),
                    (None, Some(after)) => number_after(prediction, after),
                    (None, None) => None,
                };
                found.is_some_and(|found| (*low..=*high).contains(&found))
            }
            Check::ExitStatus { status } => exit_status(prediction) == Some(*status),
            Check::ErrorClass { class } => ErrorClass::of(prediction) == *class,
        }
    }
}

fn is_equal(found: &Value, expected: &Value, view: &dyn Fn(&str) -> String) -> bool {
    match (found, expected) {
        (Value::String(found), Value::String(expected)) => view(found) == view(expected),
        (Value::Number(found), Value::Number(expected)) => found.as_f64() == expected.as_f64(),
        _ => found == expected,
    }
}

fn number_after(text: &str, after: &str) -> Option<f64> {
    let (_, rest) = text.split_once(after)?;
    NUMBER.find(rest)?.as_str().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::comparable;

    fn passes(check: &str, prediction: &str) -> bool {
        let check: Check = serde_json::from_str(check).unwrap();
        assert_eq!(check.validate(), Ok(()));
        check.passes(prediction, &|text| comparable(text))
    }

    #[test]
    fn each_word_passes_and_fails() {
        let json = r#"{"items": [{"name": "fig", "price": 2.5}], "next": null}"#;
        let tree = "Root 'a'\n\t[12] list\n\t\t[13] item 'x'";
        for (check, good, bad) in [
            (r#"{"check": "equals", "text": "fig"}"#, "fig \n", "figs"),
            (r#"{"check": "equals", "text": ""}"#, "", "x"),
            (r#"{"check": "contains", "text": "fig"}"#, "a fig", "a fog"),
            (r#"{"check": "must_not_contain", "text": "fig"}"#, "a fog", "a fig"),
            (r#"{"check": "regex", "pattern": "^f.g$"}"#, "a\nfig", "figs"),
            (r#"{"check": "line_set", "lines": ["a", "b"]}"#, "b\na", "a\nb\nb"),
            (r#"{"check": "line_order", "lines": ["a", "b"]}"#, "a\nx\nb", "b\na"),
            (r#"{"check": "json_exists", "path": "items[0].name"}"#, json, "{}"),
            (
                r#"{"check": "json_equals", "path": "items[0].price", "value": 2.5}"#,
                json,
                r#"{"items": [{"price": "2.5"}]}"#,
            ),
            (r#"{"check": "json_type", "path": "next", "kind": "null"}"#, json, r#"{"next": 0}"#),
            (r#"{"check": "tree_node", "path": ["Root 'a'", "list", "item 'x'"]}"#, tree, "Root 'a'\n\titem 'x'"),
            (r#"{"check": "count", "text": "fig", "least": 1, "most": 1}"#, "fig", "fig fig"),
            (r#"{"check": "number", "path": "items[0].price", "low": 2, "high": 3}"#, json, "{}"),
            (r#"{"check": "number", "after": "total ", "low": 7, "high": 9}"#, "total 8", "total 80"),
            (r#"{"check": "exit_status", "status": 2}"#, "x\n[exit 2]", "exit code: 0"),
            (r#"{"check": "error_class", "class": "not_found"}"#, "cat: x: No such file or directory", "fig"),
            (r#"{"check": "error_class", "class": "none"}"#, "fig", "fatal: not a git repository"),
        ] {
            assert!(passes(check, good), "{check} on {good:?}");
            assert!(!passes(check, bad), "{check} on {bad:?}");
        }
    }

    #[test]
    fn exit_statuses_are_read_as_tools_write_them() {
        for (text, status) in [
            ("exit status 1", Some(1)),
            ("Process exited with code 127", Some(127)),
            ("exit_code=0", Some(0)),
            ("{\"returncode\": -9}", Some(-9)),
            ("[exit 3]", Some(3)),
            ("the exit is on the left, 5 m", None),
        ] {
            assert_eq!(exit_status(text), status, "{text}");
        }
    }
}
