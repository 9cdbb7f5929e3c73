//! Scores a predicted observation: extraction, rubric, rule, reward; and the client of OpenAI-compatible endpoints
//! through which judges, traces, evaluation and rollouts ask models ([`endpoint`]).
//!
//! Words: a *completion* is what the model wrote; its *prediction* is the content of the one closed
//! `<predicted_observation>` block in it ([`extract`]); the *truth* is what the environment really answered. The
//! *rubric* is five scores from 1 to 5 given by a [`Judge`]; the *rule* is next-state matching ([`Rule`]); the
//! *reward* mixes the two ([`RewardConfig`]). A *fault* is the policy's doing and costs it everything; a judge that
//! gives no scores is *unavailable* and says nothing about the policy. [`Metrics`] are what evaluation keeps of one
//! prediction, [`clustered_mean`], [`mean_of_means`] and [`paired_difference`] what it says of many.

mod agreement;
pub mod asked;
pub mod bench;
mod bootstrap;
pub mod endpoint;
mod ensemble;
mod error;
mod extract;
mod guard;
mod leak;
mod metrics;
mod next_state;
mod observed;
mod reward;
mod rewarder;
mod rubric;
mod rule;
mod text;
pub mod verify;

pub use agreement::{rank_agreement, rank_agreement_interval};
pub use bootstrap::{Interval, clustered_mean, clustered_statistic, mean_of_means, paired_difference};
pub use ensemble::{Combination, EnsembleJudge};
pub use error::{Error, Result};
pub use extract::{CLOSE_TAG, Extraction, Fault, OPEN_TAG, extract, extract_untagged};
pub use guard::{GuardConfig, Hack, inspect};
pub use leak::{Leak, copied, leak};
pub use metrics::{Metrics, measure};
pub use next_state::{Form, change_f1, change_f1_of, is_same_state, units};
pub use observed::{Observed, observe};
pub use reward::{
    Mixing, NamedReward, RewardConfig, RewardParts, Unavailable, Verdict, judge_completion, judge_extraction,
};
pub use rewarder::{Candidate, Rewarded, Rewarder};
pub use rubric::{BuiltinJudge, Dimension, Judge, JudgeContext, JudgeOutcome, JudgeQuery, Score, Scores, told};
pub use rule::Rule;
pub use text::{LineF1, exact_match, line_f1, mask_volatile, normalise, normalised_match};
