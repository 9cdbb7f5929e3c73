//! What a user sets of the objective: a published name, and what departs from it.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Clip ranges above this make no sense for a sequence ratio: it is a geometric mean and stays within thousandths of 1.
const LARGEST_SEQUENCE_CLIP: f64 = 0.1;

/// A published objective; it decides every default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Name {
    /// GSPO (arXiv 2507.18071): sequence ratio, clipped at 3e-4 and 4e-4, mean over sequences.
    #[default]
    Gspo,
    /// GSPO's token form (ibid. eq. 13): the same value, each token's gradient through its own log-prob.
    GspoToken,
    /// GRPO (arXiv 2402.03300): token ratio, clipped at 0.2, mean over sequences.
    Grpo,
    /// GRPO with the mean over tokens instead; TRL takes the mean of a micro-batch, we take the whole step's.
    Bnpo,
    /// DAPO (arXiv 2503.14476): token ratio, clipped at 0.2 and 0.28, mean over all tokens.
    Dapo,
    /// Dr. GRPO (arXiv 2503.20783): token ratio, clipped at 0.2, a constant denominator. Its advantages are not divided by
    /// the deviation: set `normalisation = "none"`.
    DrGrpo,
    /// CISPO (arXiv 2506.13585): the capped ratio weighs `A log π`, mean over all tokens.
    Cispo,
    /// SAPO (arXiv 2511.20347): a soft gate in place of the clip, `(4/τ) σ(τ (ρ − 1))`, mean over sequences.
    Sapo,
    /// LUSPO, by the name that TRL has it: GSPO with each sequence's loss times its length.
    Luspo,
}

/// What the importance ratio is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ratio {
    /// One per token.
    Token,
    /// One per sequence: `exp` of the mean log-ratio.
    Sequence,
    /// The sequence's value with the token's gradient.
    SequenceToken,
}

/// How token losses become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// Mean over sequences of the mean over tokens.
    SequenceMean,
    /// Sum over all tokens of the optimizer step, divided by their number.
    TokenMean,
    /// Mean over sequences of the sum over tokens.
    SequenceSum,
    /// Sum over all tokens, divided by sequences times the longest completion allowed.
    ConstantLength,
}

/// What is made of ratio and advantage.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surrogate {
    /// `−min(ρ A, clip(ρ) A)`.
    Clip,
    /// `−stop(min(ρ, cap)) A log π`.
    Cispo,
    /// `−(4/τ) σ(τ (ρ − 1)) A`, with a temperature τ for each sign of `A`.
    Sapo,
}

/// Estimators of the divergence from the reference, of `d = log π − log π_ref` (Schulman 2020).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Divergence {
    /// `d`.
    K1,
    /// `d² / 2`.
    K2,
    /// `exp(−d) + d − 1`.
    #[default]
    K3,
}

/// Weights for what the sampler's policy and the trainer's differ, `exp(log π_old − log π_sampler)`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correction {
    /// Over a token or over the product of a sequence.
    pub level: CorrectionLevel,
    /// What happens above the cap.
    pub mode: CorrectionMode,
    /// The largest weight.
    pub cap: f64,
}

/// See [`Correction::level`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionLevel {
    /// Each token its own.
    Token,
    /// One for all tokens of a completion.
    Sequence,
}

/// See [`Correction::mode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CorrectionMode {
    /// The weight is cut to the cap.
    Truncate,
    /// The weight is 0: the token or sequence pushes nothing.
    Mask,
}

/// A policy objective. In TOML: a `name`, and any of the fields that departs from the published one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Departures")]
pub struct Objective {
    /// Where the defaults came from.
    pub name: Name,
    /// Level of the ratio.
    pub ratio: Ratio,
    /// What is made of ratio and advantage.
    pub surrogate: Surrogate,
    /// Aggregation.
    pub aggregation: Aggregation,
    /// The ratio is clipped below `1 − clip_low`.
    pub clip_low: f64,
    /// The ratio is clipped above `1 + clip_high`.
    pub clip_high: f64,
    /// CISPO's largest ratio, itself and not an offset from 1.
    pub cap: f64,
    /// SAPO's temperature for positive advantages; 1.0 as published.
    pub gate_positive: f64,
    /// SAPO's temperature for the others; 1.05 as published.
    pub gate_negative: f64,
    /// Factor on the entropy that the loss is lowered by, estimated on the sampled tokens. Default: 0.
    pub entropy: f64,
    /// The unclipped branch's ratio is cut to this (two-sided clipping, TRL's `delta`). Default: off.
    pub two_sided: Option<f64>,
    /// With a negative advantage the loss is at most this times `−A` (Ye et al., arXiv 1912.09729). Default: off.
    pub dual_clip: Option<f64>,
    /// Factor on the divergence from the reference; 0 loads no reference. Default: 0, as published for GSPO and DAPO.
    pub kl: f64,
    /// Its estimator. Default: k3, as published for GRPO.
    pub kl_estimator: Divergence,
    /// Whether it is weighted by the ratio, with gradient. Default: no.
    pub is_kl_weighted: bool,
    /// Weights between sampler and trainer. Default: none, for the sampler that computes as the trainer does.
    pub correction: Option<Correction>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Departures {
    #[serde(default)]
    name: Name,
    ratio: Option<Ratio>,
    surrogate: Option<Surrogate>,
    aggregation: Option<Aggregation>,
    clip_low: Option<f64>,
    clip_high: Option<f64>,
    cap: Option<f64>,
    gate_positive: Option<f64>,
    gate_negative: Option<f64>,
    entropy: Option<f64>,
    two_sided: Option<f64>,
    dual_clip: Option<f64>,
    kl: Option<f64>,
    kl_estimator: Option<Divergence>,
    is_kl_weighted: Option<bool>,
    correction: Option<Correction>,
}

impl From<Departures> for Objective {
    fn from(given: Departures) -> Self {
        let published = Self::published(given.name);
        Self {
            name: given.name,
            ratio: given.ratio.unwrap_or(published.ratio),
            surrogate: given.surrogate.unwrap_or(published.surrogate),
            aggregation: given.aggregation.unwrap_or(published.aggregation),
            clip_low: given.clip_low.unwrap_or(published.clip_low),
            clip_high: given.clip_high.unwrap_or(published.clip_high),
            cap: given.cap.unwrap_or(published.cap),
            gate_positive: given.gate_positive.unwrap_or(published.gate_positive),
            gate_negative: given.gate_negative.unwrap_or(published.gate_negative),
            entropy: given.entropy.unwrap_or(0.0),
            two_sided: given.two_sided,
            dual_clip: given.dual_clip,
            kl: given.kl.unwrap_or(published.kl),
            kl_estimator: given.kl_estimator.unwrap_or_default(),
            is_kl_weighted: given.is_kl_weighted.unwrap_or_default(),
            correction: given.correction,
        }
    }
}

impl Default for Objective {
    fn default() -> Self {
        Self::published(Name::Gspo)
    }
}

impl Objective {
    /// As published.
    pub fn published(name: Name) -> Self {
        use {Aggregation as A, Name as N, Ratio as R, Surrogate as S};
        let (ratio, surrogate, aggregation, clip_low, clip_high) = match name {
            N::Gspo => (R::Sequence, S::Clip, A::SequenceMean, 3e-4, 4e-4),
            N::GspoToken => (R::SequenceToken, S::Clip, A::SequenceMean, 3e-4, 4e-4),
            N::Grpo => (R::Token, S::Clip, A::SequenceMean, 0.2, 0.2),
            N::Bnpo => (R::Token, S::Clip, A::TokenMean, 0.2, 0.2),
            N::Dapo => (R::Token, S::Clip, A::TokenMean, 0.2, 0.28),
            N::DrGrpo => (R::Token, S::Clip, A::ConstantLength, 0.2, 0.2),
            N::Cispo => (R::Token, S::Cispo, A::TokenMean, 0.2, 0.2),
            N::Sapo => (R::Token, S::Sapo, A::SequenceMean, 0.2, 0.2),
            N::Luspo => (R::Sequence, S::Clip, A::SequenceSum, 3e-4, 4e-4),
        };
        Self {
            name,
            ratio,
            surrogate,
            aggregation,
            clip_low,
            clip_high,
            cap: 5.0,
            gate_positive: 1.0,
            gate_negative: 1.05,
            entropy: 0.0,
            two_sided: None,
            dual_clip: None,
            kl: 0.0,
            kl_estimator: Divergence::K3,
            is_kl_weighted: false,
            correction: None,
        }
    }

    /// Refuses what makes no sense.
    pub fn check(&self) -> Result<()> {
        for (field, value) in [("objective.clip_low", self.clip_low), ("objective.clip_high", self.clip_high)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::config(field, format!("{value}, expected a number above 0")));
            }
            if self.ratio != Ratio::Token && value > LARGEST_SEQUENCE_CLIP {
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
        let above = |field: &str, value: f64, least: f64, why: &str| match value > least && value.is_finite() {
            true => Ok(()),
            false => Err(Error::config(field, format!("{value}, expected a number above {least}: {why}"))),
        };
        if self.surrogate == Surrogate::Cispo {
            above("objective.cap", self.cap, 1.0, "it is the largest ratio itself, not an offset from 1")?;
        }
        if self.surrogate == Surrogate::Sapo {
            above("objective.gate_positive", self.gate_positive, 0.0, "it is a temperature")?;
            above("objective.gate_negative", self.gate_negative, 0.0, "it is a temperature")?;
        }
        if self.surrogate != Surrogate::Clip && (self.two_sided.is_some() || self.dual_clip.is_some()) {
            return Err(Error::config("objective.two_sided", "and `dual_clip` are for clipped surrogates"));
        }
        if let Some(two_sided) = self.two_sided {
            above("objective.two_sided", two_sided, 1.0 + self.clip_high, "below that it would undo `clip_high`")?;
        }
        if let Some(dual_clip) = self.dual_clip {
            above("objective.dual_clip", dual_clip, 1.0, "it bounds the loss at that multiple of the advantage")?;
        }
        if let Some(correction) = self.correction {
            above("objective.correction.cap", correction.cap, 0.0, "it is the largest weight")?;
        }
        for (field, factor) in [("objective.kl", self.kl), ("objective.entropy", self.entropy)] {
            if !(factor >= 0.0 && factor.is_finite()) {
                return Err(Error::config(field, format!("{factor}, expected 0 or more")));
            }
        }
        Ok(())
    }

    /// Whether a completion pushes without an advantage.
    pub fn pushes_always(&self) -> bool {
        self.kl > 0.0 || self.entropy > 0.0
    }
}
