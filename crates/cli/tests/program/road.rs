//! Trainings and the whole road: signals, kills, and what can be done with what came out.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{artifact, made, refuses, root, run_before, stderr, succeeds, worldloom};

/// Rows rendered from a few recorded episodes and an untrained model for them.
fn small_training(folder: &Path) -> (String, String) {
    run_before("cpt", folder);
    let runs = folder.join("runs");
    (made(&runs, "base"), made(&runs, "rows-cpt"))
}

const TRAINING: &str = "steps = 400\nrows_per_step = 2\nrows_per_micro_batch = 2\nseed = 1\n\
    optimizer = { learning_rate = 1e-3, weight_decay = 0.1, clip_norm = 1.0 }\n\
    schedule = { shape = \"constant\", warmup_steps = 2 }\ncheckpoints = { every = 100, keep = 1 }\n\
    validation = { every = 2, held_out_rows = 4 }\n";

#[test]
fn a_signal_saves_and_ends_with_its_own_code_and_the_run_shows_domains_lineage_and_events() {
    let folder = tempfile::tempdir().unwrap();
    let (model, rows) = small_training(folder.path());
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    fs_err::write(path("train.toml"), TRAINING).unwrap();
    let out = path("out");
    let arguments =
        ["train", "cpt", "--config", &path("train.toml"), "--model", &model, "--rows", &rows, "--out", &out];
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let before =
            fs_err::read_to_string(folder.path().join("out/metrics.jsonl")).map_or(0, |text| text.lines().count());
        let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
            .args(arguments)
            .current_dir(root())
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        // Until it has trained a few steps more.
        loop {
            let lines =
                fs_err::read_to_string(folder.path().join("out/metrics.jsonl")).map_or(0, |text| text.lines().count());
            if lines > before + 4 {
                break;
            }
            assert!(child.try_wait().unwrap().is_none(), "ended before it was stopped");
            std::thread::sleep(Duration::from_millis(20));
        }
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains("its checkpoint is saved") && text.contains("memory: about"), "{text}");
    }
    let lines = fs_err::read_to_string(folder.path().join("out/metrics.jsonl")).unwrap();
    let steps: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(steps.iter().enumerate().all(|(at, line)| line["step"] == at as u64 + 1), "every step once");
    let validation = &steps[1]["validation"];
    assert!(validation["domains"]["terminal"]["loss"].as_f64().is_some(), "{validation}");
    let bits = validation["bits_per_byte"].as_f64().unwrap();
    assert!(bits > 0.5 && bits < 20.0, "{bits} bits per byte of an untrained model");
    let checkpoint = fs_err::read_dir(folder.path().join("out/checkpoints")).unwrap().next().unwrap().unwrap().path();
    let lineage: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(checkpoint.join("lineage.json")).unwrap()).unwrap();
    let rows = &lineage["inputs"]["rows"];
    assert_eq!((&rows["kind"], &rows["config"]["stage"]), (&"rendered".into(), &"cpt".into()), "{lineage}");
    assert!(rows["inputs"]["tokenizer"]["tokenizer.json"].is_string(), "{lineage}");
    assert_eq!(rows["inputs"]["pools"]["inputs"]["trajectories"]["kind"], "trajectories");
    assert!(folder.path().join("out/tensorboard/events.out.tfevents.worldloom").exists());
}

#[test]
fn the_first_signal_ends_a_step_that_has_nothing_to_save_and_leaves_no_artifact() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("logs.jsonl.zst").to_string_lossy().into_owned();
    let arguments = ["record", "terminal", "--episodes", "100000", "--seed", "1", "--out", &out];
    let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
        .args(arguments)
        .current_dir(root())
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().unwrap().is_none(), "ended before it was stopped");
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!Path::new(&out).exists());
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

/// The program with text on its stdin: success, stdout and stderr.
fn worldloom_reading(input: &str, arguments: &[&str]) -> (bool, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
        .args(arguments)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned(), stderr(&output))
}

/// The commands that take a trained model, on one that learned nothing.
fn what_came_out_is_played_served_and_scored(runs: &Path) {
    let path = |name: &str| runs.join(name).to_string_lossy().into_owned();
    let model = artifact(runs, "export").to_string_lossy().into_owned();
    let pool = artifact(runs, "curate").join("eval.parquet").to_string_lossy().into_owned();

    let play = ["simulate", "--model", &model, "--plain", "--max-new-tokens", "20"];
    let (succeeded, _, log) =
        worldloom_reading("pwd\n:undo\n:control \"the disk is full\"\n:multi\nls\npwd\n.\n:quit\n", &play);
    assert!(succeeded && log.contains("control: the disk is full"), "{log}");
    let (succeeded, _, log) = worldloom_reading("pwd\n:undu\n", &play);
    assert!(!succeeded && log.contains("did you mean `:undo`?"), "{log}");

    let rows = path("rows");
    let output = worldloom(&["bench-rows", "--pool", &pool, "--out", &rows, "--limit", "4"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let bench =
        ["evaluate", "bench", "--rows", &rows, "--out", &path("bench"), "--model", &model, "--judge", "builtin"];
    let bench = [&bench[..], &["--max-tokens", "20"]].concat();
    let first = worldloom(&bench);
    let table = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(table.contains("Total samples: 4") && table.contains("no score of the benchmark"), "{}", stderr(&first));
    assert!(stderr(&first).contains("infer: done 4"), "{}", stderr(&first));
    let second = worldloom(&bench);
    assert!(stderr(&second).contains("infer: had_before 4"), "{}", stderr(&second));
    assert_eq!(String::from_utf8_lossy(&second.stdout), table);
    let scores = fs_err::read_to_string(path("bench/scores.json")).unwrap();
    assert_eq!(serde_json::from_str::<serde_json::Value>(&scores).unwrap()["total"], 4);

    let horizon = [
        "evaluate",
        "horizon",
        "--model",
        &model,
        "--plain",
        "--pool",
        &pool,
        "--episodes",
        "3",
        "--max-new-tokens",
        "9",
    ];
    let output = worldloom(&horizon);
    assert!(String::from_utf8_lossy(&output.stdout).contains("steps that agree"), "{}", stderr(&output));

    let call = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;
    let listed = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"tools/list\"}";
    let (succeeded, out, log) =
        worldloom_reading(&format!("{call}\n{listed}\n"), &["serve", "--model", &model, "--mcp"]);
    assert!(succeeded && out.contains("\"predict\""), "{out}{log}");
    refuses(&["serve", "--model", &model, "--host", "0.0.0.0"], 2, &["no key is set", "--no-key"]);
}

/// `inspect shard` on the rows of the run: its figures are the report's, its trained stretches are answers.
fn rows_show_what_is_trained(runs: &Path) {
    for (name, start) in [("rows-cpt", "**Environment Observation:**\n"), ("rows-sft", "<think>\n")] {
        let rows = artifact(runs, name);
        let path = rows.to_string_lossy().into_owned();
        let print = |arguments: &[&str]| {
            let output = worldloom(&[&["inspect", "shard", &path], arguments].concat());
            assert!(output.status.success(), "{}", stderr(&output));
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        let report = json(&fs_err::read_to_string(rows.join("report.json")).unwrap());
        // Ordinary packing of whole trajectories wastes 1.7 %; bundles of targets around one history, 4.2 %: what is left
        // over where most documents are about half a row.
        let most = if name == "rows-cpt" { 0.02 } else { 0.05 };
        assert!(report["waste"].as_f64().unwrap() < most, "{name}: {}", report["waste"]);
        let summary = json(&print(&["--json"]))["summary"].clone();
        assert_eq!(summary["weight_sum"], report["weight_sum"]);
        for count in ["rows", "tokens", "trained_tokens"] {
            assert_eq!(summary[count], report["counts"][count], "{count}");
        }
        assert_eq!(summary["parts"]["user"]["trained_tokens"], 0);
        let reasons = summary["reasons"].as_object().unwrap();
        let sum = |key: &str| reasons.values().map(|why| why[key].as_f64().unwrap()).sum::<f64>();
        assert_eq!(
            (sum("tokens"), sum("weight_sum")),
            (summary["tokens"].as_f64().unwrap(), report["weight_sum"].as_f64().unwrap())
        );
        for reason in ["observation", "stop"] {
            assert_eq!(reasons[reason]["tokens"].as_f64(), reasons[reason]["weight_sum"].as_f64(), "{reason}");
        }
        assert_eq!(reasons["prompt"]["weight_sum"], 0.0);
        let explained = print(&["--reasons"]);
        assert!(
            explained.contains("\nobservation     1 ") && explained.contains("\nprompt          0 "),
            "{explained}"
        );
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
    let other = artifact(runs, "tokenizer").to_string_lossy().into_owned();
    let prompts = artifact(runs, "prompts").to_string_lossy().into_owned();
    refuses(&["inspect", "shard", &prompts, "--tokenizer", &other], 2, &["no `*.shard` file"]);
    let rows = artifact(runs, "rows-cpt").to_string_lossy().into_owned();
    let foreign = root().join("crates/render/tests/golden/tokenizer.json").to_string_lossy().into_owned();
    let words = ["has hash ", "the rows were made with ", "hint: give the folder of that tokenizer"];
    refuses(&["inspect", "shard", &rows, "--tokenizer", &foreign], 2, &words);
    let shown = succeeds(&["inspect", "shard", &rows]);
    for title in ["tokens of a document before it is cut\nup to ", "tokens that a long document lost\nup to "] {
        assert!(shown.contains(title), "no `{title}` in: {shown}");
    }
}

#[test]
fn the_whole_road_runs_is_skipped_the_second_time_and_survives_kills() {
    let (straight, killed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let runs = straight.path().to_string_lossy().into_owned();
    let output = worldloom(&["run", "pipelines/smoke.toml", "--runs", &runs]);
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
    assert!(output.status.success(), "{text}");
    let summaries = ["bytes a token", "lost tokens  waste", "tokens of a document before it is cut"];
    for word in ["base", "cpt", "sft", "rl", "normalised", "report", "export"].into_iter().chain(summaries) {
        assert!(text.contains(word), "no `{word}` in: {text}");
    }
    rows_show_what_is_trained(straight.path());
    let again = worldloom(&["run", "pipelines/smoke.toml", "--runs", &runs]);
    assert!(stderr(&again).contains("0 steps run"), "{}", stderr(&again));
    let plan = worldloom(&["plan", "pipelines/smoke.toml", "--runs", &runs, "--set", "cpt.seed=99"]);
    let plan = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(plan.contains("seed 21 → 99") && plan.contains("input model"), "{plan}");

    what_came_out_is_played_served_and_scored(straight.path());

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

/// Takes minutes on a driver that computes on the CPU: `just test-wgpu` asks for it.
#[test]
fn a_short_road_trains_on_a_device() {
    if std::env::var("WORLDLOOM_DEVICE_TESTS").is_err() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_string_lossy().into_owned();
    let mut arguments = vec!["run", "pipelines/smoke.toml", "--until", "rl", "--runs", &runs, "--device", "wgpu"];
    for setting in ["cpt.steps=3", "sft.steps=2", "rl.train.steps=1", "rl.train.rows_per_micro_batch=4"] {
        arguments.extend(["--set", setting]);
    }
    let output = worldloom(&arguments);
    let told = stderr(&output);
    assert!(output.status.success(), "{told}");
    assert_eq!(told.matches("device wgpu: computes rightly").count(), 3, "{told}");
    for step in ["cpt", "sft", "rl"] {
        let folder = artifact(folder.path(), step);
        let manifest = fs_err::read_to_string(folder.join("manifest.json")).unwrap();
        assert!(manifest.contains("\"device\": \"wgpu\""), "{manifest}");
        for line in fs_err::read_to_string(folder.join("metrics.jsonl")).unwrap().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(line["loss"].as_f64().unwrap().is_finite(), "{line}");
        }
    }
}
