//! Further rewards by their names.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use super::FULL_REWARD;
use crate::next_state::change_f1_of;
use crate::rubric::{Dimension, JudgeQuery, Scores};
use crate::text::{exact_match, line_f1, normalised_match};

/// A further reward, from 0 to 25, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NamedReward {
    /// Equal byte for byte.
    Exact,
    /// Equal after normalising and masking.
    Normalised,
    /// F1 over lines.
    LineF1,
    /// F1 over what changed since the last observation, in units of the truth's form.
    ChangeF1,
    /// Length of the shorter over that of the longer, prediction against truth.
    LengthRatio,
    /// Whether the prediction is nearer to the truth than that of the policy as training began: 25 where it is, 12.5 where
    /// neither is, 0 where it is farther. The published form is binary; it was slow and noisy there.
    ReferencePairwise,
    /// Whether the judge, without the truth, says that the prediction could be real. Barely converged as published: it is
    /// here for ablation.
    Turing,
    /// One dimension of the rubric, five times over.
    Format,
    /// The same.
    Factuality,
    /// The same.
    Consistency,
    /// The same.
    Realism,
    /// The same.
    Quality,
}

impl NamedReward {
    /// The name as it is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            NamedReward::Exact => "reward_exact",
            NamedReward::Normalised => "reward_normalised",
            NamedReward::LineF1 => "reward_line_f1",
            NamedReward::ChangeF1 => "reward_change_f1",
            NamedReward::LengthRatio => "reward_length_ratio",
            NamedReward::ReferencePairwise => "reward_reference_pairwise",
            NamedReward::Turing => "reward_turing",
            NamedReward::Format => "reward_format",
            NamedReward::Factuality => "reward_factuality",
            NamedReward::Consistency => "reward_consistency",
            NamedReward::Realism => "reward_realism",
            NamedReward::Quality => "reward_quality",
        }
    }

    /// Its value; none where it needs scores or an answer and there are none.
    pub(super) fn value(self, query: &JudgeQuery<'_>, said: &JudgeSaid) -> Option<f64> {
        let JudgeQuery { truth, prediction, .. } = query;
        let of = |is: bool| Some(if is { FULL_REWARD } else { 0.0 });
        let dimension = |dimension| said.scores.map(|scores| 5.0 * scores.get(dimension).value());
        match self {
            NamedReward::Exact => of(exact_match(truth, prediction)),
            NamedReward::Normalised => of(normalised_match(truth, prediction)),
            NamedReward::LineF1 => Some(FULL_REWARD * line_f1(truth, prediction).f1),
            NamedReward::ChangeF1 => Some(FULL_REWARD * change_f1_of(query)),
            NamedReward::LengthRatio => {
                let (one, other) = (truth.chars().count().max(1) as f64, prediction.chars().count().max(1) as f64);
                Some(FULL_REWARD * one.min(other) / one.max(other))
            }
            NamedReward::ReferencePairwise => said.against_reference.map(|order| match order {
                Ordering::Greater => FULL_REWARD,
                Ordering::Equal => FULL_REWARD / 2.0,
                Ordering::Less => 0.0,
            }),
            NamedReward::Turing => said.could_be_real.and_then(of),
            NamedReward::Format => dimension(Dimension::Format),
            NamedReward::Factuality => dimension(Dimension::Factuality),
            NamedReward::Consistency => dimension(Dimension::Consistency),
            NamedReward::Realism => dimension(Dimension::Realism),
            NamedReward::Quality => dimension(Dimension::Quality),
        }
    }
}

/// What judges said of a prediction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct JudgeSaid {
    pub(crate) scores: Option<Scores>,
    /// Whether it is nearer to the truth than the reference's prediction.
    pub(crate) against_reference: Option<Ordering>,
    pub(crate) could_be_real: Option<bool>,
}

impl JudgeSaid {
    /// Of a prediction that is given the least.
    pub(crate) const LEAST: JudgeSaid =
        JudgeSaid { scores: Some(Scores::LEAST), against_reference: Some(Ordering::Less), could_be_real: Some(false) };
}
