//! From scored rollouts to updates: the trainer's own log-probs, the objective's coefficients, the backward pass.

use burn::module::Module;
use worldloom_model::Decoder;
use worldloom_schema::Row;

use super::config::RlConfig;
use super::metrics::RlStepMetrics;
use super::objective::{Denominators, PolicyLoss, Sequence, Totals, policy_loss};
use super::rollout::{RlPrompt, Sample};
use super::rows::SampleRows;
use crate::batch::{Batch, micro_batches};
use crate::error::{Error, Result};
use crate::learner::{Learner, Place};

/// Before the first update the ratio is 1 up to this.
const LARGEST_FIRST_LOG_RATIO: f64 = 1e-5;

/// Log-probs of sampled tokens under `decoder`, sample by sample.
fn log_probs(config: &RlConfig, learner: &Learner, decoder: &Decoder, samples: &[&Sample]) -> Vec<Vec<f64>> {
    let ones: Vec<Vec<f32>> = samples.iter().map(|sample| vec![1.0; sample.completion.tokens.len()]).collect();
    let SampleRows { rows, samples: inside } = SampleRows::new(samples, &ones, config.share_prompts);
    let mut result = vec![Vec::new(); samples.len()];
    for micro_batch in micro_batches(&rows, config.rows_per_micro_batch) {
        let batch = Batch::new(&micro_batch.iter().map(|&at| &rows[at]).collect::<Vec<_>>(), 1.0);
        let values = batch.log_probs(decoder, config.temperature as f32, &learner.device);
        for (at, values) in micro_batch.into_iter().zip(values) {
            let mut values = values.into_iter().map(f64::from);
            for &sample in &inside[at] {
                result[sample] = values.by_ref().take(ones[sample].len()).collect();
            }
        }
    }
    result
}

/// Fills in the log-probs that every update of the step is measured against. Active samples go through the decoder in
/// the same batches as in the first update, so that the ratio there is exactly 1.
pub(super) fn add_old_log_probs(
    config: &RlConfig,
    learner: &Learner,
    reference: Option<&Decoder>,
    samples: &mut [Sample],
) {
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

/// Compares the sampler's log-probs with the trainer's; too large a difference is refused.
pub(super) fn check_sampler(
    config: &RlConfig,
    prompts: &[RlPrompt],
    step: u64,
    samples: &[Sample],
    metrics: &mut RlStepMetrics,
) -> Result<()> {
    for sample in samples {
        let pairs = sample.completion.log_probs.iter().map(|&value| f64::from(value)).zip(&sample.old_log_probs);
        for (token, (sampler, &trainer)) in pairs.enumerate() {
            if !sampler.is_finite() {
                metrics.non_finite_sampler_log_probs += 1;
                continue;
            }
            let gap = (sampler - trainer).abs();
            metrics.sampler_gap = metrics.sampler_gap.max(gap);
            if gap.is_nan() || gap > config.max_log_prob_gap {
                let prompt = prompts[sample.prompt].id.clone();
                let (sample, limit) = (sample.number, config.max_log_prob_gap);
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
    samples: &[Sample],
    rate: f64,
    place: &Place<'_>,
    totals: &mut Totals,
) -> Result<Option<Update>> {
    let active: Vec<&Sample> =
        samples.iter().filter(|sample| sample.is_active(config.objective.pushes_always())).collect();
    if active.is_empty() {
        return Ok(None);
    }
    let new = log_probs(config, learner, learner.decoder(), &active);
    let policy = objective_of(config, samples, &active, &new);
    totals.add(&policy.totals);
    let rows = rows_to_push(config, &active, &policy);
    if rows.is_empty() {
        return Ok(None);
    }
    learner.start_step();
    for micro_batch in micro_batches(&rows, config.rows_per_micro_batch) {
        let batch = Batch::new(&micro_batch.iter().map(|&at| &rows[at]).collect::<Vec<_>>(), 1.0);
        learner.add(&batch, config.temperature as f32, place)?;
    }
    let grad_norm = learner.update(rate, place)?;
    Ok(Some(Update { loss: policy.loss, grad_norm, log_ratio_max: policy.totals.log_ratio_max }))
}

/// What an update says of itself.
pub(super) struct Update {
    pub(super) loss: f64,
    pub(super) grad_norm: f64,
    pub(super) log_ratio_max: f64,
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

/// Rows whose weights are `−∂loss/∂log-prob`; completions that push nothing are left out.
fn rows_to_push(config: &RlConfig, active: &[&Sample], policy: &PolicyLoss) -> Vec<Row> {
    let pushes = |coefficients: &[f64]| coefficients.iter().any(|&coefficient| coefficient != 0.0);
    let weights_of = |coefficients: &Vec<f64>| match pushes(coefficients) {
        true => coefficients.iter().map(|&coefficient| -coefficient as f32).collect(),
        false => Vec::new(),
    };
    let weights: Vec<Vec<f32>> = policy.coefficients.iter().map(weights_of).collect();
    SampleRows::new(active, &weights, config.share_prompts).rows
}

/// A copy of the starting weights that nothing trains.
pub(super) fn reference_of(config: &RlConfig, decoder: &Decoder) -> Option<Decoder> {
    (config.objective.kl > 0.0).then(|| decoder.clone().no_grad())
}
