//! The two steps that ask somebody: the model under test for completions, the judge for evaluations.
//!
//! Both go on where they stopped, by the endpoint's cache; judgements that cannot be read leave it. What fails is counted
//! by reason and marked in its row; it never stops the rest.

use std::collections::BTreeMap;

use num_bigint::BigInt;
use worldloom_schema::Domain;

use super::aggregate::COLUMNS;
use super::prediction::extract_prediction;
use super::prompts::JudgePrompts;
use super::python::Value;
use super::reply::{Evaluation, read_reply};
use super::row::{BenchRow, Message};
use crate::endpoint::{self, ChatRequest, Endpoint, Parameters};
use crate::rubric::{BuiltinJudge, Dimension, Judge, JudgeContext, JudgeOutcome};

/// Counts by reason; `done` among them.
pub type Counts = BTreeMap<String, u64>;

/// Hears how many rows are done, and of how many.
pub type Progress<'a> = &'a mut (dyn FnMut(u64, u64) + Send);

fn count(counts: &mut Counts, reason: &str) {
    *counts.entry(reason.into()).or_default() += 1;
}

/// Sets a row's completion.
pub fn set_completion(row: &mut BenchRow, completion: &str) {
    row.set("gen", Value::Text(completion.into()));
}

/// A row's completion; empty where there is none.
pub fn completion_of(row: &BenchRow) -> &str {
    row.fields().get("gen").and_then(Value::as_text).unwrap_or_default()
}

/// Asks an endpoint for the completion of every row, and sets it; empty where it fails.
pub async fn infer_rows(
    endpoint: &Endpoint,
    rows: &mut [BenchRow],
    parameters: &Parameters,
    progress: Progress<'_>,
) -> Counts {
    let (mut counts, mut requests, mut places) = (Counts::new(), Vec::new(), Vec::new());
    for (place, row) in rows.iter_mut().enumerate() {
        match row.inference_messages() {
            Ok(messages) => {
                requests.push(ChatRequest::new(messages.iter().map(sent).collect(), parameters.clone()));
                places.push(place);
            }
            Err(fault) => {
                count(&mut counts, "row_fault");
                refuse(row, &fault.to_string());
            }
        }
    }
    let (total, mut done) = (requests.len() as u64, 0);
    let mut answers = Vec::new();
    let hear = |number: usize, outcome| {
        answers.push((places[number], outcome));
        done += 1;
        progress(done, total);
    };
    endpoint.chat_each(&requests, hear).await;
    for (place, outcome) in answers {
        let row = &mut rows[place];
        match outcome {
            Ok(reply) => {
                count(&mut counts, "done");
                let content = reply.choices.first().and_then(|choice| choice.content.as_deref());
                set_completion(row, content.unwrap_or_default());
            }
            Err(failure) => {
                count(&mut counts, failure.kind());
                refuse(row, &failure.to_string());
            }
        }
    }
    counts
}

/// A row without a completion, and why.
pub fn refuse(row: &mut BenchRow, detail: &str) {
    set_completion(row, "");
    row.set("error_message", Value::Text(detail.into()));
}

fn sent(message: &Message) -> endpoint::Message {
    let text = message.content.to_str();
    match message.role {
        "system" => endpoint::Message::system(text),
        "assistant" => endpoint::Message::assistant(text),
        _ => endpoint::Message::user(text),
    }
}

/// Asks a judge about every row that has a completion, up to `attempts` times until a reply can be read, and sets the
/// scores.
pub async fn judge_rows(
    endpoint: &Endpoint,
    rows: &mut [BenchRow],
    prompts: &JudgePrompts,
    parameters: &Parameters,
    attempts: u32,
    progress: Progress<'_>,
) -> Counts {
    let mut counts = Counts::new();
    let (mut waiting, mut predictions) = (Vec::new(), BTreeMap::new());
    for (place, row) in rows.iter_mut().enumerate() {
        match row.judge_request(completion_of(row), prompts) {
            Ok(Some(request)) => {
                predictions.insert(place, request.prediction.clone());
                let messages = vec![endpoint::Message::system(request.system), endpoint::Message::user(request.user)];
                waiting.push((place, ChatRequest::new(messages, parameters.clone())));
            }
            Ok(None) => {
                count(&mut counts, "no_completion");
                fail(row, "No model generation", None);
            }
            Err(fault) => {
                count(&mut counts, "row_fault");
                fail(row, &fault.to_string(), None);
            }
        }
    }
    let (total, mut done) = (waiting.len() as u64, 0);
    for attempt in 0..attempts.max(1) {
        let is_last = attempt + 1 == attempts.max(1);
        waiting.iter_mut().for_each(|(_, request)| request.draw = attempt);
        let requests: Vec<ChatRequest> = waiting.iter().map(|(_, request)| request.clone()).collect();
        let mut outcomes = Vec::new();
        endpoint.chat_each(&requests, |number, outcome| outcomes.push((number, outcome))).await;
        let mut again = Vec::new();
        for (number, outcome) in outcomes {
            let place = waiting[number].0;
            let (row, prediction) = (&mut rows[place], predictions.get(&place).map_or("", String::as_str));
            let reply = match outcome {
                Ok(reply) => reply.choices.into_iter().next().and_then(|choice| choice.content).unwrap_or_default(),
                Err(failure) => {
                    count(&mut counts, failure.kind());
                    fail(row, &format!("Judge call failed: {failure}"), Some(prediction));
                    done += 1;
                    continue;
                }
            };
            match read_reply(&reply) {
                Ok(evaluation) => {
                    count(&mut counts, "done");
                    succeed(row, &evaluation, prediction, &reply);
                    done += 1;
                }
                Err(_) if !is_last => again.push(number),
                Err(fault) => {
                    count(&mut counts, &format!("unreadable_{}", fault.as_str()));
                    fail(row, "Judge scoring failed", Some(prediction));
                    forget(endpoint, &waiting[number].1);
                    done += 1;
                }
            }
            progress(done, total);
        }
        again.sort_unstable();
        waiting = again.into_iter().map(|number| waiting[number].clone()).collect();
    }
    counts
}

/// None of the replies could be read: the next run asks anew.
fn forget(endpoint: &Endpoint, last: &ChatRequest) {
    for draw in 0..=last.draw {
        if let Err(error) = endpoint.forget(&ChatRequest { draw, ..last.clone() }) {
            tracing::warn!(%error, "a reply that cannot be read stays in the cache");
        }
    }
}

/// Scores every row with the rules of [`BuiltinJudge`], which is not the benchmark's judge: for tests, for smoke runs
/// and for comparing checkpoints without a model that judges.
pub fn judge_rows_builtin(rows: &mut [BenchRow]) -> Counts {
    let mut counts = Counts::new();
    for row in rows {
        let completion = completion_of(row).to_string();
        if completion.is_empty() {
            count(&mut counts, "no_completion");
            fail(row, "No model generation", None);
            continue;
        }
        let prediction = extract_prediction(&completion);
        match builtin(row, &prediction) {
            Ok(evaluation) => {
                count(&mut counts, "done");
                succeed(row, &evaluation, &prediction, "");
            }
            Err(detail) => {
                count(&mut counts, "row_fault");
                fail(row, &detail, Some(&prediction));
            }
        }
    }
    counts
}

fn builtin(row: &BenchRow, prediction: &str) -> Result<Evaluation, String> {
    let turns = row.turns().map_err(|fault| fault.to_string())?;
    let domain: Domain = row.domain().map_err(|fault| fault.to_string())?.parse()?;
    let (target, history) = turns.split_last().ok_or("there is no turn")?;
    let history: Vec<(&str, &str)> = history.iter().map(|turn| (turn.0.as_str(), turn.1.as_str())).collect();
    let context = JudgeContext { domain, initial_state: None, history: &history, action: &target.0 };
    let prediction = super::prediction::without_marker(prediction, domain.as_str());
    match BuiltinJudge.score(&context, &target.1, &prediction) {
        JudgeOutcome::Scored(scores) => Ok(Evaluation {
            scores: Dimension::ALL.map(|dimension| BigInt::from(u8::from(scores.get(dimension)))),
            total_score: scores.mean(),
            strengths: Vec::new(),
            weaknesses: Vec::new(),
        }),
        _ => Err("no scores".into()),
    }
}

/// As the published script marks a scored row.
fn succeed(row: &mut BenchRow, evaluation: &Evaluation, prediction: &str, reply: &str) {
    let texts = |texts: &[String]| Value::List(texts.iter().map(|text| Value::Text(text.clone())).collect());
    row.set("total_score", Value::Float(evaluation.total_score));
    for (column, score) in COLUMNS.iter().zip(&evaluation.scores) {
        row.set(column, Value::Int(score.clone()));
    }
    row.set("failed", Value::Float(0.0));
    row.set("strengths", texts(&evaluation.strengths));
    row.set("weaknesses", texts(&evaluation.weaknesses));
    row.set("extracted_output", Value::Text(prediction.into()));
    row.set("judge_raw_output", Value::Text(reply.into()));
}

/// As the published script marks a failed row.
fn fail(row: &mut BenchRow, message: &str, prediction: Option<&str>) {
    row.set("total_score", Value::Int(BigInt::ZERO));
    row.set("failed", Value::Float(1.0));
    // What went wrong first says more.
    if row.fields().get("error_message").is_none() {
        row.set("error_message", Value::Text(message.into()));
    }
    if let Some(prediction) = prediction {
        row.set("extracted_output", Value::Text(prediction.into()));
    }
}
