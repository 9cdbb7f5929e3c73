//! What one RL step tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rollout::{Rollouts, Score};
use crate::metrics::Clock;

/// One step of RL. Shares are of completions unless said otherwise.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RlStepMetrics {
    /// Batches of rollouts so far, from 1.
    pub step: u64,
    /// Updates so far.
    pub updates: u64,
    /// Mean policy loss over the updates of the step.
    pub loss: f64,
    /// Learning rate of the last update.
    pub learning_rate: f64,
    /// Largest norm of a gradient before clipping.
    pub grad_norm: f64,
    /// Mini-batches without any gradient: no update was made for them.
    pub skipped_updates: u64,
    /// Completions sampled.
    pub completions: u64,
    /// Mean reward of those that have one (a policy fault has 0).
    pub reward_mean: f64,
    /// Mean of each named part over the completions that have it.
    pub reward_parts: BTreeMap<String, f64>,
    /// Share of policy faults.
    pub fault_share: f64,
    /// Policy faults by reason.
    pub faults: BTreeMap<String, u64>,
    /// Completions the scorer failed on.
    pub unavailable: u64,
    /// Share of groups whose rewards are all equal.
    pub zero_variance_share: f64,
    /// Groups with fewer than two rewards.
    pub dropped_groups: u64,
    /// Groups that were put aside for others with something to teach.
    #[serde(default)]
    pub refilled_groups: u64,
    /// Mean tokens of a completion.
    pub response_length: f64,
    /// Share that ended with a stop token.
    pub stopped_share: f64,
    /// Share of active tokens clipped below the range.
    pub clip_low: f64,
    /// Share of active tokens clipped above the range.
    pub clip_high: f64,
    /// Largest importance ratio.
    pub ratio_max: f64,
    /// Mean k3 estimate of the divergence from the reference per active token; 0 without a reference.
    pub kl: f64,
    /// Largest difference between the sampler's and the trainer's log-probs.
    pub sampler_gap: f64,
    /// Log-probs from the sampler that are not numbers; the trainer's own take their place.
    pub non_finite_sampler_log_probs: u64,
    /// Largest `|log ratio|` before the first update: 0 up to rounding.
    pub first_log_ratio: f64,
    /// Tokens of all rows.
    pub tokens: u64,
    /// Sampled tokens that count.
    pub trained_tokens: u64,
    /// Wall-clock figures.
    pub clock: Clock,
}

impl RlStepMetrics {
    /// What is known once advantages are there.
    pub(super) fn of(rollouts: &Rollouts) -> Self {
        let samples = || rollouts.groups.iter().flatten();
        let count = samples().count() as f64;
        let rewards: Vec<f64> = samples().filter_map(|sample| sample.score.reward()).collect();
        let mut parts: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        let mut faults: BTreeMap<String, u64> = BTreeMap::new();
        for sample in samples() {
            for (name, value) in sample.score.parts() {
                let entry = parts.entry(name.clone()).or_default();
                *entry = (entry.0 + value, entry.1 + 1);
            }
            if let Score::PolicyFault { reason, .. } = &sample.score {
                *faults.entry(reason.clone()).or_default() += 1;
            }
        }
        let share = |is: &dyn Fn(&super::rollout::Sample) -> bool| samples().filter(|s| is(s)).count() as f64 / count;
        Self {
            completions: count as u64,
            reward_mean: rewards.iter().sum::<f64>() / rewards.len().max(1) as f64,
            reward_parts: parts.into_iter().map(|(name, (sum, n))| (name, sum / n as f64)).collect(),
            fault_share: faults.values().sum::<u64>() as f64 / count,
            faults,
            unavailable: samples().filter(|sample| sample.score == Score::Unavailable).count() as u64,
            zero_variance_share: rollouts.zero_variance_groups as f64 / rollouts.groups.len() as f64,
            dropped_groups: rollouts.dropped_groups as u64,
            refilled_groups: rollouts.refilled_groups as u64,
            response_length: samples().map(|sample| sample.completion.tokens.len()).sum::<usize>() as f64 / count,
            stopped_share: share(&|sample| sample.completion.stopped),
            tokens: samples().map(|sample| sample.tokens.len() as u64).sum(),
            trained_tokens: samples().filter(|s| s.counts()).map(|s| s.completion.tokens.len() as u64).sum(),
            ..Self::default()
        }
    }
}
