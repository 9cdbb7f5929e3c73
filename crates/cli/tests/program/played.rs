//! A model that learned nothing, played and scored: what is checked first, what is kept, what is run for real.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use worldloom_judge::endpoint::scripted::{Answer, Server};

use crate::support::{artifact, made, refuses, root, run_before, stderr, succeeds, worldloom};

/// A folder with an untrained model and an evaluation pool.
fn made_ready(folder: &Path) -> (String, String) {
    run_before("cpt", folder);
    let runs = folder.join("runs");
    let pool = artifact(&runs, "curate").join("eval.parquet").to_string_lossy().into_owned();
    (made(&runs, "base"), pool)
}

#[test]
fn a_model_is_scored_played_and_laid_beside_a_real_shell() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (model, pool) = made_ready(folder.path());
    the_judge_is_looked_at_before_the_model_works_and_steps_need_only_their_files(&path, &model, &pool);
    an_episode_is_saved_however_it_ends(&path, &model);
    scripts_are_played_inside_the_model_and_run_in_a_real_shell(&path, &model);
}

fn joined<'a>(first: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [first, more].concat()
}

fn the_judge_is_looked_at_before_the_model_works_and_steps_need_only_their_files(
    path: &dyn Fn(&str) -> String,
    model: &str,
    pool: &str,
) {
    let (rows, out) = (path("rows"), path("bench"));
    succeeds(&["bench-rows", "--pool", pool, "--out", &rows, "--limit", "2"]);
    let bench = ["evaluate", "bench", "--out", &out];
    let infer = ["--rows", &rows, "--model", model, "--max-tokens", "8"];
    let asked = [&bench[..], &infer[..]].concat();
    refuses(&joined(&asked, &["--judge", "http://127.0.0.1:9/v1"]), 2, &["--judge-model is missing"]);
    refuses(&joined(&asked, &[]), 2, &["--judge is missing"]);
    let unset = ["--judge", "http://127.0.0.1:9/v1", "--judge-model", "m", "--judge-key-env", "NO_SUCH_VARIABLE"];
    refuses(&joined(&asked, &unset), 2, &["NO_SUCH_VARIABLE"]);
    refuses(&joined(&bench, &["--judge", "builtin", "--model", model]), 2, &["--rows is missing"]);
    assert!(!Path::new(&path("bench/predictions.jsonl")).exists(), "nothing was asked of the model");
    let first = worldloom(&joined(&asked, &["--step", "infer"]));
    assert!(stderr(&first).contains("infer: done 2"), "{}", stderr(&first));
    let again = worldloom(&joined(&asked, &["--step", "infer"]));
    assert!(stderr(&again).contains("infer: had_before 2"), "{}", stderr(&again));
    let rounded = worldloom(&joined(&asked, &["--step", "infer", "--precision", "bf16"]));
    assert!(stderr(&rounded).contains("infer: done 2"), "another precision is another answer: {}", stderr(&rounded));
    succeeds(&joined(&bench, &["--step", "judge", "--judge", "builtin"]));
    let table = succeeds(&joined(&bench, &["--step", "score"]));
    assert!(table.contains("Total samples: 2"), "{table}");
    let scores: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(path("bench/scores.json")).unwrap()).unwrap();
    for key in ["macro_interval", "failures_as_0_pooled_interval", "failures_as_0_macro_interval"] {
        assert!(scores[key].is_object(), "{key}: {scores}");
    }
    assert!(scores["macro_scores"]["factuality"].is_number(), "{scores}");
}

fn an_episode_is_saved_however_it_ends(path: &dyn Fn(&str) -> String, model: &str) {
    let saved = path("episode.jsonl");
    let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
        .args(["simulate", "--model", model, "--plain", "--temperature", "1", "--attempts", "60"])
        .args(["--max-new-tokens", "256", "--save", &saved])
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"pwd\n:undu\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let log = stderr(&output);
    assert!(!output.status.success() && log.contains("did you mean `:undo`?"), "{log}");
    let episode: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(&saved).unwrap()).unwrap();
    assert_eq!(episode["turns"][0]["action"], "pwd", "{log}");
}

fn scripts_are_played_inside_the_model_and_run_in_a_real_shell(path: &dyn Fn(&str) -> String, model: &str) {
    let horizon = ["evaluate", "horizon", "--live", "--model", model, "--plain", "--max-new-tokens", "6"];
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs_err::read_to_string(path(name)).unwrap()).unwrap()
    };
    let policy = ["--episodes", "3", "--seed", "5", "--out", &path("live.json")];
    let printed = succeeds(&[&horizon[..], &policy].concat());
    assert!(printed.contains("steps that agree"), "{printed}");
    let found = read("live.json");
    let scripts = found["scripts"].as_array().unwrap();
    assert_eq!((scripts.len(), &found["episodes"]), (3, &serde_json::json!(3)));
    for (script, played) in scripts.iter().zip(found["played"].as_array().unwrap()) {
        let (steps, agrees) = (script.as_array().unwrap(), played["agrees"].as_array().unwrap());
        assert_eq!(steps.len(), agrees.len());
        assert!(steps.iter().all(|step| step["real"].is_string()), "every command was run: {script}");
    }

    // An agent that types two commands and is done, whatever it sees.
    let agent = Server::start(|seen| {
        let said = seen.body["messages"].as_array().unwrap().iter();
        Answer::chat(match said.filter(|message| message["role"] == "assistant").count() {
            0 => "echo fig > f",
            1 => "{\"name\": \"bash\", \"arguments\": {\"command\": \"cat f\"}}",
            _ => "DONE",
        })
    });
    let agent = agent.unwrap();
    let url = agent.config("m").url;
    let asked = ["--agent", &url, "--agent-model", "m", "--as-me", "--episodes", "1", "--out", &path("agent.json")];
    succeeds(&[&horizon[..], &asked].concat());
    let steps = read("agent.json")["scripts"][0].clone();
    let of = |step: &serde_json::Value| (step["action"].clone(), step["real"].clone());
    let steps: Vec<_> = steps.as_array().unwrap().iter().map(of).collect();
    assert_eq!(steps, [("echo fig > f".into(), "".into()), ("cat f".into(), "fig\n".into())]);
    refuses(&["evaluate", "horizon", "--model", model, "--live", "--pool", "x"], 2, &["--live"]);
}
