//! Scores RL's completions: tokens to text, text to prediction, prediction to reward.

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worldloom_judge::asked::Respondent;
use worldloom_judge::verify::Verifier;
use worldloom_judge::{
    Candidate, GuardConfig, Judge, JudgeContext, RewardConfig, Rewarded, Rewarder, Rule, Verdict, extract,
    rank_agreement,
};
use worldloom_render::Renderer;
use worldloom_schema::Prompt;
use worldloom_train::rl::{Completion, Failure, Group, Notes, Score, Scorer};

use crate::error::{Error, Result};
use crate::judges::JudgeConfig;
use crate::model::thinking_of;
use crate::reference::Reference;

/// Rank agreement of two judges below which a step raises an alarm, and pairs it takes.
const AGREEMENT: (f64, usize) = (0.5, 8);

/// How completions are scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScorerConfig {
    /// The check by code beside the rubric.
    pub rule: Rule,
    /// How rubric and rule mix; as published unless said otherwise.
    #[serde(default)]
    pub reward: RewardConfig,
    /// Who judges. Default: deterministic code.
    #[serde(default)]
    pub judge: JudgeConfig,
    /// What counts as an attempt on the judge.
    #[serde(default)]
    pub guard: GuardConfig,
    /// A second judge that watches the first. Default: none.
    #[serde(default)]
    pub second: Option<SecondConfig>,
}

/// A second judge on a share of the samples. It changes no reward; that the two rank alike is logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecondConfig {
    /// Who.
    pub judge: JudgeConfig,
    /// Share of the samples, from 0 to 1.
    pub share: f64,
}

/// A judge and a rule behind the trainer's trait.
pub struct JudgeScorer {
    rewarder: Rewarder,
    renderer: Renderer,
    prompts: Vec<Prompt>,
    verifiers: BTreeMap<String, Verifier>,
    /// What the policy predicted as training began, where a reward is measured against it.
    reference: Option<Reference>,
    /// Rubrics of both judges where both gave one.
    both: Vec<(f64, f64)>,
}

impl JudgeScorer {
    /// `prompts` in the order in which the trainer has them. The judges are those of the configuration, opened.
    pub fn new(config: ScorerConfig, renderer: Renderer, judge: Box<dyn Judge>, prompts: Vec<Prompt>) -> Result<Self> {
        let rewarder = Rewarder::new(config.reward, config.rule, judge)?.with_guard(config.guard);
        Ok(Self { rewarder, renderer, prompts, verifiers: BTreeMap::new(), reference: None, both: Vec::new() })
    }

    /// With a second judge on a share of the samples.
    pub fn with_second(self, judge: Box<dyn Judge>, share: f64) -> Self {
        Self { rewarder: self.rewarder.with_second(judge, share), ..self }
    }

    /// With verifiers of prompts; those of other prompts do nothing.
    pub fn with_verifiers(self, verifiers: Vec<Verifier>) -> Self {
        let by_prompt = verifiers.into_iter().map(|verifier| (verifier.prompt_id.clone(), verifier));
        Self { verifiers: by_prompt.collect(), ..self }
    }

    /// With the model behind the judge, which is asked for the rewards `turing` and `reference_pairwise`.
    pub fn with_model(self, respondent: Arc<dyn Respondent>, tries: u32) -> Self {
        Self { rewarder: self.rewarder.with_model(respondent, tries), ..self }
    }

    /// With what the policy predicted as training began.
    pub fn with_reference(self, reference: Reference) -> Self {
        Self { reference: Some(reference), ..self }
    }

    /// Whether it needs [`Self::with_reference`].
    pub fn wants_reference(&self) -> bool {
        self.rewarder.wants_reference()
    }

    /// Refuses a reward that nobody can give.
    pub fn check(&self) -> Result<()> {
        Ok(self.rewarder.check()?)
    }
}

fn prompt(prompts: &[Prompt], number: usize) -> Result<&Prompt> {
    prompts.get(number).ok_or(Error::NoPrompt { prompt: number, prompts: prompts.len() })
}

/// The trainer's word for a verdict. A reward of the rule is logged as `match` as well, from 0 to 1.
fn score_of(rewarded: Rewarded) -> Score {
    let Rewarded { verdict, hack, second_rubric } = rewarded;
    match verdict {
        Verdict::Scored(parts) => {
            let matched = parts.rule.map(|rule| ("match", if rule > 0.0 { 1.0 } else { 0.0 }));
            let second = second_rubric.map(|rubric| ("second_rubric", rubric));
            let hack = hack.map(|hack| (hack.as_str(), 1.0));
            let named = parts.named().into_iter().chain(matched).chain(second).chain(hack);
            Score::Scored {
                reward: parts.reward,
                parts: named.map(|(name, value)| (name.to_string(), value)).collect(),
            }
        }
        Verdict::Fault(fault) => Score::PolicyFault { reason: fault.as_str().into(), parts: Vec::new() },
        Verdict::Hack(hack) => Score::PolicyFault { reason: hack.as_str().into(), parts: Vec::new() },
        Verdict::Unavailable(reason) => Score::Unavailable { reason: reason.as_str().into() },
    }
}

impl Scorer for JudgeScorer {
    fn score(&mut self, groups: &[Group<'_>]) -> std::result::Result<Vec<Vec<Score>>, Failure> {
        let prompts = groups.iter().map(|group| prompt(&self.prompts, group.prompt)).collect::<Result<Vec<_>>>()?;
        let histories: Vec<Vec<(&str, &str)>> = prompts.iter().map(|prompt| history(prompt)).collect();
        let completions: Vec<(usize, &Completion)> = groups
            .iter()
            .enumerate()
            .flat_map(|(at, group)| group.completions.iter().map(move |completion| (at, completion)))
            .collect();
        if let Some(reference) = &mut self.reference {
            let numbered: Vec<(usize, &Prompt)> =
                groups.iter().map(|group| group.prompt).zip(prompts.iter().copied()).collect();
            reference.complete(&numbered, &self.renderer)?;
        }
        let candidate = |&(at, completion): &(usize, &Completion)| -> Result<Candidate<'_>> {
            let prompt = prompts[at];
            let text = self.renderer.completion_text(&completion.tokens)?;
            let context = JudgeContext {
                domain: prompt.domain,
                initial_state: prompt.initial_state.as_deref(),
                history: &histories[at],
                action: &prompt.action,
            };
            Ok(Candidate {
                prompt_id: &prompt.prompt_id,
                context,
                truth: &prompt.observation,
                extraction: extract(&text, completion.stopped),
                verifier: self.verifiers.get(&prompt.prompt_id),
                reference: self.reference.as_ref().and_then(|reference| reference.of(groups[at].prompt)),
            })
        };
        let candidates: Vec<Candidate<'_>> = completions.par_iter().map(candidate).collect::<Result<_>>()?;
        let rewarded = self.rewarder.reward_all(&candidates);
        let pair = |rewarded: &Rewarded| match &rewarded.verdict {
            Verdict::Scored(parts) => parts.rubric.zip(rewarded.second_rubric),
            _ => None,
        };
        let both: Vec<(f64, f64)> = rewarded.iter().filter_map(pair).collect();
        drop(candidates);
        self.both.extend(both);
        let mut scores = rewarded.into_iter().map(score_of);
        Ok(groups.iter().map(|group| scores.by_ref().take(group.completions.len()).collect()).collect())
    }

    fn text(&self, tokens: &[u32]) -> Option<String> {
        self.renderer.completion_text(tokens).ok()
    }

    fn thinking(&self, tokens: &[u32]) -> Option<String> {
        thinking_of(&self.text(tokens)?).map(str::to_string)
    }

    fn take_notes(&mut self) -> Notes {
        let pairs = std::mem::take(&mut self.both);
        let mut notes = Notes::default();
        if pairs.is_empty() {
            return notes;
        }
        notes.figures.push(("judged_twice".into(), pairs.len() as f64));
        if let Some(agreement) = rank_agreement(&pairs) {
            notes.figures.push(("judge_agreement".into(), agreement));
            if agreement < AGREEMENT.0 && pairs.len() >= AGREEMENT.1 {
                notes.alarms.push("judges_disagree".into());
            }
        }
        notes
    }
}

fn history(prompt: &Prompt) -> Vec<(&str, &str)> {
    prompt.history.iter().map(|turn| (turn.action.as_str(), turn.observation.as_str())).collect()
}
