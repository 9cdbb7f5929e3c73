//! One completion on its way into the API's shape, whole or piece by piece.

use serde_json::{Map, Value, json};
use worldloom_world::ThinkingSplitter;
use worldloom_world::engine::{Delta, Finish, SampledToken};

use super::request::Kind;
use crate::app::App;

/// A log-prob that JSON can hold.
const LEAST_LOG_PROB: f32 = -9999.0;

/// What a delta adds to a choice.
#[derive(Debug, Default)]
pub(super) struct Piece {
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) tokens: Vec<SampledToken>,
    pub(super) finish: Option<Finish>,
}

/// A choice as it grows.
#[derive(Debug)]
pub(super) struct Choice {
    splitter: Option<ThinkingSplitter>,
    pub(super) content: String,
    pub(super) reasoning: String,
    pub(super) tokens: Vec<SampledToken>,
    pub(super) finish: Option<Finish>,
}

impl Choice {
    pub(super) fn new(kind: Kind) -> Self {
        let splits = kind == Kind::Chat { splits_reasoning: true };
        Self {
            splitter: splits.then(ThinkingSplitter::default),
            content: String::new(),
            reasoning: String::new(),
            tokens: Vec::new(),
            finish: None,
        }
    }

    /// Adds a delta, and says what it adds.
    pub(super) fn add(&mut self, delta: Delta) -> Piece {
        let Delta { text, token, finish, .. } = delta;
        let (mut reasoning, mut content) = match &mut self.splitter {
            Some(splitter) => splitter.push(&text),
            None => (String::new(), text),
        };
        if finish.is_some()
            && let Some(splitter) = &mut self.splitter
        {
            let (more_reasoning, more_content) = splitter.finish();
            reasoning.push_str(&more_reasoning);
            content.push_str(&more_content);
        }
        self.content.push_str(&content);
        self.reasoning.push_str(&reasoning);
        self.tokens.extend(token.clone());
        self.finish = finish.clone().or(self.finish.take());
        Piece { content, reasoning, tokens: token.into_iter().collect(), finish }
    }
}

/// The API's word for an end.
pub(super) fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop | Finish::StopText => "stop",
        Finish::Length => "length",
        Finish::Failed(_) => "error",
    }
}

/// The message of a whole chat choice, or the delta of a piece of one.
pub(super) fn message(content: &str, reasoning: &str, is_whole: bool) -> Map<String, Value> {
    let mut message = Map::new();
    if is_whole {
        message.insert("role".into(), "assistant".into());
    }
    if is_whole || !content.is_empty() {
        message.insert("content".into(), content.into());
    }
    if !reasoning.is_empty() {
        message.insert("reasoning_content".into(), reasoning.into());
    }
    if is_whole {
        message.insert("refusal".into(), Value::Null);
    }
    message
}

/// Log-probs as chat completions have them; the stop token is no part of the text and is left out.
pub(super) fn chat_log_probs(app: &App, tokens: &[SampledToken], ends: bool) -> Value {
    let one = |token: u32, log_prob: f32| {
        let text = token_text(app, token);
        let bytes = text.as_bytes().to_vec();
        json!({"token": text, "logprob": log_prob.max(LEAST_LOG_PROB), "bytes": bytes, "token_id": token})
    };
    let entry = |token: &SampledToken| {
        let mut entry = one(token.token, token.log_prob);
        let top: Vec<Value> = token.most_probable.iter().map(|(token, log_prob)| one(*token, *log_prob)).collect();
        entry["top_logprobs"] = top.into();
        entry
    };
    let shown = without_stop(app, tokens, ends);
    json!({"content": shown.iter().map(entry).collect::<Vec<_>>(), "refusal": null})
}

/// Log-probs as completions have them; `start` is the number of characters of text before these tokens.
pub(super) fn completion_log_probs(app: &App, tokens: &[SampledToken], ends: bool, start: usize) -> Value {
    let shown = without_stop(app, tokens, ends);
    let texts: Vec<String> = shown.iter().map(|token| token_text(app, token.token)).collect();
    let offsets: Vec<usize> = texts
        .iter()
        .scan(start, |offset, text| {
            let here = *offset;
            *offset += text.chars().count();
            Some(here)
        })
        .collect();
    let log_probs: Vec<f32> = shown.iter().map(|token| token.log_prob.max(LEAST_LOG_PROB)).collect();
    let top = |token: &SampledToken| -> Map<String, Value> {
        let named = token.most_probable.iter();
        named.map(|(token, log_prob)| (token_text(app, *token), log_prob.max(LEAST_LOG_PROB).into())).collect()
    };
    let top: Vec<Map<String, Value>> = shown.iter().map(top).collect();
    json!({"tokens": texts, "token_logprobs": log_probs, "top_logprobs": top, "text_offset": offsets})
}

fn without_stop<'a>(app: &App, tokens: &'a [SampledToken], ends: bool) -> &'a [SampledToken] {
    let stops = app.engine.model().renderer().stop_tokens();
    match tokens.split_last() {
        Some((last, before)) if ends && stops.contains(&last.token) => before,
        _ => tokens,
    }
}

fn token_text(app: &App, token: u32) -> String {
    app.engine.model().renderer().tokenizer().decode_going_on(&[token]).unwrap_or_default()
}
