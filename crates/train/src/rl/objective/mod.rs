//! Policy objectives: pure float64 functions of log-probs.
//!
//! Words: the *ratio* of a token is `exp(log π − log π_old)`; GSPO's ratio of a sequence is `exp` of the mean of that
//! exponent over the sampled tokens, shared by all of them. A *coefficient* is `∂loss / ∂log π` of one token: the trainer
//! pushes it back through the decoder as a loss weight of `−coefficient`. Old log-probs are the trainer's own, before
//! the first update on the batch.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Clip ranges above this make no sense for a sequence ratio: it is a geometric mean and stays within thousandths of 1.
const LARGEST_SEQUENCE_CLIP: f64 = 0.1;

/// What the importance ratio is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// One per token (GRPO, DAPO, Dr. GRPO).
    Token,
    /// One per sequence (GSPO, arXiv 2507.18071).
    Sequence,
}

/// How token losses become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over sequences of the mean over tokens (GRPO, GSPO).
    SequenceMean,
    /// Sum over all tokens of the optimizer step, divided by their number (DAPO, arXiv 2503.14476).
    TokenMean,
    /// Sum over all tokens, divided by sequences times the longest completion allowed (Dr. GRPO, arXiv 2503.20783).
    ConstantLength,
}

/// A clipped policy objective.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Objective {
    /// Level of the ratio.
    #[serde(default = "gspo_ratio")]
    pub ratio: Ratio,
    /// Aggregation.
    #[serde(default = "gspo_aggregation")]
    pub aggregation: Aggregation,
    /// The ratio is clipped below `1 − clip_low`. Default: GSPO's published 3e-4.
    #[serde(default = "gspo_clip_low")]
    pub clip_low: f64,
    /// The ratio is clipped above `1 + clip_high`. Default: GSPO's published 4e-4.
    #[serde(default = "gspo_clip_high")]
    pub clip_high: f64,
    /// Factor on the k3 estimate of the divergence from the reference, `exp(ref − l) − (ref − l) − 1`; 0 needs no
    /// reference. Default: 0, as published for GSPO.
    #[serde(default)]
    pub kl: f64,
    /// Whether that estimate is weighted by the ratio, with gradient.
    #[serde(default)]
    pub is_kl_weighted: bool,
}

fn gspo_ratio() -> Ratio {
    Ratio::Sequence
}

fn gspo_aggregation() -> Aggregation {
    Aggregation::SequenceMean
}

fn gspo_clip_low() -> f64 {
    3e-4
}

fn gspo_clip_high() -> f64 {
    4e-4
}

impl Default for Objective {
    fn default() -> Self {
        Self {
            ratio: gspo_ratio(),
            aggregation: gspo_aggregation(),
            clip_low: gspo_clip_low(),
            clip_high: gspo_clip_high(),
            kl: 0.0,
            is_kl_weighted: false,
        }
    }
}

impl Objective {
    /// Refuses ranges that cannot be meant.
    pub fn check(&self) -> Result<()> {
        for (field, value) in [("objective.clip_low", self.clip_low), ("objective.clip_high", self.clip_high)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::config(field, format!("{value}, expected a number above 0")));
            }
            if self.ratio == Ratio::Sequence && value > LARGEST_SEQUENCE_CLIP {
                let detail = format!(
                    "{value} is a range for token ratios; a sequence ratio is clipped within thousandths of 1 (at most \
                     {LARGEST_SEQUENCE_CLIP})"
                );
                return Err(Error::config(field, detail));
            }
        }
        if self.clip_low >= 1.0 {
            return Err(Error::config("objective.clip_low", format!("{}, expected less than 1", self.clip_low)));
        }
        if !(self.kl >= 0.0 && self.kl.is_finite()) {
            return Err(Error::config("objective.kl", format!("{}, expected 0 or more", self.kl)));
        }
        Ok(())
    }
}

/// One completion: log-probs of its sampled tokens under several policies.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// The policy that is trained.
    pub log_probs: &'a [f64],
    /// The trainer's own values before the first update.
    pub old_log_probs: &'a [f64],
    /// The reference policy; needed where `kl` is above 0.
    pub reference_log_probs: Option<&'a [f64]>,
    /// True where the policy sampled the token.
    pub mask: &'a [bool],
    /// Advantage of the completion.
    pub advantage: f64,
}

impl Sequence<'_> {
    fn num_tokens(&self) -> usize {
        self.mask.iter().filter(|&&is_sampled| is_sampled).count()
    }
}

/// Sizes of the whole optimizer step, known before its first backward pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Denominators {
    /// Completions that count.
    pub sequences: usize,
    /// Sampled tokens that count.
    pub tokens: usize,
    /// Longest completion allowed.
    pub max_completion_tokens: usize,
}

/// Loss of some sequences of a step and what to push back.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyLoss {
    /// Their share of the step's loss; the shares add up.
    pub loss: f64,
    /// `∂loss / ∂log_probs` per sequence and token, 0 where not sampled.
    pub coefficients: Vec<Vec<f64>>,
    /// Sums over tokens, to be added up and divided at the end of the step.
    pub totals: Totals,
}

/// Sums over sampled tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Totals {
    /// Tokens.
    pub tokens: usize,
    /// Tokens whose ratio is below the range with a negative advantage.
    pub clipped_low: usize,
    /// Tokens whose ratio is above the range with a positive advantage.
    pub clipped_high: usize,
    /// The k3 estimate against the reference.
    pub kl: f64,
    /// Largest ratio.
    pub ratio_max: f64,
    /// Largest `|log π − log π_old|`.
    pub log_ratio_max: f64,
}

impl Totals {
    /// Adds the sums of other sequences of the step.
    pub fn add(&mut self, other: &Totals) {
        self.tokens += other.tokens;
        self.clipped_low += other.clipped_low;
        self.clipped_high += other.clipped_high;
        self.kl += other.kl;
        self.ratio_max = self.ratio_max.max(other.ratio_max);
        self.log_ratio_max = self.log_ratio_max.max(other.log_ratio_max);
    }
}

/// `−min(ρ A, clip(ρ, 1 − low, 1 + high) A)` aggregated, plus `kl` times the k3 estimate (algorithms: GRPO arXiv
/// 2402.03300 eq. 3, GSPO arXiv 2507.18071 eq. 5–7). All lengths of a sequence must be equal.
pub fn policy_loss(sequences: &[Sequence<'_>], denominators: &Denominators, objective: &Objective) -> PolicyLoss {
    let mut result = PolicyLoss { loss: 0.0, coefficients: Vec::new(), totals: Totals::default() };
    for sequence in sequences {
        let length = sequence.log_probs.len();
        assert!(
            sequence.old_log_probs.len() == length
                && sequence.mask.len() == length
                && sequence.reference_log_probs.is_none_or(|reference| reference.len() == length),
            "a sequence has one entry per token in every list"
        );
        let mut coefficients = vec![0.0; length];
        if sequence.num_tokens() > 0 {
            let share = token_share(sequence.num_tokens(), denominators, objective);
            let ratios = Ratios::of(sequence, objective.ratio);
            result.loss += share * add_clipped(sequence, &ratios, share, objective, &mut coefficients);
            result.loss += share * add_divergence(sequence, &ratios, share, objective, &mut coefficients);
            result.totals.add(&totals(sequence, &ratios, objective));
        }
        result.coefficients.push(coefficients);
    }
    result
}

/// The factor on the sum over a sequence's token losses.
fn token_share(num_tokens: usize, denominators: &Denominators, objective: &Objective) -> f64 {
    let sequences = denominators.sequences as f64;
    match objective.aggregation {
        Aggregation::SequenceMean => 1.0 / (num_tokens as f64 * sequences),
        Aggregation::TokenMean => 1.0 / denominators.tokens as f64,
        Aggregation::ConstantLength => 1.0 / (sequences * denominators.max_completion_tokens as f64),
    }
}

/// The ratio of every token and how it is tied to the tokens' log-probs.
struct Ratios {
    values: Vec<f64>,
    /// For a sequence ratio: the sampled tokens that share it.
    shared_by: Option<f64>,
}

impl Ratios {
    fn of(sequence: &Sequence<'_>, level: Ratio) -> Self {
        let differences = sequence.log_probs.iter().zip(sequence.old_log_probs).map(|(new, old)| new - old);
        match level {
            Ratio::Token => Self { values: differences.map(f64::exp).collect(), shared_by: None },
            Ratio::Sequence => {
                let num_tokens = sequence.num_tokens() as f64;
                let sum: f64 = differences.zip(sequence.mask).filter_map(|(d, &sampled)| sampled.then_some(d)).sum();
                Self { values: vec![(sum / num_tokens).exp(); sequence.mask.len()], shared_by: Some(num_tokens) }
            }
        }
    }

    /// Adds `∂/∂log π` of `Σ_t slope_t · ρ_t` over sampled tokens, times `share`.
    fn push_back(&self, slopes: &[f64], mask: &[bool], share: f64, coefficients: &mut [f64]) {
        let sampled = (0..mask.len()).filter(|&at| mask[at]);
        match self.shared_by {
            None => sampled.for_each(|at| coefficients[at] += share * slopes[at] * self.values[at]),
            Some(num_tokens) => {
                let slope: f64 = sampled.clone().map(|at| slopes[at]).sum();
                sampled.for_each(|at| coefficients[at] += share * slope * self.values[at] / num_tokens);
            }
        }
    }
}

fn add_clipped(
    sequence: &Sequence<'_>,
    ratios: &Ratios,
    share: f64,
    objective: &Objective,
    coefficients: &mut [f64],
) -> f64 {
    let advantage = sequence.advantage;
    let mut slopes = vec![0.0; coefficients.len()];
    let mut sum = 0.0;
    for at in (0..slopes.len()).filter(|&at| sequence.mask[at]) {
        let ratio = ratios.values[at];
        let plain = ratio * advantage;
        let clipped = ratio.clamp(1.0 - objective.clip_low, 1.0 + objective.clip_high) * advantage;
        sum -= plain.min(clipped);
        slopes[at] = if plain <= clipped { -advantage } else { 0.0 };
    }
    ratios.push_back(&slopes, sequence.mask, share, coefficients);
    sum
}

fn add_divergence(
    sequence: &Sequence<'_>,
    ratios: &Ratios,
    share: f64,
    objective: &Objective,
    coefficients: &mut [f64],
) -> f64 {
    let Some(reference) = sequence.reference_log_probs.filter(|_| objective.kl > 0.0) else { return 0.0 };
    let mut slopes = vec![0.0; coefficients.len()];
    let mut sum = 0.0;
    for at in (0..slopes.len()).filter(|&at| sequence.mask[at]) {
        let difference = reference[at] - sequence.log_probs[at];
        let estimate = k3(difference);
        let weight = if objective.is_kl_weighted { ratios.values[at] } else { 1.0 };
        sum += objective.kl * estimate * weight;
        coefficients[at] += share * objective.kl * weight * (1.0 - difference.exp());
        slopes[at] = if objective.is_kl_weighted { objective.kl * estimate } else { 0.0 };
    }
    ratios.push_back(&slopes, sequence.mask, share, coefficients);
    sum
}

/// Schulman's third estimator of the divergence, from `log π_ref − log π`.
fn k3(difference: f64) -> f64 {
    difference.exp() - difference - 1.0
}

fn totals(sequence: &Sequence<'_>, ratios: &Ratios, objective: &Objective) -> Totals {
    let mut totals = Totals { tokens: sequence.num_tokens(), ..Totals::default() };
    for at in (0..sequence.mask.len()).filter(|&at| sequence.mask[at]) {
        let ratio = ratios.values[at];
        totals.clipped_low += usize::from(ratio < 1.0 - objective.clip_low && sequence.advantage < 0.0);
        totals.clipped_high += usize::from(ratio > 1.0 + objective.clip_high && sequence.advantage > 0.0);
        totals.ratio_max = totals.ratio_max.max(ratio);
        let log_ratio = (sequence.log_probs[at] - sequence.old_log_probs[at]).abs();
        totals.log_ratio_max = totals.log_ratio_max.max(log_ratio);
        if let Some(reference) = sequence.reference_log_probs {
            let weight = if objective.is_kl_weighted { ratio } else { 1.0 };
            totals.kl += weight * k3(reference[at] - sequence.log_probs[at]);
        }
    }
    totals
}
