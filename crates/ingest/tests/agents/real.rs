//! The real sources: counts of trajectories and turns, and the first and last turn of two trajectories each.
//!
//! The files are not part of the project; where they are missing, a test says so and ends.

use std::path::PathBuf;

use worldloom_schema::{Domain, ObservationKind, Trajectory, Turn};

use crate::common::{Output, ingest};

/// A source, read; none where its files are not here.
fn read(source: &str) -> Option<Output> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/raw").join(source);
    if !folder.is_dir() {
        println!("skipped: the real files of {source} are not here");
        return None;
    }
    Some(ingest(&[folder]))
}

fn hash(turn: &Turn) -> String {
    blake3::hash(format!("{}\0{}", turn.action, turn.observation).as_bytes()).to_hex()[..12].to_string()
}

/// Compares counts, and the hashes of the first and last turn of the trajectories at `(file's end, row)`.
fn check(output: &Output, expected: (usize, usize), hashes: &[(&str, u64, &str, &str)]) {
    let found = (output.trajectories.len(), output.turns());
    assert_eq!(found, expected, "trajectories and turns: {:#?}\n{:?}", output.report, output.rejects);
    for (file, row, first, last) in hashes {
        let is_it = |trajectory: &&Trajectory| trajectory.source_path.ends_with(file) && trajectory.source_row == *row;
        let trajectory = output.trajectories.iter().find(is_it).unwrap_or_else(|| panic!("no {file} row {row}"));
        let turns = &trajectory.turns;
        assert_eq!((hash(&turns[0]), hash(&turns[turns.len() - 1])), (first.to_string(), last.to_string()), "{file}");
    }
}

#[test]
fn swe_agent_gives_its_steps() {
    let Some(output) = read("swe-agent") else { return };
    check(
        &output,
        (6, 55),
        &[
            ("function_calling_simple.traj", 0, "cf91898ecbea", "1056834e5acc"),
            (
                "xml_sys-env_window100__t-0.20__marshmallow-code__marshmallow-1867.traj",
                0,
                "b355204bea60",
                "316699702aaf",
            ),
        ],
    );
    let group = |trajectory: &Trajectory| trajectory.task_group == "marshmallow-code/marshmallow";
    assert_eq!(output.trajectories.iter().filter(|trajectory| group(trajectory)).count(), 4, "one issue, four prompts");
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Swe));
}

#[test]
fn swe_agent_ctf_is_terminal_work_grouped_by_challenge() {
    let Some(output) = read("swe-agent-ctf") else { return };
    let hashes = [
        ("crypto_katy.traj", 0, "1fd2b5aa652a", "2d0b3588d428"),
        ("pwn_warmup.traj", 0, "d156f521a659", "199c1070fbf3"),
    ];
    check(&output, (6, 75), &hashes);
    let groups: Vec<&str> = output.trajectories.iter().map(|trajectory| trajectory.task_group.as_str()).collect();
    let expected = [
        "crypto/BabyEncryption",
        "crypto/baby_time_capsule",
        "crypto/Katy",
        "forensics/flash",
        "pwn/WarmUp",
        "web/I-Got-Id",
    ];
    assert_eq!(groups, expected);
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Terminal));
}

#[test]
fn swe_smith_gives_its_two_files_of_steps() {
    let Some(mut output) = read("swe-smith") else { return };
    // 5 and 159 in data.md: the other three and 100 are the chat in ft_xml_example.jsonl, read by another format.
    output.trajectories.retain(|trajectory| trajectory.format == "swe-agent");
    let hashes = [
        ("pandas-dev__pandas.95280573.pr_53652.traj", 0, "02813bd80a49", "88b53abfca95"),
        ("pydantic__pydantic.acb0f10f.pr_8316.traj", 0, "267d00a09132", "d049bc9406dd"),
    ];
    check(&output, (2, 59), &hashes);
}

#[test]
fn openhands_pairs_by_cause() {
    let Some(output) = read("openhands") else { return };
    // 108 in data.md: three of them are `recall` events between harness and agent, two are errors without a cause.
    let hashes = [
        ("multi_swe_bench_output.jsonl", 0, "9a4491c3142a", "9b28528eb923"),
        ("multi_swe_bench_output.jsonl", 1, "7bf9322749b0", "149f19bf4f6c"),
    ];
    check(&output, (3, 103), &hashes);
    assert_eq!((output.count("harness_events_left_out"), output.count("results_without_a_call")), (6, 2));
}

#[test]
fn pi_sessions_keep_every_answered_call() {
    let Some(output) = read("pi-sessions") else { return };
    check(&output, (1, 373), &[("large-session.jsonl", 0, "dc8c57bf3138", "cc760f9a0160")]);
    assert_eq!(output.count("calls_without_a_result"), 18, "391 calls, those of aborted turns were not run");
    let errors = output.trajectories[0].turns.iter().filter(|turn| turn.is_error == Some(true)).count();
    assert_eq!(errors, 19);
}

#[test]
fn ui_tars_desktop_is_web_work() {
    let Some(output) = read("ui-tars-desktop") else { return };
    let hashes = [
        ("aws_sdk_claude37_sonnet_event-stream.jsonl", 0, "c14d9ec45a2b", "2f032dede9c3"),
        ("doubao-seed-1.6_event-stream.jsonl", 0, "9f6f940e4ba0", "13554582a59e"),
    ];
    check(&output, (4, 34), &hashes);
    assert!(output.trajectories.iter().all(|trajectory| trajectory.domain == Domain::Web));
}

#[test]
fn inspect_logs_give_the_one_sample_with_tools() {
    let Some(output) = read("inspect-logs") else { return };
    // 3 trajectories in data.md: the samples of log_formats.json and log_formats.eval answer without a tool.
    check(&output, (1, 4), &[("browser.json", 0, "9b6b53eda4ce", "9690e72f04fd")]);
    let refused: Vec<&str> = output.rejects.iter().map(|reject| reject.file.trim_end_matches('/')).collect();
    assert_eq!(refused, ["log_formats.eval", "log_formats.json"]);
    let turns = &output.trajectories[0].turns;
    assert!(turns.iter().all(|turn| turn.observation_kind == ObservationKind::Tree));
    assert_eq!(turns[1].observation, turns[2].observation, "a click without effect returns the same page");
}

#[test]
fn intercode_gives_what_was_run() {
    let Some(output) = read("intercode") else { return };
    // 2089 trajectories in data.md: four of chat-bison have one action, which was blocked and has no observation.
    let hashes = [
        ("ic_bash_multiturn_gpt-4_10_turns_fs_1.json", 0, "9f8ba413e85f", "d84b25a195e3"),
        ("ic_bash_react_10_turns_fs_1.json", 0, "e05a67c96f57", "21a54e534cfc"),
        ("ic_sql_multiturn_human_10_turns.json", 0, "96e4a10108cb", "df1f74ea7c1b"),
    ];
    check(&output, (2085, 12019), &hashes);
    assert_eq!(output.report.rejects_by_rule, [("no_turns".to_string(), 4)].into());
    assert_eq!(output.count("calls_without_a_result"), 116, "the blocked last actions of chat-bison");
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    assert_eq!(turns().filter(|turn| turn.observation.trim().is_empty()).count(), 1388);
    assert_eq!(turns().map(|turn| turn.observation.chars().count()).max(), Some(942_040));
    assert_eq!(turns().filter(|turn| turn.observation.contains('\0')).count(), 12);
    assert_eq!(turns().filter(|turn| turn.flag("skip").is_some()).count(), 216);
}

#[test]
fn fireact_gives_text_and_chat_alike() {
    let Some(output) = read("fireact") else { return };
    let hashes = [("llama-2-13b-d_1000_0.7_2023-09-18-13-40-08.json", 0, "d38ab1ab41bb", "faa74f0deb28")];
    check(&output, (964, 2884), &hashes);
    let turns = || output.trajectories.iter().flat_map(|trajectory| &trajectory.turns);
    assert_eq!(turns().filter(|turn| turn.flag("skip") == Some("harness_text")).count(), 964, "one verdict each");
    let of = |file: &str| output.trajectories.iter().find(|trajectory| trajectory.source_path.contains(file)).unwrap();
    let (chat, text) = (of("gpt-3.5"), of("llama"));
    assert_eq!(chat.task_group, text.task_group, "a question is one group, whoever answered it");
    assert_eq!(
        (hash(&chat.turns[0]), hash(chat.turns.last().unwrap())),
        ("7f5f65c385b3".into(), "faa74f0deb28".into())
    );
}

#[test]
fn reflexion_gives_every_trial() {
    let Some(output) = read("reflexion-hotpotqa") else { return };
    let hashes = [
        ("100_questions_5_trials.txt", 0, "0a9de934ce9d", "4de0baca5061"),
        ("100_questions_5_trials.txt", 1, "f08667a8d509", "8698d53b38ae"),
    ];
    check(&output, (512, 1867), &hashes);
    let groups: std::collections::BTreeSet<&str> =
        output.trajectories.iter().map(|trajectory| trajectory.task_group.as_str()).collect();
    assert_eq!(groups.len(), 100, "a hundred questions");
    let successes = output.trajectories.iter().filter(|trajectory| trajectory.outcome.success == Some(true)).count();
    assert_eq!(successes, 170);
}

#[test]
fn react_webshop_begins_with_the_first_page() {
    let Some(output) = read("react-webshop") else { return };
    // 3937 in data.md: 500 of them are the resets, whose page is the state before the first action here.
    let hashes = [
        ("WebShop.stream.txt", 0, "776925fc48f2", "7d3b1095a44e"),
        ("WebShop.stream.txt", 1, "4ef1c766ccb6", "ecd42ddc6168"),
    ];
    check(&output, (500, 3437), &hashes);
    let has_page = |trajectory: &Trajectory| {
        trajectory.system.initial_state.as_deref().is_some_and(|page| page.starts_with("Webshop"))
    };
    assert!(output.trajectories.iter().all(has_page));
    assert!(output.trajectories.iter().all(|trajectory| !trajectory.system.task_description.is_empty()));
    let rewards: f64 = output.trajectories.iter().filter_map(|trajectory| trajectory.outcome.reward).sum();
    assert!((rewards / 500.0 - 0.637_983_333_333_333_1).abs() < 1e-9, "the mean that the log itself prints: {rewards}");
}

#[test]
fn every_synthetic_session_with_an_answered_call_is_read() {
    let Some(output) = read("format-fixtures-synthetic") else { return };
    let ours = ["codex", "gemini", "gemini-lines", "opencode-storage"];
    let told: Vec<(&str, u64, usize)> = output
        .trajectories
        .iter()
        .filter(|trajectory| ours.contains(&trajectory.format.as_str()))
        .map(|trajectory| (trajectory.source_path.as_str(), trajectory.source_row, trajectory.turns.len()))
        .collect();
    let expected = [
        ("session_branch.jsonl", 0, 1),
        ("session_toolcall.jsonl", 0, 1),
        ("stage0/agents/codex/large.jsonl", 0, 1),
        ("stage0/agents/codex/schema_drift.jsonl", 0, 1),
        ("stage0/agents/codex/small.jsonl", 0, 5),
        ("stage0/agents/gemini/jsonl_v040.jsonl", 0, 1),
        ("stage0/agents/gemini/large.json", 0, 2),
        ("stage0/agents/opencode/storage_legacy", 0, 1),
        ("stage0/agents/opencode/storage_v2", 0, 1),
        ("stage0/agents/opencode/storage_v2", 1, 1),
    ];
    assert_eq!(told, expected);
    // The sessions of ours without an answered call: four of usage events alone, three of words alone.
    let is_ours = |file: &str| !file.contains("/claude/");
    let refused: Vec<(&str, &str)> = output
        .rejects
        .iter()
        .map(|reject| (reject.file.as_str(), reject.rule.as_str()))
        .filter(|(file, _)| is_ours(file))
        .collect();
    let expected = [
        "codex_050_legacy.jsonl",
        "codex_051_usage.jsonl",
        "codex_052_raw.jsonl",
        "codex_053_rate_limit.jsonl",
        "session_simple.jsonl",
        "stage0/agents/gemini/schema_drift.json",
        "stage0/agents/gemini/small.json",
    ];
    assert_eq!(refused, expected.map(|file| (file, "no_turns")));
}
