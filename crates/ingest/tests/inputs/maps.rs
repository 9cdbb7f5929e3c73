//! Formats that a user describes.

use worldloom_ingest::{Error, IngestConfig};
use worldloom_schema::{ActionKind, Domain};

use crate::common::{Output, config, ingest, write};

const MAP: &str = r#"
messages = "log.entries"
role = "who"
content = "text"
action_kind = "command"
domain = "terminal"
task = "goal"
error = "failed"
[roles]
agent = ["bot"]
environment = ["shell"]
user = ["human"]
system = ["setup"]
thoughts = ["plan"]
ignore = ["debug"]
"#;

fn mapped(map: &str, content: &str) -> Result<Output, Error> {
    let folder = tempfile::tempdir().unwrap();
    let map = write(folder.path(), "map.toml", map);
    let path = write(folder.path(), "x.jsonl", content);
    ingest(&IngestConfig { map: Some(map), ..config(&[path]) })
}

#[test]
fn a_map_reads_json_of_any_shape() {
    let row = r#"{"goal": "Look.", "log": {"entries": [{"who": "setup", "text": "You have a shell."}, {"who": "debug", "text": "x"}, {"who": "plan", "text": "hm"}, {"who": "bot", "text": "ls"}, {"who": "shell", "text": "fig", "failed": false}, {"who": "bot", "text": "cat none"}, {"who": "shell", "text": "none", "failed": true}]}}"#;
    let output = mapped(MAP, row).unwrap();
    let trajectory = output.only();
    assert_eq!((trajectory.domain, trajectory.format.as_str()), (Domain::Terminal, "map"));
    assert_eq!(trajectory.system.task_description, "Look.");
    assert_eq!(trajectory.system.action_space.as_deref(), Some("You have a shell."));
    let turn = &trajectory.turns[0];
    assert_eq!((turn.action.as_str(), turn.action_kind, turn.observation.as_str()), ("ls", ActionKind::Command, "fig"));
    assert_eq!(
        (turn.reasoning.as_deref(), turn.is_error, trajectory.turns[1].is_error),
        (Some("hm"), Some(false), Some(true))
    );
    assert_eq!(output.count("messages_ignored_by_the_map"), 1);
    let steps = "messages = \"steps\"\naction = \"do\"\nobservation = \"saw.text\"\n";
    let output = mapped(steps, r#"{"steps": [{"do": "press", "saw": {"text": "lit"}}, {"do": "wait"}]}"#).unwrap();
    assert_eq!((output.only().turns.len(), output.only().turns[0].observation.as_str()), (1, "lit"));
    let output = mapped(MAP, &(row.to_string() + "\n" + &row.replace("\"plan\"", "\"judge\""))).unwrap();
    assert_eq!(output.rejects[0].rule, "role");
}

#[test]
fn a_map_that_cannot_be_used_says_why() {
    let refused = |map: &str| mapped(map, "{}").err().map(|error| error.to_string()).unwrap();
    assert!(refused("messages = 5").contains("invalid type"));
    assert!(refused(&MAP.replace("goal", "x").replace("task =", "tsak =")).contains("tsak"));
    assert!(refused("messages = \"m\"").contains("expected either"));
    assert!(refused(&MAP.replace("[\"shell\"]", "[]")).contains("environment"));
    assert!(refused(&MAP.replace("\"terminal\"", "\"moon\"")).contains("moon"));
}
