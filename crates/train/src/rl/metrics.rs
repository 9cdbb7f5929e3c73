//! What one RL step tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::rollout::{RlPrompt, Rollouts, Sample, Score};
use crate::checkpoint::is_zero;
use crate::metrics::Clock;

/// The completions of one label.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelFigures {
    /// Their number.
    pub completions: u64,
    /// Mean reward of those that have one.
    pub reward_mean: f64,
    /// Mean of each named part.
    pub reward_parts: BTreeMap<String, f64>,
    /// Policy faults by reason.
    pub faults: BTreeMap<String, u64>,
    /// Failures of the scorer by reason.
    pub unavailable: BTreeMap<String, u64>,
    /// Share that ended with a stop token.
    pub stopped_share: f64,
}

impl LabelFigures {
    fn of(samples: &[&Sample]) -> Self {
        let rewards: Vec<f64> = samples.iter().filter_map(|sample| sample.score.reward()).collect();
        let mut parts: BTreeMap<String, (f64, u64)> = BTreeMap::new();
        let (mut faults, mut unavailable) = (BTreeMap::new(), BTreeMap::new());
        for sample in samples {
            for (name, value) in sample.score.parts() {
                let entry = parts.entry(name.clone()).or_default();
                *entry = (entry.0 + value, entry.1 + 1);
            }
            match &sample.score {
                Score::Scored { .. } => {}
                Score::PolicyFault { reason, .. } => *faults.entry(reason.clone()).or_default() += 1,
                Score::Unavailable { reason } => *unavailable.entry(reason.clone()).or_default() += 1,
            }
        }
        let stopped = samples.iter().filter(|sample| sample.completion.stopped).count();
        Self {
            completions: samples.len() as u64,
            reward_mean: rewards.iter().sum::<f64>() / rewards.len().max(1) as f64,
            reward_parts: parts.into_iter().map(|(name, (sum, n))| (name, sum / n as f64)).collect(),
            faults,
            unavailable,
            stopped_share: stopped as f64 / samples.len() as f64,
        }
    }
}

/// Completions of held-out prompts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// All of them.
    #[serde(flatten)]
    pub all: LabelFigures,
    /// By the prompts' label, where they have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_label: BTreeMap<String, LabelFigures>,
}

fn current() -> Option<u64> {
    Some(0)
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn is_current(staleness: &Option<u64>) -> bool {
    *staleness == Some(0)
}

impl HeldOut {
    pub(super) fn of(groups: &[Vec<Sample>], prompts: &[RlPrompt]) -> Self {
        let samples: Vec<&Sample> = groups.iter().flatten().collect();
        Self { all: LabelFigures::of(&samples), by_label: by_label(&samples, prompts) }
    }
}

fn by_label(samples: &[&Sample], prompts: &[RlPrompt]) -> BTreeMap<String, LabelFigures> {
    let mut labels: BTreeMap<&str, Vec<&Sample>> = BTreeMap::new();
    for sample in samples {
        labels.entry(&prompts[sample.prompt].label).or_default().push(sample);
    }
    labels.remove("");
    labels.into_iter().map(|(name, of)| (name.to_string(), LabelFigures::of(&of))).collect()
}

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
    /// The same by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unavailable_reasons: BTreeMap<String, u64>,
    /// The same figures by the prompts' label, where they have one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub by_label: BTreeMap<String, LabelFigures>,
    /// What the scorer says of the step as a whole.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub scorer: BTreeMap<String, f64>,
    /// Names of alarms; `docs/rl.md` says what to do.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<String>,
    /// Share of groups whose rewards are all equal.
    pub zero_variance_share: f64,
    /// Groups with fewer than two rewards.
    pub dropped_groups: u64,
    /// Groups that were put aside for others with something to teach.
    #[serde(default)]
    pub refilled_groups: u64,
    /// Prompts that were passed over because the policy always passes or always fails them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rested_prompts: u64,
    /// Batches of rollouts between the weights that sampled and those that the step started from; none where rollouts are
    /// replayed.
    #[serde(default = "current", skip_serializing_if = "is_current")]
    pub staleness: Option<u64>,
    /// Mean weight between the sampler's policy and the trainer's over active tokens, where it is corrected for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction: Option<f64>,
    /// The largest such weight before it was cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correction_max: Option<f64>,
    /// Whether the policy became the reference anew before the step.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reference_reset: bool,
    /// Held-out prompts, where they were completed after the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<HeldOut>,
    /// The same before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_before: Option<HeldOut>,
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
    /// Mean negative log-likelihood of the true answers' tokens at the step's first update; 0 where it is not trained.
    #[serde(default)]
    pub truth_nll: f64,
    /// Entropy per active token, estimated on the sampled tokens.
    #[serde(default)]
    pub entropy: f64,
    /// Largest difference between the sampler's and the trainer's log-probs.
    pub sampler_gap: f64,
    /// Log-probs from the sampler that are not numbers; the trainer's own take their place.
    pub non_finite_sampler_log_probs: u64,
    /// Largest `|log ratio|` before the first update: 0 up to rounding. In the steps that compute it by itself: the first and
    /// every hundredth after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_log_ratio: Option<f64>,
    /// Tokens of all rows.
    pub tokens: u64,
    /// Sampled tokens that count.
    pub trained_tokens: u64,
    /// Wall-clock figures.
    pub clock: Clock,
}

impl RlStepMetrics {
    /// What is known once advantages are there.
    pub(super) fn of(rollouts: &Rollouts, prompts: &[RlPrompt]) -> Self {
        let samples: Vec<&Sample> = rollouts.groups.iter().flatten().collect();
        let LabelFigures { reward_mean, reward_parts, faults, unavailable, stopped_share, .. } =
            LabelFigures::of(&samples);
        let count = samples.len() as f64;
        Self {
            completions: samples.len() as u64,
            reward_mean,
            reward_parts,
            fault_share: faults.values().sum::<u64>() as f64 / count,
            faults,
            unavailable: unavailable.values().sum(),
            unavailable_reasons: unavailable,
            by_label: by_label(&samples, prompts),
            zero_variance_share: rollouts.zero_variance_groups as f64 / rollouts.groups.len() as f64,
            dropped_groups: rollouts.dropped_groups as u64,
            refilled_groups: rollouts.refilled_groups as u64,
            rested_prompts: rollouts.rested,
            staleness: rollouts.staleness,
            scorer: rollouts.notes.figures.iter().cloned().collect(),
            alarms: rollouts.notes.alarms.clone(),
            response_length: samples.iter().map(|sample| sample.completion.tokens.len()).sum::<usize>() as f64 / count,
            stopped_share,
            tokens: samples.iter().map(|sample| sample.tokens.len() as u64).sum(),
            trained_tokens: samples.iter().filter(|s| s.counts()).map(|s| s.completion.tokens.len() as u64).sum(),
            ..Self::default()
        }
    }
}
