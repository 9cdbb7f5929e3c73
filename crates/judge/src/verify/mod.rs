//! Verifiers: checks of a prediction that are data, not code.
//!
//! A [`Verifier`] is a list of [`Check`]s that must all pass, after masks. The language is small and each of its words
//! ends: regular expressions run in linear time, paths and numbers are looked up; nothing from data is executed.
//! [`build`] derives verifiers from true observations and keeps those that pass on the truth and fail on every
//! corrupted truth.

mod build;
mod check;
mod corrupt;
mod derive;
mod path;

use std::path::Path;

use regex::Regex;
use serde::{Deserialize, Serialize};

pub use build::{BuildReport, build};
pub(crate) use check::exit_status;
pub use check::{Check, ErrorClass, JsonKind};

use crate::error::{Error, Result};
use crate::text::comparable;

/// Longest pattern that is taken.
const LONGEST_PATTERN: usize = 500;

/// Name of the file of verifiers in an artifact: one JSON object a line.
pub const VERIFIER_FILE: &str = "verifiers.jsonl";

/// A part of both texts that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mask {
    /// What is masked.
    pub pattern: String,
    /// What stands in its place.
    pub placeholder: String,
}

/// The checks of one prompt.
///
/// ```
/// use worldloom_judge::verify::Verifier;
/// let text = r#"{"prompt_id": "t#3", "checks": [{"check": "line_set", "lines": ["a.txt", "b.txt"]},
///     {"check": "must_not_contain", "text": "No such file"}]}"#;
/// let verifier = Verifier::parse(text)?;
/// assert!(verifier.passes("b.txt\na.txt\n"));
/// assert!(!verifier.passes("a.txt"));
/// # Ok::<(), worldloom_judge::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Verifier {
    /// The prompt it belongs to.
    pub prompt_id: String,
    /// Masked beside what is always volatile (times, process ids, temporary names).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    /// All must pass.
    pub checks: Vec<Check>,
}

impl Verifier {
    /// Reads and checks one.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |detail: String| Error::Verifier { prompt_id: String::new(), detail };
        let verifier: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        verifier.validate()?;
        Ok(verifier)
    }

    /// Refuses what cannot be evaluated: patterns and paths that do not parse, empty lists, ranges the wrong way round.
    pub fn validate(&self) -> Result<()> {
        let wrong = |detail: String| Err(Error::Verifier { prompt_id: self.prompt_id.clone(), detail });
        if self.checks.is_empty() {
            return wrong("it has no checks".into());
        }
        for mask in &self.masks {
            if let Err(detail) = compile(&mask.pattern) {
                return wrong(format!("mask `{}`: {detail}", mask.pattern));
            }
        }
        for (number, check) in self.checks.iter().enumerate() {
            if let Err(detail) = check.validate() {
                return wrong(format!("check {number}: {detail}"));
            }
        }
        Ok(())
    }

    /// Whether a prediction passes all checks.
    pub fn passes(&self, prediction: &str) -> bool {
        self.failures(prediction).is_empty()
    }

    /// Numbers of the checks that a prediction does not pass.
    pub fn failures(&self, prediction: &str) -> Vec<usize> {
        let masks: Vec<(Regex, &str)> = self
            .masks
            .iter()
            .filter_map(|mask| Some((compile(&mask.pattern).ok()?, mask.placeholder.as_str())))
            .collect();
        let view = |text: &str| {
            let masked = comparable(text);
            masks.iter().fold(masked, |text, (pattern, placeholder)| {
                pattern.replace_all(&text, regex::NoExpand(placeholder)).into_owned()
            })
        };
        (0..self.checks.len()).filter(|&at| !self.checks[at].passes(prediction, &view)).collect()
    }
}

/// Reads a file of verifiers, one a line.
pub fn read_verifiers(path: &Path) -> Result<Vec<Verifier>> {
    let wrong = |detail: String| Error::Verifier { prompt_id: path.display().to_string(), detail };
    let text = fs_err::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let lines = text.split('\n').enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(row, line)| Verifier::parse(line).map_err(|error| wrong(format!("line {}: {error}", row + 1))))
        .collect()
}

fn compile(pattern: &str) -> std::result::Result<Regex, String> {
    if pattern.len() > LONGEST_PATTERN {
        return Err(format!("{} characters, at most {LONGEST_PATTERN}", pattern.len()));
    }
    regex::RegexBuilder::new(pattern).multi_line(true).size_limit(1 << 20).build().map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_hold_on_both_sides() {
        let text = r#"{"prompt_id": "p", "masks": [{"pattern": "id-[0-9a-f]+", "placeholder": "id-*"}],
            "checks": [{"check": "equals", "text": "made id-1 at 2026-11-29 17:25:16"}]}"#;
        let verifier = Verifier::parse(text).unwrap();
        assert!(verifier.passes("made id-ff at 2026-11-29 17:25:16\n"));
        assert!(!verifier.passes("made it-ff"));
    }

    #[test]
    fn what_cannot_be_evaluated_is_refused() {
        let refuse = |checks: &str| Verifier::parse(&format!(r#"{{"prompt_id": "p", "checks": [{checks}]}}"#)).is_err();
        for wrong in [
            "",
            r#"{"check": "exec", "code": "rm -rf /"}"#,
            r#"{"check": "regex", "pattern": "("}"#,
            r#"{"check": "regex", "pattern": "a{1000}{1000}{1000}"}"#,
            r#"{"check": "json_exists", "path": "a..b"}"#,
            r#"{"check": "line_set", "lines": []}"#,
            r#"{"check": "number", "path": "a", "low": 2, "high": 1}"#,
            r#"{"check": "count", "text": "a", "least": 2, "most": 1}"#,
            r#"{"check": "contains", "text": ""}"#,
            r#"{"check": "contains", "text": "a", "more": 1}"#,
        ] {
            assert!(refuse(wrong), "{wrong}");
        }
        let long = format!(r#"{{"check": "regex", "pattern": "{}"}}"#, "a".repeat(LONGEST_PATTERN + 1));
        assert!(refuse(&long));
    }
}
