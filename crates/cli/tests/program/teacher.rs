//! `instruct` and `trace` as commands: pools in, pools out, which `render` takes.

use std::path::Path;

use serde_json::{Value, json};
use worldloom_judge::endpoint::scripted::{Answer, Server};
use worldloom_schema::{Trajectory, read_table};

use crate::support::{made, run_before, stderr, succeeds, worldloom};

/// A teacher that says of every turn that it answers as a shell would.
fn teacher() -> Server {
    Server::start(|seen| {
        let messages = seen.body["messages"].as_array().unwrap();
        let question: Value = serde_json::from_str(messages[1]["content"].as_str().unwrap()).unwrap();
        let turns = question["turns"].as_array().unwrap();
        let said = turns.iter().map(|turn| json!({"turn": turn["turn"], "instruction": "Answer as a shell would."}));
        Answer::chat(&json!({"instructions": said.collect::<Vec<_>>()}).to_string())
    })
    .unwrap()
}

#[test]
fn pools_are_instructed_and_traced_and_rendered() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    run_before("rows-cpt", folder.path());
    let runs = folder.path().join("runs");
    let (pools, tokenizer, server) = (made(&runs, "curate"), made(&runs, "tokenizer"), teacher());
    let endpoint = format!("{{ url = \"{}\", model = \"t\", attempts = 1 }}", server.url());
    let teacher = format!("[teacher]\nkind = \"http\"\nendpoint = {endpoint}\n");

    fs_err::write(path("instruct.toml"), format!("pools = [\"sft\"]\nshare = 0.02\nseed = 5\n{teacher}")).unwrap();
    let (config, instructed) = (path("instruct.toml"), path("instructed"));
    let arguments = ["instruct", "--pools", &pools, "--config", &config, "--out", &instructed];
    assert!(succeeds(&arguments).contains("trajectories have an instruction now"));
    let asked = server.seen().len();
    let read = |folder: &str| read_table::<Trajectory>(&Path::new(folder).join("sft.parquet")).unwrap();
    let has = |trajectory: &&Trajectory| trajectory.system.simulation_instruction.is_some();
    let (old, new) = (read(&pools), read(&instructed));
    assert_eq!(new.iter().filter(has).count(), asked);
    assert!(asked > 0 && asked * 10 < new.len(), "{asked} of {}", new.len());
    assert!(old.iter().zip(&new).all(|(old, new)| old.turns == new.turns), "only instructions are written");
    let same = |name: &str| {
        fs_err::read(Path::new(&pools).join(name)).unwrap() == fs_err::read(Path::new(&instructed).join(name)).unwrap()
    };
    assert!(["cpt.parquet", "rl.parquet", "eval.parquet"].into_iter().all(same), "other pools come along");
    assert!(stderr(&worldloom(&arguments)).contains("is done already"));

    // The sample's turns have notes: there is nothing to ask about.
    fs_err::write(path("trace.toml"), format!("min_score = 4.0\n{teacher}")).unwrap();
    let (config, traced) = (path("trace.toml"), path("traced"));
    let said = succeeds(&["trace", "--pools", &instructed, "--config", &config, "--out", &traced]);
    assert!(said.contains("had_before") && said.contains("0 of        0 queries"), "{said}");
    assert_eq!(server.seen().len(), asked);
    assert_eq!(read(&traced), new);

    let render = ["render", "--pools", &traced, "--tokenizer", &tokenizer, "--out", &path("rows")];
    let settings = [
        "stage=sft",
        "family=compact",
        "versions=[2]",
        "row_tokens=1024",
        "long=drop",
        "pack=true",
        "seed=1",
        "max_empty_share=0",
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    succeeds(&[&render[..], &settings].concat());
    let trained = succeeds(&["inspect", "shard", &path("rows"), "--rows", "400"]);
    assert!(trained.contains("Answer as a shell would."));

    drop(server);
    fs_err::write(path("instruct.toml"), format!("pools = [\"rl\"]\nshare = 0.01\nseed = 5\n{teacher}")).unwrap();
    let out = path("nobody");
    let output = worldloom(&["instruct", "--pools", &pools, "--config", &path("instruct.toml"), "--out", &out]);
    let text = stderr(&output);
    assert!(!output.status.success() && text.contains("have no answer of teacher or judge"), "{text}");
    assert!(!Path::new(&out).join("manifest.json").exists());
}
