//! The one error type of the crate.

use std::path::PathBuf;

/// What a caller can get wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A score is no whole number from 1 to 5. It is refused, not clamped.
    #[error("a rubric score is {found}, expected a whole number from 1 to 5")]
    ScoreOutOfRange {
        /// The number found.
        found: u8,
    },
    /// A weight of the reward mix is negative or not a number.
    #[error("reward: `{field}` is {found}, expected a number from 0 to 1")]
    Weight {
        /// The field of the configuration.
        field: &'static str,
        /// Its value.
        found: f64,
    },
    /// The weights of the reward mix do not add up to 1.
    #[error("reward: `rubric_weight` and `rule_weight` add up to {found}, expected 1 (or 0 beside further rewards)")]
    WeightSum {
        /// Their sum.
        found: f64,
    },
    /// A further reward that a model has to give, and no model to ask.
    #[error("reward: `further.{name}` is an answer of a model, but the judge is none; expected `http` or `local`")]
    NoModel {
        /// The reward.
        name: &'static str,
    },
    /// A verifier cannot be used.
    #[error("verifier `{prompt_id}`: {detail}")]
    Verifier {
        /// Its prompt, or the file.
        prompt_id: String,
        /// What is wrong.
        detail: String,
    },
    /// Prompts of a judge cannot be used.
    #[error("judge prompts `{path}`: {detail}")]
    Prompts {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;
