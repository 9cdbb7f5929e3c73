//! A run that is stopped or killed ends with the same bytes as one that is not.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{Control, Data, Error, Job, Observer, StepMetrics};

use crate::common::{decoder, device, metrics, model_config, rows, stage, train, train_until, weights};

const STEPS: u64 = 10;

fn straight(config: &StageConfig) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    train(config, rows(13), out.path()).unwrap();
    out
}

fn assert_same_run(first: &Path, second: &Path) {
    assert_eq!(weights(&first.join("model")), weights(&second.join("model")));
    assert_eq!(metrics(first), metrics(second));
    let optimizer = |run: &Path| fs_err::read(run.join("checkpoints/step-000010/optimizer.safetensors")).unwrap();
    assert!(optimizer(first) == optimizer(second), "optimizer states differ");
}

fn checkpoints(out: &Path) -> Vec<String> {
    let entries = fs_err::read_dir(out.join("checkpoints")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn resuming_twice_at_any_step_equals_a_straight_run_bit_for_bit() {
    let config = stage(STEPS);
    let expected = straight(&config);
    for first in 1..STEPS {
        let out = tempfile::tempdir().unwrap();
        let second = Some(first + 2).filter(|&second| second < STEPS);
        for stop in [Some(first), second, None] {
            let (report, _) = train_until(&config, rows(13), out.path(), stop).unwrap();
            assert_eq!(report.is_stopped, stop.is_some());
        }
        assert_same_run(expected.path(), out.path());
    }
}

#[test]
fn a_run_that_stops_at_the_end_of_an_epoch_goes_on_with_the_next_one() {
    // Twelve rows to train on, three steps an epoch.
    let config = StageConfig { steps: None, epochs: Some(3.0), validation: None, ..stage(STEPS) };
    let numbers = |steps: &[StepMetrics]| steps.iter().flat_map(|step| step.row_numbers.clone()).collect::<Vec<_>>();
    let straight = tempfile::tempdir().unwrap();
    let expected = numbers(&train_until(&config, rows(12), straight.path(), None).unwrap().1);
    let stopped = tempfile::tempdir().unwrap();
    let mut found = Vec::new();
    for stop in [Some(3), Some(6), None] {
        found.extend(numbers(&train_until(&config, rows(12), stopped.path(), stop).unwrap().1));
    }
    assert_eq!(found, expected);
    for epoch in expected.chunks(12) {
        let mut visited = epoch.to_vec();
        visited.sort_unstable();
        assert_eq!(visited, (0..12).collect::<Vec<_>>());
    }
    assert_eq!(weights(&straight.path().join("model")), weights(&stopped.path().join("model")));
    assert_eq!(metrics(straight.path()), metrics(stopped.path()));
}

/// A run as a kill leaves it: steps after the last checkpoint are in the metrics only, and litter lies around.
fn killed_run(config: &StageConfig, at: u64) -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let checkpoints = worldloom_train::CheckpointConfig { keep: 3, ..config.checkpoints };
    train_until(&StageConfig { checkpoints, ..config.clone() }, rows(13), out.path(), Some(at)).unwrap();
    let folder = out.path().join("checkpoints");
    if !at.is_multiple_of(config.checkpoints.every) {
        fs_err::remove_dir_all(folder.join(format!("step-{at:06}"))).unwrap();
    }
    fs_err::create_dir_all(folder.join(".step-000099.x.partial")).unwrap();
    fs_err::write(folder.join(".step-000099.x.partial/model.safetensors"), "half a fi").unwrap();
    let mut file = fs_err::OpenOptions::new().append(true).open(out.path().join("metrics.jsonl")).unwrap();
    std::io::Write::write_all(&mut file, b"{\"step\":99,\"lo").unwrap();
    out
}

#[test]
fn a_killed_run_goes_on_from_its_checkpoint_and_ends_with_the_same_bytes() {
    let config = stage(STEPS);
    let expected = straight(&config);
    for at in [2, 5, 6, 8] {
        let out = killed_run(&config, at);
        train(&config, rows(13), out.path()).unwrap();
        assert_same_run(expected.path(), out.path());
        assert_eq!(checkpoints(out.path()), ["step-000009", "step-000010"]);
    }
}

const CHILD_FOLDER: &str = "WORLDLOOM_TRAIN_TEST_FOLDER";
const CHILD_LAST: &str = "WORLDLOOM_TRAIN_TEST_LAST_STEP";

/// Dies without unwinding, as if killed, after a step or right after its checkpoint.
struct Dies {
    after: u64,
    at_checkpoint: bool,
}

impl Observer for Dies {
    fn on_step(&mut self, metrics: &StepMetrics) {
        if !self.at_checkpoint && metrics.step == self.after {
            std::process::abort();
        }
    }

    fn on_checkpoint(&mut self, step: u64, _: &Path) {
        if self.at_checkpoint && step >= self.after {
            std::process::abort();
        }
    }
}

/// Does nothing in the test run itself; the next test starts this one in processes of its own.
#[test]
fn child_that_dies() {
    let (Ok(folder), Ok(after)) = (std::env::var(CHILD_FOLDER), std::env::var(CHILD_LAST)) else { return };
    let (stop, device) = (AtomicBool::new(false), device());
    let after: u64 = after.parse().unwrap();
    let mut dies = Dies { after, at_checkpoint: after % 2 == 1 };
    let job = Job { decoder: decoder(), model: model_config(), out: Path::new(&folder), device: &device };
    let data = Data::from_rows(rows(13));
    supervised::run(&stage(STEPS), job, &data, None, &mut Control { observer: &mut dies, stop: &stop }).unwrap();
}

#[test]
fn a_process_killed_again_and_again_ends_with_the_bytes_of_a_straight_run() {
    let (expected, out) = (straight(&stage(STEPS)), tempfile::tempdir().unwrap());
    for after in [2, 1, 4, 5, 8, 9] {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["resume::child_that_dies", "--exact"])
            .envs([(CHILD_FOLDER, out.path().as_os_str()), (CHILD_LAST, after.to_string().as_ref())])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(!status.success(), "the child lived beyond step {after}");
    }
    train(&stage(STEPS), rows(13), out.path()).unwrap();
    assert_same_run(expected.path(), out.path());
}

#[test]
fn a_finished_run_is_not_trained_again() {
    let config = stage(STEPS);
    let out = straight(&config);
    let (report, steps) = train_until(&config, rows(13), out.path(), None).unwrap();
    assert_eq!((report.steps, steps.len()), (STEPS, 0));
    assert_eq!(metrics(out.path()).len(), STEPS as usize);
}

fn damage(path: PathBuf, how: &str) {
    let mut bytes = fs_err::read(&path).unwrap();
    match how {
        "cut" => bytes.truncate(bytes.len() / 2),
        "flipped" => *bytes.last_mut().unwrap() ^= 1,
        _ => return fs_err::remove_file(&path).unwrap(),
    }
    fs_err::write(&path, bytes).unwrap();
}

#[test]
fn a_damaged_newest_checkpoint_falls_back_to_the_one_before() {
    let config = stage(STEPS);
    let expected = straight(&config);
    for file in ["model.safetensors", "optimizer.safetensors", "state.json", "manifest.json", "config.json"] {
        for how in ["cut", "flipped", "missing"] {
            let out = killed_run(&config, 8);
            damage(out.path().join("checkpoints/step-000006").join(file), how);
            let (report, steps) = train_until(&config, rows(13), out.path(), None).unwrap();
            assert_eq!((report.steps, steps[0].step), (STEPS, 4), "{file} {how}");
            assert_same_run(expected.path(), out.path());
            assert!(checkpoints(out.path()).contains(&"damaged-step-000006".to_string()));
        }
    }
}

#[test]
fn a_run_whose_checkpoints_are_all_damaged_says_so() {
    let config = stage(STEPS);
    let out = killed_run(&config, 8);
    for step in ["step-000003", "step-000006"] {
        damage(out.path().join("checkpoints").join(step).join("model.safetensors"), "cut");
    }
    let error = train(&config, rows(13), out.path()).unwrap_err();
    assert!(matches!(error, Error::Checkpoint { .. }), "{error}");
    assert!(error.to_string().contains("step-000006"), "{error}");
}

#[test]
fn only_so_many_checkpoints_stay_and_the_last_step_has_one() {
    let config = stage(STEPS);
    assert_eq!(checkpoints(straight(&config).path()), ["step-000009", "step-000010"]);
    let one = worldloom_train::CheckpointConfig::new(100, 1);
    assert_eq!(checkpoints(straight(&StageConfig { checkpoints: one, ..config }).path()), ["step-000010"]);
}

#[test]
fn how_often_checkpoints_are_made_changes_nothing_else() {
    let rare = worldloom_train::CheckpointConfig::new(7, 1);
    let (first, second) = (straight(&stage(STEPS)), straight(&StageConfig { checkpoints: rare, ..stage(STEPS) }));
    assert_same_run(first.path(), second.path());
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let config = stage(STEPS);
    let with_threads = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| straight(&config))
    };
    let (one, three) = (with_threads(1), with_threads(3));
    assert_same_run(one.path(), three.path());
}
