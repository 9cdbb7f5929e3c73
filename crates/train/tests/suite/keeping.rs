//! Which checkpoints stay, and what a full disk leaves.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{CheckpointConfig, Control, Data, Job, LINEAGE, Silent};

use crate::common::{decoder, device, metrics, model_config, rows, stage, train, train_until, weights};

fn checkpoints(out: &Path) -> Vec<u64> {
    let entries = fs_err::read_dir(out.join("checkpoints")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut steps: Vec<u64> = names.map(|name| name.strip_prefix("step-").unwrap().parse().unwrap()).collect();
    steps.sort_unstable();
    steps
}

#[test]
fn the_newest_every_so_many_and_the_best_stay() {
    let out = tempfile::tempdir().unwrap();
    let policy = CheckpointConfig { keep_every: Some(6), ..CheckpointConfig::new(3, 2) };
    train(&StageConfig { checkpoints: policy, ..stage(20) }, rows(13), out.path()).unwrap();
    assert_eq!(checkpoints(out.path()), [6, 12, 18, 20]);
}

/// A rate so high that the validation loss soon rises.
fn worsening(steps: u64) -> StageConfig {
    let mut config = stage(steps);
    config.optimizer.learning_rate = 0.3;
    config.validation.as_mut().unwrap().every = 1;
    config.checkpoints = CheckpointConfig { keep_best: true, ..CheckpointConfig::new(50, 1) };
    config
}

#[test]
fn the_checkpoint_with_the_lowest_validation_loss_stays_though_it_was_not_due() {
    let out = tempfile::tempdir().unwrap();
    let report = train(&worsening(30), rows(13), out.path()).unwrap();
    let losses: Vec<f64> = metrics(out.path()).iter().map(|line| line["validation_loss"].as_f64().unwrap()).collect();
    let best = (0..losses.len()).min_by(|&a, &b| losses[a].total_cmp(&losses[b])).unwrap() as u64 + 1;
    assert!(best < 25, "the loss was to rise before the end, it is lowest after step {best}");
    assert_eq!(checkpoints(out.path()), [best, 30]);
    assert_eq!(report.counts["best_step"], best);
    // Stopped and gone on, the same one stays.
    let stopped = tempfile::tempdir().unwrap();
    for stop in [Some(best + 2), None] {
        train_until(&worsening(30), rows(13), stopped.path(), stop).unwrap();
    }
    assert_eq!(checkpoints(stopped.path()), [best, 30]);
    assert_eq!(weights(&out.path().join("model")), weights(&stopped.path().join("model")));
}

#[test]
fn every_checkpoint_has_the_lineage_that_the_run_was_given() {
    let out = tempfile::tempdir().unwrap();
    fs_err::write(out.path().join(LINEAGE), "{\"tokenizer\": \"abc\"}").unwrap();
    train(&stage(4), rows(13), out.path()).unwrap();
    for step in checkpoints(out.path()) {
        let copy = out.path().join(format!("checkpoints/step-{step:06}")).join(LINEAGE);
        assert_eq!(fs_err::read_to_string(copy).unwrap(), "{\"tokenizer\": \"abc\"}");
    }
}

const FOLDER: &str = "WORLDLOOM_FULL_DISK_FOLDER";

/// Does nothing in the test run itself; the next test starts this one in a process whose files may not grow beyond a
/// few KiB, so that writing a checkpoint fails in its middle as on a full disk.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let ignored = std::sync::Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), ignored).unwrap();
    let limit = rustix::process::Rlimit { current: Some(20_000), maximum: Some(20_000) };
    rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
    let (stop, device) = (AtomicBool::new(false), device());
    let job = Job { decoder: decoder(), model: model_config(), out: Path::new(&folder), device: &device };
    let mut control = Control { observer: &mut Silent, stop: &stop };
    supervised::run(&stage(10), job, &Data::from_rows(rows(13)), None, &mut control).unwrap();
}

#[test]
fn a_disk_that_fills_up_in_the_middle_of_a_checkpoint_loses_nothing() {
    let (straight, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train(&stage(10), rows(13), straight.path()).unwrap();
    train_until(&stage(10), rows(13), out.path(), Some(4)).unwrap();
    let before = weights(&out.path().join("checkpoints/step-000004"));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["keeping::child", "--exact"])
        .env(FOLDER, out.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(101), "the child was to fail with an error");
    assert_eq!(checkpoints(out.path()), [3, 4], "nothing half written, nothing gone");
    assert_eq!(weights(&out.path().join("checkpoints/step-000004")), before);
    train(&stage(10), rows(13), out.path()).unwrap();
    assert_eq!(weights(&straight.path().join("model")), weights(&out.path().join("model")));
    assert_eq!(metrics(straight.path()), metrics(out.path()));
}
