//! The rule beside the rubric: a check by code, true or false.

use serde::{Deserialize, Serialize};

use crate::text::{exact_match, normalised_match};

/// Which rule a prediction is held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Next-state matching: the prediction equals the truth, exactly or after masking what is volatile.
    NextState,
    /// No rule: the rubric stands alone.
    None,
}

impl Rule {
    /// 1 where the prediction passes, 0 where not; `None` where there is no rule.
    pub fn matched(self, truth: &str, prediction: &str) -> Option<f64> {
        let passes = exact_match(truth, prediction) || normalised_match(truth, prediction);
        match self {
            Rule::NextState => Some(if passes { 1.0 } else { 0.0 }),
            Rule::None => None,
        }
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
    }
}
