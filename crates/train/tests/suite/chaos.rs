//! kill -9 at random moments: `WORLDLOOM_CHAOS_KILLS` says how often (`just chaos`), a few by default.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{CheckpointConfig, Control, Data, Job, Silent};

use crate::common::{decoder, device, metrics, model_config, rows, stage, weights};

const FOLDER: &str = "WORLDLOOM_CHAOS_FOLDER";
const KILLS: &str = "WORLDLOOM_CHAOS_KILLS";

fn config() -> StageConfig {
    StageConfig { checkpoints: CheckpointConfig { keep_best: true, ..CheckpointConfig::new(2, 1) }, ..stage(40) }
}

/// Does nothing in the test run itself; the next test starts this one in processes of its own.
#[test]
fn child() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let (stop, device) = (AtomicBool::new(false), device());
    let job = Job { decoder: decoder(), model: model_config(), out: Path::new(&folder), device: &device };
    let mut control = Control { observer: &mut Silent, stop: &stop };
    supervised::run(&config(), job, &Data::from_rows(rows(13)), None, &mut control).unwrap();
}

fn start(folder: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["chaos::child", "--exact"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_run_killed_at_random_moments_ends_with_the_bytes_of_a_straight_one() {
    let kills: u64 = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let straight = tempfile::tempdir().unwrap();
    let started = Instant::now();
    assert!(start(straight.path()).wait().unwrap().success());
    let whole = started.elapsed();
    let expected = (weights(&straight.path().join("model")), metrics(straight.path()));
    let (mut out, mut killed, mut ended) = (tempfile::tempdir().unwrap(), 0, 0);
    let check_and_start_over = |out: &mut tempfile::TempDir| {
        assert_eq!(expected.0, weights(&out.path().join("model")));
        assert_eq!(expected.1, metrics(out.path()));
        *out = tempfile::tempdir().unwrap();
    };
    for kill in 0..kills {
        // Moments spread over the run by the golden ratio, the same every time as far as the clock allows.
        let share = (kill as f64 * 0.618_033_988_75).fract();
        let mut child = start(out.path());
        let until = Instant::now() + whole.mul_f64(share);
        while Instant::now() < until && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().unwrap().is_some_and(|status| status.success()) {
            check_and_start_over(&mut out);
            ended += 1;
            continue;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        killed += 1;
    }
    assert!(start(out.path()).wait().unwrap().success());
    check_and_start_over(&mut out);
    assert!(killed > 0, "{ended} runs ended before they were killed");
}
