//! From scored rollouts to updates: the trainer's own log-probs, the objective's coefficients, the backward pass.

use std::sync::OnceLock;

use worldloom_model::Decoder;

use super::config::RlConfig;
use super::metrics::RlStepMetrics;
use super::objective::{Denominators, PolicyLoss, Sequence, Totals, policy_loss};
use super::rollout::{RlPrompt, Sample};
use super::rows::SampleRows;
use crate::batch::Batch;
use crate::error::{Error, Result};
use crate::learner::{Learner, Place};

/// Before the first update the ratio is 1 up to this.
const LARGEST_FIRST_LOG_RATIO: f64 = 1e-5;

/// Log-probs of sampled tokens under `decoder`, sample by sample.
fn log_probs(config: &RlConfig, learner: &Learner, decoder: &Decoder, samples: &[&Sample]) -> Vec<Vec<f64>> {
    let rows = SampleRows::new(samples, config);
    let mut result = vec![Vec::new(); samples.len()];
    let of_batch = |batch: &Batch| batch.log_probs(decoder, config.temperature as f32, &learner.device);
    for (number, log_probs) in learner.lanes.map(&rows.batches, of_batch).into_iter().enumerate() {
        for (sample, log_probs) in rows.split(number, log_probs).into_iter().flatten() {
            result[sample] = log_probs;
        }
    }
    result
}

/// True answers of the prompts of these samples, if their likelihood is trained.
pub(super) fn truths(config: &RlConfig, prompts: &[RlPrompt], samples: &[Sample]) -> Vec<Sample> {
    if config.truth_nll == 0.0 {
        return Vec::new();
    }
    let groups = samples.chunk_by(|one, other| one.prompt == other.prompt);
    groups.filter_map(|group| Sample::of_truth(group[0].prompt, &prompts[group[0].prompt])).collect()
}

/// What goes through the decoder: a sample of a mini-batch, or a true answer.
struct Branch<'a> {
    sample: &'a Sample,
    /// Its place in the mini-batch; none for a true answer.
    at: Option<usize>,
}

/// What an update is made of: the active samples of each prompt, then its true answer.
fn branches<'a>(config: &RlConfig, samples: &'a [Sample], truths: &'a [Sample]) -> Vec<Branch<'a>> {
    let (mut branches, mut places) = (Vec::new(), 0..);
    for group in samples.chunk_by(|one, other| one.prompt == other.prompt) {
        let of_group = group.iter().zip(&mut places).map(|(sample, at)| Branch { sample, at: Some(at) });
        branches.extend(of_group.filter(|branch| branch.sample.is_active(config.objective.pushes_always())));
        let truth = truths.iter().find(|truth| truth.prompt == group[0].prompt);
        branches.extend(truth.map(|sample| Branch { sample, at: None }));
    }
    branches
}

fn idle<'a>(config: &RlConfig, samples: &'a [Sample]) -> Vec<Branch<'a>> {
    let all = samples.iter().enumerate().map(|(at, sample)| Branch { sample, at: Some(at) });
    all.filter(|branch| !branch.sample.is_active(config.objective.pushes_always())).collect()
}

/// Fills in the log-probs that updates are measured against. In the mini-batch of the first update the active samples get
/// theirs from the pass that is pushed back, see [`Pushed::fill_in`].
pub(super) fn add_old_log_probs(
    config: &RlConfig,
    learner: &Learner,
    reference: Option<&Decoder>,
    samples: &mut [Sample],
    truths: &[Sample],
    is_first: bool,
) {
    let mut found = Vec::new();
    for (chosen, is_pushed) in [(branches(config, samples, truths), is_first), (idle(config, samples), false)] {
        let of: Vec<&Sample> = chosen.iter().map(|branch| branch.sample).collect();
        let old = (!is_pushed).then(|| log_probs(config, learner, learner.decoder(), &of));
        let reference = reference.map(|reference| log_probs(config, learner, reference, &of));
        for (place, at) in chosen.iter().enumerate().filter_map(|(place, branch)| Some((place, branch.at?))) {
            let of_place = |all: &Option<Vec<Vec<f64>>>| all.as_ref().map(|all| all[place].clone());
            found.push((at, of_place(&old), of_place(&reference)));
        }
    }
    for (at, old, reference) in found {
        samples[at].old_log_probs = old.unwrap_or_default();
        samples[at].reference_log_probs = reference;
    }
}

/// Compares the sampler's log-probs with the trainer's; too large a difference is refused where both have the same
/// weights.
pub(super) fn check_sampler(
    config: &RlConfig,
    prompts: &[RlPrompt],
    step: u64,
    samples: &[Sample],
    metrics: &mut RlStepMetrics,
) -> Result<()> {
    let limit = if metrics.staleness == Some(0) { config.max_log_prob_gap } else { f64::INFINITY };
    for sample in samples {
        let pairs = sample.completion.log_probs.iter().map(|&value| f64::from(value)).zip(&sample.old_log_probs);
        for (token, (sampler, &trainer)) in pairs.enumerate() {
            if !sampler.is_finite() {
                metrics.non_finite_sampler_log_probs += 1;
                continue;
            }
            let gap = (sampler - trainer).abs();
            metrics.sampler_gap = metrics.sampler_gap.max(gap);
            if gap.is_nan() || gap > limit {
                let (prompt, sample) = (prompts[sample.prompt].id.clone(), sample.number);
                return Err(Error::Mismatch { step, prompt, sample, token, sampler, trainer, limit });
            }
        }
    }
    Ok(())
}

/// Gradients of a mini-batch that wait for their update, and what was seen on the way.
pub(super) struct Pushed {
    /// Of the active samples, by place in the mini-batch.
    log_probs: Vec<(usize, Vec<f64>)>,
    pub(super) loss: f64,
    pub(super) truth_nll: f64,
    pub(super) totals: Totals,
    /// Whether there is a gradient: completions that are all clipped have none.
    pub(super) has_gradient: bool,
}

impl Pushed {
    /// Makes the log-probs of the pass those that the step's ratios are measured against.
    pub(super) fn fill_in(&self, samples: &mut [Sample]) {
        for (at, log_probs) in &self.log_probs {
            samples[*at].old_log_probs.clone_from(log_probs);
        }
    }
}

/// One mini-batch forward and back: each completion's coefficients follow from its log-probs in this pass. Samples without
/// old log-probs are measured against themselves, at a ratio of 1. None if nothing can push.
pub(super) fn push(
    config: &RlConfig,
    learner: &mut Learner,
    (samples, truths): (&[Sample], &[Sample]),
    place: &Place<'_>,
) -> Result<Option<Pushed>> {
    let branches = branches(config, samples, truths);
    if branches.is_empty() {
        return Ok(None);
    }
    let true_tokens: usize =
        branches.iter().filter(|branch| branch.at.is_none()).map(|branch| branch.sample.completion.tokens.len()).sum();
    let weighing = Weighing {
        config,
        denominators: denominators(config, samples),
        of_truth: config.truth_nll / true_tokens.max(1) as f64,
    };
    let of: Vec<&Sample> = branches.iter().map(|branch| branch.sample).collect();
    let rows = SampleRows::new(&of, config);
    let found: Vec<OnceLock<Weighed>> = branches.iter().map(|_| OnceLock::new()).collect();
    let weights_of = |(at, log_probs): (usize, Vec<f64>)| {
        let weighed: &Weighed = found[at].get_or_init(|| weighing.of(&branches[at], log_probs));
        weighed.weights.iter().copied()
    };
    let weigh = |number: u64, log_probs: Vec<Vec<f32>>| {
        let of_row = |row: Vec<(usize, Vec<f64>)>| row.into_iter().flat_map(weights_of).collect();
        rows.split(number as usize, log_probs).into_iter().map(of_row).collect()
    };
    learner.start_step();
    learner.add_weighed(&rows.batches, config.temperature as f32, Some(&weigh), place)?;
    let mut pushed =
        Pushed { log_probs: Vec::new(), loss: 0.0, truth_nll: 0.0, totals: Totals::default(), has_gradient: false };
    for (branch, weighed) in branches.iter().zip(found) {
        let weighed = weighed.into_inner().expect("every branch is in a row, and every row in a micro-batch");
        pushed.has_gradient |= weighed.weights.iter().any(|&weight| weight != 0.0);
        pushed.loss += weighed.loss;
        pushed.totals.add(&weighed.totals);
        match branch.at {
            Some(at) => pushed.log_probs.push((at, weighed.log_probs)),
            None => pushed.truth_nll -= weighed.log_probs.iter().sum::<f64>() / true_tokens as f64,
        }
    }
    Ok(Some(pushed))
}

/// From the log-probs of a branch to its weights: `−∂loss/∂log-prob` of every token.
struct Weighing<'a> {
    config: &'a RlConfig,
    denominators: Denominators,
    /// The weight of every token of a true answer.
    of_truth: f64,
}

/// A branch and what follows from its log-probs.
struct Weighed {
    log_probs: Vec<f64>,
    weights: Vec<f32>,
    loss: f64,
    totals: Totals,
}

impl Weighing<'_> {
    fn of(&self, branch: &Branch<'_>, log_probs: Vec<f64>) -> Weighed {
        let sample = branch.sample;
        if branch.at.is_none() {
            let (weights, loss) =
                (vec![self.of_truth as f32; log_probs.len()], -self.of_truth * log_probs.iter().sum::<f64>());
            return Weighed { log_probs, weights, loss, totals: Totals::default() };
        }
        let sampler: Vec<f64> = sample.completion.log_probs.iter().map(|&value| f64::from(value)).collect();
        let old = if sample.old_log_probs.is_empty() { &log_probs } else { &sample.old_log_probs };
        let sequence = Sequence {
            log_probs: &log_probs,
            old_log_probs: old,
            reference_log_probs: sample.reference_log_probs.as_deref(),
            sampler_log_probs: Some(&sampler),
            mask: &vec![true; log_probs.len()],
            advantage: sample.advantage.unwrap_or(0.0),
        };
        let PolicyLoss { loss, coefficients, totals } =
            policy_loss(&[sequence], &self.denominators, &self.config.objective);
        let weights = coefficients.into_iter().flatten().map(|coefficient| -coefficient as f32).collect();
        Weighed { log_probs, weights, loss, totals }
    }
}

fn denominators(config: &RlConfig, samples: &[Sample]) -> Denominators {
    let counted = samples.iter().filter(|sample| sample.counts());
    Denominators {
        sequences: counted.clone().count(),
        tokens: counted.map(|sample| sample.completion.tokens.len()).sum(),
        max_completion_tokens: config.max_completion_tokens,
    }
}

/// Computes the log-probs of the first update once more, in a pass without a graph, and refuses a trainer that does not agree
/// with itself; returns the largest log ratio.
pub(super) fn check_itself(
    config: &RlConfig,
    learner: &Learner,
    (samples, truths): (&[Sample], &[Sample]),
    step: u64,
) -> Result<f64> {
    let branches = branches(config, samples, truths);
    let of: Vec<&Sample> = branches.iter().map(|branch| branch.sample).collect();
    let again = log_probs(config, learner, learner.decoder(), &of);
    let pairs = branches.iter().zip(&again).filter(|(branch, _)| branch.at.is_some());
    let apart = pairs.flat_map(|(branch, again)| {
        branch.sample.old_log_probs.iter().zip(again).map(|(pushed, again)| (pushed - again).abs())
    });
    let largest = apart.fold(0.0, |largest: f64, apart| if apart.is_nan() { apart } else { largest.max(apart) });
    if largest.is_nan() || largest > LARGEST_FIRST_LOG_RATIO {
        let detail = format!(
            "log ratio of {largest} before the first update, at most {LARGEST_FIRST_LOG_RATIO} expected: the trainer does not \
             agree with itself"
        );
        return Err(Error::Rollout { step, detail });
    }
    Ok(largest)
}
