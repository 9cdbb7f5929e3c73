//! What an observation says as a whole: that it failed, the verdict of a test run, an exit status. A prediction that says
//! otherwise has missed the main effect of the action, whatever else is right.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::parts::Shape;
use super::{Score, Scores};
use crate::text::pattern;
use crate::verify::{ErrorClass, exit_status};

/// What a text says as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Headline {
    fails: bool,
    tests: Option<Tests>,
    exit_status: Option<i64>,
}

/// The last summary of a test run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tests {
    passed: u64,
    failed: u64,
    is_green: bool,
}

impl Headline {
    pub(super) fn of(shape: Shape, text: &str) -> Self {
        let tests = if shape == Shape::Text { Tests::of(text) } else { None };
        let fails = match shape {
            Shape::Json => serde_json::from_str(text).map_or_else(|_| says_error(text), |value| is_failure(&value)),
            Shape::Text if tests.is_none() => says_error(text),
            Shape::Text | Shape::Diff | Shape::Tree | Shape::Table | Shape::Results => false,
        };
        Headline { fails, tests, exit_status: exit_status(text) }
    }

    /// The scores of a prediction, no higher than its headline allows.
    pub(super) fn limit(&self, prediction: &Headline, scores: Scores) -> Scores {
        let at_most = |format: u8, factuality: u8, consistency: u8, quality: u8| Scores {
            format: scores.format.min(Score(format)),
            factuality: scores.factuality.min(Score(factuality)),
            consistency: scores.consistency.min(Score(consistency)),
            quality: scores.quality.min(Score(quality)),
            ..scores
        };
        let exits = self.exit_status.zip(prediction.exit_status);
        match self.tests.zip(prediction.tests) {
            _ if self.fails != prediction.fails => at_most(3, 2, 2, 2),
            Some((truth, prediction)) if truth.is_green != prediction.is_green => at_most(5, 2, 5, 2),
            _ if exits.is_some_and(|(truth, prediction)| truth != prediction) => at_most(5, 2, 5, 2),
            Some((truth, prediction)) if truth != prediction => at_most(5, 3, 5, 5),
            _ => scores,
        }
    }
}

/// The first or the last line is an error's, or there is a traceback. A long page may speak of errors and be none.
fn says_error(text: &str) -> bool {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let ends = [lines.next(), lines.next_back()];
    ends.into_iter().flatten().any(|line| ErrorClass::of(line) != ErrorClass::None)
        || text.contains("Traceback (most recent call last)")
}

/// A field that says so anywhere, or a text that begins as errors do.
fn is_failure(value: &Value) -> bool {
    let is_set = |value: &Value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(true) => true,
    };
    let says = |(name, value): (&String, &Value)| match name.to_lowercase().as_str() {
        "error" | "errors" | "iserror" | "is_error" | "exception" => is_set(value),
        "success" | "ok" => value == &Value::Bool(false),
        "status" | "type" => matches!(value.as_str(), Some("error" | "failed" | "failure")),
        _ => is_failure(value),
    };
    match value {
        Value::Object(fields) => fields.iter().any(says),
        Value::Array(items) => items.iter().any(is_failure),
        Value::String(text) => {
            BEGINS_AS_ERROR.is_match(text)
                || serde_json::from_str(text).is_ok_and(|inner: Value| match inner {
                    Value::Object(_) | Value::Array(_) => is_failure(&inner),
                    _ => false,
                })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

static BEGINS_AS_ERROR: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)^\W*(?:error|exception|failed|failure|fatal|traceback)\b"));

static COUNTED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\b(\d+) (passed|passing|failed|failing|failures?|errors?)\b|\b(failures|errors)=(\d+)|\bran (\d+) tests?\b",
    )
});

impl Tests {
    /// Of pytest, unittest, cargo, jest and those that print as they do.
    fn of(text: &str) -> Option<Self> {
        let is_summary = |line: &&str| {
            let line = line.to_lowercase();
            line.contains(" passed")
                || line.contains(" failed")
                || line.contains("passing")
                || line.contains("failing")
                || line.starts_with("ran ")
                || line.starts_with("failed (")
        };
        let (mut passed, mut failed, mut is_found) = (0, 0, false);
        for line in text.lines().rev().filter(is_summary).take(2) {
            let (mut of_line, mut is_counted) = ((0, 0), false);
            for found in COUNTED.captures_iter(line) {
                let number = |at: usize| found.get(at).and_then(|number| number.as_str().parse::<u64>().ok());
                let named = |at: usize| found.get(at).map(|name| name.as_str().to_lowercase());
                match (number(1), named(2), number(4), number(5)) {
                    (Some(count), Some(name), ..) if name.starts_with("pass") => of_line.0 += count,
                    (Some(count), Some(_), ..) | (_, _, Some(count), _) => of_line.1 += count,
                    (_, _, _, Some(count)) => of_line.0 += count,
                    _ => {}
                }
                is_counted = true;
            }
            if is_counted {
                (passed, failed, is_found) = (passed + of_line.0, failed + of_line.1, true);
            }
        }
        is_found.then_some(Tests { passed, failed, is_green: failed == 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(shape: Shape, text: &str) -> bool {
        Headline::of(shape, text).fails
    }

    #[test]
    fn a_failure_is_told_by_fields_and_first_and_last_lines_and_not_by_words_on_a_page() {
        for text in [
            r#"{"error": "unknown id"}"#,
            r#"{"content": [{"text": "Error: no such user"}]}"#,
            r#"{"isError": true, "content": []}"#,
            r#"{"success": false}"#,
            r#"{"result": "{\"status\": \"error\"}"}"#,
        ] {
            assert!(fails(Shape::Json, text), "{text}");
        }
        for text in [r#"{"error": null}"#, r#"{"errors": [], "ok": true}"#, r#"{"text": "how to fix an error"}"#] {
            assert!(!fails(Shape::Json, text), "{text}");
        }
        assert!(fails(Shape::Text, "Traceback (most recent call last):\n  File x\nValueError: bad"));
        assert!(fails(Shape::Text, "fatal: not a git repository"));
        assert!(!fails(Shape::Text, "A page\nhow errors are told: error 404\nits end"));
    }

    #[test]
    fn the_verdict_of_a_test_run_is_read_as_its_tools_write_it() {
        for (text, passed, failed) in [
            ("==== 3 passed in 0.12s ====", 3, 0),
            ("FAILED a.py::test_x - assert 1 == 2\n==== 1 failed, 2 passed in 0.1s ====", 2, 1),
            ("Ran 4 tests in 0.1s\n\nOK", 4, 0),
            ("Ran 4 tests in 0.1s\n\nFAILED (failures=1, errors=2)", 4, 3),
            ("test result: ok. 12 passed; 0 failed; 1 ignored", 12, 0),
            ("Tests:       1 failed, 7 passed, 8 total", 7, 1),
            ("  5 passing (20ms)\n  1 failing", 5, 1),
        ] {
            let found = Headline::of(Shape::Text, text).tests.unwrap();
            assert_eq!((found.passed, found.failed, found.is_green), (passed, failed, failed == 0), "{text}");
        }
        for text in ["fig\nplum", "the bill was passed", "login failed"] {
            assert_eq!(Headline::of(Shape::Text, text).tests, None, "{text}");
        }
    }

    #[test]
    fn another_main_effect_leaves_little() {
        let limited = |truth: &str, prediction: &str| {
            let scores = Headline::of(Shape::Text, truth).limit(&Headline::of(Shape::Text, prediction), Scores::FULL);
            super::super::Dimension::ALL.map(|dimension| u8::from(scores.get(dimension)))
        };
        assert_eq!(limited("3 passed", "3 passed"), [5; 5]);
        assert_eq!(limited("1 failed, 2 passed", "3 passed"), [5, 2, 5, 5, 2]);
        assert_eq!(limited("3 passed", "4 passed"), [5, 3, 5, 5, 5]);
        assert_eq!(limited("a\nexit code: 0", "a\nexit code: 1"), [5, 2, 5, 5, 2]);
        assert_eq!(limited("a", "Error: no a"), [3, 2, 2, 5, 2]);
    }
}
