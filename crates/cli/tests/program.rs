//! The program as a person uses it: help, mistakes, the whole road, a kill in the middle.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn worldloom(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_worldloom")).args(arguments).current_dir(root()).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs and expects exactly one `error:` line with these words, and this exit code.
fn refuses(arguments: &[&str], code: i32, words: &[&str]) {
    let output = worldloom(arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("error:")).count(), 1, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{arguments:?}: no `{word}` in: {text}");
    }
}

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let output = worldloom(&["--help"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success());
    for word in [
        "ingest",
        "curate",
        "tokenizer",
        "render",
        "train",
        "export",
        "import",
        "inspect",
        "evaluate",
        "report",
        "run",
        "plan",
        "record",
        "inspect",
        "Exit codes",
    ] {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    for command in [vec!["train", "rl", "--help"], vec!["ingest", "--help"], vec!["record", "terminal", "--help"]] {
        assert!(worldloom(&command).status.success(), "{command:?}");
    }
}

#[test]
fn mistakes_are_one_error_line_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    refuses(&["run", "no-such.toml"], 2, &["no-such.toml", "hint:"]);
    refuses(
        &["plan", "pipelines/smoke.toml", "--set", "cpt.stepz=3"],
        2,
        &["step `cpt`", "stepz", "did you mean `steps`?"],
    );
    refuses(&["plan", "pipelines/smoke.toml", "--set", "nope.steps=3"], 2, &["no step `nope`"]);
    refuses(&["plan", "pipelines/smoke.toml", "--set", "cpt.steps=\"many\""], 2, &["steps", "many"]);
    fs_err::write(path("bad.toml"), "name = \"x\"\n[[step]]\nname = \"a\"\nuses = \"ingets\"\n").unwrap();
    refuses(&["plan", &path("bad.toml")], 2, &["ingets", "did you mean `ingest`?"]);
    fs_err::write(path("broken.toml"), "name = \n").unwrap();
    refuses(&["plan", &path("broken.toml")], 2, &["broken.toml", "line 1"]);
    fs_err::write(path("empty.jsonl"), "").unwrap();
    refuses(&["ingest", &path("empty.jsonl"), "--out", &path("out")], 1, &["empty.jsonl"]);
    refuses(&["ingest", &path("missing.jsonl"), "--out", &path("out")], 2, &["missing.jsonl", "does not exist"]);
    assert!(!Path::new(&path("out")).exists(), "a failed step must leave nothing");
    fs_err::create_dir_all(path("cut")).unwrap();
    fs_err::write(path("cut/trajectories.parquet"), "PAR1 cut").unwrap();
    let config = ["--config", "configs/curate/terminal.toml"];
    let with = |rest: &[&str]| {
        [&["curate"], &config[..], rest].concat().iter().map(|word| word.to_string()).collect::<Vec<_>>()
    };
    let arguments = with(&["--trajectories", &path("cut"), "--out", &path("out")]);
    refuses(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), 1, &["cut", "manifest.json"]);
    assert_eq!(worldloom(&["curate", "--nonsense"]).status.code(), Some(2));
}

#[test]
fn a_dry_run_prints_the_resolved_config() {
    let output = worldloom(&["curate", "--config", "configs/curate/terminal.toml", "--set", "seed=77", "--dry-run"]);
    let printed: toml::Table = String::from_utf8_lossy(&output.stdout).parse().unwrap();
    assert_eq!(printed["seed"].as_integer(), Some(77), "{}", stderr(&output));
}

#[test]
fn every_pipeline_and_config_loads() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_string_lossy().into_owned();
    let mut seen = 0;
    for entry in fs_err::read_dir(root().join("pipelines")).unwrap() {
        let path = entry.unwrap().path();
        let output = worldloom(&["plan", &path.to_string_lossy(), "--runs", &runs]);
        assert!(output.status.success(), "{}: {}", path.display(), stderr(&output));
        seen += 1;
    }
    assert!(seen >= 3);
    for entry in fs_err::read_dir(root().join("configs")).unwrap() {
        let folder = entry.unwrap().path();
        let stage = folder.file_name().unwrap().to_string_lossy().into_owned();
        for file in fs_err::read_dir(&folder).unwrap() {
            let file = file.unwrap().path().to_string_lossy().into_owned();
            let output = worldloom(&[&stage, "--config", &file, "--dry-run"]);
            assert!(output.status.success(), "{file}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_model_is_inspected_and_exported_in_several_files_with_the_parts_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let golden = "tests/golden/qwen3_5-moe-vl";
    let summary = |dir: &str| -> serde_json::Value {
        let output = worldloom(&["inspect", "model", dir, "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", stderr(&output)))
    };
    let before = summary(golden);
    assert_eq!((&before["parameters"], &before["inside"]), (&97_524.into(), &"qwen3_5_moe".into()));
    let text = worldloom(&["inspect", "model", golden, "--context", "100"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    for words in ["97,524", "the text part of qwen3_5_moe", "passed over      23 tensors", "delta-net", "LoRA"] {
        assert!(text.contains(words), "no `{words}` in: {text}");
    }
    let settings = ["--set", "name=x", "--set", "dtype=f32", "--set", "max_shard_bytes=100000"];
    let arguments = ["export", "--model", golden, "--other-parts", golden, "--out", &path("whole")];
    let output = worldloom(&[&arguments[..], &settings[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let after = summary(&path("whole"));
    assert!(after["files"].as_u64().unwrap() > 3, "{after}");
    for key in ["parameters", "parts", "passed_over", "stored_as", "inside", "is_tied"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    refuses(&["inspect", "model", &path("nowhere")], 1, &["nowhere", "config.json"]);
    fs_err::write(path("cut.gguf"), "GGUF\u{3}").unwrap();
    refuses(&["import", "gguf", &path("cut.gguf"), "--out", &path("out")], 1, &["cut.gguf", "cut at byte 4"]);
    assert!(!folder.path().join("out").exists(), "a failed import must leave nothing");
}

/// Hashes of the trained weights below a runs folder, by step name.
fn weights(runs: &Path) -> Vec<(String, u64, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(runs.join("smoke")).unwrap() {
        let path = entry.unwrap().path();
        let file = path.join("model/model.safetensors");
        if file.exists() {
            let bytes = fs_err::read(&file).unwrap();
            found.push((path.file_name().unwrap().to_string_lossy().into_owned(), bytes.len() as u64, bytes));
        }
    }
    found.sort();
    found
}

/// `inspect shard` on the rows of the run: its figures are the report's, its trained stretches are answers.
fn rows_show_what_is_trained(runs: &Path) {
    let folder = |name: &str| {
        let found = fs_err::read_dir(runs.join("smoke")).unwrap().map(|entry| entry.unwrap().path());
        let mut found = found.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(name));
        found.next().unwrap()
    };
    for (name, start) in [("rows-cpt-", "**Environment Observation:**\n"), ("rows-sft-", "<think>\n")] {
        let rows = folder(name);
        let path = rows.to_string_lossy().into_owned();
        let print = |arguments: &[&str]| {
            let output = worldloom(&[&["inspect", "shard", &path], arguments].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let report = json(&fs_err::read_to_string(rows.join("report.json")).unwrap());
        let summary = json(&print(&["--json"]))["summary"].clone();
        assert_eq!(summary["weight_sum"], report["weight_sum"]);
        for count in ["rows", "tokens", "trained_tokens"] {
            assert_eq!(summary[count], report["counts"][count], "{count}");
        }
        assert_eq!(summary["parts"]["user"]["trained_tokens"], 0);
        let trained = print(&["--trained", "--rows", "3"]);
        assert!(trained.lines().count() > 3);
        for line in trained.lines() {
            let text = json(line)["text"].as_str().unwrap().to_string();
            assert!(text.starts_with(start) && text.ends_with("<|im_end|>"), "{text}");
        }
        assert!(print(&["--row", "0"]).contains("⟦"));
        let page = runs.join("rows.html").to_string_lossy().into_owned();
        print(&["--rows", "2", "--html", &page]);
        assert!(fs_err::read_to_string(&page).unwrap().contains("class=\"t"));
    }
    let other = folder("tokenizer-").to_string_lossy().into_owned();
    let prompts = folder("prompts-").to_string_lossy().into_owned();
    refuses(&["inspect", "shard", &prompts, "--tokenizer", &other], 2, &["no `*.shard` file"]);
}

#[test]
fn the_whole_road_runs_is_skipped_the_second_time_and_survives_kills() {
    let (straight, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runs = straight.path().to_string_lossy().into_owned();
    let output = worldloom(&["run", "pipelines/smoke.toml", "--runs", &runs]);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(output.status.success(), "{text}");
    for word in ["base", "cpt", "sft", "rl", "normalised", "report", "export"] {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    rows_show_what_is_trained(straight.path());
    let again = worldloom(&["run", "pipelines/smoke.toml", "--runs", &runs]);
    assert!(stderr(&again).contains("0 steps run"), "{}", stderr(&again));
    let plan = worldloom(&["plan", "pipelines/smoke.toml", "--runs", &runs, "--set", "cpt.seed=99"]);
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(plan.contains("seed 21 → 99") && plan.contains("input model"), "{plan}");

    let killed_runs = killed.path().to_string_lossy().into_owned();
    for milliseconds in [700, 1500, 2500, 3500] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
            .args(["run", "pipelines/smoke.toml", "--runs", &killed_runs])
            .current_dir(root())
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(milliseconds));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let output = worldloom(&["run", "pipelines/smoke.toml", "--runs", &killed_runs]);
    assert!(output.status.success(), "{}", stderr(&output));
    let (expected, found) = (weights(straight.path()), weights(killed.path()));
    assert_eq!(expected.len(), 3, "cpt, sft and rl");
    assert!(expected == found, "killed and rerun must give the same weights bit for bit");
}
