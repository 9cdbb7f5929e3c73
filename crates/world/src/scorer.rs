//! Scores RL's completions: tokens to text, text to prediction, prediction to reward.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worldloom_judge::{Judge, JudgeContext, RewardConfig, Rule, Verdict, judge_completion};
use worldloom_render::Renderer;
use worldloom_schema::Prompt;
use worldloom_train::rl::{Completion, Failure, Group, Score, Scorer};

use crate::error::{Error, Result};

/// How completions are scored.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScorerConfig {
    /// The check by code beside the rubric.
    pub rule: Rule,
    /// How rubric and rule mix; as published unless said otherwise.
    #[serde(default)]
    pub reward: RewardConfig,
}

/// A judge and a rule behind the trainer's trait.
pub struct JudgeScorer {
    config: ScorerConfig,
    renderer: Renderer,
    judge: Box<dyn Judge>,
    prompts: Vec<Prompt>,
}

impl JudgeScorer {
    /// `prompts` in the order in which the trainer has them.
    pub fn new(config: ScorerConfig, renderer: Renderer, judge: Box<dyn Judge>, prompts: Vec<Prompt>) -> Result<Self> {
        config.reward.validate()?;
        Ok(Self { config, renderer, judge, prompts })
    }

    fn score_one(&self, prompt: usize, completion: &Completion) -> Result<Score> {
        let found = self.prompts.get(prompt);
        let prompt = found.ok_or(Error::NoPrompt { prompt, prompts: self.prompts.len() })?;
        let text = self.renderer.completion_text(&completion.tokens)?;
        let history: Vec<(&str, &str)> =
            prompt.history.iter().map(|turn| (turn.action.as_str(), turn.observation.as_str())).collect();
        let context = JudgeContext {
            domain: prompt.domain,
            initial_state: prompt.initial_state.as_deref(),
            history: &history,
            action: &prompt.action,
        };
        let ScorerConfig { rule, reward } = &self.config;
        let truth = &prompt.observation;
        let stopped = completion.stopped;
        Ok(score_of(judge_completion(reward, self.judge.as_ref(), *rule, &context, truth, &text, stopped)))
    }
}

/// The trainer's word for a verdict. A reward of the rule is logged as `match` as well, from 0 to 1.
fn score_of(verdict: Verdict) -> Score {
    match verdict {
        Verdict::Scored(parts) => {
            let matched = parts.rule.map(|rule| ("match", if rule > 0.0 { 1.0 } else { 0.0 }));
            let named = parts.named().into_iter().chain(matched);
            Score::Scored {
                reward: parts.reward,
                parts: named.map(|(name, value)| (name.to_string(), value)).collect(),
            }
        }
        Verdict::Fault(fault) => Score::PolicyFault { reason: fault.as_str().into(), parts: Vec::new() },
        Verdict::Unavailable(_) => Score::Unavailable,
    }
}

impl Scorer for JudgeScorer {
    fn score(&mut self, groups: &[Group<'_>]) -> std::result::Result<Vec<Vec<Score>>, Failure> {
        let group = |group: &Group<'_>| -> Result<Vec<Score>> {
            group.completions.par_iter().map(|completion| self.score_one(group.prompt, completion)).collect()
        };
        Ok(groups.par_iter().map(group).collect::<Result<_>>()?)
    }

    fn text(&self, tokens: &[u32]) -> Option<String> {
        self.renderer.completion_text(tokens).ok()
    }
}
