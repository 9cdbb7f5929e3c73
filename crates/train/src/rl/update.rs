//! From scored rollouts to updates: the trainer's own log-probs, the objective's coefficients, the backward pass.

use worldloom_model::Decoder;
use worldloom_schema::Row;

use super::config::RlConfig;
use super::metrics::RlStepMetrics;
use super::objective::{Denominators, PolicyLoss, Sequence, Totals, policy_loss};
use super::rollout::{RlPrompt, Sample};
use super::rows::SampleRows;
use crate::batch::{Batch, batches, micro_batches};
use crate::error::{Error, Result};
use crate::learner::{Learner, Place};

/// Before the first update the ratio is 1 up to this.
const LARGEST_FIRST_LOG_RATIO: f64 = 1e-5;

/// Log-probs of sampled tokens under `decoder`, sample by sample.
fn log_probs(config: &RlConfig, learner: &Learner, decoder: &Decoder, samples: &[&Sample]) -> Vec<Vec<f64>> {
    let ones: Vec<Vec<f32>> = samples.iter().map(|sample| vec![1.0; sample.completion.tokens.len()]).collect();
    let SampleRows { rows, samples: inside } = SampleRows::new(samples, &ones, config.share_prompts);
    let mut result = vec![Vec::new(); samples.len()];
    let micro_batches = micro_batches(&rows, config.rows_per_micro_batch);
    let values = learner.lanes.map(&micro_batches, |numbers| {
        Batch::of(&rows, numbers, 1.0).log_probs(decoder, config.temperature as f32, &learner.device)
    });
    for (micro_batch, values) in micro_batches.into_iter().zip(values) {
        for (at, values) in micro_batch.into_iter().zip(values) {
            let mut values = values.into_iter().map(f64::from);
            for &sample in &inside[at] {
                result[sample] = values.by_ref().take(ones[sample].len()).collect();
            }
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

/// What goes through the decoder in an update: the active samples of each prompt, then its true answer.
fn branches<'a>(config: &RlConfig, samples: &'a [Sample], truths: &'a [Sample]) -> Vec<&'a Sample> {
    let mut branches = Vec::new();
    for group in samples.chunk_by(|one, other| one.prompt == other.prompt) {
        branches.extend(group.iter().filter(|sample| sample.is_active(config.objective.pushes_always())));
        branches.extend(truths.iter().find(|truth| truth.prompt == group[0].prompt));
    }
    branches
}

/// Fills in the log-probs that every update of the step is measured against. Active samples go through the decoder in
/// the same batches as in the first update, so that the ratio there is exactly 1.
pub(super) fn add_old_log_probs(
    config: &RlConfig,
    learner: &Learner,
    reference: Option<&Decoder>,
    samples: &mut [Sample],
    truths: &[Sample],
) {
    if !truths.is_empty() {
        return add_beside_truths(config, learner, reference, samples, truths);
    }
    for is_active in [true, false] {
        let numbers: Vec<usize> = (0..samples.len())
            .filter(|&at| samples[at].is_active(config.objective.pushes_always()) == is_active)
            .collect();
        let chosen: Vec<&Sample> = numbers.iter().map(|&at| &samples[at]).collect();
        let old = log_probs(config, learner, learner.decoder(), &chosen);
        let reference = reference.map(|reference| log_probs(config, learner, reference, &chosen));
        for (place, (&at, old)) in numbers.iter().zip(old).enumerate() {
            samples[at].old_log_probs = old;
            samples[at].reference_log_probs = reference.as_ref().map(|reference| reference[place].clone());
        }
    }
}

/// The same with the branches of true answers in the rows, as the update has them.
fn add_beside_truths(
    config: &RlConfig,
    learner: &Learner,
    reference: Option<&Decoder>,
    samples: &mut [Sample],
    truths: &[Sample],
) {
    let is_idle = |sample: &&Sample| !sample.is_active(config.objective.pushes_always());
    let mut found = Vec::new();
    for chosen in [branches(config, samples, truths), samples.iter().filter(is_idle).collect()] {
        let old = log_probs(config, learner, learner.decoder(), &chosen);
        let reference = reference.map(|reference| log_probs(config, learner, reference, &chosen));
        for (at, (sample, old)) in chosen.iter().zip(old).enumerate() {
            found.push((sample.prompt, sample.number, old, reference.as_ref().map(|values| values[at].clone())));
        }
    }
    for (prompt, number, old, reference) in found {
        // The same prompt may have been drawn twice: the first of its samples that has none yet.
        let open = |sample: &&mut Sample| {
            sample.prompt == prompt && sample.number == number && sample.old_log_probs.is_empty()
        };
        if let Some(sample) = samples.iter_mut().find(open) {
            (sample.old_log_probs, sample.reference_log_probs) = (old, reference);
        }
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

/// One mini-batch: fresh log-probs, coefficients, backward, update. Returns its loss, or none if nothing pushes.
pub(super) fn update(
    config: &RlConfig,
    learner: &mut Learner,
    (samples, truths): (&[Sample], &[Sample]),
    rate: f64,
    place: &Place<'_>,
    totals: &mut Totals,
) -> Result<Option<Update>> {
    let branches = branches(config, samples, truths);
    if branches.is_empty() {
        return Ok(None);
    }
    let (mut active, mut new, mut true_log_probs) = (Vec::new(), Vec::new(), Vec::new());
    for (sample, values) in branches.iter().zip(log_probs(config, learner, learner.decoder(), &branches)) {
        match sample.number {
            usize::MAX => true_log_probs.push(values),
            _ => {
                active.push(*sample);
                new.push(values);
            }
        }
    }
    let policy = objective_of(config, samples, &active, &new);
    totals.add(&policy.totals);
    let true_tokens: usize = true_log_probs.iter().map(Vec::len).sum();
    let truth_nll = -true_log_probs.iter().flatten().sum::<f64>() / true_tokens.max(1) as f64;
    let rows = rows_to_push(config, &branches, &policy, config.truth_nll / true_tokens.max(1) as f64);
    if rows.is_empty() {
        return Ok(None);
    }
    learner.start_step();
    learner.add(&batches(&rows, config.rows_per_micro_batch, 1.0), config.temperature as f32, place)?;
    let grad_norm = learner.update(rate, place)?;
    let loss = policy.loss + config.truth_nll * truth_nll;
    Ok(Some(Update { loss, grad_norm, log_ratio_max: policy.totals.log_ratio_max, truth_nll }))
}

/// What an update says of itself.
pub(super) struct Update {
    pub(super) loss: f64,
    pub(super) grad_norm: f64,
    pub(super) log_ratio_max: f64,
    pub(super) truth_nll: f64,
}

impl Update {
    /// The first update of a step is on the policy: its ratios are 1.
    pub(super) fn check_first(&self, step: u64) -> Result<()> {
        if self.log_ratio_max > LARGEST_FIRST_LOG_RATIO {
            let detail = format!(
                "log ratio of {} before the first update, at most {LARGEST_FIRST_LOG_RATIO} expected: the trainer does \
                 not agree with itself",
                self.log_ratio_max
            );
            return Err(Error::Rollout { step, detail });
        }
        Ok(())
    }
}

fn objective_of(config: &RlConfig, samples: &[Sample], active: &[&Sample], new: &[Vec<f64>]) -> PolicyLoss {
    let counted = samples.iter().filter(|sample| sample.counts());
    let denominators = Denominators {
        sequences: counted.clone().count(),
        tokens: counted.map(|sample| sample.completion.tokens.len()).sum(),
        max_completion_tokens: config.max_completion_tokens,
    };
    let masks: Vec<Vec<bool>> = active.iter().map(|sample| vec![true; sample.completion.tokens.len()]).collect();
    let sampler: Vec<Vec<f64>> = active
        .iter()
        .map(|sample| sample.completion.log_probs.iter().map(|&value| f64::from(value)).collect())
        .collect();
    let mut sequences = Vec::new();
    for (((sample, new), mask), sampler) in active.iter().zip(new).zip(&masks).zip(&sampler) {
        sequences.push(Sequence {
            log_probs: new,
            old_log_probs: &sample.old_log_probs,
            reference_log_probs: sample.reference_log_probs.as_deref(),
            sampler_log_probs: Some(sampler),
            mask,
            advantage: sample.advantage.unwrap_or(0.0),
        });
    }
    policy_loss(&sequences, &denominators, &config.objective)
}

/// Rows whose weights are `−∂loss/∂log-prob`, and `of_truth` on the tokens of true answers; completions that push nothing
/// are left out.
fn rows_to_push(config: &RlConfig, branches: &[&Sample], policy: &PolicyLoss, of_truth: f64) -> Vec<Row> {
    let pushes = |coefficients: &[f64]| coefficients.iter().any(|&coefficient| coefficient != 0.0);
    let mut coefficients = policy.coefficients.iter();
    let weights_of = |sample: &&Sample| match sample.number {
        usize::MAX => vec![of_truth as f32; sample.completion.tokens.len()],
        _ => match coefficients.next() {
            Some(coefficients) if pushes(coefficients) => {
                coefficients.iter().map(|&coefficient| -coefficient as f32).collect()
            }
            _ => Vec::new(),
        },
    };
    let weights: Vec<Vec<f32>> = branches.iter().map(weights_of).collect();
    SampleRows::new(branches, &weights, config.share_prompts).rows
}
