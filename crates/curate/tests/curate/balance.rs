//! Balanced mixtures, listed groups and held-out sources.

use crate::common::{Output, config, crowd, curate, only_cpt};
use std::collections::{BTreeMap, BTreeSet};
use worldloom_curate::{CurateConfig, Mixture, MixtureKey};
use worldloom_schema::{Domain, Pool, Trajectory};

/// Three domains of 120, 40 and 20 trajectories in groups of ten.
fn uneven() -> Vec<Trajectory> {
    let domain = |at: usize| match at {
        0..120 => Domain::Terminal,
        120..160 => Domain::Web,
        _ => Domain::Mcp,
    };
    crowd(18, 10).into_iter().enumerate().map(|(at, one)| Trajectory { domain: domain(at), ..one }).collect()
}

fn numbers(output: &Output, pool: Pool) -> BTreeMap<&'static str, usize> {
    let mut numbers = BTreeMap::new();
    output.pools[&pool].iter().for_each(|one| *numbers.entry(one.domain.as_str()).or_default() += 1);
    numbers
}

fn mixed(alpha: f64, weights: &[(&str, f64)]) -> Output {
    let weights = weights.iter().map(|(name, weight)| (name.to_string(), *weight)).collect();
    let mixture = Mixture { by: MixtureKey::Domain, alpha, weights };
    curate(&CurateConfig { mixture: Some(mixture), ..only_cpt() }, &uneven()).unwrap()
}

#[test]
fn a_mixture_balances_by_exponent_or_by_weights() {
    let found = |alpha, weights: &[(&str, f64)]| numbers(&mixed(alpha, weights), Pool::Cpt);
    assert_eq!(found(1.0, &[]), BTreeMap::from([("terminal", 120), ("web", 40), ("mcp", 20)]));
    assert_eq!(found(0.0, &[]), BTreeMap::from([("terminal", 20), ("web", 20), ("mcp", 20)]));
    let weighted = found(1.0, &[("terminal", 2.0), ("web", 1.0)]);
    assert_eq!(weighted, BTreeMap::from([("terminal", 80), ("web", 40)]), "a name without a weight is dropped");
    assert_eq!(mixed(0.0, &[]).dropped("mixture"), 120);
}

#[test]
fn which_stay_is_drawn_by_seed_and_not_by_order() {
    let ids = |seed: u64, all: &[Trajectory]| -> BTreeSet<String> {
        let mixture = Mixture { by: MixtureKey::Source, alpha: 1.0, weights: BTreeMap::new() };
        let mut config = CurateConfig { seed, mixture: Some(mixture), ..only_cpt() };
        config.mixture.as_mut().unwrap().alpha = 0.0;
        curate(&config, all).unwrap().all().map(|one| one.trajectory_id.clone()).collect()
    };
    let mut all = uneven();
    all.iter_mut().enumerate().filter(|(at, _)| at % 3 == 0).for_each(|(_, one)| one.source = "rare".into());
    let first = ids(1, &all);
    assert_eq!(first.len(), 120);
    assert_ne!(first, ids(2, &all));
    all.reverse();
    assert_eq!(first, ids(1, &all));
}

#[test]
fn evaluation_is_not_balanced() {
    let mixture = Mixture { by: MixtureKey::Domain, alpha: 0.0, weights: BTreeMap::new() };
    let plain = curate(&config(), &uneven()).unwrap();
    let mixed = curate(&CurateConfig { mixture: Some(mixture), ..config() }, &uneven()).unwrap();
    assert_eq!(numbers(&plain, Pool::Eval), numbers(&mixed, Pool::Eval));
    for pool in [Pool::Cpt, Pool::Sft, Pool::Rl] {
        let sizes: BTreeSet<usize> = numbers(&mixed, pool).into_values().collect();
        assert_eq!(sizes.len(), 1, "{pool}: {sizes:?}");
    }
}

#[test]
fn a_mixture_that_empties_a_pool_is_an_error() {
    let mixture = Mixture { by: MixtureKey::Domain, alpha: 1.0, weights: BTreeMap::from([("os".into(), 1.0)]) };
    let error = curate(&CurateConfig { mixture: Some(mixture), ..only_cpt() }, &uneven()).err().unwrap().to_string();
    assert!(error.contains("the cpt pool is empty: its trajectories were dropped by mixture 180"), "{error}");
}

#[test]
fn held_out_sources_are_evaluated_with_every_group_they_touch() {
    let mut all = crowd(12, 5);
    all.iter_mut().skip(8).take(4).for_each(|one| one.source = "away".into());
    let config = CurateConfig { holdout_sources: vec!["away".into()], eval_share: 0.0, ..config() };
    let output = curate(&config, &all).unwrap();
    let groups: BTreeSet<&str> = output.pools[&Pool::Eval].iter().map(|one| one.task_group.as_str()).collect();
    assert_eq!(groups, BTreeSet::from(["group-01", "group-02"]));
    assert_eq!(output.pools[&Pool::Eval].len(), 10, "a group is never split");
    let unknown = CurateConfig { holdout_sources: vec!["nowhere".into()], ..config };
    let error = curate(&unknown, &all).err().unwrap().to_string();
    assert!(error.contains("no trajectory has the source `nowhere`; sources: `away`, `synthetic`"), "{error}");
}

#[test]
fn listed_groups_go_where_the_list_says() {
    let pools = BTreeMap::from([("group-00".to_string(), Pool::Rl), ("group-01".to_string(), Pool::Eval)]);
    let config = CurateConfig { group_pools: pools, ..config() };
    let output = curate(&config, &crowd(12, 5)).unwrap();
    let groups =
        |pool: Pool| -> BTreeSet<&str> { output.pools[&pool].iter().map(|one| one.task_group.as_str()).collect() };
    assert!(groups(Pool::Rl).contains("group-00"));
    assert!(groups(Pool::Eval).contains("group-01"));
    let unknown = CurateConfig { group_pools: BTreeMap::from([("group-0".to_string(), Pool::Rl)]), ..config };
    let error = curate(&unknown, &crowd(12, 5)).err().unwrap().to_string();
    assert!(error.contains("group_pools: no trajectory has the task group `group-0`; nearest: `group-0"), "{error}");
}
