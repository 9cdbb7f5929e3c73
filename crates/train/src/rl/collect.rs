//! The rollouts of a step: prompts are drawn, completed and scored, until enough groups have something to teach.

use worldloom_model::Decoder;
use worldloom_model::generate::Completion;

use super::advantage::{Advantages, advantages};
use super::config::{Overlong, RlConfig};
use super::drawer::Drawer;
use super::rollout::{Draw, Group, Notes, Partners, RlPrompt, Rollouts, Said, Sample, Score, Scorer};
use crate::error::{Error, Result};
use crate::seeds::{Purpose, split_seed};

/// A prompt's completions with their scores.
pub(super) struct Scored {
    pub(super) prompt: usize,
    pub(super) completions: Vec<Completion>,
    pub(super) scores: Vec<Score>,
    pub(super) said: Vec<Said>,
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

/// The batch that is sampled next.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// The step that it is for, from 0.
    pub(super) step: u64,
    /// Where the drawer's order goes on.
    pub(super) cursor: u64,
    /// Steps that made the weights it is sampled with.
    pub(super) version: u64,
}

/// Chooses prompts from the drawer's order, samples and scores them, and computes advantages.
///
/// Groups from which nothing can be learnt are replaced by further prompts' in at most `refills` rounds (dynamic
/// sampling, DAPO arXiv 2503.14476); the last round keeps what comes.
pub(super) fn collect(
    config: &RlConfig,
    decoder: &Decoder,
    prompts: &[RlPrompt],
    next: Next,
    drawer: &mut Drawer,
    partners: &mut Partners<'_>,
) -> Result<Rollouts> {
    let (mut kept, mut refilled_groups) = (Vec::new(), 0);
    let (mut drawn, mut staleness) = (0, 0);
    for round in 0..=config.refills {
        let missing = config.prompts_per_step - kept.len();
        let mut chosen = Vec::new();
        for _ in 0..missing {
            chosen.push(drawer.draw(next.cursor, &mut drawn));
        }
        let is_last = round == config.refills;
        let groups = score(config, decoder, prompts, &chosen, (next, round), partners)?;
        staleness = staleness.max(partners.sampler.staleness());
        for group in groups {
            drawer.note(group.prompt, &group.scores);
            match is_last || group.teaches(config) {
                true => kept.push(group),
                false => refilled_groups += 1,
            }
        }
        if kept.len() == config.prompts_per_step {
            break;
        }
    }
    for group in &mut kept {
        group.said = group.completions.iter().map(|completion| said(partners.scorer, completion)).collect();
    }
    let (notes, rested) = (partners.scorer.take_notes(), drawer.take_rested());
    let staleness = Some(staleness);
    Ok(Rollouts { refilled_groups, drawn, rested, staleness, notes, ..assemble(config, prompts, kept) })
}

/// Samples with their advantages.
pub(super) fn assemble(config: &RlConfig, prompts: &[RlPrompt], scored: Vec<Scored>) -> Rollouts {
    let rewards: Vec<Vec<Option<f64>>> = scored.iter().map(Scored::rewards).collect();
    let Advantages { values, zero_variance_groups, dropped_groups } = advantages(&rewards, config.normalisation);
    let drawn = scored.len() as u64;
    let groups = scored.into_iter().zip(values);
    Rollouts {
        groups: groups.map(|(group, advantages)| samples_of(config, prompts, group, advantages)).collect(),
        zero_variance_groups,
        dropped_groups,
        refilled_groups: 0,
        drawn,
        rested: 0,
        staleness: None,
        notes: Notes::default(),
    }
}

/// Scores rollouts again on which the scorer failed, and computes advantages anew.
pub(super) fn score_again(
    config: &RlConfig,
    prompts: &[RlPrompt],
    step: u64,
    rollouts: Rollouts,
    scorer: &mut dyn Scorer,
) -> Result<Rollouts> {
    let Rollouts { groups, refilled_groups, drawn, rested, staleness, .. } = rollouts;
    let mut scored: Vec<Scored> = groups.into_iter().map(scored_of).collect();
    let open: Vec<usize> =
        (0..scored.len()).filter(|&at| scored[at].scores.iter().any(|score| score.reward().is_none())).collect();
    let asked: Vec<Group<'_>> = open
        .iter()
        .map(|&at| Group { prompt: scored[at].prompt, completions: scored[at].completions.as_slice() })
        .collect();
    let scores = scorer.score(&asked).map_err(|source| Error::Scorer { step, source })?;
    for (at, mut scores) in open.into_iter().zip(scores) {
        for (completion, score) in scored[at].completions.iter().zip(&mut scores) {
            penalise(config, completion, score);
        }
        scored[at].scores = scores;
    }
    let notes = scorer.take_notes();
    Ok(Rollouts { refilled_groups, drawn, rested, staleness, notes, ..assemble(config, prompts, scored) })
}

fn scored_of(group: Vec<Sample>) -> Scored {
    let prompt = group.first().map_or(0, |sample| sample.prompt);
    let mut scored = Scored { prompt, completions: Vec::new(), scores: Vec::new(), said: Vec::new() };
    for Sample { completion, score, said, .. } in group {
        scored.completions.push(completion);
        scored.scores.push(score);
        scored.said.push(said);
    }
    scored
}

fn said(scorer: &dyn Scorer, completion: &Completion) -> Said {
    Said { text: scorer.text(&completion.tokens), thinking: scorer.thinking(&completion.tokens) }
}

fn score(
    config: &RlConfig,
    decoder: &Decoder,
    prompts: &[RlPrompt],
    chosen: &[usize],
    (next, round): (Next, u64),
    partners: &mut Partners<'_>,
) -> Result<Vec<Scored>> {
    let seed = match (split_seed(config.seed, Purpose::Sampling, next.step), round) {
        (seed, 0) => seed,
        (seed, round) => split_seed(seed, Purpose::Sampling, round),
    };
    let (step, version, may_be_old) = (next.step + 1, next.version, true);
    let asked = Asked { prompts, chosen, group_size: config.group_size, seed, step, version, may_be_old };
    let mut groups = sample_and_score(config, decoder, &asked, partners)?;
    for group in &mut groups {
        for (completion, score) in group.completions.iter().zip(&mut group.scores) {
            penalise(config, completion, score);
        }
    }
    Ok(groups)
}

/// What is sampled.
pub(super) struct Asked<'a> {
    pub(super) prompts: &'a [RlPrompt],
    pub(super) chosen: &'a [usize],
    pub(super) group_size: usize,
    pub(super) seed: u64,
    /// For messages, from 1.
    pub(super) step: u64,
    /// Steps that made the weights.
    pub(super) version: u64,
    /// Whether older weights will do.
    pub(super) may_be_old: bool,
}

/// Completions of the chosen prompts and their scores, checked and without a penalty.
pub(super) fn sample_and_score(
    config: &RlConfig,
    decoder: &Decoder,
    asked: &Asked<'_>,
    partners: &mut Partners<'_>,
) -> Result<Vec<Scored>> {
    let &Asked { prompts, chosen, group_size, seed, step, version, may_be_old } = asked;
    let of: Vec<&RlPrompt> = chosen.iter().map(|&prompt| &prompts[prompt]).collect();
    let sampled = partners.sampler.sample(decoder, &of, group_size, Draw { seed, version, may_be_old });
    let completions = sampled.map_err(|source| Error::Sampler { step, source })?;
    check_completions(config, &completions, (chosen.len(), group_size), step)?;
    let groups: Vec<Group<'_>> = chosen
        .iter()
        .zip(&completions)
        .map(|(&prompt, completions)| Group { prompt, completions: completions.as_slice() })
        .collect();
    let scores = partners.scorer.score(&groups).map_err(|source| Error::Scorer { step, source })?;
    check_scores(&completions, &scores, step)?;
    let groups = chosen.iter().zip(completions).zip(scores);
    let scored = |((&prompt, completions), scores): ((&usize, Vec<Completion>), Vec<Score>)| Scored {
        prompt,
        said: vec![Said::default(); completions.len()],
        completions,
        scores,
    };
    Ok(groups.map(scored).collect())
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

fn check_completions(
    config: &RlConfig,
    groups: &[Vec<Completion>],
    (expected, group_size): (usize, usize),
    step: u64,
) -> Result<()> {
    let wrong = |detail: String| Err(Error::Rollout { step, detail });
    if groups.len() != expected {
        return wrong(format!("the sampler answered {} groups, expected {expected}", groups.len()));
    }
    for (at, group) in groups.iter().enumerate() {
        if group.len() != group_size {
            return wrong(format!(
                "the sampler answered {} completions in group {at}, expected {group_size}",
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
    let Scored { prompt, completions, scores, said } = group;
    let samples = completions.into_iter().zip(scores).zip(said).zip(advantages).enumerate();
    samples
        .map(|(number, (((completion, score), said), advantage))| Sample {
            prompt,
            number,
            tokens: [prompts[prompt].tokens.as_slice(), &completion.tokens].concat(),
            is_masked: config.overlong == Overlong::Mask && !completion.stopped,
            completion,
            score,
            advantage,
            old_log_probs: Vec::new(),
            reference_log_probs: None,
            said,
        })
        .collect()
}
