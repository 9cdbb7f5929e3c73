//! From scores to the one number RL sees.
//!
//! `rubric = 5 · mean` of the five scores (5 to 25), `rule = 25 · match`, and where there is a rule
//! `R = rubric_weight · rubric + rule_weight · rule`, else `R = rubric` (arXiv 2606.24597; recipe.md §2.3). A policy
//! fault has R = 0 and stays in the group's statistics. A judge without an answer gives no reward at all: the
//! published arithmetic counts that as 0, we do not, since it would look like the worst of answers.

mod named;
mod verdict;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use named::JudgeSaid;
pub use named::NamedReward;
pub use verdict::{Unavailable, Verdict, judge_completion, judge_extraction};

use crate::error::{Error, Result};
use crate::rubric::{Dimension, JudgeQuery, Scores};

const FULL_REWARD: f64 = 25.0;

/// What the published 9:1 mixes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mixing {
    /// The two rewards of each sample with a rule: `R = rubric_weight · rubric + rule_weight · rule`.
    #[default]
    Reward,
    /// The data: a share of `rule_weight` of the prompts, drawn by their id, is rewarded by the rule alone where there
    /// is one, the others by the rubric alone.
    Data,
}

/// How rubric, rule and further rewards become one number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RewardConfig {
    /// Weight of the rubric; 0.9 as published.
    pub rubric_weight: f64,
    /// Weight of the rule; 0.1 as published.
    pub rule_weight: f64,
    /// What the two weights mix.
    #[serde(skip_serializing_if = "is_default")]
    pub mixing: Mixing,
    /// Further rewards with their weights, added to the mix. A weight of 0 logs the value and changes nothing.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub further: BTreeMap<NamedReward, f64>,
}

fn is_default(mixing: &Mixing) -> bool {
    *mixing == Mixing::default()
}

impl Default for RewardConfig {
    fn default() -> Self {
        RewardConfig { rubric_weight: 0.9, rule_weight: 0.1, mixing: Mixing::Reward, further: BTreeMap::new() }
    }
}

/// What a sample's reward counts.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Weights {
    rubric: f64,
    rule: f64,
}

impl RewardConfig {
    /// Both weights are from 0 to 1 and their sum is 1, so that R keeps its scale whether there is a rule or not; or both
    /// are 0, and R is the further rewards alone.
    pub fn validate(&self) -> Result<()> {
        for (field, found) in [("rubric_weight", self.rubric_weight), ("rule_weight", self.rule_weight)] {
            if !(0.0..=1.0).contains(&found) {
                return Err(Error::Weight { field, found });
            }
        }
        if let Some((name, &found)) = self.further.iter().find(|(_, weight)| !weight.is_finite()) {
            return Err(Error::Weight { field: name.as_str(), found });
        }
        let found = self.rubric_weight + self.rule_weight;
        let is_further_alone = found == 0.0 && self.further.values().any(|&weight| weight != 0.0);
        if (found - 1.0).abs() > 1e-9 && !is_further_alone { Err(Error::WeightSum { found }) } else { Ok(()) }
    }

    /// The reward of scores and, where there is a rule, its match (1 or 0), without further rewards.
    pub fn mix(&self, scores: Scores, matched: Option<f64>) -> RewardParts {
        let weights = self.weights("", matched.is_some());
        let rubric = 5.0 * scores.mean();
        let rule = matched.map(|matched| FULL_REWARD * matched);
        let reward = weights.rubric * rubric + weights.rule * rule.unwrap_or(0.0);
        RewardParts { scores: Some(scores), rubric: Some(rubric), rule, further: Vec::new(), reward }
    }

    /// The reward of a sample of this prompt. None where something that counts is missing.
    pub(crate) fn reward(
        &self,
        prompt_id: &str,
        query: &JudgeQuery<'_>,
        said: &JudgeSaid,
        matched: Option<f64>,
    ) -> Option<RewardParts> {
        let (weights, scores) = (self.weights(prompt_id, matched.is_some()), said.scores);
        let rubric = scores.map(|scores| 5.0 * scores.mean());
        let rule = matched.map(|matched| FULL_REWARD * matched);
        let weighted = |weight: f64, value: Option<f64>| match value {
            Some(value) => Some(weight * value),
            None => (weight == 0.0).then_some(0.0),
        };
        let mut reward = weighted(weights.rubric, rubric)? + weighted(weights.rule, rule)?;
        let mut further = Vec::new();
        for (&name, &weight) in &self.further {
            let value = name.value(query, said);
            reward += weighted(weight, value)?;
            further.extend(value.map(|value| (name, value)));
        }
        Some(RewardParts { scores, rubric, rule, further, reward })
    }

    /// Whether this further reward is asked for, with whatever weight.
    pub(crate) fn has(&self, name: NamedReward) -> bool {
        self.further.contains_key(&name)
    }

    fn weights(&self, prompt_id: &str, has_rule: bool) -> Weights {
        match self.mixing {
            _ if self.rubric_weight + self.rule_weight == 0.0 => Weights { rubric: 0.0, rule: 0.0 },
            _ if !has_rule => Weights { rubric: 1.0, rule: 0.0 },
            Mixing::Reward => Weights { rubric: self.rubric_weight, rule: self.rule_weight },
            Mixing::Data if share_of(prompt_id) < self.rule_weight => Weights { rubric: 0.0, rule: 1.0 },
            Mixing::Data => Weights { rubric: 1.0, rule: 0.0 },
        }
    }
}

/// A number from 0 to 1 that follows from a text, spread evenly over texts.
pub(crate) fn share_of(text: &str) -> f64 {
    let hash = blake3::hash(text.as_bytes());
    let bytes: [u8; 4] = [hash.as_bytes()[0], hash.as_bytes()[1], hash.as_bytes()[2], hash.as_bytes()[3]];
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

/// A reward and what it is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct RewardParts {
    /// The five scores, where the judge gave some.
    pub scores: Option<Scores>,
    /// `5 · mean`, from 5 to 25.
    pub rubric: Option<f64>,
    /// `25 · match`, where there is a rule.
    pub rule: Option<f64>,
    /// Further rewards.
    pub further: Vec<(NamedReward, f64)>,
    /// The sum.
    pub reward: f64,
}

impl RewardParts {
    /// Every part by its name, for the log: the five dimensions, `rubric`, where there is one `rule`, further rewards.
    pub fn named(&self) -> Vec<(&'static str, f64)> {
        let dimension = |scores: Scores| Dimension::ALL.map(|name| (name.as_str(), scores.get(name).value()));
        let dimensions = self.scores.map(dimension).into_iter().flatten();
        let rubric = self.rubric.map(|rubric| ("rubric", rubric));
        let rule = self.rule.map(|rule| ("rule", rule));
        let further = self.further.iter().map(|(name, value)| (name.as_str(), *value));
        dimensions.chain(rubric).chain(rule).chain(further).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use worldloom_schema::Domain;

    use super::*;
    use crate::extract::Fault;
    use crate::rubric::{Judge, JudgeContext, JudgeOutcome};
    use crate::rule::Rule;

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

    fn said(scores: Option<Scores>) -> JudgeSaid {
        JudgeSaid { scores, ..JudgeSaid::default() }
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
            assert_eq!(parts.rubric, Some(rubric));
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
        let check = |rubric_weight, rule_weight| {
            RewardConfig { rubric_weight, rule_weight, ..RewardConfig::default() }.validate()
        };
        assert_eq!(RewardConfig::default().validate(), Ok(()));
        assert_eq!(check(1.0, 0.0), Ok(()));
        assert_eq!(check(1.1, -0.1), Err(Error::Weight { field: "rubric_weight", found: 1.1 }));
        assert_eq!(check(0.5, 0.25), Err(Error::WeightSum { found: 0.75 }));
        assert!(check(f64::NAN, 0.1).is_err());
        assert!(serde_json::from_str::<RewardConfig>(r#"{"rubric": 1.0}"#).is_err());
    }

    #[test]
    fn further_rewards_are_added_by_weight_and_logged_at_weight_0() {
        let config: RewardConfig =
            serde_json::from_str(r#"{"further": {"line_f1": 0.5, "exact": 0.0, "factuality": -0.1}}"#).unwrap();
        let context = JudgeContext { domain: Domain::Terminal, initial_state: None, history: &[], action: "ls" };
        let query = JudgeQuery { context, truth: "a\nb\nc", prediction: "a" };
        let parts = config.reward("p", &query, &said(Some(scores([5, 1, 3, 5, 2]))), Some(0.0)).unwrap();
        assert!((parts.reward - (14.4 + 0.5 * 12.5 - 0.1 * 5.0)).abs() < 1e-9, "{}", parts.reward);
        let further: Vec<_> = parts.named().into_iter().filter(|(name, _)| name.starts_with("reward_")).collect();
        assert_eq!(further, [("reward_exact", 0.0), ("reward_line_f1", 12.5), ("reward_factuality", 5.0)]);
        assert_eq!(config.reward("p", &query, &said(None), Some(0.0)), None, "a weighted part is missing");
        assert!(serde_json::from_str::<RewardConfig>(r#"{"further": {"charm": 1.0}}"#).is_err());
        let infinite =
            RewardConfig { further: [(NamedReward::Exact, f64::INFINITY)].into(), ..RewardConfig::default() };
        assert!(infinite.validate().is_err());
    }

    #[test]
    fn answers_of_a_model_are_rewards_and_may_stand_alone() {
        let config: RewardConfig = serde_json::from_str(
            r#"{"rubric_weight": 0.0, "rule_weight": 0.0, "further": {"turing": 1.0, "reference_pairwise": 0.5}}"#,
        )
        .unwrap();
        assert_eq!(config.validate(), Ok(()));
        let context = JudgeContext { domain: Domain::Terminal, initial_state: None, history: &[], action: "ls" };
        let query = JudgeQuery { context, truth: "a", prediction: "b" };
        let reward = |could_be_real, against_reference| {
            let said = JudgeSaid { scores: Some(scores([5; 5])), against_reference, could_be_real };
            config.reward("p", &query, &said, Some(1.0)).map(|parts| parts.reward)
        };
        assert_eq!(reward(Some(true), Some(Ordering::Greater)), Some(37.5));
        assert_eq!(reward(Some(false), Some(Ordering::Equal)), Some(6.25));
        assert_eq!(reward(Some(false), Some(Ordering::Less)), Some(0.0));
        assert_eq!([reward(None, Some(Ordering::Less)), reward(Some(true), None)], [None; 2], "no silent 0");
        let nothing = RewardConfig { further: BTreeMap::new(), ..config };
        assert_eq!(nothing.validate(), Err(Error::WeightSum { found: 0.0 }));
    }

    #[test]
    fn a_mix_of_data_rewards_a_tenth_of_the_prompts_by_the_rule_alone() {
        let config = RewardConfig { mixing: Mixing::Data, ..RewardConfig::default() };
        let context = JudgeContext { domain: Domain::Terminal, initial_state: None, history: &[], action: "ls" };
        let query = JudgeQuery { context, truth: "a", prediction: "a" };
        let reward = |prompt: usize, matched| {
            config.reward(&format!("p{prompt}"), &query, &said(Some(scores([1; 5]))), matched).unwrap().reward
        };
        let by_rule = (0..10_000).filter(|&prompt| reward(prompt, Some(1.0)) == 25.0).count();
        assert!((900..1100).contains(&by_rule), "{by_rule}");
        assert!((0..10_000).all(|prompt| [25.0, 5.0].contains(&reward(prompt, Some(1.0)))));
        assert!((0..100).all(|prompt| reward(prompt, None) == 5.0), "without a rule the rubric stands alone");
        // The rule needs no judge.
        let prompt = (0..).find(|&prompt| reward(prompt, Some(1.0)) == 25.0).unwrap();
        let without = config.reward(&format!("p{prompt}"), &query, &said(None), Some(1.0)).unwrap();
        assert_eq!((without.reward, without.rubric), (25.0, None));
    }
}
