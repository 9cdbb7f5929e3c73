//! What a supervised run refuses before its first step, what it flags on the way and how often it may skip a step.

use serde::{Deserialize, Serialize};

use crate::data::{Data, Scan};
use crate::error::{Error, Result};

/// Steps that a spike is measured against.
const WINDOW: usize = 64;
/// Fewer steps than this say nothing about what is usual.
const FEWEST: usize = 16;
/// A spike is this many times the median at least, however little the steps before it differ.
const LEAST_FACTOR: f64 = 1.5;
/// Standard deviations in a median absolute deviation of normal values.
const DEVIATION: f64 = 1.4826;

/// Refusals, flags and the budget for steps that are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuardConfig {
    /// Steps of the run that may be skipped because their loss or gradient is not finite: they are named with their
    /// rows and change no weight. Default: 0, the first one stops the run.
    pub skip_steps: u64,
    /// Robust standard deviations above the median of the last 64 steps at which a loss or gradient norm is flagged.
    /// Default: 8.
    pub spike: f64,
    /// Refuses data of which a larger share of tokens was cut or dropped for being too long. Default: 0.25.
    pub max_lost_share: f64,
    /// Refuses data of which a larger share of rows has no target. Default: 0.5.
    pub max_untrained_share: f64,
    /// Refuses data in which no token that ends an answer is ever a target. Default: yes.
    pub stop_targets: bool,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { skip_steps: 0, spike: 8.0, max_lost_share: 0.25, max_untrained_share: 0.5, stop_targets: true }
    }
}

impl GuardConfig {
    /// Whether nothing is set: such a table is left out of the resolved config.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    pub(crate) fn check(&self) -> Result<()> {
        for (field, share) in
            [("max_lost_share", self.max_lost_share), ("max_untrained_share", self.max_untrained_share)]
        {
            if !(0.0..=1.0).contains(&share) {
                let detail = format!("{share}, expected a share from 0 to 1");
                return Err(Error::config(&format!("guards.{field}"), detail));
            }
        }
        if !(self.spike > 0.0 && self.spike.is_finite()) {
            return Err(Error::config("guards.spike", format!("{}, expected a number above 0", self.spike)));
        }
        Ok(())
    }

    /// Refuses data that a run would learn the wrong thing from, with the figures.
    pub(crate) fn check_data(&self, data: &Data, found: &Scan) -> Result<()> {
        let refuse = |detail: String| Err(Error::Data { detail });
        let rows = found.trained.len() + found.untrained;
        if found.untrained as f64 > self.max_untrained_share * rows as f64 {
            return refuse(format!(
                "{} of {rows} rows have no target, more than `guards.max_untrained_share` {}: the template or the turn \
                 mask leaves nothing to learn",
                found.untrained, self.max_untrained_share
            ));
        }
        if self.stop_targets && !data.stop_tokens.is_empty() && found.stop_targets == 0 {
            return refuse(format!(
                "tokens that end an answer ({}) occur {} times and are never a target, so the model would not learn to \
                 stop; `guards.stop_targets` = false lets it pass",
                list(&data.stop_tokens),
                found.stop_tokens
            ));
        }
        for lost in &data.lost {
            if lost.tokens as f64 > self.max_lost_share * lost.of as f64 {
                return refuse(format!(
                    "`{}`: {} of {} rendered tokens were cut or dropped for being too long, more than \
                     `guards.max_lost_share` {}: render longer rows",
                    lost.path.display(),
                    lost.tokens,
                    lost.of,
                    self.max_lost_share
                ));
            }
        }
        Ok(())
    }
}

fn list(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The last values of one figure, to tell a spike from what is usual.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recent {
    values: std::collections::VecDeque<f64>,
}

impl Recent {
    /// Whether `value` is a spike against the values before it; then remembers it. Values that are not finite are not
    /// remembered.
    pub(crate) fn is_spike(&mut self, value: f64, deviations: f64) -> bool {
        let is_spike = self.limit(deviations).is_some_and(|limit| value > limit);
        if value.is_finite() {
            self.values.push_back(value);
            if self.values.len() > WINDOW {
                self.values.pop_front();
            }
        }
        is_spike
    }

    fn limit(&self, deviations: f64) -> Option<f64> {
        if self.values.len() < FEWEST {
            return None;
        }
        let middle = median(self.values.iter().copied());
        let spread = median(self.values.iter().map(|value| (value - middle).abs()));
        Some((middle + deviations * DEVIATION * spread).max(LEAST_FACTOR * middle))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) { (sorted[half - 1] + sorted[half]) / 2.0 } else { sorted[half] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spikes(values: impl IntoIterator<Item = f64>) -> Vec<usize> {
        let mut recent = Recent::default();
        values.into_iter().enumerate().filter(|(_, value)| recent.is_spike(*value, 8.0)).map(|(at, _)| at).collect()
    }

    #[test]
    fn a_jump_is_flagged_and_a_fall_noise_or_an_early_value_is_not() {
        let noise = |at: usize| 1.0 + 0.1 * ((at * 7 % 11) as f64 / 11.0);
        assert_eq!(spikes((0..200).map(noise)), Vec::<usize>::new());
        assert_eq!(spikes((0..200).map(|at| if at == 90 { 5.0 } else { noise(at) })), [90]);
        assert_eq!(spikes((0..200).map(|at| if at == 5 { 5.0 } else { noise(at) })), Vec::<usize>::new());
        assert_eq!(spikes((0..200).map(|at| 8.0 / (1.0 + at as f64))), Vec::<usize>::new());
        assert_eq!(spikes((0..50).map(|at| if at == 30 { f64::INFINITY } else { 1.0 })), [30]);
    }
}
