//! The chat-like sources: real files where they are there, and odd cases written by us.

#![expect(clippy::unwrap_used, clippy::print_stderr, reason = "a test may panic and says what it skipped")]

#[path = "ingest/common.rs"]
mod common;

use std::path::{Path, PathBuf};

use common::{Output, config, ingest, ingest_text};
use worldloom_schema::{ActionKind, Domain, ObservationKind, Trajectory, Turn};

/// The folder of a real source; none, with a word about it, where it is not there.
fn real(name: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/raw").join(name);
    if !folder.exists() {
        eprintln!("skipped: no real source `{name}` beside the project");
    }
    Some(folder).filter(|folder| folder.exists())
}

fn hash(turn: &Turn) -> String {
    let text = format!("{}\u{0}{}", turn.action, turn.observation);
    blake3::hash(text.as_bytes()).to_hex()[..12].to_string()
}

/// File (its end) and the hashes of the first and last turn.
type Hashes<'a> = (&'a str, &'a str, &'a str);

/// Ingests a real source and checks its counts, its format and two trajectories.
fn check(name: &str, format: &str, trajectories: usize, turns: u64, hashes: &[Hashes<'_>]) -> Option<Output> {
    let output = ingest(&config(&[real(name)?])).unwrap();
    let found = (output.trajectories.len(), output.count("turns"));
    assert_eq!(found, (trajectories, turns), "{name}: {:?}", output.report);
    for trajectory in &output.trajectories {
        assert_eq!(trajectory.format, format, "{}", trajectory.source_path);
        assert_eq!(trajectory.source, name);
        assert!(!trajectory.system.task_description.is_empty() && !trajectory.task_group.is_empty());
    }
    let mut found = Vec::new();
    for (file, ..) in hashes {
        let is_it =
            |trajectory: &&Trajectory| format!("{}#{}", trajectory.source_path, trajectory.source_row).contains(file);
        let trajectory = output.trajectories.iter().find(is_it).unwrap_or_else(|| panic!("{name}: no {file}"));
        found.push((*file, hash(&trajectory.turns[0]), hash(trajectory.turns.last().unwrap())));
    }
    let expected: Vec<_> =
        hashes.iter().map(|(file, first, last)| (*file, first.to_string(), last.to_string())).collect();
    assert_eq!(found, expected);
    Some(output)
}

fn rules(output: &Output) -> Vec<(&str, u64)> {
    output.report.rejects_by_rule.iter().map(|(rule, count)| (rule.as_str(), *count)).collect()
}

#[test]
fn livemcpbench_is_whole() {
    let hashes = [("00e13e2e", "b2f14c15da3f", "3c700227d601"), ("086e2393", "54cb26d363c3", "a76bcb4b6af2")];
    let Some(output) = check("livemcpbench", "livemcpbench", 65, 619, &hashes) else { return };
    assert!(rules(&output).is_empty());
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Mcp));
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    let is_cut = |turn: &Turn| turn.observation.chars().count() == 10_000 || turn.observation.contains("[base64 ");
    assert!(turns().filter(|turn| turn.truncated).count() > 10 && turns().filter(|turn| turn.truncated).all(is_cut));
    assert_eq!(turns().filter(|turn| turn.is_error == Some(true)).count(), 9);
}

/// 200 trials, of which 18 call no tool: those are refused by `no_turns`.
#[test]
fn tau_bench_is_whole_but_for_trials_without_a_call() {
    let hashes =
        [("airline.json#0", "6b176e1bf7b7", "10987b7283ef"), ("airline.json#199", "520b460f2f8c", "a8b89d1470d2")];
    let Some(output) = check("tau-bench", "tau-bench", 182, 1164, &hashes) else { return };
    assert_eq!(rules(&output), [("no_turns", 18)]);
    let groups: std::collections::BTreeSet<_> =
        output.trajectories.iter().map(|trajectory| &trajectory.task_group).collect();
    assert!(groups.len() <= 50, "four trials of a task are one group: {}", groups.len());
    let empty =
        output.trajectories.iter().flat_map(|trajectory| &trajectory.turns).filter(|turn| turn.observation.is_empty());
    assert_eq!(empty.count(), 92);
}

#[test]
fn webvoyager_is_whole_and_omitted_observations_are_not_learned() {
    let hashes =
        [("taskAllrecipes--4", "020ee48d019f", "c45cfd857f27"), ("taskAmazon--0", "6eabae28028b", "f509ff9466f2")];
    let Some(output) = check("webvoyager", "webvoyager", 11, 61, &hashes) else { return };
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    let omitted: Vec<_> = turns().filter(|turn| turn.flag("omitted").is_some()).collect();
    // 39 messages are omitted; 9 of them are first states, which are no turn.
    assert_eq!(omitted.len(), 30);
    assert!(omitted.iter().all(|turn| turn.observation_kind == ObservationKind::Image && turn.observation.is_empty()));
    assert!(turns().all(|turn| !turn.observation.contains("please analyze") && !turn.observation.contains("Omitted")));
    assert!(output.trajectories.iter().any(|trajectory| trajectory.task_group == "webvoyager/Amazon--0"));
}

/// 12 files; the two logs of a first call have no result yet and are refused.
#[test]
fn openhands_sdk_logs_are_prefixes_and_lists() {
    let Some(folder) = real("openhands-sdk") else { return };
    let output = ingest(&config(&[folder])).unwrap();
    assert_eq!((output.trajectories.len(), output.count("turns")), (10, 31), "{:?}", output.report);
    assert_eq!(rules(&output), [("no_turns", 2)]);
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Swe));
    let of = |format: &str| output.trajectories.iter().filter(|trajectory| trajectory.format == format).count();
    assert_eq!((of("openhands-llm"), of("chat")), (8, 2));
    let task = "Hello! Can you create a new Python file named hello.py that prints 'Hello, World!'?";
    assert!(output.trajectories.iter().all(|trajectory| trajectory.system.task_description == task));
    let found: Vec<_> = output
        .trajectories
        .iter()
        .map(|trajectory| (hash(&trajectory.turns[0]), hash(trajectory.turns.last().unwrap())))
        .collect();
    let expected: [(String, String); 2] =
        [("22d095b24342".into(), "588eb73711f0".into()), ("56efe6a150c1".into(), "0601b5a98fc0".into())];
    assert_eq!([found[0].clone(), found[9].clone()], expected);
}

#[test]
fn mini_swe_agent_is_whole() {
    let Some(output) =
        check("mini-swe-agent", "mini-swe-agent", 1, 10, &[("github_issue", "9cd9f0aef913", "556ab6ffe6fb")])
    else {
        return;
    };
    let trajectory = output.only();
    assert!(trajectory.turns.iter().all(|turn| turn.action_kind == ActionKind::Command && turn.reasoning.is_some()));
    assert_eq!((trajectory.turns[0].is_error, trajectory.turns[0].flag("exit_code")), (Some(true), Some("1")));
    assert_eq!(trajectory.turns[9].observation_kind, ObservationKind::Diff);
}

#[test]
fn cline_is_whole() {
    let Some(output) = check("cline", "cline", 1, 11, &[("session", "1d026bd2198e", "13bdec74e568")]) else { return };
    let trajectory = output.only();
    assert!(trajectory.turns.iter().all(|turn| turn.is_error == Some(false)));
    assert!(trajectory.system.action_space.as_deref().unwrap().starts_with("You are Cline"));
}

/// The 13 of 16 sessions that are kept here: 697 calls, each with its result.
#[test]
fn claude_code_sessions_are_whole() {
    let hashes = [("emacs", "b38d58049beb", "de9fa15dd3ad"), ("gin", "03ce45dd2fb0", "75dbc20bffdd")];
    let Some(output) = check("claude-code-cua", "claude-code", 13, 697, &hashes) else { return };
    assert!(rules(&output).is_empty());
    // All but the one session that ran nothing.
    assert_eq!(output.trajectories.iter().filter(|trajectory| trajectory.domain == Domain::Terminal).count(), 12);
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    assert_eq!(turns().filter(|turn| turn.is_error == Some(true)).count(), 7);
    assert!(turns().all(|turn| !turn.observation.contains("iVBORw0KGgo")), "no image in the text");
    assert_eq!((output.count("calls_without_a_result"), output.count("results_without_a_call")), (0, 0));
}

/// The XML chat is three of the five trajectories of `swe-smith`; its tags give the calls of the `.traj` it was made from.
#[test]
fn swe_smith_xml_chat_is_whole() {
    let Some(folder) = real("swe-smith") else { return };
    let output = ingest(&config(&[folder.join("ft_xml_example.jsonl")])).unwrap();
    assert_eq!((output.trajectories.len(), output.count("turns")), (3, 97));
    assert!(
        output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Swe && trajectory.format == "chat")
    );
    let trajectory = &output.trajectories[0];
    assert_eq!(trajectory.task_group, "pandas-dev__pandas.95280573.pr_53652");
    assert!(trajectory.turns[0].action.starts_with("find /testbed -type f"));
    let found: Vec<_> = output
        .trajectories
        .iter()
        .map(|trajectory| (hash(&trajectory.turns[0]), hash(trajectory.turns.last().unwrap())))
        .collect();
    assert_eq!(found[0], ("02813bd80a49".into(), "bbab8f0ba729".into()));
    assert_eq!(found[2], ("267d00a09132".into(), "e5595480882e".into()));
}

#[test]
fn webdancer_is_whole() {
    let hashes =
        [("part1.jsonl#0", "68211d5df755", "68211d5df755"), ("part1.jsonl#149", "f2c94bb60a53", "f2c94bb60a53")];
    let Some(output) = check("webdancer", "webdancer", 150, 165, &hashes) else { return };
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Search));
    let first = &output.trajectories[0];
    assert!(first.system.task_description.starts_with("In a prestigious British"), "{}", first.system.task_description);
    assert!(first.system.action_space.as_deref().unwrap().contains("\"name\": \"visit\""));
    assert!(first.turns[0].reasoning.as_deref().unwrap().starts_with("Okay, let's tackle"));
}

#[test]
fn atif_is_whole() {
    let Some(output) = check("atif", "atif", 1, 6, &[("login-trace", "f6a68bbefd60", "d2751b160138")]) else { return };
    assert_eq!(output.only().domain, Domain::Web);
    assert_eq!(output.only().turns[0].observation, "ok: navigate to /login");
}

fn pairs(output: &Output) -> Vec<Vec<(String, String)>> {
    let turn = |turn: &Turn| (turn.action.clone(), turn.observation.clone());
    output.trajectories.iter().map(|trajectory| trajectory.turns.iter().map(turn).collect()).collect()
}

fn record(uuid: &str, parent: &str, more: &str, message: &str) -> String {
    let kind = if message.contains("\"role\":\"assistant\"") { "assistant" } else { "user" };
    let parent = if parent.is_empty() { "null".into() } else { format!("\"{parent}\"") };
    format!(r#"{{"type":"{kind}","uuid":"{uuid}","parentUuid":{parent},"sessionId":"s"{more},"message":{message}}}"#)
}

fn says(text: &str) -> String {
    format!(r#"{{"role":"user","content":"{text}"}}"#)
}

fn runs(id: &str, command: &str) -> String {
    format!(
        r#"{{"id":"m-{id}","role":"assistant","content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{"command":"{command}"}}}}]}}"#
    )
}

fn result(id: &str, text: &str) -> String {
    format!(r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"{id}","content":"{text}"}}]}}"#)
}

fn pair(action: &str, observation: &str) -> (String, String) {
    (action.into(), observation.into())
}

#[test]
fn claude_code_parallel_results_beside_the_path_are_found_by_id() {
    let lines = [
        record("1", "", "", &says("Look.")),
        record("2", "1", "", &runs("a", "one")),
        record("3", "2", "", &runs("b", "two")),
        record("4", "2", "", &result("a", "1")),
        record("5", "3", "", &result("b", "2")),
        record("6", "5", "", &runs("c", "three")),
        record("7", "6", "", &result("c", "3")),
    ];
    let output = ingest_text("s.jsonl", lines.join("\n"));
    assert_eq!(pairs(&output), [[pair("one", "1"), pair("two", "2"), pair("three", "3")]]);
}

#[test]
fn claude_code_branches_sub_agents_and_compactions_are_trajectories_of_one_group() {
    let side = r#","isSidechain":true"#;
    let lines = [
        r#"{"type":"file-history-snapshot","messageId":"x","snapshot":{}}"#.to_string(),
        record("1", "", "", &says("Look.")),
        record("2", "1", "", &runs("a", "one")),
        record("3", "2", "", &result("a", "1")),
        record("4", "3", "", &runs("b", "given up")),
        record("5", "4", "", &result("b", "2")),
        record("6", "3", "", &says("No, this.")),
        record("7", "6", "", &runs("c", "taken")),
        record("s1", "", side, &says("Help.")),
        record("s2", "s1", side, &runs("d", "aside")),
        record("s3", "s2", side, &result("d", "4")),
        record("8", "7", "", &result("c", "3")),
        r#"{"type":"system","subtype":"compact_boundary","uuid":"9","parentUuid":null,"sessionId":"s"}"#.into(),
        record("10", "9", r#","isMeta":true"#, &says("Caveat: ...")),
        record("11", "10", r#","isCompactSummary":true"#, &says("So far: looked.")),
        record("12", "11", "", &runs("e", "after")),
        record("13", "12", "", &result("e", "5")),
    ];
    let output = ingest_text("s.jsonl", lines.join("\n"));
    let expected = [
        vec![pair("one", "1"), pair("taken", "3")],
        vec![pair("one", "1"), pair("given up", "2")],
        vec![pair("aside", "4")],
        vec![pair("after", "5")],
    ];
    let mut found = pairs(&output);
    found.sort();
    let mut expected = expected.to_vec();
    expected.sort();
    assert_eq!(found, expected);
    assert!(output.trajectories.iter().all(|other| other.task_group == output.trajectories[0].task_group));
}

#[test]
fn claude_code_broken_lines_are_listed_and_the_session_is_read_on() {
    let lines = [
        record("1", "", "", &says("Look.")),
        record("2", "1", "", &runs("a", "one")),
        "{\"type\": \"user\", \"uuid\":".into(),
        record("3", "2", "", &result("a", "1")),
    ];
    let output = ingest_text("s.jsonl", lines.join("\n"));
    assert_eq!(pairs(&output), [[pair("one", "1")]]);
    assert_eq!(output.rejects.len(), 1);
    assert_eq!((output.rejects[0].row, output.rejects[0].rule.as_str()), (2, "cut"));
    assert_eq!(output.rejects[0].byte_offset as usize, lines[0].len() + lines[1].len() + 2);
}

#[test]
fn anthropic_blocks_pair_several_results_of_one_message_and_keep_words_as_reasoning() {
    let row = r#"{"messages": [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "First."}, {"type": "tool_use", "id": "a", "name": "read", "input": {"n": 9007199254740993}}, {"type": "tool_use", "id": "b", "name": "bash", "input": {"command": "ls"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "fig"}, {"type": "image", "source": {"type": "base64", "data": "AAAA"}}]}, {"type": "tool_result", "tool_use_id": "a", "is_error": true, "content": "none"}, {"type": "text", "text": "Go on."}]}]}"#;
    let output = ingest_text("x.json", row);
    let turns = &output.only().turns;
    assert_eq!(turns[0].action, r#"{"name": "read", "arguments": {"n": 9007199254740993}}"#);
    assert_eq!((turns[0].observation.as_str(), turns[0].is_error), ("none", Some(true)));
    assert_eq!(turns[0].reasoning.as_deref(), Some("hm\n\nFirst."));
    assert_eq!((turns[1].action.as_str(), turns[1].observation.as_str()), ("ls", "fig\n[image]"));
    assert_eq!(output.count("user_messages_in_the_middle"), 1);
    assert_eq!(output.only().system.task_description, "Look.");
}

#[test]
fn atif_results_of_the_whole_step_sub_agents_and_copied_steps() {
    let row = r#"{"schema_version": "ATIF-v1.4", "agent": {"name": "terminus", "version": "2", "tool_definitions": [{"name": "bash_command"}]},
        "steps": [
            {"step_id": 1, "source": "system", "message": "You have a terminal."},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": "Bake."}]},
            {"step_id": 3, "source": "agent", "message": "old", "is_copied_context": true, "observation": {"results": [{"content": "old"}]}},
            {"step_id": 4, "source": "agent", "message": "Go", "reasoning_content": "hm", "tool_calls": [{"tool_call_id": "a", "function_name": "bash_command", "arguments": {"keystrokes": "ls\n", "duration": 1}}, {"tool_call_id": "b", "function_name": "bash_command", "arguments": {"keystrokes": "pwd\n", "duration": 1}}], "observation": {"results": [{"source_call_id": null, "content": "screen"}]}},
            {"step_id": 5, "source": "agent", "message": "Say it.", "observation": {"results": [{"content": null}]}}],
        "subagent_trajectories": [{"schema_version": "ATIF-v1.4", "agent": {"name": "x", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": "Other."}, {"step_id": 2, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "c", "function_name": "get", "arguments": {}}], "observation": {"results": [{"source_call_id": "c", "content": "got"}]}}]}]}"#;
    let output = ingest_text("x.json", row);
    let trajectories = &output.trajectories;
    assert_eq!(output.count("copied_steps_left_out"), 1);
    let turns = &trajectories[0].turns;
    assert_eq!((turns[0].action.as_str(), turns[0].action_kind), ("ls\n\npwd\n", ActionKind::Keystrokes));
    assert_eq!((turns[0].observation.as_str(), turns[0].reasoning.as_deref()), ("screen", Some("hm\n\nGo")));
    assert_eq!((turns[1].action.as_str(), turns[1].observation.as_str()), ("Say it.", ""));
    assert_eq!(trajectories[1].turns[0].observation, "got");
    assert_eq!(trajectories[0].task_group, trajectories[1].task_group);
    assert_eq!(trajectories[0].system.action_space.as_deref(), Some(r#"[{"name": "bash_command"}]"#));
}

#[test]
fn mini_swe_objects_take_actions_from_extra_and_answers_to_no_action_are_words() {
    let row = r#"{"trajectory_format": "mini-swe-agent-1.1", "info": {"instance_id": "org__repo-7"}, "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "Fix."},
        {"role": "assistant", "content": "no block"}, {"role": "user", "content": "Please give one block."},
        {"role": "assistant", "content": "", "extra": {"actions": [{"command": "ls"}]}},
        {"role": "tool", "content": "<returncode>2</returncode>\n<output>\n</output>"},
        {"role": "exit", "content": "done"}]}"#;
    let output = ingest_text("x.traj.json", row);
    let trajectory = output.only();
    assert_eq!((trajectory.format.as_str(), trajectory.task_group.as_str()), ("mini-swe-agent", "org__repo-7"));
    assert_eq!(trajectory.turns.len(), 1);
    assert_eq!((trajectory.turns[0].is_error, trajectory.turns[0].flag("exit_code")), (Some(true), Some("2")));
    assert_eq!(output.count("messages_of_other_roles"), 1);
}

#[test]
fn base64_in_an_observation_becomes_its_length_and_hash() {
    let blob = format!("iVBORw0KGgo{}", "Ab9+".repeat(100));
    let output =
        ingest_text("x.json", common::row("See", "show", &format!("<img src=\"data:image/png;base64,{blob}\">"), ""));
    let observation = &output.only().turns[0].observation;
    assert!(
        observation.starts_with("<img src=\"data:image/png;base64,[base64 411 characters, blake3 "),
        "{observation}"
    );
}

#[test]
fn agent_world_bench_rows_are_turns_with_the_state_before_them() {
    let row = r####"{"task": "held/os", "id": 4, "system_str": "You are a desktop.", "prompt": ["### Turn 1\n**Current State:** a window\n\n**Action:**\n```python\nclick(3)\n```\n", "**Action:**\n{\"name\": \"wait\"}"], "response": ["**Environment Observation:**\nanother window", "same"], "turn_idx": 2, "total_turns": 5}"####;
    let output = ingest_text("os_test.jsonl", row);
    let trajectory = output.only();
    assert_eq!((trajectory.domain, trajectory.task_group.as_str()), (Domain::Os, "agentworldbench/4"));
    assert_eq!(trajectory.turns[0].pre_state.as_deref(), Some("a window"));
    assert_eq!(pairs(&output), [[pair("click(3)", "another window"), pair("{\"name\": \"wait\"}", "same")]]);
    assert_eq!(trajectory.turns[1].action_kind, ActionKind::ToolCall);
}

#[test]
fn agent_world_bench_rows_keep_a_phone_s_state_and_a_desktop_s_task() {
    let phone = r####"{"task": "android", "id": 5, "system_str": "You are a phone.", "prompt": ["### Turn 1\n\n**Current Phone State:**\n<home/>\n\n**Action:**\n```json\n{\"a\": 1}\n```"], "response": ["**Environment Observation:**\n<next/>"], "turn_idx": 1, "total_turns": 1}"####;
    let output = ingest_text("android_test.jsonl", phone);
    assert_eq!(output.only().turns[0].pre_state.as_deref(), Some("<home/>"));
    let desktop = r####"{"task": "os", "id": 6, "system_str": "You are a desktop.", "prompt": ["### Turn 1\n\n**Task Instruction:**\nSave the file.\n\n**Current State:**\na window\n\n**Action:**\n```python\nclick(3)\n```", "### Turn 2\n\n**Action:**\n```python\nclick(4)\n```"], "response": ["**Environment Observation:**\nsaved", "same"], "turn_idx": 2, "total_turns": 2}"####;
    let output = ingest_text("os_test.jsonl", desktop);
    let trajectory = output.only();
    assert_eq!(trajectory.system.task_description, "You are a desktop.\n\nSave the file.");
    assert_eq!(trajectory.turns[0].pre_state.as_deref(), Some("a window"));
    assert_eq!(trajectory.turns[1].pre_state, None);
}

#[test]
fn agent_instruct_takes_the_fenced_command_or_the_line_and_the_answer_after_it() {
    let row = r#"{"id": "os_3", "conversations": [
        {"from": "human", "loss": null, "value": "You have a shell. Answer with Act: lines."},
        {"from": "gpt", "loss": false, "value": "OK."},
        {"from": "human", "loss": null, "value": "How many figs?"},
        {"from": "gpt", "loss": true, "value": "Think: I count.\nThey are in a file.\n\nAct: bash\n\n```bash\nwc -l figs\ncat figs\n```"},
        {"from": "human", "loss": null, "value": "The output of the OS:\n\n2 figs\n"},
        {"from": "gpt", "loss": true, "value": "THOUGHT: Look there.\nACTION: go to cabinet 1"},
        {"from": "human", "loss": null, "value": "Observation: The cabinet is empty."},
        {"from": "gpt", "loss": true, "value": "Think: Two.\n\nAct: answer(2)"}]}"#;
    let output = ingest_text("x.jsonl", row.replace('\n', ""));
    let trajectory = output.only();
    assert_eq!((trajectory.format.as_str(), trajectory.domain), ("agent-instruct", Domain::Terminal));
    assert_eq!(trajectory.system.task_description, "You have a shell. Answer with Act: lines.\n\nHow many figs?");
    let expected = [pair("wc -l figs\ncat figs", "2 figs"), pair("go to cabinet 1", "The cabinet is empty.")];
    assert_eq!(pairs(&output), [expected]);
    let kinds: Vec<_> = trajectory.turns.iter().map(|turn| turn.action_kind).collect();
    assert_eq!(kinds, [ActionKind::Command, ActionKind::Text]);
    assert_eq!(trajectory.turns[0].reasoning.as_deref(), Some("I count.\nThey are in a file."));
    assert_eq!(trajectory.turns[1].reasoning.as_deref(), Some("Look there."));
    assert_eq!(output.count("calls_without_a_result"), 1, "the answer ends the episode");
}

#[test]
fn chatml_text_of_a_row_or_of_a_file_is_read_as_messages() {
    let text = |command: &str| {
        format!(
            "<|im_start|>system\nYou have a shell.<|im_end|>\n<|im_start|>user\nLook: {command}.<|im_end|>\n<|im_start|>assistant\n<think>hm</think>\n<tool_call>\n{{\"name\": \"bash\", \"arguments\": {{\"command\": \"{command}\"}}}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nfig\n</tool_response><|im_end|>\n<|im_start|>assistant\nDone."
        )
    };
    let row = serde_json::json!({ "text": text("ls"), "domain": "swe" }).to_string();
    let output = ingest_text("x.jsonl", &row);
    let trajectory = output.only();
    assert_eq!((trajectory.format.as_str(), trajectory.domain), ("chatml", Domain::Swe));
    assert_eq!(trajectory.system.action_space.as_deref(), Some("You have a shell."));
    assert_eq!(trajectory.system.task_description, "Look: ls.");
    assert_eq!(trajectory.turns[0].reasoning.as_deref(), Some("hm"));
    assert_eq!(pairs(&output), [[pair("ls", "fig")]]);
    let output = ingest_text("x.txt", format!("{}\n{}", text("ls"), text("pwd")));
    assert_eq!(pairs(&output), [[pair("ls", "fig")], [pair("pwd", "fig")]]);
    assert!(output.trajectories.iter().all(|trajectory| trajectory.format == "chatml-text"));
}
