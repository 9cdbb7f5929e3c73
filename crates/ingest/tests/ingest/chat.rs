//! Chat messages to turns: each odd case with a row written by us.

use crate::common::{ingest_text, row};
use worldloom_schema::{ActionKind, Domain, ObservationKind, Turn};

/// (action, observation) of the turns of one row.
fn turns(row: &str) -> Vec<(String, String)> {
    let output = ingest_text("x.jsonl", row);
    output.only().turns.iter().map(|turn| (turn.action.clone(), turn.observation.clone())).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(action, observation)| (action.to_string(), observation.to_string())).collect()
}

/// A row of these messages.
fn messages(messages: &str) -> String {
    format!("{{\"messages\": [{messages}]}}")
}

fn call(id: &str, command: &str) -> String {
    format!(
        r#"{{"id":"{id}","type":"function","function":{{"name":"bash","arguments":"{{\"command\": \"{command}\"}}"}}}}"#
    )
}

fn assistant(calls: &[String]) -> String {
    format!(r#"{{"role":"assistant","content":null,"tool_calls":[{}]}}"#, calls.join(","))
}

fn tool(id: &str, content: &str) -> String {
    format!(r#"{{"role":"tool","tool_call_id":"{id}","content":"{content}"}}"#)
}

#[test]
fn a_recorded_terminal_episode_becomes_a_trajectory_with_notes_flags_and_context() {
    let line = r#"{"id":"terminal-7-12","source":"worldloom-terminal","license":"CC0-1.0","domain":"terminal","task_group":"copy+glob","task":"Copy the notes.","initial_state":"~: notes.txt","tools":[{"type":"function","function":{"name":"bash","parameters":{"x":{"default":null},"n":18446744073709551615}}}],"messages":[{"role":"system","content":"You are an agent."},{"role":"user","content":"Copy the notes."},{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"bash","arguments":"{\"command\": \"ls -l\"}"}}]},{"role":"tool","tool_call_id":"call_0","name":"bash","content":"notes.txt\n","metadata":{"note":"cwd: ~ | ls: notes.txt","class":"state","family":"list","exit_code":0}},{"role":"assistant","content":"Now a wrong one.","tool_calls":[{"id":"call_1","type":"function","function":{"name":"bash","arguments":"{\"command\": \"cat none\"}"}}]},{"role":"tool","tool_call_id":"call_1","name":"bash","content":"cat: none: No such file or directory\n","metadata":{"note":"cwd: ~","class":"error","family":"read","exit_code":1}}]}"#;
    let output = ingest_text("terminal.jsonl", line);
    let trajectory = output.only();
    assert_eq!(trajectory.source, "worldloom-terminal");
    assert_eq!(trajectory.licence.as_deref(), Some("CC0-1.0"));
    assert_eq!((trajectory.domain, trajectory.task_group.as_str()), (Domain::Terminal, "copy+glob"));
    assert_eq!(
        (trajectory.source_path.as_str(), trajectory.source_row, trajectory.format.as_str()),
        ("terminal.jsonl", 0, "chat")
    );
    assert_eq!(trajectory.system.task_description, "Copy the notes.");
    assert_eq!(trajectory.system.initial_state.as_deref(), Some("~: notes.txt"));
    let tools = r#"[{"type":"function","function":{"name":"bash","parameters":{"x":{"default":null},"n":18446744073709551615}}}]"#;
    assert_eq!(trajectory.system.action_space.as_deref(), Some(tools), "tool schemas are kept as they came");
    let expected = Turn {
        index: 1,
        action: "cat none".into(),
        action_kind: ActionKind::Command,
        observation: "cat: none: No such file or directory\n".into(),
        observation_kind: ObservationKind::Text,
        reasoning: Some("Now a wrong one.".into()),
        pre_state: None,
        trace: Some("cwd: ~".into()),
        is_error: Some(true),
        truncated: false,
        flags: vec!["class:error".into(), "family:read".into(), "exit_code:1".into()],
        keep_class: None,
        keep: None,
    };
    assert_eq!(trajectory.turns[1], expected);
    assert_eq!((trajectory.turns[0].is_error, trajectory.turns[0].flag("class")), (Some(false), Some("state")));
    assert_eq!(trajectory.trajectory_id, worldloom_schema::trajectory_id(&trajectory.system, &trajectory.turns));
}

#[test]
fn parallel_calls_pair_with_their_results_by_id_in_any_order() {
    let calls = assistant(&[call("a", "one"), call("b", "two")]);
    let row = messages(&[calls, tool("b", "2"), tool("a", "1")].join(","));
    assert_eq!(turns(&row), pairs(&[("one", "1"), ("two", "2")]));
}

#[test]
fn calls_without_ids_pair_by_order() {
    let bare = |command: &str| format!(r#"{{"function":{{"name":"bash","arguments":{{"command":"{command}"}}}}}}"#);
    let result = |text: &str| format!(r#"{{"role":"tool","content":"{text}"}}"#);
    let row = messages(&[assistant(&[bare("one"), bare("two")]), result("1"), result("2")].join(","));
    assert_eq!(turns(&row), pairs(&[("one", "1"), ("two", "2")]));
}

#[test]
fn an_id_used_again_means_the_call_that_waits() {
    let twice = assistant(&[call("a", "one"), call("a", "two")]);
    let again = assistant(&[call("a", "three")]);
    let row = messages(&[twice, tool("a", "1"), tool("a", "2"), again, tool("a", "3")].join(","));
    assert_eq!(turns(&row), pairs(&[("one", "1"), ("two", "2"), ("three", "3")]));
}

#[test]
fn several_results_of_one_call_are_one_observation() {
    let row = messages(&[assistant(&[call("a", "one")]), tool("a", "1"), tool("a", "and more")].join(","));
    let output = ingest_text("x.jsonl", &row);
    assert_eq!(output.only().turns[0].observation, "1\nand more");
    assert_eq!(output.count("further_results_of_a_call"), 1);
}

#[test]
fn results_without_a_call_and_calls_without_a_result_are_counted() {
    let calls = assistant(&[call("a", "one"), call("b", "two")]);
    let row = messages(&[tool("z", "early"), calls, tool("a", "1"), tool("q", "nobody's")].join(","));
    let output = ingest_text("x.jsonl", &row);
    assert_eq!(output.only().turns.len(), 1);
    assert_eq!((output.count("results_without_a_call"), output.count("calls_without_a_result")), (2, 1));
}

#[test]
fn a_legacy_function_call_is_a_call() {
    let row = messages(
        r#"{"role":"assistant","content":null,"function_call":{"name":"get","arguments":"{\"k\":1}"}},{"role":"function","name":"get","content":"{\"v\": 2}"}"#,
    );
    let output = ingest_text("x.jsonl", &row);
    let turn = &output.only().turns[0];
    assert_eq!(turn.action, r#"{"name": "get", "arguments": {"k": 1}}"#);
    assert_eq!((turn.action_kind, turn.observation_kind), (ActionKind::ToolCall, ObservationKind::Json));
    assert_eq!(output.only().domain, Domain::Mcp);
}

#[test]
fn null_tool_calls_and_null_content_lose_nothing() {
    let row = messages(&format!(
        r#"{{"role":"user","content":"Do it."}},{{"role":"assistant","content":"Well.","tool_calls":null}},{{"role":"assistant","content":null,"tool_calls":[{}]}},{{"role":"tool","tool_call_id":"a","content":null}}"#,
        call("a", "true")
    ));
    let output = ingest_text("x.jsonl", &row);
    let turn = &output.only().turns[0];
    assert_eq!((turn.action.as_str(), turn.observation.as_str()), ("true", ""));
    assert_eq!(turn.reasoning.as_deref(), Some("Well."), "words without a call are the reasoning of the next action");
    assert_eq!(output.only().system.task_description, "Do it.");
}

#[test]
fn arguments_as_object_string_and_double_encoded_give_the_same_trajectory() {
    let variants = [
        r#"{"path": "a", "id": 9007199254740993}"#,
        r#""{\"path\": \"a\", \"id\": 9007199254740993}""#,
        r#""\"{\\\"path\\\": \\\"a\\\", \\\"id\\\": 9007199254740993}\"""#,
    ];
    let ids: Vec<String> = variants
        .iter()
        .map(|arguments| {
            let row = messages(&format!(
                r#"{{"role":"assistant","tool_calls":[{{"id":"a","function":{{"name":"read","arguments":{arguments}}}}}]}},{{"role":"tool","tool_call_id":"a","content":"x"}}"#
            ));
            let output = ingest_text("x.jsonl", &row);
            assert!(output.only().turns[0].action.contains("9007199254740993"), "integers stay exact");
            output.only().trajectory_id.clone()
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn thoughts_go_to_reasoning_and_never_into_action_or_observation() {
    let row = messages(&format!(
        r#"{{"role":"assistant","reasoning_content":"first","content":"<think>second</think>third","tool_calls":[{}]}},{{"role":"tool","tool_call_id":"a","content":"x"}}"#,
        call("a", "ls")
    ));
    let output = ingest_text("x.jsonl", &row);
    assert_eq!(output.only().turns[0].reasoning.as_deref(), Some("first\n\nsecond\n\nthird"));
}

#[test]
fn user_messages_in_the_middle_do_not_break_pairing_and_leave_a_flag() {
    let user = r#"{"role":"user","content":"Go on."}"#;
    let row = messages(
        &[
            r#"{"role":"user","content":"Start."}"#.into(),
            assistant(&[call("a", "one")]),
            user.to_string(),
            tool("a", "1"),
            user.into(),
            assistant(&[call("b", "two")]),
            tool("b", "2"),
        ]
        .join(","),
    );
    let output = ingest_text("x.jsonl", &row);
    assert_eq!(output.count("user_messages_in_the_middle"), 2);
    assert_eq!(output.only().system.task_description, "Start.");
    let flags: Vec<_> = output.only().turns.iter().map(|turn| turn.flag("after")).collect();
    assert_eq!(flags, [None, Some("user")]);
    assert_eq!(output.only().turns[0].observation, "1");
}

#[test]
fn an_image_alone_is_an_image_and_beside_text_its_place_is_marked() {
    let row = messages(&format!(
        r#"{},{{"role":"tool","tool_call_id":"a","content":[{{"type":"image_url","image_url":{{"url":"data:image/png;base64,AAAA"}}}}]}},{{"role":"tool","tool_call_id":"b","content":[{{"type":"text","text":"see"}},{{"type":"image"}}]}}"#,
        assistant(&[call("a", "one"), call("b", "two")])
    ));
    let output = ingest_text("x.jsonl", &row);
    let turns = &output.only().turns;
    assert_eq!((turns[0].observation_kind, turns[0].observation.as_str()), (ObservationKind::Image, ""));
    assert_eq!((turns[1].observation_kind, turns[1].observation.as_str()), (ObservationKind::Text, "see\n[image]"));
    assert_eq!(output.count("images_left_out"), 2);
}

#[test]
fn lone_surrogates_and_invalid_bytes_are_repaired_and_counted() {
    let line = row("t", "ls", "?", "").replace("\"?\"", r#""\ud83d\udc4d \ud83d""#);
    let mut bytes = line.into_bytes();
    bytes.extend_from_slice(b"\n");
    let mut second = row("t", "ls", "bad: @", "").into_bytes();
    let at = second.iter().rposition(|byte| *byte == b'@').unwrap();
    second[at] = 0xff;
    bytes.extend_from_slice(&second);
    let output = ingest_text("x.jsonl", bytes);
    assert_eq!(output.trajectories[0].turns[0].observation, "👍 \u{fffd}");
    assert_eq!(output.trajectories[1].turns[0].observation, "bad: \u{fffd}");
    assert_eq!((output.count("repaired_lone_surrogates"), output.count("repaired_invalid_utf8")), (1, 1));
}

#[test]
fn the_same_task_in_other_spacing_is_one_group_and_a_given_group_is_taken() {
    let rows = [
        row("List  the\nfiles", "ls", "a", ""),
        row("list the files", "ls", "b", ""),
        row("Other", "ls", "c", ""),
        row("Other", "ls", "d", r#", "task_group": "mine""#),
    ];
    let output = ingest_text("x.jsonl", rows.join("\n"));
    let groups: Vec<&str> = output.trajectories.iter().map(|trajectory| trajectory.task_group.as_str()).collect();
    assert_eq!(groups[0], groups[1]);
    assert_ne!(groups[0], groups[2]);
    assert_eq!(groups[3], "mine");
}

#[test]
fn the_agents_prompt_is_not_the_task_unless_there_is_no_other() {
    let system = r#"{"role":"system","content":"You are an agent."}"#;
    let body = [assistant(&[call("a", "ls")]), tool("a", "x")].join(",");
    let task = |row: String| ingest_text("x.jsonl", row).only().system.task_description.clone();
    assert_eq!(task(messages(&format!(r#"{system},{{"role":"user","content":"Look."}},{body}"#))), "Look.");
    assert_eq!(task(messages(&format!("{system},{body}"))), "You are an agent.");
}

#[test]
fn sharegpt_roles_and_tags_give_the_same_turns() {
    let roles = r#"{"conversations":[{"from":"human","value":"List."},{"from":"function_call","value":"{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}"},{"from":"observation","value":"notes.txt"}]}"#;
    let tags = r#"{"conversations":[{"from":"system","value":"s"},{"from":"human","value":"List."},{"from":"gpt","value":"<think>hm</think>\n<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>"},{"from":"tool","value":"<tool_response>\nnotes.txt\n</tool_response>"},{"from":"gpt","value":"Done."}]}"#;
    for row in [roles, tags] {
        let output = ingest_text("x.jsonl", row);
        let trajectory = output.only();
        assert_eq!(trajectory.format, "sharegpt");
        assert_eq!(trajectory.system.task_description, "List.");
        assert_eq!(
            (trajectory.turns[0].action.as_str(), trajectory.turns[0].observation.as_str()),
            ("ls", "notes.txt")
        );
    }
}
