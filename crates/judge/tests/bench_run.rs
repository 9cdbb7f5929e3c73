//! Inference and judging against a server that answers by script.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::sync::atomic::{AtomicUsize, Ordering};

use worldloom_judge::bench::{
    BenchRow, Bootstrap, JudgePrompts, Value, aggregate, completion_of, infer_rows, judge_rows, judge_rows_builtin,
    read_rows, write_rows,
};
use worldloom_judge::endpoint::scripted::{Answer, Seen, Server};
use worldloom_judge::endpoint::{Endpoint, Parameters};

fn row(id: usize, action: &str) -> BenchRow {
    let turn = format!("### Turn 1\\n\\n**Action:**\\n```bash\\n{action}\\n```");
    BenchRow::parse(&format!(
        "{{\"task\": \"terminal\", \"id\": \"{id}\", \"prompt\": [\"{turn}\\n\\nThink.\"], \
         \"response\": [\"**Environment Observation:**\\nfig\"], \"current_prompt\": \"{turn}\", \
         \"system_str\": \"s\", \"turn_idx\": 1, \"total_turns\": 1}}"
    ))
    .unwrap()
}

fn rows() -> Vec<BenchRow> {
    let broken = BenchRow::parse(r#"{"task": "terminal", "prompt": ["x"], "response": ["y"]}"#).unwrap();
    vec![row(0, "echo fig"), row(1, "twice"), row(2, "never"), row(3, "refused"), broken]
}

fn last_message(seen: &Seen) -> String {
    seen.body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().into()
}

const SCORES: &str = r#"{"format": 5, "factuality": 4, "consistency": 4, "realism": 5, "quality": 2}"#;

fn endpoint(server: &Server, cache: &std::path::Path) -> Endpoint {
    let mut config = server.config("m");
    (config.first_pause_s, config.attempts, config.concurrency) = (0.001, 2, 1);
    // The address changes from server to server, the model does not.
    config.cache_name = Some("scripted".into());
    Endpoint::new(config, None).unwrap().with_cache(cache).unwrap()
}

fn failed(row: &BenchRow) -> f64 {
    match row.fields().get("failed") {
        Some(Value::Float(failed)) => *failed,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn rows_are_completed_judged_and_scored_and_a_second_run_asks_only_for_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let parameters = Parameters { temperature: Some(0.6), max_tokens: Some(32768), ..Parameters::default() };
    let mut scored = Vec::new();
    for run in 0..2 {
        let model = Server::start(|seen| {
            assert_eq!((seen.body["temperature"].as_f64(), seen.body["max_tokens"].as_u64()), (Some(0.6), Some(32768)));
            match last_message(seen) {
                text if text.contains("refused") => Answer::text(400, "{\"error\": {\"message\": \"no\"}}"),
                _ => Answer::chat("<think>x</think><predicted_observation>fig</predicted_observation>"),
            }
        });
        let model = model.unwrap();
        let mut rows = rows();
        let counts = infer_rows(&endpoint(&model, folder.path()), &mut rows, &parameters, &mut |_, _| ()).await;
        assert_eq!((counts["done"], counts["rejected"], counts["row_fault"]), (3, 1, 1));
        assert!(completion_of(&rows[0]).contains("fig") && completion_of(&rows[3]).is_empty());

        let tries = AtomicUsize::new(0);
        let judge = Server::start(move |seen| {
            let text = last_message(seen);
            assert!(text.contains("**World Model Output (Simulated):**\n```\nfig\n```"), "{text}");
            let good = format!("<final_evaluation>{{\"strengths\": [], \"scores\": {SCORES}}}</final_evaluation>");
            match text {
                text if text.contains("never") => Answer::chat("I cannot say."),
                text if text.contains("twice") && tries.fetch_add(1, Ordering::Relaxed) == 0 => Answer::chat("hm"),
                _ => Answer::chat(&good),
            }
        });
        let judge = judge.unwrap();
        let client = endpoint(&judge, folder.path());
        let prompts = JudgePrompts::default();
        let counts = judge_rows(&client, &mut rows, &prompts, &parameters, 3, &mut |_, _| ()).await;
        assert_eq!((counts["done"], counts["unreadable_no_json"], counts["no_completion"]), (2, 1, 2));
        let expected = [0.0, 0.0, 1.0, 1.0, 1.0];
        assert_eq!(rows.iter().map(failed).collect::<Vec<_>>(), expected);
        assert_eq!(rows[0].fields().get("total_score"), Some(&Value::Float(4.0)));
        assert_eq!(rows[0].fields().get("extracted_output"), Some(&Value::Text("fig".into())));
        let asked = (model.seen().len(), judge.seen().len());
        // A refusal is no answer, and three replies that cannot be read are no judgement: they are asked for again.
        assert_eq!(asked, if run == 0 { (4, 6) } else { (1, 3) });
        let path = folder.path().join("judged.jsonl");
        write_rows(&path, &rows).unwrap();
        assert_eq!(read_rows(&path).unwrap(), rows);
        scored.push(aggregate(&rows, Bootstrap { resamples: 100, seed: 1 }).unwrap());
    }
    assert_eq!(scored[0], scored[1]);
    assert_eq!((scored[0].pooled, scored[0].valid, scored[0].total), (Some(75.0), 2, 5));
    assert_eq!(scored[0].strict_pooled, 30.0);
}

#[test]
fn the_rules_score_a_right_prediction_higher_than_a_wrong_one() {
    let mut rows = vec![row(0, "echo fig"), row(1, "echo fig")];
    for (row, prediction) in rows.iter_mut().zip(["fig", "bash: fig: command not found"]) {
        row.set("gen", Value::Text(format!("<predicted_observation>\n{prediction}\n</predicted_observation>")));
    }
    assert_eq!(judge_rows_builtin(&mut rows)["done"], 2);
    let total = |row: &BenchRow| match row.fields().get("total_score") {
        Some(Value::Float(total)) => *total,
        other => panic!("{other:?}"),
    };
    assert_eq!(total(&rows[0]), 5.0);
    assert!(total(&rows[1]) < 4.0);
}

#[test]
fn files_are_read_in_order_and_split_at_line_feeds_alone() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs_err::write(folder.path().join(name), text).unwrap();
    write("web_test.jsonl", "{\"id\": \"w\"}\n\n");
    write("mcp_test.jsonl", "\u{feff}{\"id\": \"a\u{2028}b\"}\r\n{\"id\": \"c\"}");
    write("other.jsonl", "not read");
    let ids: Vec<String> =
        read_rows(folder.path()).unwrap().iter().map(|row| row.fields().get("id").unwrap().to_str()).collect();
    assert_eq!(ids, ["a\u{2028}b", "c", "w"]);
    write("zoo_test.jsonl", "{\"id\": 1}\n{\"id\": ");
    let error = read_rows(folder.path()).unwrap_err().to_string();
    assert!(error.contains("zoo_test.jsonl") && error.contains("line 2"), "{error}");
    let empty = tempfile::tempdir().unwrap();
    assert!(read_rows(empty.path()).unwrap_err().to_string().contains("_test.jsonl"));
}
