//! How far two judges agree: rank correlation, with a bootstrap interval.

use crate::bootstrap::{Interval, clustered_statistic};

/// Spearman's rank correlation of pairs, ties at their mean rank; none where one side is all equal or there are fewer
/// than three pairs.
///
/// ```
/// use worldloom_judge::rank_agreement;
/// assert_eq!(rank_agreement(&[(1.0, 10.0), (2.0, 20.0), (3.0, 25.0)]), Some(1.0));
/// assert_eq!(rank_agreement(&[(1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]), None);
/// ```
pub fn rank_agreement(pairs: &[(f64, f64)]) -> Option<f64> {
    if pairs.len() < 3 {
        return None;
    }
    let first = ranks(&pairs.iter().map(|pair| pair.0).collect::<Vec<_>>());
    let second = ranks(&pairs.iter().map(|pair| pair.1).collect::<Vec<_>>());
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| (one - mean) * (other - mean)).sum()
    };
    let scale = (product(&first, &first) * product(&second, &second)).sqrt();
    (scale > 0.0).then(|| product(&first, &second) / scale)
}

/// The same over `(cluster, first, second)` with a bootstrap interval that resamples clusters; resamples in which one side
/// is all equal are left out.
pub fn rank_agreement_interval<C: Ord + Copy>(
    pairs: &[(C, f64, f64)],
    resamples: usize,
    seed: u64,
) -> Option<Interval> {
    let pairs: Vec<(C, (f64, f64))> =
        pairs.iter().map(|&(cluster, first, second)| (cluster, (first, second))).collect();
    clustered_statistic(&pairs, resamples, seed, rank_agreement)
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&one, &other| values[one].total_cmp(&values[other]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    while start < order.len() {
        let end = (start..order.len()).take_while(|&at| values[order[at]] == values[order[start]]).count() + start;
        let mean = (start + end + 1) as f64 / 2.0;
        order[start..end].iter().for_each(|&at| ranks[at] = mean);
        start = end;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_textbooks_value_with_ties() {
        // scipy.stats.spearmanr([1, 2, 2, 4, 5], [2, 1, 3, 3, 5]) = 0.7632
        let pairs = [(1.0, 2.0), (2.0, 1.0), (2.0, 3.0), (4.0, 3.0), (5.0, 5.0)];
        assert!((rank_agreement(&pairs).unwrap() - 0.763_157_894_7).abs() < 1e-9);
        let opposite: Vec<(f64, f64)> = (0..9).map(|at| (f64::from(at), -f64::from(at))).collect();
        assert_eq!(rank_agreement(&opposite), Some(-1.0));
        assert_eq!(rank_agreement(&pairs[..2]), None);
    }

    #[test]
    fn the_interval_holds_the_value_widens_with_clusters_and_repeats_with_its_seed() {
        let pair = |at: u32| (at, f64::from(at % 7), f64::from(at % 5 + at % 7));
        let pairs: Vec<(u32, f64, f64)> = (0..40).map(pair).collect();
        let found = rank_agreement_interval(&pairs, 500, 3).unwrap();
        assert!(found.low < found.mean && found.mean < found.high && found.high < 1.0);
        assert_eq!(rank_agreement_interval(&pairs, 500, 3), Some(found));
        // Five equal turns of an episode say what one says.
        let repeated: Vec<(u32, f64, f64)> = (0..200).map(|at| pair(at / 5)).collect();
        let clustered = rank_agreement_interval(&repeated, 500, 3).unwrap();
        assert!((clustered.low - found.low).abs() < 1e-9 && (clustered.high - found.high).abs() < 1e-9);
        assert_eq!(clustered.clusters, 40);
    }
}
