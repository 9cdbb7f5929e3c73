//! What is said to the program that runs the parts of a cluster, and what is made of its answers. The cluster itself is
//! tested by that program (`just test-cluster`).

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{root, stderr};

const LOG: &str = r#"{"messages": [{"role": "user", "content": "List the files."}, {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "notes.txt"}]}"#;

/// The program in a folder of its own, where another can lie beside it.
struct Alone {
    folder: tempfile::TempDir,
}

impl Alone {
    fn new() -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs_err::hard_link(env!("CARGO_BIN_EXE_worldloom"), folder.path().join("worldloom")).unwrap();
        fs_err::write(folder.path().join("log.jsonl"), LOG).unwrap();
        let alone = Self { folder };
        let output = alone.run(&["ingest", "log.jsonl", "--out", "ingested"]);
        assert!(output.status.success(), "{}", stderr(&output));
        alone
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut program = Command::new(self.path().join("worldloom"));
        program.args(arguments).current_dir(self.path()).env("PATH", "/usr/bin:/bin").output().unwrap()
    }

    /// Curates with a program beside ours that is these lines of shell.
    fn curate(&self, script: Option<&str>) -> Output {
        let beside = self.path().join("worldloom-cluster");
        if let Some(script) = script {
            fs_err::write(&beside, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs_err::set_permissions(&beside, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        }
        let config = root().join("configs/curate/full.toml");
        let config = config.to_string_lossy();
        let (input, output) = (["--trajectories", "ingested"], ["--out", "pools"]);
        let cluster = ["--cluster", "ballista://node-1:50050"];
        self.run(&[&["curate", "--config", &config][..], &input, &output, &cluster].concat())
    }
}

#[test]
fn a_curation_on_a_cluster_is_the_job_of_the_other_program() {
    let alone = Alone::new();
    let missing = stderr(&alone.curate(None));
    assert!(missing.contains("`worldloom-cluster` is neither beside this program nor on the search path"), "{missing}");
    assert!(missing.contains("hint: build it with `cargo install --path cluster`"), "{missing}");

    let failed = alone.curate(Some(
        r#"cat > "$0.$1"; echo '{"progress": {"done": 1, "total": 2}}'; echo '{"failed": {"error": "no scheduler", "hint": "start one"}}'"#,
    ));
    assert_eq!(failed.status.code(), Some(2));
    let text = stderr(&failed);
    assert!(text.contains("error: no scheduler\nhint: start one\n"), "{text}");
    let job = fs_err::read_to_string(alone.path().join("worldloom-cluster.curate")).unwrap();
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    assert_eq!(job["address"], "ballista://node-1:50050");
    assert_eq!(job["trajectories"][0], "ingested/trajectories.parquet");
    assert_eq!((&job["out"], &job["documents"]), (&"pools".into(), &serde_json::json!([])));
    assert!(job["config"]["near_duplicates"].is_object(), "{job}");
    assert!(!alone.path().join("pools").exists(), "a failed step must leave nothing");

    let killed = stderr(&alone.curate(Some("cat > /dev/null; exit 7")));
    assert!(killed.contains("worldloom-cluster ended before the curation did: exit status: 7"), "{killed}");
}

#[test]
fn worker_and_scheduler_are_the_other_program_with_its_options() {
    let alone = Alone::new();
    alone.curate(Some(r#"echo "$@"; exit 3"#));
    for arguments in [&["worker", "--cluster", "ballista://n:1", "--threads", "2"][..], &["scheduler", "--help"]] {
        let output = alone.run(arguments);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), arguments.join(" "));
    }
    let output = alone.run(&["-v", "worker", "--cluster", "ballista://n:1"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), "worker -v --cluster ballista://n:1");
}
