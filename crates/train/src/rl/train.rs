//! Training on a batch of rollouts: its mini-batches, what is looked at before the first update, the updates.

use std::path::Path;

use worldloom_model::Decoder;

use super::config::RlConfig;
use super::metrics::RlStepMetrics;
use super::objective::Totals;
use super::records;
use super::rollout::{RlPrompt, Rollouts, Sample};
use super::update::{self, Pushed};
use crate::error::{Error, Result};
use crate::learner::Place;
use crate::run::Run;

/// How often the log-probs of the pass that is pushed back are compared with those of a pass of their own.
const STEPS_PER_CHECK: u64 = 100;

/// What training on a batch of rollouts works with.
pub(super) struct Train<'a> {
    pub(super) config: &'a RlConfig,
    pub(super) prompts: &'a [RlPrompt],
    pub(super) reference: Option<&'a Decoder>,
    pub(super) out: &'a Path,
}

impl Train<'_> {
    pub(super) fn step(&self, run: &mut Run, rollouts: Rollouts, metrics: &mut RlStepMetrics) -> Result<()> {
        let (config, step) = (self.config, run.state.step + 1);
        // In updates: what a batch is cut into.
        let staleness = rollouts.staleness.unwrap_or_default() * config.mini_batches as u64;
        let mut mini_batches = into_mini_batches(rollouts, config.mini_batches);
        let truths: Vec<Vec<Sample>> =
            mini_batches.iter().map(|samples| update::truths(config, self.prompts, samples)).collect();
        for (at, (samples, truths)) in mini_batches.iter_mut().zip(&truths).enumerate() {
            update::add_old_log_probs(config, &run.learner, self.reference, samples, truths, at == 0);
        }
        let place = self.place(step, &mini_batches[0]);
        let first = update::push(config, &mut run.learner, (&mini_batches[0], &truths[0]), &place);
        if let Ok(Some(pushed)) = &first {
            pushed.fill_in(&mut mini_batches[0]);
        }
        records::dump(self.out, step, self.prompts, &mini_batches, staleness)?;
        let first = first?;
        if step % STEPS_PER_CHECK == 1 {
            let of = (mini_batches[0].as_slice(), truths[0].as_slice());
            metrics.first_log_ratio = Some(update::check_itself(config, &run.learner, of, step)?);
        }
        for samples in &mini_batches {
            update::check_sampler(config, self.prompts, step, samples, metrics)?;
        }
        if metrics.sampler_gap > config.max_log_prob_gap && config.objective.correction.is_none() {
            metrics.alarms.push("off_policy".into());
        }
        if step == 1 {
            check_faults(config, metrics)?;
        }
        self.updates(run, first, mini_batches.iter().zip(&truths), metrics)
    }

    /// One update for each mini-batch; the first is pushed back already.
    fn updates<'a>(
        &self,
        run: &mut Run,
        mut first: Option<Pushed>,
        mini_batches: impl Iterator<Item = (&'a Vec<Sample>, &'a Vec<Sample>)>,
        metrics: &mut RlStepMetrics,
    ) -> Result<()> {
        let config = self.config;
        let (mut totals, mut losses) = (Totals::default(), Vec::new());
        for (at, (samples, truths)) in mini_batches.enumerate() {
            let place = self.place(run.state.step + 1, samples);
            let pushed = match at {
                0 => first.take(),
                _ => update::push(config, &mut run.learner, (samples, truths), &place)?,
            };
            let number = run.state.step * config.mini_batches as u64 + at as u64;
            let rate = config.schedule.rate(config.optimizer.learning_rate, number, config.updates());
            metrics.learning_rate = rate;
            if let Some(pushed) = &pushed {
                totals.add(&pushed.totals);
            }
            let Some(pushed) = pushed.filter(|pushed| pushed.has_gradient) else {
                metrics.skipped_updates += 1;
                continue;
            };
            if losses.is_empty() {
                metrics.truth_nll = pushed.truth_nll;
            }
            losses.push(pushed.loss);
            metrics.grad_norm = metrics.grad_norm.max(run.learner.update(rate, &place)?);
        }
        let tokens = totals.tokens.max(1) as f64;
        metrics.loss = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        metrics.clip_low = totals.clipped_low as f64 / tokens;
        metrics.clip_high = totals.clipped_high as f64 / tokens;
        metrics.ratio_max = totals.ratio_max;
        metrics.kl = totals.kl / tokens;
        metrics.entropy = totals.entropy / tokens;
        let is_corrected = config.objective.correction.is_some() && totals.tokens > 0;
        metrics.correction = is_corrected.then_some(totals.corrections / tokens);
        metrics.correction_max = is_corrected.then_some(totals.correction_max);
        Ok(())
    }

    fn place(&self, step: u64, samples: &[Sample]) -> Place<'static> {
        let mut ids: Vec<&str> = samples.iter().map(|sample| self.prompts[sample.prompt].id.as_str()).collect();
        ids.dedup();
        Place { step, rows: format!("prompts {}", ids.join(", ")).into() }
    }
}

/// Whole groups, in their order, in parts of nearly equal number.
fn into_mini_batches(rollouts: Rollouts, count: usize) -> Vec<Vec<Sample>> {
    let total = rollouts.groups.len();
    let mut parts: Vec<Vec<Sample>> = (0..count).map(|_| Vec::new()).collect();
    for (at, group) in rollouts.groups.into_iter().enumerate() {
        parts[at * count / total].extend(group);
    }
    parts
}

fn check_faults(config: &RlConfig, metrics: &RlStepMetrics) -> Result<()> {
    if metrics.fault_share <= config.max_fault_share_at_start {
        return Ok(());
    }
    let reasons: Vec<String> = metrics.faults.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    Err(Error::FaultsAtStart {
        faults: metrics.faults.values().sum::<u64>() as usize,
        completions: metrics.completions as usize,
        reasons: reasons.join(", "),
        limit: config.max_fault_share_at_start,
    })
}
