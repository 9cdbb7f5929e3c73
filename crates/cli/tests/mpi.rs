//! A training in two processes over MPI against one process: `just test-mpi`, see docs/train.md.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![allow(dead_code, reason = "the tests of the program use the rest of what is shared")]

#[path = "program/support.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use support::{made, root, run_before, stderr, succeeds};

/// The program started so many times together. Two processes on whatever this machine has, also for root and in containers.
fn together(count: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &count.to_string(), "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]);
    command.args(["--mca", "btl_vader_single_copy_mechanism", "none"]);
    command.arg(env!("CARGO_BIN_EXE_worldloom")).args(arguments).current_dir(root());
    command
}

fn outcome(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("mpirun: {error}; install openmpi-bin"))
}

/// What a stage is trained from and with.
struct Stage {
    name: &'static str,
    model: String,
    rows: String,
    config: PathBuf,
}

impl Stage {
    fn arguments<'a>(&'a self, out: &'a str) -> Vec<&'a str> {
        let config = self.config.to_str().unwrap();
        vec!["train", self.name, "--config", config, "--model", &self.model, "--rows", &self.rows, "--out", out]
    }
}

/// Steps of three rows in micro-batches of one, so that two processes never have as many.
fn config(folder: &Path, name: &str, steps: u32) -> PathBuf {
    let text = format!(
        "steps = {steps}\nrows_per_step = 3\nrows_per_micro_batch = 1\nseed = 1\n\
         optimizer = {{ learning_rate = 1e-3, weight_decay = 0.1, clip_norm = 1.0 }}\n\
         schedule = {{ shape = \"cosine\", warmup_steps = 2, floor = 0.1 }}\n\
         checkpoints = {{ every = 4, keep = 2 }}\nvalidation = {{ every = 3, held_out_rows = 4 }}\n"
    );
    let file = folder.join(name);
    fs_err::write(&file, text).unwrap();
    file
}

fn metrics(out: &str) -> Vec<serde_json::Value> {
    let text = fs_err::read_to_string(Path::new(out).join("metrics.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn weights(out: &str) -> Vec<u8> {
    fs_err::read(Path::new(out).join("model/model.safetensors")).unwrap()
}

/// Largest difference between the float32 numbers of two files of the same names and shapes.
fn difference(first: &[u8], second: &[u8]) -> f32 {
    let numbers = |bytes: &[u8]| {
        let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        (bytes[..header].to_vec(), bytes[header..].to_vec())
    };
    let ((names, first), (other_names, second)) = (numbers(first), numbers(second));
    assert!(names == other_names, "other tensors");
    let float = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
    let pairs = first.chunks_exact(4).zip(second.chunks_exact(4));
    pairs.map(|(a, b)| (float(a) - float(b)).abs()).fold(0.0, f32::max)
}

fn check_against_one_process(stage: &Stage, folder: &Path) -> String {
    let path = |name: &str| folder.join(format!("{}-{name}", stage.name)).to_string_lossy().into_owned();
    let (alone, shared) = (path("alone"), path("shared"));
    succeeds(&stage.arguments(&alone));
    let output = outcome(&mut together(2, &stage.arguments(&shared)));
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(printed.matches("written to").count(), 1, "one process speaks: {printed}");
    let (expected, found) = (metrics(&alone), metrics(&shared));
    assert_eq!(expected.len(), found.len());
    let mut largest: f64 = 0.0;
    for (expected, found) in expected.iter().zip(&found) {
        for name in ["loss", "grad_norm", "validation_loss"] {
            let (a, b) = (expected[name].as_f64(), found[name].as_f64());
            assert_eq!(a.is_some(), b.is_some(), "{name}");
            largest = largest.max((a.unwrap_or(0.0) - b.unwrap_or(0.0)).abs());
        }
        assert_eq!((&expected["rows"], &expected["tokens"]), (&found["rows"], &found["tokens"]));
    }
    let apart = difference(&weights(&alone), &weights(&shared));
    println!("{}: losses and norms {largest:.1e} apart, weights {apart:.1e}", stage.name);
    assert!(largest < 1e-4 && apart < 1e-4, "losses and norms {largest:e} apart, weights {apart:e}");
    shared
}

/// Starts, waits until a line of metrics is there, and gives the process.
fn started(stage: &Stage, out: &str, steps: usize) -> Child {
    let mut child = together(2, &stage.arguments(out)).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    loop {
        let lines = fs_err::read_to_string(Path::new(out).join("metrics.jsonl")).map_or(0, |text| text.lines().count());
        if lines >= steps {
            return child;
        }
        assert!(child.try_wait().unwrap().is_none(), "ended before it was stopped");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Process ids below a process, at any depth.
fn below(parent: u32) -> Vec<u32> {
    let output = Command::new("ps").args(["-eo", "pid=,ppid="]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pairs: Vec<(u32, u32)> = text
        .lines()
        .map(|line| {
            let mut words = line.split_whitespace().map(|word| word.parse().unwrap());
            (words.next().unwrap(), words.next().unwrap())
        })
        .collect();
    let (mut found, mut at) = (vec![parent], 0);
    while at < found.len() {
        let parent = found[at];
        found.extend(pairs.iter().filter(|pair| pair.1 == parent).map(|pair| pair.0));
        at += 1;
    }
    found.split_off(1)
}

#[test]
fn two_processes_train_as_one_go_on_after_a_death_and_say_why_they_end() {
    let folder = tempfile::tempdir().unwrap();
    run_before("rl", folder.path());
    let runs = folder.path().join("runs");
    let stage = |name, model, rows, steps| Stage {
        name,
        model: made(&runs, model),
        rows: made(&runs, rows),
        config: config(folder.path(), &format!("{name}-{steps}.toml"), steps),
    };
    let cpt = stage("cpt", "base", "rows-cpt", 8);
    check_against_one_process(&cpt, folder.path());
    check_against_one_process(&stage("sft", "cpt", "rows-sft", 8), folder.path());

    // One of the two is killed: the job ends, and the same command ends with the bytes of a straight run.
    let long = stage("cpt", "base", "rows-cpt", 60);
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (straight, killed) = (path("straight"), path("killed"));
    assert!(outcome(&mut together(2, &long.arguments(&straight))).status.success());
    let mut child = started(&long, &killed, 6);
    let victim = *below(child.id()).last().unwrap();
    Command::new("kill").args(["-KILL", &victim.to_string()]).status().unwrap();
    assert!(!child.wait().unwrap().success());
    let text = stderr(&child.wait_with_output().unwrap());
    assert!(text.contains("signal 9"), "{text}");
    assert!(outcome(&mut together(2, &long.arguments(&killed))).status.success());
    assert!(weights(&killed) == weights(&straight), "other bytes after a death");

    // A mistake is told once, by one process, with its exit code.
    let other = Stage { rows: made(&runs, "prompts"), ..stage("cpt", "base", "rows-cpt", 8) };
    let output = outcome(&mut together(2, &other.arguments(&path("wrong"))));
    let text = stderr(&output);
    assert!(!output.status.success() && text.matches("error:").count() == 1, "{text}");

    let rl = ["train", "rl", "--config", "x.toml", "--model", &cpt.model, "--out", &path("rl")];
    let output = outcome(&mut together(2, &rl));
    assert!(stderr(&output).contains("`train cpt` and `train sft` share their work"), "{}", stderr(&output));
    assert_eq!(output.status.code(), Some(2));
}
