//! Trouble on purpose: what a turn can be told to go wrong with.

use serde::{Deserialize, Serialize};
use worldloom_judge::verify::ErrorClass;

/// A kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Perturbation {
    /// The action fails with an error of the environment.
    Error,
    /// The action does not come back in time.
    Timeout,
    /// Only a first part comes, with the way to the rest.
    Pagination,
    /// Part of the action is done, the rest is not.
    PartialFailure,
    /// A part of the answer that was asked for is left out.
    WithheldField,
    /// The action is not allowed.
    PermissionDenied,
}

impl Perturbation {
    /// All six.
    pub const ALL: [Perturbation; 6] = [
        Perturbation::Error,
        Perturbation::Timeout,
        Perturbation::Pagination,
        Perturbation::PartialFailure,
        Perturbation::WithheldField,
        Perturbation::PermissionDenied,
    ];

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Perturbation::Error => "error",
            Perturbation::Timeout => "timeout",
            Perturbation::Pagination => "pagination",
            Perturbation::PartialFailure => "partial_failure",
            Perturbation::WithheldField => "withheld_field",
            Perturbation::PermissionDenied => "permission_denied",
        }
    }

    /// Whether an observation shows the trouble, as far as its words can tell; none where they cannot: a page and a field
    /// left out look like any other answer.
    pub fn is_met(self, observation: &str) -> Option<bool> {
        let class = ErrorClass::of(observation);
        match self {
            Perturbation::Error | Perturbation::PartialFailure => Some(class != ErrorClass::None),
            Perturbation::Timeout => Some(class == ErrorClass::Timeout),
            Perturbation::PermissionDenied => Some(class == ErrorClass::Denied),
            Perturbation::Pagination | Perturbation::WithheldField => None,
        }
    }

    /// What the simulation is told for the turn.
    pub fn instruction(self) -> &'static str {
        match self {
            Perturbation::Error => {
                "This time the action fails: answer with the error that this environment shows, and change nothing."
            }
            Perturbation::Timeout => {
                "This time the action runs out of time: answer as this environment does then, and change nothing."
            }
            Perturbation::Pagination => {
                "This time answer with a first page only, and say how the rest is reached, in this environment's own way."
            }
            Perturbation::PartialFailure => {
                "This time the action succeeds in part: do some of it, and report for the rest why it failed."
            }
            Perturbation::WithheldField => {
                "This time leave out one piece of information that the answer would hold, without saying so."
            }
            Perturbation::PermissionDenied => {
                "This time the action is not permitted: answer with this environment's own refusal, and change nothing."
            }
        }
    }
}

/// On which turns a perturbation strikes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    /// What happens.
    pub kind: Perturbation,
    /// On this turn, from 0. Either this or `share`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<u64>,
    /// On this share of the turns, drawn by the scenario's seed. Either this or `turn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_met_where_the_words_show_its_class() {
        let met = |kind: Perturbation| {
            ["fig", "timed out after 30 s", "cat: x: Permission denied", "2 of 3 copied, c: failed"]
                .map(|observation| kind.is_met(observation))
        };
        let [yes, no] = [Some(true), Some(false)];
        assert_eq!(met(Perturbation::Timeout), [no, yes, no, no]);
        assert_eq!(met(Perturbation::PermissionDenied), [no, no, yes, no]);
        assert_eq!(met(Perturbation::Error), [no, yes, yes, yes]);
        assert_eq!(met(Perturbation::PartialFailure), [no, yes, yes, yes]);
        assert_eq!((met(Perturbation::Pagination), met(Perturbation::WithheldField)), ([None; 4], [None; 4]));
    }
}
