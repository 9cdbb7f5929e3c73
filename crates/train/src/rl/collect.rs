//! The rollouts of a step: prompts are drawn, completed and scored, until enough groups have something to teach.

use worldloom_model::Decoder;
use worldloom_model::generate::Completion;

use super::advantage::{Advantages, advantages};
use super::config::{Overlong, RlConfig};
use super::rollout::{Group, Partners, RlPrompt, Rollouts, Sample, Score};
use crate::error::{Error, Result};
use crate::order::Order;
use crate::seeds::{Purpose, split_seed};

/// A prompt's completions with their scores.
struct Scored {
    prompt: usize,
    completions: Vec<Completion>,
    scores: Vec<Score>,
}

impl Scored {
    fn rewards(&self) -> Vec<Option<f64>> {
        self.scores.iter().map(Score::reward).collect()
    }

    /// Whether its rewards differ.
    fn teaches(&self, config: &RlConfig) -> bool {
        let found = advantages(&[self.rewards()], config.normalisation);
        found.zero_variance_groups + found.dropped_groups == 0
    }
}

/// Chooses prompts from `cursor` of the order on, samples and scores them, and computes advantages. `step` counts from 0.
///
/// Groups from which nothing can be learnt are replaced by further prompts' in at most `refills` rounds (dynamic
/// sampling, DAPO arXiv 2503.14476); the last round keeps what comes.
pub(super) fn collect(
    config: &RlConfig,
    decoder: &Decoder,
    prompts: &[RlPrompt],
    (step, cursor): (u64, u64),
    partners: &mut Partners<'_>,
) -> Result<Rollouts> {
    let order = Order::new(prompts.len(), config.seed);
    let (mut kept, mut refilled_groups) = (Vec::new(), 0);
    let mut drawn = 0;
    for round in 0..=config.refills {
        let missing = (config.prompts_per_step - kept.len()) as u64;
        let chosen: Vec<usize> = (0..missing).map(|at| order.at(cursor + drawn + at)).collect();
        drawn += missing;
        let is_last = round == config.refills;
        for group in score(config, decoder, prompts, &chosen, (step, round), partners)? {
            match is_last || group.teaches(config) {
                true => kept.push(group),
                false => refilled_groups += 1,
            }
        }
        if kept.len() == config.prompts_per_step {
            break;
        }
    }
    let rewards: Vec<Vec<Option<f64>>> = kept.iter().map(Scored::rewards).collect();
    let Advantages { values, zero_variance_groups, dropped_groups } = advantages(&rewards, config.normalisation);
    let groups = kept.into_iter().zip(values).map(|(group, advantages)| samples_of(config, prompts, group, advantages));
    let groups = groups.collect();
    Ok(Rollouts { groups, zero_variance_groups, dropped_groups, refilled_groups, drawn })
}

fn score(
    config: &RlConfig,
    decoder: &Decoder,
    prompts: &[RlPrompt],
    chosen: &[usize],
    (step, round): (u64, u64),
    partners: &mut Partners<'_>,
) -> Result<Vec<Scored>> {
    let asked: Vec<&RlPrompt> = chosen.iter().map(|&prompt| &prompts[prompt]).collect();
    let seed = match (split_seed(config.seed, Purpose::Sampling, step), round) {
        (seed, 0) => seed,
        (seed, round) => split_seed(seed, Purpose::Sampling, round),
    };
    let sampled = partners.sampler.sample(decoder, &asked, config.group_size, seed);
    let completions = sampled.map_err(|source| Error::Sampler { step: step + 1, source })?;
    check_completions(config, &completions, chosen.len(), step + 1)?;
    let groups: Vec<Group<'_>> = chosen
        .iter()
        .zip(&completions)
        .map(|(&prompt, completions)| Group { prompt, completions: completions.as_slice() })
        .collect();
    let scores = partners.scorer.score(&groups).map_err(|source| Error::Scorer { step: step + 1, source })?;
    check_scores(&completions, &scores, step + 1)?;
    let groups = chosen.iter().zip(completions).zip(scores);
    Ok(groups
        .map(|((&prompt, completions), mut scores)| {
            for (completion, score) in completions.iter().zip(&mut scores) {
                penalise(config, completion, score);
            }
            Scored { prompt, completions, scores }
        })
        .collect())
}

/// Takes the penalty of a long completion from its reward (DAPO's soft overlong punishment, ibid. eq. 13).
fn penalise(config: &RlConfig, completion: &Completion, score: &mut Score) {
    let (Overlong::Penalty { buffer, largest }, Score::Scored { reward, parts }) = (config.overlong, score) else {
        return;
    };
    let over = (completion.tokens.len() + buffer).saturating_sub(config.max_completion_tokens);
    let penalty = largest * over as f64 / buffer as f64;
    *reward -= penalty;
    parts.push(("length_penalty".into(), penalty));
}

fn check_completions(config: &RlConfig, groups: &[Vec<Completion>], expected: usize, step: u64) -> Result<()> {
    let wrong = |detail: String| Err(Error::Rollout { step, detail });
    if groups.len() != expected {
        return wrong(format!("the sampler answered {} groups, expected {expected}", groups.len()));
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

fn samples_of(config: &RlConfig, prompts: &[RlPrompt], group: Scored, advantages: Vec<Option<f64>>) -> Vec<Sample> {
    let Scored { prompt, completions, scores } = group;
    let samples = completions.into_iter().zip(scores).zip(advantages).enumerate();
    samples
        .map(|(number, ((completion, score), advantage))| Sample {
            prompt,
            number,
            tokens: [prompts[prompt].tokens.as_slice(), &completion.tokens].concat(),
            is_masked: config.overlong == Overlong::Mask && !completion.stopped,
            completion,
            score,
            advantage,
            old_log_probs: Vec::new(),
            reference_log_probs: None,
        })
        .collect()
}
