//! The benchmark's evaluator against what the published one answered (`tests/golden/bench`).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use num_bigint::BigInt;
use worldloom_judge::bench::{
    BenchRow, Bootstrap, COLUMNS, JudgePrompts, Value, aggregate, extract_prediction, parse, read_reply, without_marker,
};

const BOOTSTRAP: Bootstrap = Bootstrap { resamples: 200, seed: 7 };

const PREDICTIONS: &str = include_str!("../../../tests/golden/bench/predictions.jsonl");
const REPLIES: &str = include_str!("../../../tests/golden/bench/replies.jsonl");
const ROWS: &str = include_str!("../../../tests/golden/bench/rows.jsonl");
const AGGREGATE: &str = include_str!("../../../tests/golden/bench/aggregate.jsonl");

/// The cases of a file; `expected` of them, so that none goes missing.
fn cases(file: &str, expected: usize) -> Vec<Value> {
    let cases: Vec<Value> = file.lines().map(|line| parse(line).unwrap()).collect();
    assert_eq!(cases.len(), expected);
    cases
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_text).unwrap_or_else(|| panic!("`{key}` in {}", value.to_json()))
}

fn number(value: &Value) -> f64 {
    match value {
        Value::Int(number) => number.to_string().parse().unwrap(),
        Value::Float(number) => *number,
        other => panic!("a number, found {}", other.to_json()),
    }
}

#[test]
fn predictions_are_extracted_as_published() {
    for case in cases(PREDICTIONS, 86) {
        let raw = case.get("raw").and_then(Value::as_text).unwrap_or_default();
        let extracted = extract_prediction(raw);
        assert_eq!(extracted, text(&case, "extracted"), "{}", text(&case, "id"));
        let domain = text(&case, "task").rsplit('/').next().unwrap();
        assert_eq!(without_marker(&extracted, domain), text(&case, "cleaned"), "{}", text(&case, "id"));
    }
}

#[test]
fn replies_are_read_as_published() {
    for case in cases(REPLIES, 197) {
        let id = text(&case, "id");
        let found = read_reply(case.get("raw").and_then(Value::as_text).unwrap_or_default());
        assert_eq!(case.get("success"), Some(&Value::Bool(found.is_ok())), "{id}: {found:?}");
        let evaluation = match found {
            Err(fault) => {
                assert_eq!(fault.as_str(), text(&case, "error"), "{id}");
                continue;
            }
            Ok(evaluation) => evaluation,
        };
        let scores = case.get("scores").unwrap();
        for (column, score) in COLUMNS.iter().zip(&evaluation.scores) {
            let expected = match scores.get(column) {
                Some(Value::Int(expected)) => expected.clone(),
                Some(Value::Bool(false)) => BigInt::ZERO,
                other => panic!("{id}: {column} {other:?}"),
            };
            assert_eq!(*score, expected, "{id}: {column}");
        }
        assert!((evaluation.total_score - number(case.get("total_score").unwrap())).abs() < 1e-12, "{id}");
        for (key, found) in [("strengths", &evaluation.strengths), ("weaknesses", &evaluation.weaknesses)] {
            let expected = Value::List(found.iter().map(|text| Value::Text(text.clone())).collect());
            assert_eq!(case.get(key), Some(&expected), "{id}: {key}");
        }
    }
}

/// A message as the goldens write it.
fn written(messages: Vec<worldloom_judge::bench::Message>) -> Value {
    let message = |message: worldloom_judge::bench::Message| {
        let role = Value::Text(message.role.into());
        Value::Dict(vec![("role".into(), role), ("content".into(), message.content)])
    };
    Value::List(messages.into_iter().map(message).collect())
}

#[test]
fn messages_are_made_as_published() {
    let prompts = JudgePrompts::default();
    for case in cases(ROWS, 59) {
        let id = text(&case, "id");
        let row = BenchRow::parse(&case.get("row").unwrap().to_json()).unwrap();
        let inference = case.get("inference").unwrap();
        match row.inference_messages() {
            Ok(messages) => assert_eq!(Some(&written(messages)), inference.get("messages"), "{id}"),
            Err(fault) => assert_eq!(fault.python, text(inference, "error"), "{id}: {fault}"),
        }
        let judge = case.get("judge").unwrap();
        let generated = case.get("gen").and_then(Value::as_text).unwrap_or_default();
        let request = match row.judge_request(generated, &prompts) {
            Ok(request) => request,
            Err(fault) => {
                assert_eq!(fault.python, text(judge, "error"), "{id}: {fault}");
                continue;
            }
        };
        assert_eq!(judge.get("called"), Some(&Value::Bool(request.is_some())), "{id}");
        let Some(request) = request else { continue };
        assert_eq!(request.prediction, text(judge, "extracted"), "{id}");
        let (parts, expected) = (row.judge_parts(&request.prediction).unwrap(), judge.get("parts").unwrap());
        assert_eq!(parts.context, text(expected, "context"), "{id}");
        assert_eq!(parts.world_model_input, text(expected, "world_model_input"), "{id}");
        assert_eq!(parts.predicted_observation, text(expected, "predicted_observation"), "{id}");
        assert_eq!(parts.ground_truth, text(expected, "ground_truth"), "{id}");
        let domain = judge.get("system_domain").and_then(Value::as_text);
        assert_eq!(request.system, domain.map_or("", |domain| prompts.system(domain)), "{id}");
        // Slots are filled once: each part is in the message as it is.
        for part in [&parts.context, &parts.predicted_observation, &parts.ground_truth] {
            assert!(request.user.contains(part.trim()), "{id}");
        }
    }
}

#[test]
fn tables_are_those_of_the_published_script_digit_for_digit() {
    for case in cases(AGGREGATE, 40) {
        let id = text(&case, "id");
        let Some(Value::List(jobs)) = case.get("jobs") else { panic!("{id}") };
        let rows: Vec<BenchRow> = jobs.iter().map(|job| BenchRow::parse(&job.to_json()).unwrap()).collect();
        let expected = case.get("expected").unwrap();
        let scores = match aggregate(&rows, BOOTSTRAP) {
            Ok(scores) => scores,
            Err(fault) => {
                assert_eq!(fault.python, text(expected, "error"), "{id}");
                continue;
            }
        };
        let Some(Value::List(domains)) = expected.get("domains") else { panic!("{id}: an error is expected") };
        assert_eq!(scores.domains.len(), domains.len(), "{id}");
        for (found, expected) in scores.domains.iter().zip(domains) {
            let place = format!("{id}: {}", found.domain);
            assert_eq!(found.name, text(expected, "name"), "{place}");
            let counts = [("valid", found.valid), ("total", found.total), ("failed", found.failed())];
            for (key, count) in counts {
                assert_eq!(expected.get(key), Some(&Value::Int(count.into())), "{place}: {key}");
            }
            let columns = found.scores.map(|scores| scores.map(|score| format!("{score:.2}")));
            for (at, column) in COLUMNS.iter().enumerate() {
                let expected = expected.get("scores").and_then(|scores| scores.get(column)).and_then(Value::as_text);
                assert_eq!(columns.as_ref().map(|columns| columns[at].as_str()), expected, "{place}: {column}");
            }
        }
        let overall = expected.get("overall").and_then(Value::as_text);
        assert_eq!(scores.pooled.map(|score| format!("{score:.2}")).as_deref(), overall, "{id}");
        if overall.is_some() {
            let counts = [("total", scores.total), ("valid", scores.valid), ("failed", scores.failed())];
            for (key, count) in counts {
                assert_eq!(expected.get(key), Some(&Value::Int(count.into())), "{id}: {key}");
            }
        }
        let macro_mean = case.get("macro").unwrap();
        match macro_mean.get("value").unwrap() {
            Value::Null => assert_eq!(scores.macro_mean, None, "{id}"),
            value => assert!((scores.macro_mean.unwrap() - number(value)).abs() < 1e-9, "{id}"),
        }
        let left_out = Value::List(scores.left_out.iter().map(|domain| Value::Text(domain.clone())).collect());
        assert_eq!(macro_mean.get("left_out"), Some(&left_out), "{id}");
        assert_eq!(scores.failures.values().sum::<u64>(), scores.failed() as u64, "{id}");
        assert!(scores.strict_pooled <= scores.pooled.unwrap_or(0.0).max(0.0) + 1e-9, "{id}: failures only lower it");
    }
}

#[test]
fn rows_of_one_trajectory_are_one_cluster_and_ids_used_twice_are_two() {
    let row = |id: &str, first: &str, turn: usize, score: f64| {
        let prompts = format!("[\"{first}\", \"### Turn {turn}\"]");
        let text = format!(
            "{{\"task\": \"mcp\", \"id\": \"{id}\", \"prompt\": {prompts}, \"turn_idx\": {turn}, \"system_str\": \"s\", \
             \"failed\": 0.0, \"total_score\": {score}}}"
        );
        BenchRow::parse(&text).unwrap()
    };
    let rows = [row("a", "ls", 2, 4.0), row("a", "ls", 3, 5.0), row("a", "pwd", 2, 1.0), row("b", "ls", 2, 3.0)];
    let scores = aggregate(&rows, BOOTSTRAP).unwrap();
    let interval = scores.pooled_interval.unwrap();
    assert_eq!((interval.n, interval.clusters), (4, 3));
    assert!(interval.low < interval.mean && interval.mean < interval.high);
    assert_eq!(scores.pooled, Some(interval.mean));
}

/// A judged row with the same score in every column; none for one that failed.
fn judged(domain: &str, id: usize, score: Option<f64>) -> BenchRow {
    let scores = match score {
        Some(score) => COLUMNS.map(|column| format!("\"{column}\": {score}")).join(", ") + ", \"failed\": 0.0",
        None => "\"failed\": 1.0, \"total_score\": 0, \"error_message\": \"Judge call failed: 500\"".into(),
    };
    BenchRow::parse(&format!("{{\"task\": \"{domain}\", \"id\": {id}, \"turn_idx\": 1, {scores}}}")).unwrap()
}

#[test]
fn the_mean_of_domains_and_the_strict_means_have_intervals_of_their_own() {
    // Eight rows of mcp between 25 and 75, one of web at 100 and one that failed.
    let mut rows: Vec<BenchRow> =
        (0..8).map(|id| judged("mcp", id, Some(if id % 2 == 0 { 2.0 } else { 4.0 }))).collect();
    rows.extend([judged("web", 8, Some(5.0)), judged("web", 9, None)]);
    let scores = aggregate(&rows, BOOTSTRAP).unwrap();
    let found = scores.macro_interval.unwrap();
    assert_eq!((scores.macro_mean, found.mean, found.n, found.clusters), (Some(75.0), 75.0, 9, 9));
    // Of mcp alone the mean moves between 25 and 75; half of that is left.
    assert!(62.5 <= found.low && found.low < 70.0 && 80.0 < found.high && found.high <= 87.5, "{found:?}");
    assert!(scores.macro_columns.iter().all(|column| *column == Some(75.0)));
    let strict = (scores.strict_pooled_interval.unwrap(), scores.strict_macro_interval.unwrap());
    assert_eq!((scores.strict_pooled, strict.0.mean, strict.0.n), (50.0, 50.0, 10));
    assert_eq!((scores.strict_macro, strict.1.mean, strict.1.n), (50.0, 50.0, 10));
    assert!(strict.1.high - strict.1.low > strict.0.high - strict.0.low, "two rows of web weigh as much as eight");
    let text = worldloom_judge::bench::to_text(&scores);
    assert!(text.contains("Mean of 2 domains, as the paper does: 75.00 ("), "{text}");
    assert!(text.contains("With failures as 0, by domain: 50.00 ("), "{text}");
    assert!(text.contains("factuality: 75.00"), "{text}");
}

#[test]
fn a_domain_in_which_all_fails_is_0_and_every_row_without_a_total_has_a_reason() {
    let rows = [judged("mcp", 0, None), judged("mcp", 1, None), judged("os", 2, Some(3.0)), judged("os", 3, Some(0.0))];
    let scores = aggregate(&rows, BOOTSTRAP).unwrap();
    assert!(scores.domains[0].strict.is_sign_positive() && scores.domains[0].strict == 0.0);
    let text = worldloom_judge::bench::to_text(&scores);
    assert!(text.contains("failures as 0: 0.00\n") && !text.contains("-0.00"), "{text}");
    let failures: Vec<(&str, u64)> = scores.failures.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(failures, [("Every score is 0", 1), ("Judge call failed", 2)]);
    assert_eq!(scores.failed() as u64, scores.failures.values().sum::<u64>());
    let nothing = aggregate(&[], BOOTSTRAP).unwrap();
    assert!(nothing.strict_pooled.is_sign_positive() && nothing.strict_macro.is_sign_positive());
}

proptest::proptest! {
    #[test]
    fn no_reply_and_no_completion_stops_the_run(raw in "[\\PC\n{}\":,<>/`']{0,80}") {
        let _ = read_reply(&raw);
        let _ = extract_prediction(&raw);
        let tagged = format!("<final_evaluation>{{\"scores\": {{{raw}}}}}</final_evaluation>");
        if let Ok(evaluation) = read_reply(&tagged) {
            proptest::prop_assert!(evaluation.scores.iter().all(|score| *score <= BigInt::from(5)));
        }
    }
}
