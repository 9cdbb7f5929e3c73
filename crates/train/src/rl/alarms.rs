//! Signs that a run goes wrong, looked for after every step. What each means stands in `docs/rl.md`.

use std::path::Path;

use super::metrics::RlStepMetrics;
use crate::error::{Error, Result};
use crate::metrics::METRICS_FILE;

/// Share of completions that the length limit ends.
const TRUNCATED: f64 = 0.2;
/// Share of faults, and how many times that of the first step.
const FAULTS: (f64, f64) = (0.1, 2.0);
/// Share of completions without the tags of an answer.
const MISSING_TAGS: f64 = 0.1;
/// The faults that say so.
const NO_TAGS: [&str; 2] = ["missing_tag", "unclosed_tag"];
/// Steps of which means are compared, and how far two rewards (of 25) must move apart.
const DIVERGENCE: (usize, f64) = (5, 0.5);
/// The two rewards of a scorer that should rise together, by their names.
const TOGETHER: (&str, &str) = ("rubric", "rule");

/// The steps before, as far as alarms look back.
pub(super) struct History {
    steps: Vec<RlStepMetrics>,
}

impl History {
    /// Of a run's folder, so that a run that goes on says what a straight one says.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(METRICS_FILE);
        let text = fs_err::read_to_string(&path)?;
        let step = |line| serde_json::from_str(line).map_err(|error| Error::file(&path, error));
        Ok(Self { steps: text.lines().map(step).collect::<Result<_>>()? })
    }

    /// Adds the alarms of a step to it, and the step to the history.
    pub(super) fn look(&mut self, metrics: &mut RlStepMetrics) {
        let mut found = Vec::new();
        if 1.0 - metrics.stopped_share > TRUNCATED {
            found.push("truncation");
        }
        let without_tags: u64 = NO_TAGS.iter().filter_map(|fault| metrics.faults.get(*fault)).sum();
        if without_tags as f64 > MISSING_TAGS * metrics.completions as f64 {
            found.push("missing_tags");
        }
        let first = self.steps.first().map_or(metrics.fault_share, |first| first.fault_share);
        if metrics.fault_share > FAULTS.0 && metrics.fault_share > FAULTS.1 * first {
            found.push("faults");
        }
        self.steps.push(metrics.clone());
        if self.is_apart() {
            found.push("rubric_without_rule");
        }
        metrics.alarms.extend(found.into_iter().map(str::to_string));
        for alarm in &metrics.alarms {
            tracing::warn!(step = metrics.step, alarm, "see docs/rl.md");
        }
    }

    /// The rubric rose and the rule fell.
    fn is_apart(&self) -> bool {
        let (steps, far) = DIVERGENCE;
        let change = |name: &str| -> Option<f64> {
            let start = self.steps.len().checked_sub(2 * steps)?;
            let values: Option<Vec<f64>> =
                self.steps[start..].iter().map(|step| step.reward_parts.get(name).copied()).collect();
            let values = values?;
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            Some(mean(&values[steps..]) - mean(&values[..steps]))
        };
        let moved = (change(TOGETHER.0), change(TOGETHER.1));
        matches!(moved, (Some(one), Some(other)) if one > far && other < -far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(rubric: f64, rule: f64) -> RlStepMetrics {
        let parts = [("rubric".to_string(), rubric), ("rule".to_string(), rule)].into();
        RlStepMetrics { stopped_share: 1.0, reward_parts: parts, ..RlStepMetrics::default() }
    }

    fn alarms(steps: impl IntoIterator<Item = RlStepMetrics>) -> Vec<Vec<String>> {
        let mut history = History { steps: Vec::new() };
        let look = |mut step: RlStepMetrics| {
            history.look(&mut step);
            step.alarms
        };
        steps.into_iter().map(look).collect()
    }

    #[test]
    fn a_rubric_that_rises_while_the_rule_falls_is_an_alarm_and_rising_together_is_none() {
        let apart = alarms((0..10).map(|at| step(10.0 + f64::from(at), 10.0 - f64::from(at))));
        assert_eq!(apart[9], ["rubric_without_rule"]);
        assert!(apart[..9].iter().all(Vec::is_empty));
        assert!(alarms((0..20).map(|at| step(10.0 + f64::from(at), 10.0 + f64::from(at)))).concat().is_empty());
        assert!(
            alarms((0..20).map(|_| RlStepMetrics { stopped_share: 1.0, ..Default::default() })).concat().is_empty()
        );
    }

    #[test]
    fn truncation_and_rising_faults_are_alarms() {
        let cut = RlStepMetrics { stopped_share: 0.75, ..step(1.0, 1.0) };
        assert_eq!(alarms([cut])[0], ["truncation"]);
        let untagged = |missing| {
            let faults = [("missing_tag".to_string(), missing), ("unclosed_tag".to_string(), 3)].into();
            RlStepMetrics { completions: 100, faults, ..step(1.0, 1.0) }
        };
        assert_eq!(alarms([untagged(7), untagged(8)]), [vec![], vec!["missing_tags".to_string()]]);
        let faults = |share| RlStepMetrics { fault_share: share, ..step(1.0, 1.0) };
        assert_eq!(alarms([faults(0.06), faults(0.09), faults(0.11), faults(0.13)])[3], ["faults"]);
        assert!(alarms([faults(0.3), faults(0.4)]).concat().is_empty(), "it began so: the first step refuses or not");
    }
}
