//! The rule beside the rubric: a check by code, true or false.

use serde::{Deserialize, Serialize};

use crate::next_state::{Form, is_same_state};
use crate::text::{exact_match, normalised_match};
use crate::verify::Verifier;

/// Which rule a prediction is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Next-state matching: the prediction equals the truth, exactly, after masking what is volatile, or as a state of
    /// its form (JSON with its fields in another order); or it passes the prompt's verifier.
    NextState,
    /// The prompt's verifier, where it has one; no rule elsewhere.
    Verifier,
    /// No rule: the rubric stands alone.
    None,
}

impl Rule {
    /// 1 where the prediction passes, 0 where not; `None` where there is no rule.
    pub fn matched(self, truth: &str, prediction: &str) -> Option<f64> {
        self.matched_with(None, truth, prediction)
    }

    /// The same for a prompt with a verifier.
    pub fn matched_with(self, verifier: Option<&Verifier>, truth: &str, prediction: &str) -> Option<f64> {
        let is_same = || {
            exact_match(truth, prediction)
                || normalised_match(truth, prediction)
                || is_same_state(Form::of(truth), truth, prediction)
        };
        let passes = match (self, verifier) {
            (Rule::None, _) | (Rule::Verifier, None) => return None,
            (Rule::NextState, verifier) => is_same() || verifier.is_some_and(|verifier| verifier.passes(prediction)),
            (Rule::Verifier, Some(verifier)) => verifier.passes(prediction),
        };
        Some(if passes { 1.0 } else { 0.0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_state_matching_is_one_or_nothing() {
        assert_eq!(Rule::NextState.matched("a\n", "a"), Some(1.0));
        assert_eq!(Rule::NextState.matched("a\nb", "a"), Some(0.0));
        assert_eq!(Rule::NextState.matched("", ""), Some(1.0));
        assert_eq!(Rule::None.matched("a", "a"), None);
        assert_eq!(Rule::NextState.matched(r#"{"a": 1, "b": 2}"#, r#"{"b": 2, "a": 1}"#), Some(1.0));
    }

    #[test]
    fn a_verifier_is_a_rule_where_there_is_one() {
        let text = r#"{"prompt_id": "p", "checks": [{"check": "contains", "text": "fig"}]}"#;
        let verifier = Verifier::parse(text).unwrap();
        assert_eq!(Rule::Verifier.matched_with(Some(&verifier), "fig", "a fig"), Some(1.0));
        assert_eq!(Rule::Verifier.matched_with(Some(&verifier), "fig", "fog"), Some(0.0));
        assert_eq!(Rule::Verifier.matched_with(None, "fig", "fig"), None);
        assert_eq!(Rule::NextState.matched_with(Some(&verifier), "fig", "a fig"), Some(1.0));
    }
}
