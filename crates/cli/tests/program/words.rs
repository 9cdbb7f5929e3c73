//! What is said without training anything: help, mistakes, plans, pages.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{refuses, root, stderr, succeeds, worldloom};

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
        "simulate",
        "serve",
        "doctor",
        "worker",
        "scheduler",
        "bench-rows",
        "Exit codes",
    ] {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    for command in [
        vec!["train", "rl", "--help"],
        vec!["ingest", "--help"],
        vec!["record", "terminal", "--help"],
        vec!["evaluate", "bench", "--help"],
    ] {
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
fn the_doctor_tests_the_device_and_names_an_endpoint_that_does_not_answer() {
    let found = succeeds(&["doctor", "--json", "--device", "cpu"]);
    let found: serde_json::Value = serde_json::from_str(&found).unwrap();
    let tests = found["self_tests"].as_array().unwrap();
    assert!(tests.len() >= 10 && tests.iter().all(|test| test["passes"] == true), "{found}");
    assert_eq!(found["faults"], serde_json::json!([]));
    assert!(succeeds(&["doctor", "--device", "cpu"]).contains("verdict"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("judged.toml");
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = fs_err::read_to_string(root().join("configs/trace/teacher.toml")).unwrap();
    fs_err::write(folder.path().join("teacher.toml"), text.replace("127.0.0.1:8001", &format!("127.0.0.1:{port}")))
        .unwrap();
    let step = "[[step]]\nname = \"notes\"\nuses = \"trace\"\nconfig_file = \"teacher.toml\"\ninputs = { pools = \"nowhere\" }\n";
    fs_err::write(&file, format!("name = \"judged\"\n{step}")).unwrap();
    refuses(
        &["doctor", "--device", "cpu", &file.to_string_lossy()],
        1,
        &["step `notes`", &port.to_string(), "does not answer"],
    );
}

#[test]
fn a_device_is_refused_before_anything_runs() {
    let out = tempfile::tempdir().unwrap();
    let runs = out.path().join("runs").to_string_lossy().into_owned();
    refuses(&["plan", "pipelines/smoke.toml", "--device", "gpu"], 2, &["`gpu`, expected cpu, wgpu"]);
    refuses(&["serve", "--model", "m", "--device", "wgpu"], 2, &["`serve` computes on the CPU", "hint: leave it out"]);
    let words = ["there is no metal device", "built without `metal`"];
    let output = worldloom(&["run", "pipelines/smoke.toml", "--runs", &runs, "--device", "metal"]);
    let text = stderr(&output);
    assert!(words.iter().any(|word| text.contains(word)) && text.contains("step `cpt`"), "{text}");
    assert_eq!(output.status.code(), Some(2));
    assert!(!out.path().join("runs").exists(), "nothing was made");
}

#[test]
fn a_reader_that_goes_away_ends_the_program_without_a_word() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
        .args(["plan", "pipelines/agentworld-35b.toml", "--runs", "nowhere"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(141), ""));
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
        // Shapes of published models are read by the plans above.
        if stage == "models" {
            continue;
        }
        let command = if stage == "cpt" { vec!["train", "cpt"] } else { vec![stage.as_str()] };
        for file in fs_err::read_dir(&folder).unwrap() {
            let file = file.unwrap().path().to_string_lossy().into_owned();
            let output = worldloom(&[&command[..], &["--config", &file, "--dry-run"]].concat());
            assert!(output.status.success(), "{file}: {}", stderr(&output));
        }
    }
}

#[test]
fn a_plan_until_a_step_has_what_it_is_made_from_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_string_lossy().into_owned();
    let output = worldloom(&["plan", "pipelines/quickstart.toml", "--runs", &runs, "--until", "rows-sft"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let steps: Vec<&str> = text.lines().filter(|line| line.contains("runs:")).map(|line| &line[2..10]).collect();
    assert_eq!(steps.iter().map(|name| name.trim()).collect::<Vec<_>>(), ["ingest", "curate", "tokenize", "rows-sft"]);
    refuses(&["plan", "pipelines/quickstart.toml", "--until", "row-sft"], 2, &["no step `row-sft`", "`rows-sft`"]);
}

#[test]
fn the_recipe_is_planned_with_steps_and_memory_before_anything_is_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_string_lossy().into_owned();
    for (pipeline, words) in [
        (
            "agentworld-35b",
            [
                "440 steps",
                "Qwen3.5-35B-A3B-Base` is not there",
                "× up to",
                "blocks computed again",
                "weights 129.12 GiB",
            ],
        ),
        (
            "qwen3-0.6b",
            ["steps", "Qwen3-0.6B-Base` is not there", "× up to", "blocks computed again", "weights 2.22 GiB"],
        ),
    ] {
        let output = worldloom(&["plan", &format!("pipelines/{pipeline}.toml"), "--runs", &runs]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(text.matches("memory about").count(), 3, "{text}");
        for word in words {
            assert!(text.contains(word), "no `{word}` in {text}");
        }
        let file = fs_err::read_to_string(root().join(format!("pipelines/{pipeline}.toml"))).unwrap();
        let guesses: Vec<&str> =
            file.lines().filter(|line| line.contains("# inferred") && !line.starts_with("#")).collect();
        assert!(guesses.len() >= 8, "guesses are marked: {guesses:#?}");
        for guess in guesses {
            assert!(guess.contains("§7"), "a guess names its row of the recipe's section 7: {guess}");
        }
    }
}

#[test]
fn the_report_of_one_run_is_a_page_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("cpt");
    fs_err::create_dir_all(&run).unwrap();
    let path = run.to_string_lossy().into_owned();
    refuses(&["report", &path], 2, &["neither `metrics.jsonl`", "hint:"]);
    let line = |step: u64| format!("{{\"step\":{step},\"loss\":{},\"grad_norm\":1.0}}\n", 3.0 / step as f64);
    fs_err::write(run.join("metrics.jsonl"), (1..=9).map(line).collect::<String>()).unwrap();
    fs_err::write(run.join("report.json"), "{\"counts\": {\"steps\": 9}}").unwrap();
    for given in [run.as_path(), folder.path()] {
        let output = worldloom(&["report", &given.to_string_lossy()]);
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(String::from_utf8_lossy(&output.stdout).contains("0.3333"));
        let page = fs_err::read_to_string(given.join("report.html")).unwrap();
        assert!(page.contains("cpt: loss") && page.contains("cpt: gradient norm"), "{page}");
    }
    assert!(fs_err::read_to_string(run.join("report.json")).unwrap().contains("\"steps\": 9"), "the run's own stays");
}

#[test]
fn the_reward_ablation_loads_with_all_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().display().to_string();
    let output = worldloom(&["plan", "pipelines/reward-ablation.toml", "--runs", &runs]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    for step in ["verifiers", "rl-mixed", "rl-rule", "rl-rubric", "rl-data", "evaluate-data"] {
        assert!(text.contains(step), "{step} in {text}");
    }
}
