//! Learning rates as pure functions of the step.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Shape of the learning rate after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Stays at its peak.
    Constant,
    /// Falls linearly; the floor would be reached one step after the last.
    Linear,
    /// Falls along half a cosine; the floor would be reached one step after the last.
    Cosine,
    /// Stays at its peak, then falls linearly over the last `decay_steps` and reaches the floor at the last step.
    WarmupStableDecay,
}

/// How the learning rate moves over a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// Shape after the warm-up.
    pub shape: Shape,
    /// Steps of linear warm-up: step `s` has `(s + 1) / warmup_steps` of the peak, so the first one already moves.
    pub warmup_steps: u64,
    /// Where it ends, as a share of the peak; needed by every shape but `constant`.
    pub floor: Option<f64>,
    /// Length of the last phase of `warmup_stable_decay`.
    pub decay_steps: Option<u64>,
}

impl Schedule {
    /// Refuses a schedule that does not fit into `total` steps.
    pub fn check(&self, total: u64) -> Result<()> {
        let wrong = |field: &str, detail: String| Err(Error::config(&format!("schedule.{field}"), detail));
        if self.warmup_steps >= total {
            return wrong("warmup_steps", format!("{} steps of warm-up, but the run has {total}", self.warmup_steps));
        }
        match (self.shape, self.floor) {
            (Shape::Constant, Some(_)) => return wrong("floor", "a constant rate has no floor".into()),
            (Shape::Constant, None) => {}
            (_, Some(floor)) if (0.0..=1.0).contains(&floor) => {}
            (_, found) => return wrong("floor", format!("expected a share from 0 to 1, found {found:?}")),
        }
        match (self.shape, self.decay_steps) {
            (Shape::WarmupStableDecay, Some(steps)) if steps >= 1 && steps <= total - self.warmup_steps => Ok(()),
            (Shape::WarmupStableDecay, found) => {
                let most = total - self.warmup_steps;
                wrong("decay_steps", format!("expected 1 to {most} steps after the warm-up, found {found:?}"))
            }
            (_, Some(_)) => wrong("decay_steps", "only `warmup_stable_decay` has it".into()),
            (_, None) => Ok(()),
        }
    }

    /// The learning rate of step `step` (from 0) of `total`, for a peak of `peak`.
    pub fn rate(&self, peak: f64, step: u64, total: u64) -> f64 {
        if step < self.warmup_steps {
            return peak * (step + 1) as f64 / self.warmup_steps as f64;
        }
        let floor = peak * self.floor.unwrap_or(1.0);
        let progress = (step - self.warmup_steps) as f64 / (total - self.warmup_steps) as f64;
        match self.shape {
            Shape::Constant => peak,
            Shape::Linear => peak + (floor - peak) * progress,
            Shape::Cosine => floor + 0.5 * (peak - floor) * (1.0 + (std::f64::consts::PI * progress).cos()),
            Shape::WarmupStableDecay => {
                let decay_steps = self.decay_steps.unwrap_or(0);
                let stable_until = total - decay_steps;
                if step < stable_until {
                    return peak;
                }
                peak + (floor - peak) * (step - stable_until + 1) as f64 / decay_steps as f64
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn golden_rates(run: &str) -> Vec<f64> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/adamw/meta.json");
        let meta: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap();
        meta[run]["lr"].as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).collect()
    }

    fn check_golden(run: &str, schedule: Schedule) {
        schedule.check(10).unwrap();
        for (step, expected) in golden_rates(run).into_iter().enumerate() {
            let found = schedule.rate(3e-3, step as u64, 10);
            assert!((found - expected).abs() < 1e-15, "{run} step {step}: {found}, expected {expected}");
        }
    }

    #[test]
    fn cosine_equals_the_golden_rates() {
        let schedule = Schedule { shape: Shape::Cosine, warmup_steps: 2, floor: Some(0.1), decay_steps: None };
        check_golden("cosine", schedule);
    }

    #[test]
    fn warmup_stable_decay_equals_the_golden_rates() {
        let schedule =
            Schedule { shape: Shape::WarmupStableDecay, warmup_steps: 2, floor: Some(0.1), decay_steps: Some(3) };
        check_golden("wsd", schedule);
    }

    #[test]
    fn no_step_of_any_shape_is_zero_and_none_is_above_the_peak() {
        for (shape, floor, decay_steps) in [
            (Shape::Constant, None, None),
            (Shape::Linear, Some(0.0), None),
            (Shape::Cosine, Some(0.0), None),
            (Shape::WarmupStableDecay, Some(0.1), Some(4)),
        ] {
            let schedule = Schedule { shape, warmup_steps: 3, floor, decay_steps };
            schedule.check(12).unwrap();
            for step in 0..12 {
                let rate = schedule.rate(1.0, step, 12);
                assert!(rate > 0.0 && rate <= 1.0, "{shape:?} step {step}: {rate}");
            }
        }
    }

    #[test]
    fn phases_that_do_not_fit_are_refused_with_the_field_named() {
        let base = Schedule { shape: Shape::Cosine, warmup_steps: 2, floor: Some(0.1), decay_steps: None };
        let cases = [
            (Schedule { warmup_steps: 10, ..base }, "schedule.warmup_steps"),
            (Schedule { floor: None, ..base }, "schedule.floor"),
            (Schedule { floor: Some(1.5), ..base }, "schedule.floor"),
            (Schedule { decay_steps: Some(3), ..base }, "schedule.decay_steps"),
            (Schedule { shape: Shape::WarmupStableDecay, decay_steps: Some(9), ..base }, "schedule.decay_steps"),
            (Schedule { shape: Shape::WarmupStableDecay, ..base }, "schedule.decay_steps"),
        ];
        for (schedule, field) in cases {
            let error = schedule.check(10).unwrap_err().to_string();
            assert!(error.contains(field), "`{error}` does not name {field}");
        }
    }
}
