//! With every rule on: the same bytes in any order, with any resources, and after a run that was killed.

use crate::common::{config, crowd, trajectory, turn, write};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use worldloom_curate::{
    CurateConfig, Decontaminate, Mixture, MixtureKey, NearDuplicates, Resources, SecretKind, Secrets, run,
};
use worldloom_schema::Trajectory;

fn everything() -> CurateConfig {
    CurateConfig {
        near_duplicates: Some(NearDuplicates { threshold: 0.6, shingle_words: 2, places: 64 }),
        decontaminate: Some(Decontaminate {
            against: vec![],
            own_evaluation: true,
            run_words: 8,
            longest_run: 12,
            largest_share: 1.0,
        }),
        secrets: Some(Secrets { kinds: SecretKind::ALL.into(), private_hosts: vec![], allow: vec![] }),
        mixture: Some(Mixture { by: MixtureKey::Source, alpha: 0.5, weights: BTreeMap::new() }),
        ..config()
    }
}

fn trajectories() -> Vec<Trajectory> {
    let mut all = crowd(15, 60);
    for at in 0..200 {
        let words = (0..40).map(|word| format!("z{}", (at / 4) * 100 + word)).collect::<Vec<_>>().join(" ");
        let turns = vec![turn("read", &format!("{words} {at}")), turn(&format!("mail u{at}@plum.io"), "sent 10.0.0.3")];
        all.push(trajectory(&format!("group-{:02}", at % 15), &format!("{at}"), turns));
    }
    all.iter_mut().enumerate().filter(|(at, _)| at % 5 == 0).for_each(|(_, one)| one.source = "rare".into());
    all
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs_err::read(path).unwrap())).collect()
}

fn inputs(folder: &Path, parts: &[&[Trajectory]]) -> Vec<PathBuf> {
    parts.iter().enumerate().map(|(at, rows)| write(folder, &format!("{at}.parquet"), rows)).collect()
}

fn written(parts: &[&[Trajectory]], resources: Resources) -> BTreeMap<String, Vec<u8>> {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&everything(), &inputs(folder.path(), parts), &[], out.path(), resources, &|_, _| {}).unwrap();
    files(out.path())
}

#[test]
fn all_rules_together_give_the_same_bytes_in_any_order_and_with_any_resources() {
    let all = trajectories();
    let expected = written(&[&all], Resources { num_threads: 1, ..Resources::default() });
    let report: worldloom_curate::Report = serde_json::from_slice(&expected["report.json"]).unwrap();
    for rule in ["near_duplicate", "mixture"] {
        assert!(report.dropped_trajectories[rule] > 0, "{rule} is tested: {:?}", report.dropped_trajectories);
    }
    assert!(report.masked_secrets["email"] > 0);
    let mut reversed = all.clone();
    reversed.reverse();
    let (first, second) = reversed.split_at(333);
    let many = Resources { num_threads: 5, plan_memory_bytes: 1 << 29 };
    assert!(written(&[second, first], many) == expected);
    // Little enough memory that sorts spill.
    let little = Resources { num_threads: 2, plan_memory_bytes: 48 << 20 };
    assert!(written(&[&all], little) == expected);
}

#[test]
fn a_killed_run_goes_on_from_the_plans_that_are_done_and_ends_as_a_straight_one() {
    let all = trajectories();
    let expected = written(&[&all], Resources::default());
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inputs = inputs(folder.path(), &[&all]);
    // Each time the run dies one step later than the time before.
    for steps in 1..=8 {
        let seen = Cell::new(0);
        let seen = AssertUnwindSafe(std::sync::Mutex::new(seen));
        let died = catch_unwind(AssertUnwindSafe(|| {
            run(&everything(), &inputs, &[], out.path(), Resources::default(), &|_, _| {
                let seen = seen.lock().unwrap();
                seen.set(seen.get() + 1);
                assert!(seen.get() < steps, "killed here");
            })
        }));
        assert!(died.is_err(), "step {steps}");
        assert!(!out.path().join("report.json").exists());
        assert!(out.path().join(".curate/facts.parquet").exists());
    }
    let before = fs_err::metadata(out.path().join(".curate/facts.parquet")).unwrap().modified().unwrap();
    assert!(out.path().join(".curate/sorted.parquet").exists(), "the last of them died among the rows");
    fs_err::write(out.path().join(".curate/partial.sorted.parquet"), "half").unwrap();
    let kept = std::sync::Mutex::new(None);
    run(&everything(), &inputs, &[], out.path(), Resources::default(), &|_, _| {
        let facts = out.path().join(".curate/facts.parquet");
        kept.lock().unwrap().get_or_insert(fs_err::metadata(facts).unwrap().modified().unwrap());
    })
    .unwrap();
    assert_eq!(kept.into_inner().unwrap(), Some(before), "the facts were not made again");
    assert!(files(out.path()) == expected);
}

#[test]
fn another_config_or_input_starts_anew() {
    let (folder, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let inputs = inputs(folder.path(), &[&trajectories()]);
    let dies = |config: &CurateConfig| {
        let died = catch_unwind(AssertUnwindSafe(|| {
            run(config, &inputs, &[], out.path(), Resources::default(), &|_, _| panic!("killed here"))
        }));
        assert!(died.is_err());
        fs_err::metadata(out.path().join(".curate/facts.parquet")).unwrap().modified().unwrap()
    };
    let first = dies(&everything());
    assert_eq!(dies(&everything()), first);
    let other = dies(&CurateConfig { seed: 8, ..everything() });
    assert_ne!(other, first);
    write(folder.path(), "0.parquet", &crowd(15, 3));
    assert_ne!(dies(&CurateConfig { seed: 8, ..everything() }), other);
}
