//! Rollouts: prompts, completions and scores on token ids, and the two traits behind which text lives.

use std::path::Path;

use worldloom_model::Decoder;
use worldloom_model::generate::Completion;
use worldloom_schema::{Rollout, RolloutOutcome, write_table};

use super::advantage::{Advantages, advantages};
use super::config::RlConfig;
use crate::error::{Error, Result};
use crate::order::Order;
use crate::seeds::{Purpose, split_seed};

/// Any error of a sampler or scorer.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a completion starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RlPrompt {
    /// Name for messages and dumps.
    pub id: String,
    /// The tokens, up to and including the opening of the answer.
    pub tokens: Vec<u32>,
}

/// What the scorer says of a completion.
#[derive(Debug, Clone, PartialEq)]
pub enum Score {
    /// It was scored.
    Scored {
        /// The reward.
        reward: f64,
        /// What it was made of, by name.
        parts: Vec<(String, f64)>,
    },
    /// The policy answered something that cannot be scored: reward 0, and it stays in the statistics.
    PolicyFault {
        /// Kind of fault, such as `no closed tag`.
        reason: String,
        /// Scores that could be given all the same.
        parts: Vec<(String, f64)>,
    },
    /// The scorer failed: nobody knows, and the sample leaves the statistics.
    Unavailable,
}

impl Score {
    /// The reward that enters the statistics.
    pub fn reward(&self) -> Option<f64> {
        match self {
            Score::Scored { reward, .. } => Some(*reward),
            Score::PolicyFault { .. } => Some(0.0),
            Score::Unavailable => None,
        }
    }

    /// Named parts.
    pub fn parts(&self) -> &[(String, f64)] {
        match self {
            Score::Scored { parts, .. } | Score::PolicyFault { parts, .. } => parts,
            Score::Unavailable => &[],
        }
    }

    fn outcome(&self) -> RolloutOutcome {
        match self {
            Score::Scored { .. } => RolloutOutcome::Scored,
            Score::PolicyFault { .. } => RolloutOutcome::PolicyFault,
            Score::Unavailable => RolloutOutcome::Unavailable,
        }
    }
}

/// Samples completions from the policy.
pub trait Sampler {
    /// `group_size` completions of each prompt, in the order of the prompts. The random stream of a completion is a
    /// function of `seed`, the prompt's place in the list and the number of the completion, and of nothing else.
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        seed: u64,
    ) -> Result<Vec<Vec<Completion>>, Failure>;
}

/// A prompt's completions, to be scored.
#[derive(Debug, Clone, Copy)]
pub struct Group<'a> {
    /// Number of the prompt in the list the run was given.
    pub prompt: usize,
    /// Its completions.
    pub completions: &'a [Completion],
}

/// Scores completions.
pub trait Scorer {
    /// A score for each completion of each group, in their order.
    fn score(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<Score>>, Failure>;

    /// The completion as text for the dump, where the scorer knows it.
    fn text(&self, _tokens: &[u32]) -> Option<String> {
        None
    }
}

/// Who makes and who judges completions.
pub struct Partners<'a> {
    /// Makes them.
    pub sampler: &'a mut dyn Sampler,
    /// Judges them.
    pub scorer: &'a mut dyn Scorer,
}

/// One completion with everything that is known about it.
#[derive(Debug, Clone)]
pub(super) struct Sample {
    /// Number of the prompt.
    pub(super) prompt: usize,
    /// Number inside the group.
    pub(super) number: usize,
    /// Prompt and completion.
    pub(super) tokens: Vec<u32>,
    pub(super) completion: Completion,
    pub(super) score: Score,
    pub(super) advantage: Option<f64>,
    /// The trainer's log-probs of the completion before the first update.
    pub(super) old_log_probs: Vec<f64>,
    /// The reference's, where there is one.
    pub(super) reference_log_probs: Option<Vec<f64>>,
}

impl Sample {
    /// Tokens of the prompt.
    pub(super) fn prompt_length(&self) -> usize {
        self.tokens.len() - self.completion.tokens.len()
    }

    /// Whether it enters the denominators.
    pub(super) fn counts(&self) -> bool {
        self.advantage.is_some() && !self.completion.tokens.is_empty()
    }

    /// Whether it can push anything: a divergence does so without an advantage.
    pub(super) fn is_active(&self, kl: f64) -> bool {
        self.counts() && (kl > 0.0 || self.advantage.is_some_and(|advantage| advantage != 0.0))
    }
}

/// The groups of one step.
pub(super) struct Rollouts {
    pub(super) groups: Vec<Vec<Sample>>,
    pub(super) zero_variance_groups: usize,
    pub(super) dropped_groups: usize,
}

/// Chooses prompts, samples and scores them, and computes advantages. `step` counts from 0.
pub(super) fn collect(
    config: &RlConfig,
    decoder: &Decoder,
    prompts: &[RlPrompt],
    step: u64,
    partners: &mut Partners<'_>,
) -> Result<Rollouts> {
    let order = Order::new(prompts.len(), config.seed);
    let first = step * config.prompts_per_step as u64;
    let chosen: Vec<usize> = (0..config.prompts_per_step as u64).map(|at| order.at(first + at)).collect();
    let asked: Vec<&RlPrompt> = chosen.iter().map(|&prompt| &prompts[prompt]).collect();
    let seed = split_seed(config.seed, Purpose::Sampling, step);
    let sampled = partners.sampler.sample(decoder, &asked, config.group_size, seed);
    let completions = sampled.map_err(|source| Error::Sampler { step: step + 1, source })?;
    check_completions(config, &completions, step + 1)?;
    let groups: Vec<Group<'_>> = chosen
        .iter()
        .zip(&completions)
        .map(|(&prompt, completions)| Group { prompt, completions: completions.as_slice() })
        .collect();
    let scores = partners.scorer.score(&groups).map_err(|source| Error::Scorer { step: step + 1, source })?;
    check_scores(&completions, &scores, step + 1)?;
    let rewards: Vec<Vec<Option<f64>>> = scores.iter().map(|group| group.iter().map(Score::reward).collect()).collect();
    let advantages = advantages(&rewards, config.normalisation);
    Ok(assemble(prompts, &chosen, completions, scores, advantages))
}

fn check_completions(config: &RlConfig, groups: &[Vec<Completion>], step: u64) -> Result<()> {
    let wrong = |detail: String| Err(Error::Rollout { step, detail });
    if groups.len() != config.prompts_per_step {
        return wrong(format!("the sampler answered {} groups, expected {}", groups.len(), config.prompts_per_step));
    }
    for (at, group) in groups.iter().enumerate() {
        if group.len() != config.group_size {
            let expected = config.group_size;
            return wrong(format!(
                "the sampler answered {} completions in group {at}, expected {expected}",
                group.len()
            ));
        }
        for (number, completion) in group.iter().enumerate() {
            let (tokens, log_probs) = (completion.tokens.len(), completion.log_probs.len());
            if tokens != log_probs || tokens > config.max_completion_tokens {
                return wrong(format!(
                    "completion {number} of group {at} has {tokens} tokens and {log_probs} log-probs, expected as many \
                     and at most {}",
                    config.max_completion_tokens
                ));
            }
        }
    }
    Ok(())
}

fn check_scores(completions: &[Vec<Completion>], scores: &[Vec<Score>], step: u64) -> Result<()> {
    let sizes = |of: &mut dyn Iterator<Item = usize>| of.collect::<Vec<_>>();
    let expected = sizes(&mut completions.iter().map(Vec::len));
    let found = sizes(&mut scores.iter().map(Vec::len));
    if expected != found {
        let detail = format!("the scorer answered groups of {found:?}, expected {expected:?}");
        return Err(Error::Rollout { step, detail });
    }
    if let Some(reward) = scores.iter().flatten().filter_map(Score::reward).find(|reward| !reward.is_finite()) {
        return Err(Error::Rollout { step, detail: format!("the scorer answered a reward of {reward}") });
    }
    Ok(())
}

fn assemble(
    prompts: &[RlPrompt],
    chosen: &[usize],
    completions: Vec<Vec<Completion>>,
    scores: Vec<Vec<Score>>,
    advantages: Advantages,
) -> Rollouts {
    let mut groups = Vec::new();
    for (((&prompt, completions), scores), advantages) in
        chosen.iter().zip(completions).zip(scores).zip(advantages.values)
    {
        let samples = completions.into_iter().zip(scores).zip(advantages).enumerate();
        let sample = |(number, ((completion, score), advantage)): (usize, ((Completion, Score), Option<f64>))| Sample {
            prompt,
            number,
            tokens: [prompts[prompt].tokens.as_slice(), &completion.tokens].concat(),
            completion,
            score,
            advantage,
            old_log_probs: Vec::new(),
            reference_log_probs: None,
        };
        groups.push(samples.map(sample).collect());
    }
    let Advantages { zero_variance_groups, dropped_groups, .. } = advantages;
    Rollouts { groups, zero_variance_groups, dropped_groups }
}

/// Writes the step's rollouts, whole or not at all.
pub(super) fn dump(
    folder: &Path,
    step: u64,
    prompts: &[RlPrompt],
    mini_batches: &[Vec<Sample>],
    scorer: &dyn Scorer,
) -> Result<()> {
    let record = |(staleness, sample): (usize, &Sample)| {
        let (names, scores) = sample.score.parts().iter().cloned().unzip();
        Rollout {
            step,
            prompt_id: prompts[sample.prompt].id.clone(),
            sample: sample.number as u32,
            tokens: sample.tokens.clone(),
            sampled: (0..sample.tokens.len()).map(|at| at >= sample.prompt_length()).collect(),
            sampler_log_probs: sample.completion.log_probs.clone(),
            trainer_log_probs: sample.old_log_probs.iter().map(|&value| value as f32).collect(),
            stopped: sample.completion.stopped,
            outcome: sample.score.outcome(),
            scores,
            score_names: names,
            reward: sample.score.reward(),
            advantage: sample.advantage,
            staleness: staleness as u32,
            text: scorer.text(&sample.completion.tokens),
        }
    };
    let samples = mini_batches.iter().enumerate().flat_map(|(at, samples)| samples.iter().map(move |s| (at, s)));
    fs_err::create_dir_all(folder)?;
    let path = folder.join(format!("step-{step:06}.parquet"));
    let partial = path.with_extension("partial");
    write_table(&partial, samples.map(record))?;
    Ok(fs_err::rename(&partial, &path)?)
}
