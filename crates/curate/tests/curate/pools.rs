//! Pools: disjoint, near their shares, decided by seed and content alone.

use crate::common::{config, crowd, curate, only_cpt, trajectory, turn, write};
use std::collections::{BTreeMap, BTreeSet};
use worldloom_curate::{CurateConfig, Resources, run};
use worldloom_schema::{Pool, Trajectory};

#[test]
fn pools_share_no_group_and_no_trajectory_and_the_report_proves_it() {
    let output = curate(&config(), &crowd(20, 15)).unwrap();
    let mut pool_of: BTreeMap<&str, BTreeSet<Pool>> = BTreeMap::new();
    for trajectory in output.all() {
        pool_of.entry(&trajectory.task_group).or_default().insert(trajectory.pool.unwrap());
    }
    assert_eq!(pool_of.len(), 20);
    assert!(pool_of.values().all(|pools| pools.len() == 1), "{pool_of:?}");
    assert_eq!(output.report.shared.len(), 6);
    assert!(output.report.shared.iter().all(|pair| pair.groups == 0 && pair.ids == 0));
    let groups: u64 = output.report.pools.values().map(|pool| pool.groups).sum();
    assert_eq!(groups, 20);
}

#[test]
fn equal_trajectories_of_two_groups_in_two_pools_fail_the_proof() {
    let mut all = crowd(2, 3);
    all.push(Trajectory { task_group: "held".into(), ..all[0].clone() });
    all.push(trajectory("held", "another", vec![turn("a", "b"), turn("c", "d")]));
    let config = CurateConfig { eval_groups: vec!["held".into()], drop_exact_duplicates: false, ..only_cpt() };
    let error = curate(&config, &all).err().unwrap();
    assert!(error.to_string().contains("pools cpt and eval share 1 task group(s)"), "{error}");
    assert!(error.hint().unwrap().contains("drop_exact_duplicates = true"));
}

#[test]
fn shares_hold_to_within_a_group() {
    let mut all = crowd(60, 4);
    all.extend(crowd(30, 9).into_iter().filter(|one| one.source_row % 2 == 0));
    let output = curate(&config(), &all).unwrap();
    let total: u64 = output.report.pools.values().map(|pool| pool.trajectories).sum();
    let largest = 9.0 / total as f64;
    for (pool, share) in [("cpt", 0.4), ("sft", 0.24), ("rl", 0.16), ("eval", 0.2)] {
        let found = output.report.pools[pool].share;
        assert!((found - share).abs() <= largest, "{pool}: {found}, expected {share}");
    }
}

#[test]
fn listed_groups_are_evaluated_and_only_they() {
    let listed: Vec<String> = vec!["group-03".into(), "group-11".into()];
    let config = CurateConfig { eval_groups: listed.clone(), eval_share: 0.0, ..config() };
    let output = curate(&config, &crowd(12, 5)).unwrap();
    let found: BTreeSet<String> = output.pools[&Pool::Eval].iter().map(|one| one.task_group.clone()).collect();
    assert_eq!(found, listed.into_iter().collect());
    assert_eq!(output.report.eval_class_shares, [("state".to_string(), 1.0)].into());
}

#[test]
fn a_listed_group_that_does_not_exist_is_an_error_with_the_nearest_names() {
    let mut all = crowd(3, 3);
    all.push(trajectory("copy+glob", "s", vec![turn("a", "b"), turn("c", "d")]));
    let config = CurateConfig { eval_groups: vec!["copy+globs".into()], eval_share: 0.0, ..config() };
    let message = curate(&config, &all).err().unwrap().to_string();
    assert!(message.contains("task group `copy+globs`; nearest: `copy+glob`, "), "{message}");
}

#[test]
fn a_pool_that_cannot_be_filled_is_an_error() {
    let error = curate(&config(), &crowd(2, 5)).err().unwrap();
    assert!(error.to_string().contains("pool is empty: 2 task group(s) for 4 pools"), "{error}");
    assert!(error.hint().unwrap().contains("never split"));
}

/// All files that a curation writes.
pub(crate) fn written(config: &CurateConfig, files: &[&[Trajectory]], num_threads: usize) -> BTreeMap<String, Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let inputs: Vec<_> =
        files.iter().enumerate().map(|(at, rows)| write(folder.path(), &format!("{at}.parquet"), rows)).collect();
    let out = tempfile::tempdir().unwrap();
    let resources = Resources { num_threads, ..Resources::default() };
    run(config, &inputs, &[], out.path(), resources, &|_, _| {}).unwrap();
    let paths = fs_err::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs_err::read(path).unwrap())).collect()
}

#[test]
fn the_same_trajectories_give_the_same_bytes_in_any_order_and_with_any_threads() {
    let mut all = crowd(12, 150);
    all.extend(crowd(3, 5).into_iter().map(|one| Trajectory { source: "again".into(), ..one }));
    let expected = written(&config(), &[&all], 1);
    assert_eq!(expected.len(), 6);
    assert!(written(&config(), &[&all], 4) == expected);
    let mut reversed = all.clone();
    reversed.reverse();
    let (first, second) = reversed.split_at(700);
    assert!(written(&config(), &[second, first], 3) == expected);
}

#[test]
fn another_seed_gives_other_pools_and_the_same_seed_the_same() {
    let all = crowd(30, 4);
    let pools = |seed: u64| -> Vec<Vec<Trajectory>> {
        curate(&CurateConfig { seed, ..config() }, &all).unwrap().pools.into_values().collect()
    };
    assert_eq!(pools(1), pools(1));
    assert_ne!(pools(1), pools(2));
}

#[test]
fn pools_are_sorted_by_id_and_rows_say_their_pool() {
    let output = curate(&config(), &crowd(10, 20)).unwrap();
    for (pool, trajectories) in &output.pools {
        assert!(trajectories.is_sorted_by(|one, other| one.trajectory_id < other.trajectory_id));
        assert!(trajectories.iter().all(|one| one.pool == Some(*pool)));
    }
}
