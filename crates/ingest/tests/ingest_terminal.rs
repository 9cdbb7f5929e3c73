//! Terminal recordings and run folders: what a person would have seen.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic and says what it skipped")]

#[path = "ingest/common.rs"]
mod common;

use std::path::{Path, PathBuf};

use common::{Output, config, ingest, ingest_text, write};
use worldloom_schema::{ActionKind, Domain, Turn};

fn real(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/raw").join(name);
    if !folder.exists() {
        eprintln!("skipped: no real source `{name}` beside the project");
    }
    Some(folder).filter(|folder| folder.exists())
}

/// A v2 recording of 40 by 6 from (seconds, code, data).
fn cast(events: &[(f64, &str, &str)]) -> String {
    let mut lines = vec![r#"{"version": 2, "width": 40, "height": 6}"#.to_string()];
    lines.extend(
        events.iter().map(|(time, code, data)| format!("[{time}, \"{code}\", {}]", serde_json::Value::from(*data))),
    );
    lines.join("\n")
}

fn pairs(output: &Output) -> Vec<(String, String)> {
    output.only().turns.iter().map(|turn: &Turn| (turn.action.clone(), turn.observation.clone())).collect()
}

fn pair(action: &str, observation: &str) -> (String, String) {
    (action.into(), observation.into())
}

/// The hashes of the first and last turn of the recording in this file.
fn ends(output: &Output, file: &str) -> [String; 2] {
    let hash = |turn: &Turn| {
        let text = format!("{}\u{0}{}", turn.action, turn.observation);
        blake3::hash(text.as_bytes()).to_hex()[..12].to_string()
    };
    let trajectory = output.trajectories.iter().find(|trajectory| trajectory.source_path == file).unwrap();
    [hash(&trajectory.turns[0]), hash(trajectory.turns.last().unwrap())]
}

#[test]
fn commands_are_read_off_the_screen_between_prompts() {
    let events = [
        (0.0, "o", "me:~ $ "),
        (1.0, "o", "l"),
        (1.1, "o", "x"),
        (1.2, "o", "\u{8} \u{8}s"),
        (2.0, "o", "\r\n\u{1b}[34mpies\u{1b}[0m\r\n 10%\r100%\r\nnotes\r\nme:~ $ "),
        (3.0, "o", "for i in 1; do\r\n> "),
        (4.0, "o", "echo $i; done\r\n"),
        (4.01, "o", "1\r\nme:~/pies $ "),
        (5.0, "o", "\r\nme:~/pies $ "),
        (6.0, "o", "exit\r\nbye\r\n"),
    ];
    let output = ingest_text("x.cast", cast(&events));
    let expected = [pair("ls", "pies\n100%\nnotes"), pair("for i in 1; do\necho $i; done", "1"), pair("exit", "bye")];
    assert_eq!(pairs(&output), expected);
    let trajectory = output.only();
    assert_eq!((trajectory.domain, trajectory.format.as_str()), (Domain::Terminal, "asciicast"));
    assert!(trajectory.turns.iter().all(|turn| turn.action_kind == ActionKind::Command));
    assert_eq!(trajectory.system.initial_state.as_deref(), Some("me:~ $"));
    assert_eq!(trajectory.turns[2].flag("ends_with"), Some("recording"));
}

#[test]
fn a_line_that_goes_on_keeps_its_indentation() {
    let events = [
        (0.0, "o", "In [1]: "),
        (1.0, "o", "for i in range(2):\r\n   ...:     "),
        (2.0, "o", "print(i)\r\n   ...:     "),
        (3.0, "o", "\r\n0\r\n1\r\nIn [2]: "),
        (4.0, "o", "if i:\r\n   ...:         "),
        (5.0, "o", "\u{8}\u{8}\u{8}\u{8}i\r\n   ...: "),
        (6.0, "o", "\r\n1\r\nIn [3]: "),
    ];
    let output = ingest_text("x.cast", cast(&events));
    let expected = [pair("for i in range(2):\n    print(i)\n", "0\n1"), pair("if i:\n    i\n", "1")];
    assert_eq!(pairs(&output), expected);
}

#[test]
fn output_longer_than_the_screen_is_kept_whole() {
    let long: String = (0..500).map(|line| format!("line {line}\r\n")).collect();
    let output =
        ingest_text("x.cast", cast(&[(0.0, "o", "$ "), (1.0, "o", "many\r\n"), (2.0, "o", &long), (3.0, "o", "$ ")]));
    let observation = &output.only().turns[0].observation;
    assert_eq!(observation.lines().count(), 500);
    assert!(observation.starts_with("line 0\n") && observation.ends_with("line 499"));
}

#[test]
fn a_full_screen_program_is_seen_as_its_last_screen() {
    let events = [
        (0.0, "o", "$ "),
        (1.0, "o", "top\r\n"),
        (1.1, "o", "\u{1b}[?1049h\u{1b}[2J\u{1b}[HCPU 1%"),
        (2.0, "o", "\u{1b}[HCPU 7%\u{1b}[3;2Hq quits"),
        (3.0, "o", "\u{1b}[2J\u{1b}[?1049l$ "),
    ];
    let output = ingest_text("x.cast", cast(&events));
    assert_eq!(pairs(&output), [pair("top", "CPU 7%\n\n q quits")]);
    assert_eq!(output.only().turns[0].flag("screen"), Some("full"));
}

#[test]
fn keys_are_actions_where_they_were_recorded() {
    let events = [
        (0.0, "o", "$ "),
        (1.0, "i", "l"),
        (1.0, "o", "l"),
        (1.2, "i", "s\r"),
        (1.2, "o", "s\r\npies\r\n$ "),
        (2.0, "i", "\u{3}"),
        (2.0, "o", "^C\r\n$ "),
        (3.0, "i", "wait"),
        (3.0, "o", "wait"),
        (9.0, "i", "ing\n"),
        (9.1, "o", "ing\r\n$ "),
    ];
    let output = ingest_text("x.cast", cast(&events));
    let expected = [
        pair("ls\r", "$ ls\npies\n$"),
        pair("\u{3}", "$ ^C\n$"),
        pair("wait", "$ wait"),
        pair("ing\n", "$ waiting\n$"),
    ];
    assert_eq!(pairs(&output), expected);
    assert!(output.only().turns.iter().all(|turn| turn.action_kind == ActionKind::Keystrokes));
}

#[test]
fn the_same_session_in_v1_v2_and_v3_is_the_same_trajectory() {
    let one =
        r#"{"version": 1, "width": 40, "height": 6, "stdout": [[0.0, "$ "], [1.0, "ls"], [0.5, "\r\nfig\r\n$ "]]}"#;
    let two = cast(&[(0.0, "o", "$ "), (1.0, "o", "ls"), (1.5, "o", "\r\nfig\r\n$ ")]);
    let three = "{\"version\": 3, \"term\": {\"cols\": 40, \"rows\": 6}}\n# words\n[0.0, \"o\", \"$ \"]\n\n[1.0, \"o\", \"ls\"]\n[0.5, \"o\", \"\\r\\nfig\\r\\n$ \"]\n[0.1, \"x\", \"0\"]";
    let ids: Vec<String> = [("a.json", one), ("a.cast", &two), ("b.cast", three)]
        .iter()
        .map(|(name, text)| ingest_text(name, text).only().trajectory_id.clone())
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(ingest_text("b.cast", three).only().turns[0].flag("session_exit"), Some("0"));
}

#[test]
fn a_broken_event_ends_the_recording_with_its_row() {
    let good = cast(&[(0.0, "o", "$ "), (1.0, "o", "ls"), (1.5, "o", "\r\nfig\r\n$ ")]);
    for broken in
        ["lol!", "[-1.0, \"o\", \"x\"]", "[9, 5, \"x\"]", "[9, \"o\", true]", "[9, \"r\", \"-1x0\"]", "[9, \"o\"]"]
    {
        let output = ingest_text("x.cast", format!("{good}\n{broken}\n[10, \"o\", \"never\"]"));
        assert_eq!(pairs(&output), [pair("ls", "fig")], "{broken}");
        assert_eq!((output.rejects.len(), output.rejects[0].row), (1, 4), "{broken}: {:?}", output.rejects);
    }
}

/// 42 files, most of them fixtures of a parser without a prompt: a recording without a command is refused, and so is
/// each broken one. What remains are the two recordings of the same welcome session, and two with one recorded key.
/// data.md counts output events.
#[test]
fn asciinema_fixtures_give_their_one_session_and_a_reason_for_each_other() {
    let Some(folder) = real("asciicast-fixtures") else { return };
    let output = ingest(&config(&[folder])).unwrap();
    let names: Vec<_> = output.trajectories.iter().map(|trajectory| trajectory.source_path.as_str()).collect();
    assert_eq!(names, ["2/full.cast", "3/full.cast", "welcome.cast", "welcome.json"], "{:?}", output.report);
    let refused: std::collections::BTreeSet<_> = output.rejects.iter().map(|reject| reject.file.as_str()).collect();
    assert_eq!(refused.len(), 38);
    let texts = |at: usize| output.trajectories[at].turns.iter().map(|turn| &turn.action).collect::<Vec<_>>();
    assert_eq!(texts(2), texts(3));
    assert_eq!(output.trajectories[2].task_group, output.trajectories[3].task_group);
    assert_eq!((output.trajectories[0].turns.len(), output.trajectories[0].turns[0].action.as_str()), (1, "\r"));
    assert!(output.trajectories[2].turns[0].action.starts_with("# Welcome to asciinema!"));
    assert_eq!(ends(&output, "2/full.cast"), ["c84ca9a6d3cb", "c84ca9a6d3cb"], "one turn");
    assert_eq!(ends(&output, "welcome.cast"), ["aa84e96d06f6", "00de27be4f04"]);
}

/// Four of the five show a prompt; htop is recorded from inside and its keys were not.
#[test]
fn termtosvg_recordings_are_commands_and_screens() {
    let Some(folder) = real("asciicast-termtosvg") else { return };
    let output = ingest(&config(&[folder])).unwrap();
    let found: Vec<_> = output
        .trajectories
        .iter()
        .map(|trajectory| (trajectory.source_path.as_str(), trajectory.turns.len()))
        .collect();
    assert_eq!(
        found,
        [("awesome.cast", 3), ("colors.cast", 4), ("ipython.cast", 3), ("unittest.cast", 2)],
        "{:?}",
        output.rejects
    );
    assert_eq!(ends(&output, "awesome.cast"), ["fd85e2249cdf", "f9b9f6335b24"]);
    assert_eq!(ends(&output, "ipython.cast"), ["e767fe60287e", "7bc3c437663a"]);
    let code = &output.trajectories[2].turns[1].action;
    assert_eq!(code, "for i in range(40):\n    print('='*i + '+' + (40-i)*'=')\n    time.sleep(0.1)\n");
}

#[test]
fn a_terminal_bench_folder_is_one_episode_from_logs_or_recording() {
    let root = tempfile::tempdir().unwrap();
    let results = r#"{"task_id": "bake", "instruction": "Bake it.", "is_resolved": true}"#;
    let logs = root.path().join("run/bake/bake.1-of-1.run");
    for (name, text) in [
        ("results.json", results),
        ("commands.txt", "['clear', 'Enter']\n"),
        ("panes/post-agent.txt", "$ ls\npie\n$\n"),
        ("sessions/agent.cast", "{}"),
        ("agent-logs/episode-0/prompt.txt", "Do it.\nCurrent Terminal Screen:\n$\n"),
        (
            "agent-logs/episode-0/response.json",
            r#"{"analysis": "Empty.", "commands": [{"keystrokes": "touch pie\n"}, {"keystrokes": "clear\n"}]}"#,
        ),
        ("agent-logs/episode-1/prompt.txt", "New Terminal Output:\n$ touch pie\n$\n"),
        ("agent-logs/episode-1/response.txt", r#"{"commands": [{"keystrokes": "ls\n"}], "task_complete": true}"#),
    ] {
        write(&logs, name, text);
    }
    let recorded = root.path().join("run/stew/stew.1-of-1.run");
    write(&recorded, "results.json", results.replace("bake", "stew"));
    write(
        &recorded,
        "sessions/agent.cast",
        cast(&[(0.0, "o", "$ "), (1.0, "i", "ls\r"), (1.1, "o", "ls\r\nfig\r\n$ ")]),
    );
    write(root.path(), "run/other.jsonl", common::row("t", "pwd", "/", ""));
    let output = ingest(&config(&[root.path().into()])).unwrap();
    let formats: Vec<_> = output.trajectories.iter().map(|trajectory| trajectory.format.as_str()).collect();
    assert_eq!(formats, ["terminal-bench", "chat", "terminal-bench"], "{:?}", output.rejects);
    let first = &output.trajectories[0];
    assert_eq!((first.task_group.as_str(), first.outcome.success), ("terminal-bench/bake", Some(true)));
    assert_eq!(first.system.initial_state.as_deref(), Some("$"));
    let turns: Vec<_> = first.turns.iter().map(|turn| (turn.action.as_str(), turn.observation.as_str())).collect();
    assert_eq!(turns, [("touch pie\nclear\n", "$ touch pie\n$"), ("ls\n", "$ ls\npie\n$")]);
    assert_eq!(output.trajectories[2].turns[0].observation, "$ ls\nfig\n$");
}
