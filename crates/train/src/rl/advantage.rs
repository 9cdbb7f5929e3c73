//! Advantages of a group of completions of one prompt.
//!
//! Float64 in two passes: the one-pass form `E[x²] − E[x]²` leaves a residue that a division turns into an advantage of
//! thousands. A completion without a reward (an unavailable judge) leaves the statistics and has no advantage.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Added to the deviation in a quotient (the value of DeepSeekMath's reference implementations).
const EPSILON: f64 = 1e-4;
/// Rewards of a group whose spread is below this share of the largest one count as equal.
const RELATIVE_SPREAD: f64 = 1e-4;

/// What a centred reward is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Normalisation {
    /// `(r − μ) / (σ + 1e-4)` with the group's sample deviation (GRPO, arXiv 2402.03300).
    Group,
    /// `(r − μ) / (σ + 1e-4)` with the sample deviation of all rewards of the step.
    Batch,
    /// `r − μ` (Dr. GRPO, arXiv 2503.20783).
    None,
    /// `r` less the mean of the others (RLOO, arXiv 2402.14740).
    LeaveOneOut,
}

/// Advantages of a step, with what was left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Advantages {
    /// Per group and completion; none where there is no reward or the group has fewer than two.
    pub values: Vec<Vec<Option<f64>>>,
    /// Groups whose rewards are all equal: they are kept and push nothing.
    pub zero_variance_groups: usize,
    /// Groups with fewer than two rewards: nothing to compare with, so they are left out.
    pub dropped_groups: usize,
}

/// Refuses groups in which nothing can be compared.
pub fn check_group_size(group_size: usize) -> Result<()> {
    if group_size < 2 {
        let detail = format!("{group_size}: a group needs at least two completions to compare");
        return Err(Error::config("group_size", detail));
    }
    Ok(())
}

/// The advantages of groups of rewards, independent of the order of the groups.
///
/// ```text
/// group [1.0, 0.0, none, 0.5]  →  μ = 0.5, σ = 0.5  →  [1.0, -1.0, none, 0.0]   (group; up to the 1e-4)
/// ```
pub fn advantages(groups: &[Vec<Option<f64>>], normalisation: Normalisation) -> Advantages {
    let batch_deviation = Statistics::of(groups.iter().flatten().flatten().copied()).deviation;
    let mut result = Advantages { values: Vec::new(), zero_variance_groups: 0, dropped_groups: 0 };
    for group in groups {
        let statistics = Statistics::of(group.iter().flatten().copied());
        if statistics.count < 2 {
            result.dropped_groups += 1;
            result.values.push(vec![None; group.len()]);
            continue;
        }
        let is_flat = statistics.is_flat();
        result.zero_variance_groups += usize::from(is_flat);
        let count = statistics.count as f64;
        let advantage = |reward: f64| {
            let centred = reward - statistics.mean;
            match normalisation {
                _ if is_flat => 0.0,
                Normalisation::Group => centred / (statistics.deviation + EPSILON),
                Normalisation::Batch => centred / (batch_deviation + EPSILON),
                Normalisation::None => centred,
                Normalisation::LeaveOneOut => centred * count / (count - 1.0),
            }
        };
        result.values.push(group.iter().map(|reward| reward.map(advantage)).collect());
    }
    result
}

struct Statistics {
    count: usize,
    mean: f64,
    deviation: f64,
    spread: f64,
    largest: f64,
}

impl Statistics {
    fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count();
        let mean = values.clone().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = values.clone().map(|value| (value - mean) * (value - mean)).sum();
        let deviation = (squares / count.saturating_sub(1).max(1) as f64).sqrt();
        let (least, most) = values
            .clone()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
        let largest = values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
        Self { count, mean, deviation, spread: most - least, largest }
    }

    fn is_flat(&self) -> bool {
        self.spread <= RELATIVE_SPREAD * self.largest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Normalisation; 4] =
        [Normalisation::Group, Normalisation::Batch, Normalisation::None, Normalisation::LeaveOneOut];

    fn some(rewards: &[f64]) -> Vec<Option<f64>> {
        rewards.iter().copied().map(Some).collect()
    }

    fn largest(group: &[Option<f64>]) -> f64 {
        group.iter().flatten().fold(0.0, |largest, value| value.abs().max(largest))
    }

    #[test]
    fn one_outlier_among_equal_rewards_stays_bounded() {
        for rewards in [[0.35, 0.35, 0.35, 0.35, 0.35, 0.35, 0.35, 0.95].as_slice(), &[1.0, 0.0, 0.0, 0.0]] {
            for normalisation in ALL {
                let found = advantages(&[some(rewards)], normalisation);
                let bound = (rewards.len() as f64).sqrt();
                assert!(largest(&found.values[0]) <= bound, "{normalisation:?} {rewards:?}: {:?}", found.values);
                assert_eq!(found.zero_variance_groups, 0);
            }
        }
    }

    #[test]
    fn equal_rewards_are_a_zero_variance_group_with_advantage_zero() {
        for rewards in [[0.35; 7].as_slice(), &[1.0, 1.00001, 1.0], &[0.0, 0.0], &[0.1 + 0.2, 0.3]] {
            for normalisation in ALL {
                let found = advantages(&[some(rewards)], normalisation);
                assert_eq!(found.zero_variance_groups, 1, "{normalisation:?} {rewards:?}");
                assert_eq!(largest(&found.values[0]), 0.0);
            }
        }
    }

    #[test]
    fn a_missing_reward_leaves_the_statistics() {
        let found = advantages(&[vec![Some(1.0), Some(1.0), None, Some(1.0)]], Normalisation::Group);
        assert_eq!(found.zero_variance_groups, 1);
        assert_eq!(found.values[0], [Some(0.0), Some(0.0), None, Some(0.0)]);
        let with_gap = advantages(&[vec![Some(2.0), None, Some(4.0)]], Normalisation::LeaveOneOut);
        assert_eq!(with_gap.values[0], [Some(-2.0), None, Some(2.0)]);
    }

    #[test]
    fn a_group_with_one_reward_is_left_out_and_counted() {
        let found = advantages(&[vec![Some(3.0), None], some(&[0.0, 1.0])], Normalisation::Group);
        assert_eq!(found.dropped_groups, 1);
        assert_eq!(found.values[0], [None, None]);
        assert!(found.values[1][1].unwrap() > 0.0);
    }

    #[test]
    fn groups_below_two_are_refused() {
        assert!(check_group_size(1).is_err());
        assert!(check_group_size(2).is_ok());
    }

    proptest! {
        #[test]
        fn advantages_sum_to_zero_keep_the_order_of_rewards_and_stay_bounded(
            rewards in prop::collection::vec(0.0f64..25.0, 2..16)
        ) {
            for normalisation in ALL {
                let found = advantages(&[some(&rewards)], normalisation).values.remove(0);
                let found: Vec<f64> = found.into_iter().flatten().collect();
                prop_assert!(found.iter().sum::<f64>().abs() < 1e-9 * 25.0 * rewards.len() as f64);
                for (i, j) in (0..rewards.len()).flat_map(|i| (0..i).map(move |j| (i, j))) {
                    prop_assert!((rewards[i] - rewards[j]) * (found[i] - found[j]) >= 0.0);
                }
                if normalisation == Normalisation::Group {
                    prop_assert!(found.iter().all(|value| value.abs() <= (rewards.len() as f64).sqrt()));
                }
            }
        }

        #[test]
        fn groups_do_not_see_each_other(first in prop::collection::vec(0.0f64..1.0, 2..6), shift in 1.0f64..9.0) {
            let alone = advantages(&[some(&first)], Normalisation::Group).values.remove(0);
            let other: Vec<f64> = first.iter().map(|reward| reward + shift).collect();
            let behind = advantages(&[some(&other), some(&first)], Normalisation::Group).values.remove(1);
            prop_assert_eq!(alone, behind);
        }
    }
}
