//! `inspect` as a person and a script use it, over what `ingest` wrote.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::{Command, Output};

fn worldloom(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_worldloom")).args(arguments).current_dir(folder).output().unwrap()
}

fn stdout(folder: &Path, arguments: &[&str]) -> String {
    let output = worldloom(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A folder with `real`, two trajectories of two sources.
fn ingested() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let phone = r#"{"goal": "Open the clock.", "step_records": [{"state": {"ui_elements": [{"text": "Clock"}]}, "action": "Action: {\"action_type\": \"click\", \"index\": 0}"}], "final_state": {"ui_elements": [{"text": "12:00"}]}}"#;
    let shell = r#"{"messages": [{"role": "user", "content": "List it."}, {"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "figs"}]}"#;
    for (name, text) in [("in/phones/a.json", phone), ("in/shells/b.json", shell)] {
        let path = folder.path().join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }
    stdout(folder.path(), &["ingest", "in", "--out", "real", "--set", "max_reject_share=0", "--set", "strict=true"]);
    folder
}

#[test]
fn json_is_one_trajectory_a_line_and_filters_hold() {
    let folder = ingested();
    let lines = |arguments: &[&str]| {
        let all = [&["inspect", "data", "real", "--json"], arguments].concat();
        let text = stdout(folder.path(), &all);
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        text.lines().map(|line| parse(line)["source"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(lines(&[]), ["phones", "shells"]);
    assert_eq!(lines(&["--domain", "android"]), ["phones"]);
    assert_eq!(lines(&["--source", "shells", "--text", "FIGS"]), ["shells"]);
    assert_eq!(lines(&["--limit", "1"]), ["phones"]);
    assert_eq!(lines(&["--pool", "eval"]), [""; 0]);
}

#[test]
fn stats_are_a_table_or_json() {
    let folder = ingested();
    let table = stdout(folder.path(), &["inspect", "stats", "real"]);
    assert!(table.contains("android") && table.contains("  shells"), "{table}");
    let json = stdout(folder.path(), &["inspect", "stats", "real/trajectories.parquet", "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(stats["domains"]["android"]["sources"]["phones"]["observation_kinds"]["tree"], 1);
    assert_eq!(stats["all"]["turns"], 2);
}

#[test]
fn a_page_is_written_whole() {
    let folder = ingested();
    stdout(folder.path(), &["inspect", "data", "real", "--html", "page.html"]);
    let html = fs_err::read_to_string(folder.path().join("page.html")).unwrap();
    assert!(html.contains("[0] element &quot;12:00&quot;") && html.trim_end().ends_with("</html>"));
}

#[test]
fn mistakes_are_one_line_with_a_hint() {
    let folder = ingested();
    for (arguments, words) in [
        (vec!["inspect", "data", "real"], ["no terminal", "--json"]),
        (vec!["inspect", "data", "nowhere"], ["nowhere", "hint: a trajectories.parquet"]),
        (vec!["inspect", "stats", "in"], ["no trajectory file in `in`", "hint: a trajectories.parquet"]),
        (vec!["inspect", "stats", "real/rejects.parquet"], ["rejects.parquet", "expected a trajectory table"]),
        (vec!["inspect", "stats", "real", "--domain", "phone"], ["unknown domain `phone`", "known: mcp"]),
        (vec!["inspect", "stats", "real", "--pool", "test"], ["unknown pool `test`", "known: cpt"]),
    ] {
        let output = worldloom(folder.path(), &arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{arguments:?}: {text}");
    }
}
