//! Policy objectives: pure float64 functions of log-probs.
//!
//! Words: the *ratio* of a token is `exp(log π − log π_old)`; GSPO's ratio of a sequence is `exp` of the mean of that
//! exponent over the sampled tokens, shared by all of them. A *coefficient* is `∂loss / ∂log π` of one token: the trainer
//! pushes it back through the decoder as a loss weight of `−coefficient`. Old log-probs are the trainer's own, before
//! the first update on the batch.

mod config;

pub use config::{
    Aggregation, Correction, CorrectionLevel, CorrectionMode, Divergence, Name, Objective, Ratio, Surrogate,
};

/// One completion: log-probs of its sampled tokens under several policies.
#[derive(Debug, Clone, Copy)]
pub struct Sequence<'a> {
    /// The policy that is trained.
    pub log_probs: &'a [f64],
    /// The trainer's own values before the first update.
    pub old_log_probs: &'a [f64],
    /// The reference policy; needed where `kl` is above 0.
    pub reference_log_probs: Option<&'a [f64]>,
    /// What the sampler said; needed where there is a correction.
    pub sampler_log_probs: Option<&'a [f64]>,
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
    /// The estimate of the divergence from the reference.
    pub kl: f64,
    /// The estimate of the entropy, `−Σ ρ log π`.
    pub entropy: f64,
    /// The weights between sampler and trainer.
    pub corrections: f64,
    /// The largest of them before it was cut or masked.
    pub correction_max: f64,
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
        self.entropy += other.entropy;
        self.corrections += other.corrections;
        self.correction_max = self.correction_max.max(other.correction_max);
        self.ratio_max = self.ratio_max.max(other.ratio_max);
        self.log_ratio_max = self.log_ratio_max.max(other.log_ratio_max);
    }
}

/// The surrogate, times the weight between sampler and trainer where there is one, plus `kl` times the divergence,
/// less `entropy` times the entropy, aggregated (GRPO arXiv 2402.03300 eq. 3, GSPO arXiv 2507.18071 eq. 5–7 and 13, CISPO
/// arXiv 2506.13585 eq. 4, SAPO arXiv 2511.20347). All
/// lengths of a sequence must be equal.
pub fn policy_loss(sequences: &[Sequence<'_>], denominators: &Denominators, objective: &Objective) -> PolicyLoss {
    let mut result = PolicyLoss { loss: 0.0, coefficients: Vec::new(), totals: Totals::default() };
    for sequence in sequences {
        let length = sequence.log_probs.len();
        assert!(
            sequence.old_log_probs.len() == length
                && sequence.mask.len() == length
                && sequence.reference_log_probs.is_none_or(|reference| reference.len() == length)
                && sequence.sampler_log_probs.is_none_or(|sampler| sampler.len() == length),
            "a sequence has one entry per token in every list"
        );
        let mut coefficients = vec![0.0; length];
        if sequence.num_tokens() > 0 {
            let share = token_share(sequence.num_tokens(), denominators, objective);
            let ratios = Ratios::of(sequence, objective.ratio);
            result.loss += share * add_surrogate(sequence, &ratios, share, objective, &mut coefficients);
            result.loss += share * add_divergence(sequence, &ratios, share, objective, &mut coefficients);
            result.loss += share * add_entropy(sequence, share, objective, &mut coefficients);
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
        Aggregation::SequenceSum => 1.0 / sequences,
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
        if level == Ratio::Token {
            return Self { values: differences.map(f64::exp).collect(), shared_by: None };
        }
        let num_tokens = sequence.num_tokens() as f64;
        let sum: f64 = differences.zip(sequence.mask).filter_map(|(d, &sampled)| sampled.then_some(d)).sum();
        let values = vec![(sum / num_tokens).exp(); sequence.mask.len()];
        Self { values, shared_by: (level == Ratio::Sequence).then_some(num_tokens) }
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

/// The sum over tokens of the surrogate; adds its coefficients.
fn add_surrogate(
    sequence: &Sequence<'_>,
    ratios: &Ratios,
    share: f64,
    objective: &Objective,
    coefficients: &mut [f64],
) -> f64 {
    let advantage = sequence.advantage;
    let weights = corrections(sequence, objective);
    let mut slopes = vec![0.0; coefficients.len()];
    let mut sum = 0.0;
    for at in (0..slopes.len()).filter(|&at| sequence.mask[at]) {
        let (ratio, weight) = (ratios.values[at], weights.as_ref().map_or(1.0, |weights| weights[at]));
        match objective.surrogate {
            Surrogate::Clip => {
                let (loss, slope) = clipped(ratio, advantage, objective);
                sum += weight * loss;
                slopes[at] = weight * slope;
            }
            Surrogate::Sapo => {
                let (loss, slope) = gated(ratio, advantage, objective);
                sum += weight * loss;
                slopes[at] = weight * slope;
            }
            Surrogate::Cispo => {
                let factor = -weight * ratio.min(objective.cap) * advantage;
                sum += factor * sequence.log_probs[at];
                coefficients[at] += share * factor;
            }
        }
    }
    ratios.push_back(&slopes, sequence.mask, share, coefficients);
    sum
}

/// The clipped loss of a ratio, and its slope.
fn clipped(ratio: f64, advantage: f64, objective: &Objective) -> (f64, f64) {
    let largest = objective.two_sided.unwrap_or(f64::INFINITY);
    let plain = ratio.min(largest) * advantage;
    let clipped = ratio.clamp(1.0 - objective.clip_low, 1.0 + objective.clip_high) * advantage;
    let loss = -plain.min(clipped);
    let slope = if plain <= clipped && ratio <= largest { -advantage } else { 0.0 };
    match objective.dual_clip {
        Some(bound) if advantage < 0.0 && loss > -bound * advantage => (-bound * advantage, 0.0),
        _ => (loss, slope),
    }
}

/// SAPO's loss of a ratio, and its slope.
fn gated(ratio: f64, advantage: f64, objective: &Objective) -> (f64, f64) {
    let temperature = if advantage > 0.0 { objective.gate_positive } else { objective.gate_negative };
    let gate = 1.0 / (1.0 + (-temperature * (ratio - 1.0)).exp());
    (-4.0 / temperature * gate * advantage, -4.0 * gate * (1.0 - gate) * advantage)
}

/// Per token the weight between the sampler's policy and the trainer's. What the sampler could not say weighs nothing.
fn corrections(sequence: &Sequence<'_>, objective: &Objective) -> Option<Vec<f64>> {
    let correction = objective.correction?;
    let weight = |weight: f64| match correction.mode {
        _ if weight <= correction.cap => weight,
        CorrectionMode::Truncate if weight > correction.cap => correction.cap,
        // Above the cap and masked, or not a number.
        _ => 0.0,
    };
    Some(raw_corrections(sequence, correction.level)?.into_iter().map(weight).collect())
}

/// The same before anything is cut.
fn raw_corrections(sequence: &Sequence<'_>, level: CorrectionLevel) -> Option<Vec<f64>> {
    let sampler = sequence.sampler_log_probs?;
    let differences = sequence.old_log_probs.iter().zip(sampler).map(|(old, sampler)| old - sampler);
    Some(match level {
        CorrectionLevel::Token => differences.map(f64::exp).collect(),
        CorrectionLevel::Sequence => {
            let sampled = differences.zip(sequence.mask).filter_map(|(d, &sampled)| sampled.then_some(d));
            vec![sampled.sum::<f64>().exp(); sequence.mask.len()]
        }
    })
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
        let (estimate, slope) = divergence(sequence.log_probs[at] - reference[at], objective.kl_estimator);
        let weight = if objective.is_kl_weighted { ratios.values[at] } else { 1.0 };
        sum += objective.kl * estimate * weight;
        coefficients[at] += share * objective.kl * weight * slope;
        slopes[at] = if objective.is_kl_weighted { objective.kl * estimate } else { 0.0 };
    }
    ratios.push_back(&slopes, sequence.mask, share, coefficients);
    sum
}

/// `entropy · Σ ρ log π` over sampled tokens, with the token's own ratio: on the samples' average the entropy times −1,
/// and its slope the entropy's slope.
fn add_entropy(sequence: &Sequence<'_>, share: f64, objective: &Objective, coefficients: &mut [f64]) -> f64 {
    if objective.entropy == 0.0 {
        return 0.0;
    }
    let mut sum = 0.0;
    for at in (0..coefficients.len()).filter(|&at| sequence.mask[at]) {
        let log_prob = sequence.log_probs[at];
        let ratio = (log_prob - sequence.old_log_probs[at]).exp();
        sum += objective.entropy * ratio * log_prob;
        coefficients[at] += share * objective.entropy * ratio * (log_prob + 1.0);
    }
    sum
}

/// An estimate of the divergence from `d = log π − log π_ref`, and its slope in `log π`.
fn divergence(d: f64, estimator: Divergence) -> (f64, f64) {
    match estimator {
        Divergence::K1 => (d, 1.0),
        Divergence::K2 => (d * d / 2.0, d),
        Divergence::K3 => ((-d).exp() + d - 1.0, 1.0 - (-d).exp()),
    }
}

fn totals(sequence: &Sequence<'_>, ratios: &Ratios, objective: &Objective) -> Totals {
    let mut totals = Totals { tokens: sequence.num_tokens(), ..Totals::default() };
    let weights = corrections(sequence, objective).unwrap_or_default();
    let raw = objective.correction.and_then(|correction| raw_corrections(sequence, correction.level));
    for (at, raw) in raw.unwrap_or_default().into_iter().enumerate().filter(|&(at, _)| sequence.mask[at]) {
        totals.corrections += weights[at];
        totals.correction_max = totals.correction_max.max(raw);
    }
    let (low, high) = match objective.surrogate {
        Surrogate::Clip => (1.0 - objective.clip_low, 1.0 + objective.clip_high),
        Surrogate::Cispo => (0.0, objective.cap),
        Surrogate::Sapo => (0.0, f64::INFINITY),
    };
    for at in (0..sequence.mask.len()).filter(|&at| sequence.mask[at]) {
        let ratio = ratios.values[at];
        totals.clipped_low += usize::from(ratio < low && sequence.advantage < 0.0);
        totals.clipped_high += usize::from(ratio > high && sequence.advantage > 0.0);
        totals.ratio_max = totals.ratio_max.max(ratio);
        let log_ratio = (sequence.log_probs[at] - sequence.old_log_probs[at]).abs();
        totals.entropy -= (sequence.log_probs[at] - sequence.old_log_probs[at]).exp() * sequence.log_probs[at];
        totals.log_ratio_max = totals.log_ratio_max.max(log_ratio);
        if let Some(reference) = sequence.reference_log_probs {
            let weight = if objective.is_kl_weighted { ratio } else { 1.0 };
            let (estimate, _) = divergence(sequence.log_probs[at] - reference[at], objective.kl_estimator);
            totals.kl += weight * estimate;
        }
    }
    totals
}
