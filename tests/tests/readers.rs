//! Our tables as other programs read them: pyarrow, DuckDB, pandas and `datasets`, those of them that are installed.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Command;

use serde_json::json;
use worldloom_schema::{Trajectory, write_table};

/// Missing, empty and long values, lists without elements, text of every kind.
fn trajectories() -> Vec<Trajectory> {
    let turn = |index: u64, observation: &str, reasoning: Option<&str>| {
        json!({
            "index": index, "action": "{\"a\": 9007199254740993}", "action_kind": "tool_call",
            "observation": observation, "observation_kind": "json", "reasoning": reasoning, "pre_state": null,
            "trace": null, "is_error": if index == 0 { None } else { Some(true) }, "truncated": false,
            "flags": if index == 0 { vec![] } else { vec!["class:state", "a:\"b\""] },
            "keep_class": if index == 0 { None } else { Some("echo") }, "keep": null,
        })
    };
    let trajectory = |row: u64, turns: Vec<serde_json::Value>| {
        json!({
            "trajectory_id": format!("id-{row}"), "source": "s", "source_path": "a/b.jsonl",
            "source_row": if row == 1 { u64::MAX >> 1 } else { row }, "format": "chat", "domain": "mcp",
            "task_group": "group \u{1f600}", "licence": if row == 0 { Some("MIT") } else { None },
            "system": {"task_description": "", "action_space": null, "initial_state": if row == 1 { Some("") } else { None },
                "demonstrations": if row == 1 { vec!["one", ""] } else { vec![] }, "simulation_instruction": null},
            "turns": turns, "outcome": {"reward": if row == 0 { Some(-0.5) } else { None }, "success": null},
            "pool": if row == 1 { Some("eval") } else { None },
        })
    };
    let long = "plum 果 \u{0} \r\n\"".repeat(20_000);
    let rows = vec![
        trajectory(0, vec![turn(0, "", None), turn(1, "null", Some(""))]),
        trajectory(1, vec![turn(0, &long, Some("why"))]),
        trajectory(2, vec![]),
    ];
    rows.into_iter().map(|row| serde_json::from_value(row).unwrap()).collect()
}

#[test]
fn other_programs_read_every_value_that_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (table, rows) = (folder.path().join("trajectories.parquet"), folder.path().join("rows.jsonl"));
    let all = trajectories();
    let lines: Vec<String> = all.iter().map(|row| serde_json::to_string(row).unwrap() + "\n").collect();
    fs_err::write(&rows, lines.concat()).unwrap();
    write_table(&table, all).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("reference/read_tables.py");
    let run = Command::new("python3").arg(script).arg(&table).arg(&rows).env("HF_HUB_OFFLINE", "1").output();
    let Ok(run) = run else {
        println!("skipped: no python3");
        return;
    };
    let said = String::from_utf8_lossy(&run.stdout);
    println!("{said}");
    assert!(run.status.success(), "{said}{}", String::from_utf8_lossy(&run.stderr));
    assert_eq!(said.lines().count(), 4, "each reader says what it found, or that it is missing: {said}");
    let is_known = |line: &str| line.ends_with("3 rows equal") || line.contains(" missing: ");
    assert!(said.lines().all(is_known), "{said}");
}
