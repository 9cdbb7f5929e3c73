//! What a completion earns, and why a judge gave nothing.

use serde::{Deserialize, Serialize};

use super::{RewardConfig, RewardParts};
use crate::extract::{Extraction, Fault, extract};
use crate::guard::Hack;
use crate::rubric::{Judge, JudgeContext, JudgeOutcome};
use crate::rule::Rule;

/// Why a judge gave no scores. None of it is the policy's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unavailable {
    /// It answered, but not with five scores.
    Unparseable,
    /// It would not judge.
    Refused,
    /// It did not answer.
    NoAnswer,
    /// Its server would not take the question: a wrong key, an unknown model, a prompt that is too long.
    Rejected,
    /// Its answer could not be put into the cache or the log; going on would lose what was paid for.
    NotKept,
}

impl Unavailable {
    /// The reason in an outcome without scores.
    pub fn of(outcome: JudgeOutcome) -> Self {
        match outcome {
            JudgeOutcome::Unparseable => Unavailable::Unparseable,
            JudgeOutcome::Refused => Unavailable::Refused,
            JudgeOutcome::Rejected => Unavailable::Rejected,
            JudgeOutcome::NotKept => Unavailable::NotKept,
            JudgeOutcome::Unavailable | JudgeOutcome::Scored(_) => Unavailable::NoAnswer,
        }
    }

    /// The name as it is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            Unavailable::Unparseable => "unparseable",
            Unavailable::Refused => "refused",
            Unavailable::NoAnswer => "no_answer",
            Unavailable::Rejected => "rejected",
            Unavailable::NotKept => "not_kept",
        }
    }
}

/// What a completion earns.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A reward.
    Scored(RewardParts),
    /// Reward 0, inside the group's statistics, and counted.
    Fault(Fault),
    /// The same, for a prediction that speaks to the judge ([`Hack::is_fault`]).
    Hack(Hack),
    /// No reward: the sample leaves the statistics.
    Unavailable(Unavailable),
}

impl Verdict {
    /// The reward as the group's statistics take it: 0 for a fault, none where nobody judged.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Verdict::Scored(parts) => Some(parts.reward),
            Verdict::Fault(_) | Verdict::Hack(_) => Some(0.0),
            Verdict::Unavailable(_) => None,
        }
    }
}

/// Extracts, judges and mixes; `stopped` as for [`extract`].
pub fn judge_completion(
    config: &RewardConfig,
    judge: &dyn Judge,
    rule: Rule,
    context: &JudgeContext<'_>,
    truth: &str,
    completion: &str,
    stopped: bool,
) -> Verdict {
    judge_extraction(config, judge, rule, context, truth, &extract(completion, stopped))
}

/// Judges and mixes what was extracted.
pub fn judge_extraction(
    config: &RewardConfig,
    judge: &dyn Judge,
    rule: Rule,
    context: &JudgeContext<'_>,
    truth: &str,
    extraction: &Extraction,
) -> Verdict {
    let prediction = match extraction {
        Extraction::Observation(prediction) => prediction,
        Extraction::Fault(fault) => return Verdict::Fault(*fault),
    };
    match judge.score(context, truth, prediction) {
        JudgeOutcome::Scored(scores) => Verdict::Scored(config.mix(scores, rule.matched(truth, prediction))),
        outcome => Verdict::Unavailable(Unavailable::of(outcome)),
    }
}
