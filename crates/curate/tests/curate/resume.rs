//! With every rule on: the same bytes in any order, with any resources, and after a run that was killed.

use crate::common::{config, crowd, trajectory, turn, write};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use worldloom_curate::{
    Cluster, CurateConfig, Decontaminate, Mixture, MixtureKey, NearDuplicates, Resources, SecretKind, Secrets,
    register, run,
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

fn written(parts: &[&[Trajectory]], resources: Resources<'_>) -> BTreeMap<String, Vec<u8>> {
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
    let many = Resources { num_threads: 5, plan_memory_bytes: 1 << 29, ..Resources::default() };
    assert!(written(&[second, first], many) == expected);
    // Little enough memory that sorts spill.
    let little = Resources { num_threads: 2, plan_memory_bytes: 48 << 20, ..Resources::default() };
    assert!(written(&[&all], little) == expected);
}

/// A session of its own, as a cluster's is: nothing that this process keeps in the other one is known to it.
#[derive(Debug)]
struct Elsewhere;

impl Cluster for Elsewhere {
    fn session(&self, here: &SessionContext) -> Result<SessionContext, DataFusionError> {
        let state = SessionStateBuilder::new().with_default_features().with_config(here.copied_config()).build();
        let there = SessionContext::new_with_state(state);
        register(&there);
        Ok(there)
    }
}

#[test]
fn plans_that_run_elsewhere_give_the_same_bytes() {
    let all = trajectories();
    let there = Resources { cluster: Some(&Elsewhere), ..Resources::default() };
    assert!(written(&[&all], there) == written(&[&all], Resources::default()));
}

/// Tells the child where its input lies.
const FOLDER: &str = "WORLDLOOM_TEST_CURATE";

#[test]
fn a_child_curates_where_it_is_asked_to() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (input, out) = (Path::new(&folder).join("0.parquet"), Path::new(&folder).join("out"));
    let say = |done: u64, _: u64| writeln!(std::io::stdout(), "\nat {done}").unwrap();
    run(&everything(), &[input], &[], &out, Resources::default(), &say).unwrap();
}

/// Runs the child in this folder; kills it once it has said so many lines. Whether it was alive.
fn curate_until(folder: &Path, lines: usize) -> bool {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resume::a_child_curates_where_it_is_asked_to", "--nocapture"])
        .env(FOLDER, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_there = |line: &std::io::Result<String>| line.as_ref().unwrap().starts_with("at ");
    if said.by_ref().filter(is_there).nth(lines - 1).is_some() {
        child.kill().unwrap();
    }
    !child.wait().unwrap().success()
}

#[test]
fn a_process_killed_at_any_step_leaves_what_ends_as_a_straight_run() {
    let all = trajectories();
    let expected = written(&[&all], Resources::default());
    let folder = tempfile::tempdir().unwrap();
    let inputs = inputs(folder.path(), &[&all]);
    let out = folder.path().join("out");
    for lines in [1, 2, 4, 6, 7, 400] {
        assert!(curate_until(folder.path(), lines), "it was killed after {lines} steps");
        assert!(!out.join("report.json").exists());
    }
    run(&everything(), &inputs, &[], &out, Resources::default(), &|_, _| {}).unwrap();
    assert!(files(&out) == expected);
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
