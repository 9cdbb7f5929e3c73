//! A fixture for each format, written by us with its odd cases, and what comes out of it.
//!
//! `UPDATE_EXPECT=1` writes the expected files anew; read them before they are kept.

use std::path::PathBuf;

use expect_test::expect_file;

use crate::common::{Output, ingest};

fn read(name: &str) -> Output {
    ingest(&[PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/agents").join(name)])
}

/// Compares what comes out of a fixture with the file beside it.
fn check(name: &str, format: &str) {
    let output = read(name);
    let formats: Vec<&String> = output.report.formats.keys().collect();
    assert_eq!(formats, [format], "the format is found from the content: {:?}", output.rejects);
    let file = format!("{}/tests/fixtures/agents/{name}.expected", env!("CARGO_MANIFEST_DIR"));
    expect_file![file].assert_eq(&output.told());
}

macro_rules! fixtures {
    ($($test:ident: $name:literal is $format:literal;)*) => {
        $(#[test]
        fn $test() {
            check($name, $format);
        })*
    };
}

fixtures! {
    steps_of_swe_agent_0_have_their_state_before_the_action: "swe-agent-v0.traj" is "swe-agent";
    steps_of_swe_agent_1_have_their_state_after_the_action: "swe-agent-v1.traj" is "swe-agent";
    a_history_alone_gives_actions_and_the_messages_after_them: "swe-agent-history.traj" is "swe-agent";
    events_of_openhands_pair_by_cause_and_not_by_place: "openhands.jsonl" is "openhands";
    a_bare_list_of_events_is_a_conversation: "openhands-events.json" is "openhands-events";
    events_of_the_openhands_sdk_pair_by_the_call_they_answer: "openhands-sdk-events.json" is "openhands-sdk-events";
    an_evaluation_with_the_openhands_sdk_has_events_in_its_history: "openhands-sdk-history.jsonl" is "openhands-sdk-history";
    a_conversation_of_the_openhands_sdk_is_a_folder: "openhands-sdk" is "openhands-sdk";
    sessions_of_pi_pair_by_id_and_keep_commands_of_the_user: "pi.jsonl" is "pi";
    ids_that_tarko_uses_again_are_answered_in_order: "tarko.jsonl" is "tarko";
    attachments_of_inspect_are_put_back: "inspect.json" is "inspect";
    a_sample_of_inspect_is_read_by_itself: "inspect-sample.json" is "inspect";
    samples_of_an_eval_archive_are_files: "inspect-eval" is "inspect-eval";
    parallel_lists_of_intercode_pair_by_place_and_may_be_uneven: "intercode.json" is "intercode";
    fireact_may_be_text_or_chat: "fireact.json" is "fireact";
    blocks_of_a_react_log_are_episodes: "react-log.txt" is "react-log";
    a_shop_is_reset_before_the_first_action: "webshop.txt" is "react-webshop";
    a_notebook_holds_the_trace_it_printed: "webshop.ipynb" is "react-webshop-notebook";
    rollouts_of_codex_are_read_from_response_items: "codex.jsonl" is "codex";
    items_of_old_codex_stand_bare: "codex-bare.jsonl" is "codex";
    first_logs_of_codex_pair_by_order: "codex-first.jsonl" is "codex";
    calls_of_gemini_have_their_results_with_them: "gemini.json" is "gemini";
    a_chat_of_gemini_may_be_lines: "gemini-lines.jsonl" is "gemini-lines";
    rewound_records_of_qwen_are_left_out: "qwen.jsonl" is "gemini-lines";
    parts_of_opencode_lie_in_folders: "opencode" is "opencode-storage";
    an_export_of_opencode_is_one_object: "opencode-export.json" is "opencode";
    events_of_copilot_repeat_a_call_once: "copilot.jsonl" is "copilot";
    calls_of_cursor_without_ids_are_answered_in_order: "cursor.jsonl" is "cursor";
    the_store_of_droid_has_blocks: "droid.jsonl" is "droid";
    the_stream_of_droid_has_records: "droid-stream.jsonl" is "droid";
    the_wire_of_kimi_has_loop_events: "kimi.jsonl" is "kimi";
}
