//! From scores to the one number RL sees.
//!
//! `rubric = 5 · mean` of the five scores (5 to 25), `rule = 25 · match`, and where there is a rule
//! `R = rubric_weight · rubric + rule_weight · rule`, else `R = rubric` (arXiv 2606.24597; recipe.md §2.3). A policy
//! fault has R = 0 and stays in the group's statistics. A judge without an answer gives no reward at all: the
//! published arithmetic counts that as 0, we do not, since it would look like the worst of answers.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::extract::{Extraction, Fault, extract};
use crate::rubric::{Dimension, Judge, JudgeContext, JudgeOutcome, Scores};
use crate::rule::Rule;

const FULL_REWARD: f64 = 25.0;

/// How rubric and rule mix where there is a rule.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardConfig {
    /// Weight of the rubric; 0.9 as published.
    pub rubric_weight: f64,
    /// Weight of the rule; 0.1 as published.
    pub rule_weight: f64,
}

impl Default for RewardConfig {
    fn default() -> Self {
        RewardConfig { rubric_weight: 0.9, rule_weight: 0.1 }
    }
}

impl RewardConfig {
    /// Both weights are from 0 to 1 and their sum is 1, so that R keeps its scale whether there is a rule or not.
    pub fn validate(&self) -> Result<()> {
        for (field, found) in [("rubric_weight", self.rubric_weight), ("rule_weight", self.rule_weight)] {
            if !(0.0..=1.0).contains(&found) {
                return Err(Error::Weight { field, found });
            }
        }
        let found = self.rubric_weight + self.rule_weight;
        if (found - 1.0).abs() > 1e-9 { Err(Error::WeightSum { found }) } else { Ok(()) }
    }

    /// The reward of scores and, where there is a rule, its match (1 or 0).
    pub fn mix(&self, scores: Scores, matched: Option<f64>) -> RewardParts {
        let rubric = 5.0 * scores.mean();
        let rule = matched.map(|matched| FULL_REWARD * matched);
        let reward = rule.map_or(rubric, |rule| self.rubric_weight * rubric + self.rule_weight * rule);
        RewardParts { scores, rubric, rule, reward }
    }
}

/// A reward and what it is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RewardParts {
    /// The five scores.
    pub scores: Scores,
    /// `5 · mean`, from 5 to 25.
    pub rubric: f64,
    /// `25 · match`, where there is a rule.
    pub rule: Option<f64>,
    /// The mix.
    pub reward: f64,
}

impl RewardParts {
    /// Every part by its name, for the log: the five dimensions, `rubric` and, where there is one, `rule`.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let dimensions = Dimension::ALL.map(|dimension| (dimension.as_str(), self.scores.get(dimension).value()));
        dimensions.into_iter().chain([("rubric", self.rubric)]).chain(self.rule.map(|rule| ("rule", rule))).collect()
    }
}

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
}

/// What a completion earns.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// A reward.
    Scored(RewardParts),
    /// Reward 0, inside the group's statistics, and counted.
    Fault(Fault),
    /// No reward: the sample leaves the statistics.
    Unavailable(Unavailable),
}

impl Verdict {
    /// The reward as the group's statistics take it: 0 for a fault, none where nobody judged.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Verdict::Scored(parts) => Some(parts.reward),
            Verdict::Fault(_) => Some(0.0),
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
        JudgeOutcome::Unparseable => Verdict::Unavailable(Unavailable::Unparseable),
        JudgeOutcome::Refused => Verdict::Unavailable(Unavailable::Refused),
        JudgeOutcome::Unavailable => Verdict::Unavailable(Unavailable::NoAnswer),
    }
}

#[cfg(test)]
mod tests {
    use worldloom_schema::Domain;

    use super::*;

    struct Answers(JudgeOutcome);

    impl Judge for Answers {
        fn score(&self, _: &JudgeContext<'_>, _: &str, _: &str) -> JudgeOutcome {
            self.0
        }
    }

    fn verdict(outcome: JudgeOutcome, rule: Rule, completion: &str) -> Verdict {
        let context = JudgeContext { domain: Domain::Terminal, initial_state: None, history: &[], action: "cat a" };
        judge_completion(&RewardConfig::default(), &Answers(outcome), rule, &context, "fig", completion, true)
    }

    fn scores(levels: [u8; 5]) -> Scores {
        Scores::try_from(levels).unwrap()
    }

    fn tagged(content: &str) -> String {
        format!("<think>\nfig?\n</think>\n<predicted_observation>\n{content}\n</predicted_observation>")
    }

    #[test]
    fn the_arithmetic_is_the_published_one() {
        let config = RewardConfig::default();
        for (levels, matched, rubric, reward) in [
            ([5, 5, 5, 5, 5], Some(1.0), 25.0, 25.0),
            ([5, 5, 5, 5, 5], Some(0.0), 25.0, 22.5),
            ([5, 5, 5, 5, 5], None, 25.0, 25.0),
            ([1, 1, 1, 1, 1], Some(0.0), 5.0, 4.5),
            ([1, 1, 1, 1, 1], None, 5.0, 5.0),
            ([5, 1, 3, 5, 2], Some(0.0), 16.0, 14.4),
            ([5, 1, 3, 5, 2], None, 16.0, 16.0),
            ([4, 4, 4, 4, 4], Some(1.0), 20.0, 20.5),
        ] {
            let parts = config.mix(scores(levels), matched);
            assert_eq!(parts.rubric, rubric);
            assert!((parts.reward - reward).abs() < 1e-12, "{levels:?} {matched:?}: {}", parts.reward);
            assert_eq!(parts.rule, matched.map(|matched| 25.0 * matched));
        }
    }

    #[test]
    fn parts_are_logged_by_name() {
        let named = RewardConfig::default().mix(scores([5, 1, 3, 4, 2]), Some(1.0)).named();
        let expected = [
            ("format", 5.0),
            ("factuality", 1.0),
            ("consistency", 3.0),
            ("realism", 4.0),
            ("quality", 2.0),
            ("rubric", 15.0),
            ("rule", 25.0),
        ];
        assert_eq!(named, expected);
    }

    #[test]
    fn a_fault_has_reward_0_and_an_unavailable_judge_has_none() {
        let full = JudgeOutcome::Scored(scores([5; 5]));
        assert_eq!(verdict(full, Rule::NextState, &tagged("fig")).reward(), Some(25.0));
        assert_eq!(verdict(full, Rule::NextState, "fig"), Verdict::Fault(Fault::MissingTag));
        assert_eq!(verdict(full, Rule::NextState, "fig").reward(), Some(0.0));
        for (outcome, unavailable) in [
            (JudgeOutcome::Unparseable, Unavailable::Unparseable),
            (JudgeOutcome::Refused, Unavailable::Refused),
            (JudgeOutcome::Unavailable, Unavailable::NoAnswer),
        ] {
            let verdict = verdict(outcome, Rule::NextState, &tagged("fig"));
            assert_eq!((verdict.reward(), verdict), (None, Verdict::Unavailable(unavailable)));
        }
    }

    #[test]
    fn weights_that_change_the_scale_are_refused() {
        let check = |rubric_weight, rule_weight| RewardConfig { rubric_weight, rule_weight }.validate();
        assert_eq!(RewardConfig::default().validate(), Ok(()));
        assert_eq!(check(1.0, 0.0), Ok(()));
        assert_eq!(check(1.1, -0.1), Err(Error::Weight { field: "rubric_weight", found: 1.1 }));
        assert_eq!(check(0.5, 0.25), Err(Error::WeightSum { found: 0.75 }));
        assert!(check(f64::NAN, 0.1).is_err());
        assert!(serde_json::from_str::<RewardConfig>(r#"{"rubric": 1.0}"#).is_err());
    }
}
