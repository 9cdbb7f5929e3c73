//! What decides an RL run.

use serde::{Deserialize, Serialize};

use worldloom_model::{LoraConfig, MatmulPrecision, Precision};

use super::advantage::{Normalisation, check_group_size};
use super::drawer::PassRates;
use super::objective::{Correction, CorrectionLevel, CorrectionMode, Objective};
use crate::checkpoint::CheckpointConfig;
use crate::error::{Error, Result};
use crate::lanes::{check_lanes, is_one, one};
use crate::optimizer::OptimizerConfig;
use crate::schedule::Schedule;

/// What happens to long completions (DAPO, arXiv 2503.14476).
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Overlong {
    /// Nothing.
    #[default]
    Keep,
    /// A completion that was cut leaves the loss; its reward stays in the group's statistics.
    Mask,
    /// The last `buffer` tokens before the longest length cost reward, `largest` at the end.
    Penalty {
        /// Tokens over which the penalty grows.
        buffer: usize,
        /// Reward that a completion of the longest length loses.
        largest: f64,
    },
}

/// Prompts that measure and do not train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RlValidation {
    /// Steps between two measurements; there is one before the first step and one after the last.
    pub every: u64,
    /// Prompts that are held out, drawn by seed.
    pub held_out_prompts: usize,
    /// Completions of each, at the temperature of training, with the same seed each time. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub completions: usize,
}

/// The weight of rollouts of older weights: token by token, cut at 2, the default of verl and SkyRL.
const OF_STALE: Correction = Correction { level: CorrectionLevel::Token, mode: CorrectionMode::Truncate, cap: 2.0 };

/// An RL stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RlConfig {
    /// Batches of rollouts.
    pub steps: u64,
    /// Prompts of a step.
    pub prompts_per_step: usize,
    /// Completions of a prompt.
    pub group_size: usize,
    /// Updates a batch of rollouts is cut into, by groups.
    pub mini_batches: usize,
    /// Rows that go through the decoder at once: memory, not results. A row has the completions of one prompt.
    pub rows_per_micro_batch: usize,
    /// Micro-batches that are computed side by side, each on its part of the threads. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub micro_batches_at_once: usize,
    /// Whether blocks are computed again in the backward pass: a quarter more time, far less memory, the same results.
    /// Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recompute: bool,
    /// Whether the completions of a prompt share one row, with the prompt computed once. Default: yes; no gives a row to
    /// each, for comparison.
    #[serde(default = "yes")]
    pub share_prompts: bool,
    /// Longest completion the sampler may answer.
    pub max_completion_tokens: usize,
    /// Temperature of sampling and of the trainer's log-probs.
    pub temperature: f64,
    /// Seed of order and sampling.
    pub seed: u64,
    /// What advantages are divided by.
    pub normalisation: Normalisation,
    /// Rounds in which groups with equal rewards are replaced by other prompts'. Default: 0, as published for GSPO: they
    /// are counted and push nothing.
    #[serde(default)]
    pub refills: u64,
    /// What happens to completions that reach the longest length. Default: nothing beside their score.
    #[serde(default)]
    pub overlong: Overlong,
    /// Prompts that were always passed or always failed rest for a while. Default: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<PassRates>,
    /// Whether the next batch is sampled and scored while this one trains, with the weights that this step started from:
    /// one step off the policy. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ahead: bool,
    /// Batches of rollouts that the sampler's weights may be behind; the run refuses to train on older ones. Default: 1.
    #[serde(default = "one_batch", skip_serializing_if = "is_one_batch")]
    pub max_staleness: u64,
    /// Whether rollouts of older weights are weighed by `exp(log π_old − log π_sampler)`, per token and cut at 2, where the
    /// objective has no `correction` of its own. Default: yes.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub correct_stale: bool,
    /// Prompts that are held out and completed every so many steps. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<RlValidation>,
    /// Steps after which the policy becomes the reference of the divergence anew. It takes the memory of one more copy of
    /// the weights, of the adapters where they are trained. Default: the starting weights stay it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference_every: Option<u64>,
    /// The objective. Default: GSPO as published.
    #[serde(default)]
    pub objective: Objective,
    /// Factor on the mean negative log-likelihood of the true answers' tokens, which is added to the loss (as ECHO's, arXiv
    /// 2605.24517, whose default is 0.05). Default: 0.
    #[serde(default)]
    pub truth_nll: f64,
    /// What the matrices are held in; updates are made in float32 either way. Default: f32.
    #[serde(default, skip_serializing_if = "Precision::is_single")]
    pub precision: Precision,
    /// What the operands of matrix products are rounded to: `bf16` on a processor with AMX tiles or AVX512-BF16 (sums,
    /// masters and all else stay float32), `bf16_emulated` for its numbers on any processor. Default: f32.
    #[serde(default, skip_serializing_if = "MatmulPrecision::is_single")]
    pub matmul_precision: MatmulPrecision,
    /// Adapters in place of the weights; without it, every weight is trained. Without dropout: the ratio of the first
    /// update is 1.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// How weights are updated.
    pub optimizer: OptimizerConfig,
    /// How the learning rate moves, over updates.
    pub schedule: Schedule,
    /// When checkpoints are made.
    pub checkpoints: CheckpointConfig,
    /// The run refuses to go on when more of its first completions are policy faults. Default: a tenth; above it,
    /// supervised fine-tuning has not taught the form of an answer.
    #[serde(default = "default_max_fault_share_at_start")]
    pub max_fault_share_at_start: f64,
    /// The run stops, to go on later, when the scorer fails on more of a step's completions. Default: a fifth.
    #[serde(default = "default_max_unavailable_share")]
    pub max_unavailable_share: f64,
    /// Largest difference between the sampler's and the trainer's log-prob of a token. Default: 1e-3. Both compute in
    /// float32, whose rounding is 3e-5 in ten thousand tokens of a model with logits of 20, rarely 1e-4, as PyTorch's is
    /// against float64; another temperature or the weights of a step before are 1e-2 apart. Where `matmul_precision` rounds
    /// more than the sampler does, it is to be set.
    #[serde(default = "default_max_log_prob_gap")]
    pub max_log_prob_gap: f64,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_yes(is_set: &bool) -> bool {
    *is_set
}

fn one_batch() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one_batch(batches: &u64) -> bool {
    *batches == 1
}

fn default_max_fault_share_at_start() -> f64 {
    0.1
}

fn default_max_unavailable_share() -> f64 {
    0.2
}

/// How far the log-probs of a token are apart at most, computed with products of bfloat16 and of float32.
const LEAST_GAP_IN_BF16: f64 = 0.05;

fn default_max_log_prob_gap() -> f64 {
    1e-3
}

impl RlConfig {
    /// Updates of the whole run.
    pub fn updates(&self) -> u64 {
        self.steps * self.mini_batches as u64
    }

    /// What a step on rollouts of weights that are so many batches old goes by.
    pub(super) fn for_staleness(&self, batches: Option<u64>) -> Self {
        let mut config = self.clone();
        if batches.is_some_and(|batches| batches > 0) && self.correct_stale && config.objective.correction.is_none() {
            config.objective.correction = Some(OF_STALE);
        }
        config
    }

    /// Whether a step may train where the scorer failed on so many of its completions.
    pub(super) fn allows_unavailable(&self, unavailable: u64, completions: u64) -> bool {
        unavailable as f64 <= self.max_unavailable_share * completions as f64
    }

    /// Refuses what a run on dumped rollouts cannot do.
    pub(super) fn check_replayed(&self) -> Result<()> {
        let sampled = [
            ("ahead", self.ahead),
            ("validation", self.validation.is_some()),
            ("curriculum", self.curriculum.is_some()),
            ("refills", self.refills > 0),
        ];
        match sampled.into_iter().find(|(_, is_set)| *is_set) {
            Some((field, _)) => Err(Error::config(field, "set, but rollouts are replayed: nothing is sampled")),
            None => Ok(()),
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        for (field, value) in [
            ("steps", self.steps as usize),
            ("prompts_per_step", self.prompts_per_step),
            ("mini_batches", self.mini_batches),
            ("rows_per_micro_batch", self.rows_per_micro_batch),
            ("max_completion_tokens", self.max_completion_tokens),
        ] {
            if value == 0 {
                return Err(Error::config(field, "0, expected at least 1"));
            }
        }
        check_lanes(self.micro_batches_at_once, self.lora.as_ref())?;
        check_group_size(self.group_size)?;
        if self.mini_batches > self.prompts_per_step {
            let detail = format!("{} updates from {} groups", self.mini_batches, self.prompts_per_step);
            return Err(Error::config("mini_batches", detail));
        }
        for (field, value) in [("temperature", self.temperature), ("max_log_prob_gap", self.max_log_prob_gap)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(Error::config(field, format!("{value}, expected a number above 0")));
            }
        }
        if !self.matmul_precision.is_single() && self.max_log_prob_gap < LEAST_GAP_IN_BF16 {
            let detail = format!(
                "{}, but with products of bfloat16 the trainer's log-probs are up to {LEAST_GAP_IN_BF16} from the sampler's, \
                 whose are of float32: set more, or matmul_precision = \"f32\"",
                self.max_log_prob_gap
            );
            return Err(Error::config("max_log_prob_gap", detail));
        }
        for (field, share) in [
            ("max_fault_share_at_start", self.max_fault_share_at_start),
            ("max_unavailable_share", self.max_unavailable_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::config(field, format!("{share}, expected a share from 0 to 1")));
            }
        }
        if let Some(validation) = self.validation {
            for (field, value) in [
                ("validation.every", validation.every as usize),
                ("validation.held_out_prompts", validation.held_out_prompts),
                ("validation.completions", validation.completions),
            ] {
                if value == 0 {
                    return Err(Error::config(field, "0, expected at least 1"));
                }
            }
        }
        if let Some(curriculum) = self.curriculum {
            curriculum.check()?;
        }
        self.check_reference()?;
        if self.ahead && self.max_staleness == 0 {
            return Err(Error::config("max_staleness", "0, but `ahead` trains on rollouts that are one batch old"));
        }
        if !(self.truth_nll >= 0.0 && self.truth_nll.is_finite()) {
            return Err(Error::config("truth_nll", format!("{}, expected 0 or more", self.truth_nll)));
        }
        if let Overlong::Penalty { buffer, largest } = self.overlong {
            if buffer == 0 || buffer > self.max_completion_tokens {
                let detail = format!("{buffer}, expected 1 to max_completion_tokens, {}", self.max_completion_tokens);
                return Err(Error::config("overlong.buffer", detail));
            }
            if !(largest > 0.0 && largest.is_finite()) {
                return Err(Error::config("overlong.largest", format!("{largest}, expected a number above 0")));
            }
        }
        if let Some(lora) = self.lora.as_ref().filter(|lora| lora.dropout > 0.0) {
            return Err(Error::config(
                "lora.dropout",
                format!("{}, expected 0 in reinforcement learning", lora.dropout),
            ));
        }
        self.objective.check()?;
        self.optimizer.check()?;
        self.checkpoints.check()?;
        self.schedule.check(self.updates())
    }

    fn check_reference(&self) -> Result<()> {
        let Some(every) = self.reference_every else { return Ok(()) };
        let detail = if every == 0 {
            "0, expected at least 1".to_string()
        } else if self.objective.kl == 0.0 {
            format!("{every}, but `objective.kl` is 0: there is no reference")
        } else {
            return Ok(());
        };
        Err(Error::config("reference_every", detail))
    }
}
