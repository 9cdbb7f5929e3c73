//! RL's rollouts from the program itself, from its own server, from another run; and judges calibrated on an evaluation.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{artifact, made, refuses, root, run_before, succeeds};

const CONFIG: &str = r#"
[scorer]
rule = "next_state"
[train]
steps = 2
prompts_per_step = 2
group_size = 4
mini_batches = 1
rows_per_micro_batch = 32
max_completion_tokens = 24
max_fault_share_at_start = 1.0
temperature = 1.0
seed = 41
normalisation = "group"
truth_nll = 0.1
optimizer = { learning_rate = 1e-4, weight_decay = 0.0, clip_norm = 1.0 }
schedule = { shape = "constant", warmup_steps = 0 }
checkpoints = { every = 1, keep = 2 }
"#;

/// Ended with the test, however that ends.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `worldloom serve` of a model, and the address it says.
fn serve(model: &str) -> (Served, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_worldloom"))
        .args(["serve", "--model", model, "--name", "base", "--port", "0"])
        .current_dir(root())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().rsplit_once(' ').map(|(_, address)| address.to_string());
    (Served(child), address.unwrap_or_else(|| panic!("no address in `{line}`")))
}

fn last_metrics(run: &str) -> serde_json::Value {
    let text = fs_err::read_to_string(Path::new(run).join("metrics.jsonl")).unwrap();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

#[test]
fn rollouts_come_from_the_policy_a_server_of_ours_or_another_run_and_judges_are_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    run_before("cpt", folder.path());
    let runs = folder.path().join("runs");
    let (model, prompts, pools) = (made(&runs, "base"), made(&runs, "prompts"), made(&runs, "curate"));
    let config = path("rl.toml");
    fs_err::write(&config, CONFIG).unwrap();
    let train = ["train", "rl", "--config", &config, "--model", &model, "--prompts", &prompts];
    let with = |more: &[&str]| [&train[..], more].concat().into_iter().map(String::from).collect::<Vec<String>>();
    let run = |more: &[&str]| succeeds(&with(more).iter().map(String::as_str).collect::<Vec<_>>());

    // Its own rollouts again: the same model.
    run(&["--out", &path("sampled")]);
    run(&["--out", &path("replayed"), "--from-rollouts", &path("sampled")]);
    let weights = |name: &str| fs_err::read(folder.path().join(name).join("model/model.safetensors")).unwrap();
    assert!(weights("replayed") == weights("sampled"), "a run on its own rollouts ends with other weights");
    let longer = with(&["--out", &path("longer"), "--from-rollouts", &path("sampled"), "--set", "train.steps=3"]);
    refuses(
        &longer.iter().map(String::as_str).collect::<Vec<_>>(),
        1,
        &["`steps`: 3, but there are rollouts of 2 steps"],
    );

    // Token ids and log-probs over the wire are those of the trainer.
    let (_served, address) = serve(&model);
    let endpoint = format!("sampler={{ endpoint = {{ url = \"{address}/v1\", model = \"base\" }} }}");
    run(&["--out", &path("served"), "--set", &endpoint, "--set", "train.steps=1"]);
    let metrics = last_metrics(&path("served"));
    let gap = metrics["sampler_gap"].as_f64().unwrap();
    assert!(gap <= 1e-4 && metrics["completions"] == 8, "{metrics}");

    // Two judges that are one agree.
    let evaluation = path("evaluation");
    let settings = ["seed=1", "family=compact", "max_turns=12", "max_new_tokens=4"];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    let evaluate = ["evaluate", "pool", "--pools", &pools, "--base", &model, "--out", &evaluation];
    succeeds(&evaluate.into_iter().chain(settings).collect::<Vec<_>>());
    let judges = path("judges.toml");
    fs_err::write(&judges, "seed = 1\n[judges.one]\nkind = \"builtin\"\n[judges.other]\nkind = \"builtin\"\n").unwrap();
    let out = path("calibrated");
    let calibrate = ["judge", "calibrate", "--config", &judges, "--pools", &pools, "--evaluation", &evaluation];
    let printed = succeeds(&[&calibrate[..], &["--out", &out]].concat());
    assert!(printed.contains("one and other rank predictions alike by 1.00 (1.00 to 1.00)"), "{printed}");
    assert!(artifact(&runs, "curate").exists() && Path::new(&out).join("calibration.json").exists());
}
