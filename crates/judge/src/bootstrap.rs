//! How sure a mean is: bootstrap intervals that resample whole episodes, since turns of one episode resemble each
//! other.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// A mean with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean of all values.
    pub mean: f64,
    /// The 2.5th percentile of the resampled means.
    pub low: f64,
    /// The 97.5th percentile.
    pub high: f64,
    /// How many values.
    pub n: usize,
    /// How many clusters.
    pub clusters: usize,
}

impl Interval {
    /// Whether 0 lies outside: for a difference, that it is more than chance at this level.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }
}

/// Mean and percentile bootstrap interval of `(cluster, value)`: each resample draws as many clusters as there are,
/// with replacement, and takes the mean over all their values. The same values and seed give the same interval.
/// `None` where there are no values or no resamples.
pub fn clustered_mean<C: Ord + Copy>(values: &[(C, f64)], resamples: usize, seed: u64) -> Option<Interval> {
    mean_of_means(std::slice::from_ref(&values), resamples, seed)
}

/// Mean of the groups' means, each group with the same weight, and its interval: each resample draws anew within every
/// group, as [`clustered_mean`] does, and takes the mean of the means. Groups without values are left out; `None` where
/// none has any, or there are no resamples.
pub fn mean_of_means<C: Ord + Copy>(groups: &[&[(C, f64)]], resamples: usize, seed: u64) -> Option<Interval> {
    let groups = groups.iter().map(|values| clusters(values)).filter(|clusters| !clusters.is_empty());
    let groups: Vec<Vec<Cluster>> = groups.collect();
    if groups.is_empty() || resamples == 0 {
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let over_groups = |of: &mut dyn FnMut(&[Cluster]) -> f64| {
        groups.iter().fold(0.0, |sum, clusters| sum + of(clusters)) / groups.len() as f64
    };
    let mut resample =
        |clusters: &[(f64, usize)]| mean((0..clusters.len()).map(|_| clusters[random.random_range(0..clusters.len())]));
    let mut means: Vec<f64> = (0..resamples).map(|_| over_groups(&mut resample)).collect();
    means.sort_by(f64::total_cmp);
    Some(Interval {
        mean: over_groups(&mut |clusters| mean(clusters.iter().copied())),
        low: percentile(&means, 0.025),
        high: percentile(&means, 0.975),
        n: groups.iter().flatten().map(|(_, count)| count).sum(),
        clusters: groups.iter().map(Vec::len).sum(),
    })
}

/// A statistic of `(cluster, value)` and its percentile interval: each resample draws as many clusters as there are, with
/// replacement, and computes the statistic of all their values. Resamples without one are left out; `None` where all
/// values have none, or no resample has.
pub fn clustered_statistic<C: Ord + Copy, T: Copy>(
    values: &[(C, T)],
    resamples: usize,
    seed: u64,
    statistic: impl Fn(&[T]) -> Option<f64>,
) -> Option<Interval> {
    let mut by_cluster: BTreeMap<C, Vec<T>> = BTreeMap::new();
    values.iter().for_each(|(cluster, value)| by_cluster.entry(*cluster).or_default().push(*value));
    let clusters: Vec<Vec<T>> = by_cluster.into_values().collect();
    let mean = statistic(&clusters.concat())?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || -> Vec<T> {
        (0..clusters.len()).flat_map(|_| clusters[random.random_range(0..clusters.len())].iter().copied()).collect()
    };
    let mut found: Vec<f64> = (0..resamples).filter_map(|_| statistic(&draw())).collect();
    found.sort_by(f64::total_cmp);
    let (low, high) = match found.is_empty() {
        true => return None,
        false => (percentile(&found, 0.025), percentile(&found, 0.975)),
    };
    Some(Interval { mean, low, high, n: values.len(), clusters: clusters.len() })
}

/// Sum and number of a cluster's values.
type Cluster = (f64, usize);

fn clusters<C: Ord + Copy>(values: &[(C, f64)]) -> Vec<Cluster> {
    let mut by_cluster: BTreeMap<C, Cluster> = BTreeMap::new();
    for (cluster, value) in values {
        let (sum, count) = by_cluster.entry(*cluster).or_default();
        *sum += value;
        *count += 1;
    }
    by_cluster.into_values().collect()
}

/// Mean and interval of `after − before` over `(cluster, before, after)`, the two taken on the same turn.
pub fn paired_difference<C: Ord + Copy>(pairs: &[(C, f64, f64)], resamples: usize, seed: u64) -> Option<Interval> {
    let differences: Vec<(C, f64)> = pairs.iter().map(|(cluster, before, after)| (*cluster, after - before)).collect();
    clustered_mean(&differences, resamples, seed)
}

fn mean(clusters: impl Iterator<Item = Cluster>) -> f64 {
    let (sum, count) = clusters.fold((0.0, 0), |(sum, count), (more, values)| (sum + more, count + values));
    sum / count as f64
}

/// Linear between the two nearest of the sorted values.
fn percentile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
    below + (above - below) * position.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 40 episodes of 5 turns; all turns of an episode have one value.
    fn equal_turns() -> Vec<(usize, f64)> {
        (0..200).map(|turn| (turn / 5, if (turn / 5) % 2 == 0 { 1.0 } else { 0.0 })).collect()
    }

    #[test]
    fn the_interval_holds_the_mean_and_repeats_with_its_seed() {
        let interval = clustered_mean(&equal_turns(), 1000, 7).unwrap();
        assert_eq!((interval.mean, interval.n, interval.clusters), (0.5, 200, 40));
        assert!(interval.low < 0.5 && 0.5 < interval.high);
        assert_eq!(clustered_mean(&equal_turns(), 1000, 7), Some(interval));
        let uneven: Vec<(usize, f64)> = (0..50).map(|turn| (turn % 20, 1.0 / (turn + 1) as f64)).collect();
        assert_ne!(clustered_mean(&uneven, 1000, 7), clustered_mean(&uneven, 1000, 8));
    }

    #[test]
    fn the_width_is_that_of_the_episodes_and_not_of_the_turns() {
        let clustered = clustered_mean(&equal_turns(), 4000, 1).unwrap();
        let alone: Vec<(usize, f64)> =
            equal_turns().iter().enumerate().map(|(turn, (_, value))| (turn, *value)).collect();
        let alone = clustered_mean(&alone, 4000, 1).unwrap();
        // 1.96 · sqrt(0.25 / 40) = 0.155 on each side; with 200 independent turns 0.069.
        assert!(((clustered.high - clustered.low) / 2.0 - 0.155).abs() < 0.02);
        assert!(((alone.high - alone.low) / 2.0 - 0.069).abs() < 0.01);
    }

    #[test]
    fn a_statistic_is_resampled_by_cluster() {
        let mean = |values: &[f64]| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
        let of_mean = clustered_mean(&equal_turns(), 1000, 7).unwrap();
        let found = clustered_statistic(&equal_turns(), 1000, 7, mean).unwrap();
        // The same draws, summed in another order.
        for (found, of_mean) in [(found.mean, of_mean.mean), (found.low, of_mean.low), (found.high, of_mean.high)] {
            assert!((found - of_mean).abs() < 1e-12, "{found} and {of_mean}");
        }
        assert_eq!((found.n, found.clusters), (200, 40));
        let largest = |values: &[f64]| values.iter().copied().max_by(f64::total_cmp);
        let alone = [(0, 1.0), (0, 2.0), (1, 5.0)];
        let found = clustered_statistic(&alone, 400, 3, largest).unwrap();
        assert_eq!((found.mean, found.low, found.high), (5.0, 2.0, 5.0));
        assert_eq!(clustered_statistic(&alone, 400, 3, |_| None), None);
    }

    #[test]
    fn a_paired_difference_cancels_what_both_share() {
        let pairs: Vec<(usize, f64, f64)> =
            equal_turns().iter().map(|(episode, value)| (*episode, *value, value + 0.25)).collect();
        let interval = paired_difference(&pairs, 500, 3).unwrap();
        assert_eq!((interval.mean, interval.low, interval.high), (0.25, 0.25, 0.25));
        assert!(interval.excludes_zero());
        assert!(!clustered_mean(&[(0, -1.0), (1, 1.0)], 500, 3).unwrap().excludes_zero());
    }

    #[test]
    fn a_mean_of_means_weighs_groups_alike_and_resamples_within_each() {
        // 40 episodes of 5 turns with mean 0.5, and 4 turns that are all 1.
        let (large, small) = (equal_turns(), [(900, 1.0), (900, 1.0), (901, 1.0), (902, 1.0)]);
        let found = mean_of_means(&[&large[..], &small[..]], 4000, 1).unwrap();
        assert_eq!((found.mean, found.n, found.clusters), (0.75, 204, 43));
        // Half of the large group's width, 1.96 · sqrt(0.25 / 40) / 2: the small one never varies.
        assert!(((found.high - found.low) / 2.0 - 0.0775).abs() < 0.01, "{found:?}");
        assert_eq!(mean_of_means(&[&large[..], &[]], 500, 3), clustered_mean(&large, 500, 3), "an empty group is none");
        assert_eq!(mean_of_means::<u32>(&[&[], &[]], 500, 3), None);
    }

    #[test]
    fn nothing_has_no_interval_and_one_value_has_no_width() {
        assert_eq!(clustered_mean::<u32>(&[], 100, 0), None);
        assert_eq!(clustered_mean(&[("a", 2.0)], 0, 0), None);
        let one = Interval { mean: 2.0, low: 2.0, high: 2.0, n: 1, clusters: 1 };
        assert_eq!(clustered_mean(&[("a", 2.0)], 100, 0), Some(one));
    }
}
