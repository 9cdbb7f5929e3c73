//! How many trajectories of each kind stay in a training pool, so that the kinds are balanced.
//!
//! With weights `w` and `n` trajectories of each kind, the largest scale `s` is taken with which no kind needs more than
//! it has: `s = min(n / w)`, and `floor(s·w)` of each stay. Without weights, `w = n^alpha`.

use crate::settings::Mixture;

/// Trajectories of one kind in one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) pool: String,
    pub(crate) name: String,
    pub(crate) trajectories: u64,
}

/// How many of each kind stay, in the order of the kinds.
pub(crate) fn quotas(kinds: &[Kind], mixture: &Mixture) -> Vec<u64> {
    kinds.iter().map(|kind| quota(kind, kinds, mixture)).collect()
}

fn quota(kind: &Kind, kinds: &[Kind], mixture: &Mixture) -> u64 {
    let of_pool = kinds.iter().filter(|other| other.pool == kind.pool);
    let weighted = of_pool.map(|other| (other.trajectories as f64, weight(other, mixture)));
    let scale = weighted.filter(|(_, weight)| *weight > 0.0).map(|(number, weight)| number / weight);
    let scale = scale.fold(f64::INFINITY, f64::min);
    if !scale.is_finite() {
        return 0;
    }
    // A product that misses a whole number by rounding only is that number.
    ((scale * weight(kind, mixture) + 1e-9).floor() as u64).min(kind.trajectories)
}

fn weight(kind: &Kind, mixture: &Mixture) -> f64 {
    match mixture.weights.is_empty() {
        true => (kind.trajectories as f64).powf(mixture.alpha),
        false => mixture.weights.get(&kind.name).copied().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::MixtureKey;

    fn check(numbers: &[(&str, u64)], alpha: f64, weights: &[(&str, f64)], expected: &[u64]) {
        let kinds: Vec<Kind> = numbers
            .iter()
            .map(|(name, trajectories)| Kind {
                pool: "cpt".into(),
                name: name.to_string(),
                trajectories: *trajectories,
            })
            .collect();
        let weights = weights.iter().map(|(name, weight)| (name.to_string(), *weight)).collect();
        let found = quotas(&kinds, &Mixture { by: MixtureKey::Domain, alpha, weights });
        assert_eq!(found, expected, "{numbers:?} alpha {alpha}");
    }

    #[test]
    fn kinds_keep_as_many_as_the_scarcest_allows() {
        check(&[("a", 100), ("b", 25)], 1.0, &[], &[100, 25]);
        check(&[("a", 100), ("b", 25)], 0.0, &[], &[25, 25]);
        check(&[("a", 100), ("b", 25)], 0.5, &[], &[50, 25]);
        check(&[("a", 100), ("b", 25)], 1.0, &[("a", 1.0), ("b", 1.0)], &[25, 25]);
        check(&[("a", 100), ("b", 25)], 1.0, &[("a", 8.0), ("b", 1.0)], &[100, 12]);
        check(&[("a", 100), ("b", 25)], 1.0, &[("a", 0.1), ("b", 0.3)], &[8, 25]);
        check(&[("a", 100), ("b", 25), ("c", 7)], 1.0, &[("a", 2.0), ("b", 1.0)], &[50, 25, 0]);
        check(&[("a", 100)], 1.0, &[("b", 1.0)], &[0]);
    }

    #[test]
    fn pools_are_balanced_each_by_itself() {
        let kind = |pool: &str, name: &str, trajectories| Kind { pool: pool.into(), name: name.into(), trajectories };
        let kinds = [kind("cpt", "a", 10), kind("cpt", "b", 4), kind("rl", "a", 3), kind("rl", "b", 9)];
        let mixture = Mixture { by: MixtureKey::Source, alpha: 0.0, weights: Default::default() };
        assert_eq!(quotas(&kinds, &mixture), [4, 4, 3, 3]);
    }
}
