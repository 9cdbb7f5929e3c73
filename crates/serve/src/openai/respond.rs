//! From a job to a response: whole, or as server-sent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::Stream;
use futures::stream::unfold;
use rand::Rng;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use worldloom_world::engine::{Delta, Finish, Ticket};

use super::choice::{Choice, Piece, chat_log_probs, completion_log_probs, finish_reason, message};
use super::request::{Job, Kind};
use crate::app::App;
use crate::error::ApiError;

/// How often a stream that has nothing to say shows that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Work in progress. Dropped, when its client hangs up, it ends the work.
struct Running {
    app: Arc<App>,
    kind: Kind,
    log_probs: bool,
    returns_ids: bool,
    id: String,
    created: u64,
    prompts: Vec<Vec<u32>>,
    /// Completions of each prompt.
    group: usize,
    choices: Vec<Choice>,
    left: usize,
    deltas: UnboundedReceiver<(usize, Delta)>,
    started: Instant,
    has_begun: bool,
    _tickets: Vec<Ticket>,
}

pub(super) async fn respond(app: Arc<App>, job: Job) -> Response {
    let (streams, includes_usage) = (job.streams, job.includes_usage);
    let running = match Running::start(app, job) {
        Ok(running) => running,
        Err(error) => return error.into_response(),
    };
    if streams {
        let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
        return Sse::new(running.events(includes_usage)).keep_alive(keep_alive).into_response();
    }
    match running.whole().await {
        Ok(answer) => Json(answer).into_response(),
        Err(error) => error.into_response(),
    }
}

impl Running {
    fn start(app: Arc<App>, job: Job) -> Result<Self, ApiError> {
        let Job { asks, kind, log_probs, returns_ids, .. } = job;
        let (sender, deltas) = unbounded_channel();
        let group = asks.first().map_or(1, |ask| ask.request.num_completions);
        let prompts = asks.iter().map(|ask| ask.request.prompt.clone()).collect();
        let choices: Vec<Choice> = (0..asks.len() * group).map(|_| Choice::new(kind)).collect();
        let mut tickets = Vec::new();
        for (place, ask) in asks.into_iter().enumerate() {
            let (base, sender) = (place * group, sender.clone());
            let hear = move |delta: Delta| _ = sender.send((base + delta.completion, delta));
            tickets.push(app.engine.submit(ask, hear).map_err(|error| ApiError::of(&error, "prompt"))?);
        }
        let prefix = if kind == Kind::Completion { "cmpl" } else { "chatcmpl" };
        Ok(Self {
            app,
            kind,
            log_probs,
            returns_ids,
            id: format!("{prefix}-{:032x}", rand::rng().random::<u128>()),
            created: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            prompts,
            group,
            left: choices.len(),
            choices,
            deltas,
            started: Instant::now(),
            has_begun: false,
            _tickets: tickets,
        })
    }

    /// The next piece and the choice that it belongs to; an error once the time is over.
    async fn next(&mut self) -> Result<(usize, Piece), ApiError> {
        let limit = self.app.config.request_timeout;
        let rest = limit.saturating_sub(self.started.elapsed());
        let received = tokio::time::timeout(rest, self.deltas.recv()).await;
        let received = received.map_err(|_| ApiError::timeout(limit.as_secs_f64()))?;
        let stopping = || ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", "the server is stopping");
        let (index, delta) = received.ok_or_else(stopping)?;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.app.metrics.began(self.started.elapsed());
        }
        if let Some(Finish::Failed(reason)) = &delta.finish {
            return Err(ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", reason.clone()));
        }
        self.left -= usize::from(delta.finish.is_some());
        Ok((index, self.choices[index].add(delta)))
    }

    async fn whole(mut self) -> Result<Value, ApiError> {
        while self.left > 0 {
            self.next().await?;
        }
        let choices: Vec<Value> = (0..self.choices.len()).map(|index| self.choice(index)).collect();
        let object = if self.kind == Kind::Completion { "text_completion" } else { "chat.completion" };
        let mut answer = self.head(object);
        answer["choices"] = choices.into();
        answer["usage"] = self.usage();
        if self.returns_ids && self.kind != Kind::Completion {
            answer["prompt_token_ids"] = json!(self.prompts.first());
        }
        Ok(answer)
    }

    fn choice(&self, index: usize) -> Value {
        let Choice { content, reasoning, tokens, finish, .. } = &self.choices[index];
        let mut choice = json!({"index": index, "finish_reason": finish.as_ref().map(finish_reason)});
        match self.kind {
            Kind::Chat { .. } => {
                choice["message"] = message(content, reasoning, true).into();
                let log_probs = self.log_probs.then(|| chat_log_probs(&self.app, tokens, true));
                choice["logprobs"] = log_probs.unwrap_or_default();
            }
            Kind::Completion => {
                choice["text"] = content.as_str().into();
                let log_probs = self.log_probs.then(|| completion_log_probs(&self.app, tokens, true, 0));
                choice["logprobs"] = log_probs.unwrap_or_default();
                if self.returns_ids {
                    choice["prompt_token_ids"] = json!(self.prompts[index / self.group]);
                }
            }
        }
        if self.returns_ids {
            choice["token_ids"] = tokens.iter().map(|token| token.token).collect::<Vec<_>>().into();
        }
        choice
    }

    fn head(&self, object: &str) -> Value {
        json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.app.config.model_name,
            "system_fingerprint": null,
        })
    }

    fn usage(&self) -> Value {
        let prompt: usize = self.prompts.iter().map(Vec::len).sum();
        let completion: usize = self.choices.iter().map(|choice| choice.tokens.len()).sum();
        json!({"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion})
    }

    /// The answer as events, `[DONE]` last.
    fn events(self, includes_usage: bool) -> impl Stream<Item = Result<Event, Infallible>> {
        let mut ready = VecDeque::new();
        if self.kind != Kind::Completion {
            for index in 0..self.choices.len() {
                let delta = json!({"role": "assistant", "content": ""});
                ready.push_back(self.chunk(json!([{
                    "index": index, "delta": delta, "logprobs": null, "finish_reason": null,
                }])));
            }
        }
        let state = Events { running: Some(self), ready, includes_usage, is_over: false };
        unfold(state, |mut state| async move {
            let data = state.next().await?;
            Some((Ok(Event::default().data(data)), state))
        })
    }

    fn chunk(&self, choices: Value) -> String {
        let object = if self.kind == Kind::Completion { "text_completion" } else { "chat.completion.chunk" };
        let mut chunk = self.head(object);
        chunk["choices"] = choices;
        chunk.to_string()
    }

    /// The chunk of a piece; none where it says nothing.
    fn piece(&self, index: usize, piece: &Piece) -> Option<String> {
        let Piece { content, reasoning, tokens, finish } = piece;
        let ends = finish.is_some();
        if content.is_empty() && reasoning.is_empty() && !ends && !self.log_probs && !self.returns_ids {
            return None;
        }
        let mut choice = json!({"index": index, "finish_reason": finish.as_ref().map(finish_reason)});
        match self.kind {
            Kind::Chat { .. } => {
                choice["delta"] = message(content, reasoning, false).into();
                let log_probs = self.log_probs.then(|| chat_log_probs(&self.app, tokens, ends));
                choice["logprobs"] = log_probs.unwrap_or_default();
            }
            Kind::Completion => {
                let start = self.choices[index].content.chars().count() - content.chars().count();
                choice["text"] = content.as_str().into();
                let log_probs = self.log_probs.then(|| completion_log_probs(&self.app, tokens, ends, start));
                choice["logprobs"] = log_probs.unwrap_or_default();
            }
        }
        if self.returns_ids {
            choice["token_ids"] = tokens.iter().map(|token| token.token).collect::<Vec<_>>().into();
        }
        Some(self.chunk(json!([choice])))
    }
}

/// A stream in progress.
struct Events {
    running: Option<Running>,
    ready: VecDeque<String>,
    includes_usage: bool,
    is_over: bool,
}

impl Events {
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(data) = self.ready.pop_front() {
                return Some(data);
            }
            if self.is_over {
                return None;
            }
            let running = self.running.as_mut()?;
            if running.left == 0 {
                if self.includes_usage {
                    let mut chunk = running.head(match running.kind {
                        Kind::Completion => "text_completion",
                        Kind::Chat { .. } => "chat.completion.chunk",
                    });
                    chunk["choices"] = json!([]);
                    chunk["usage"] = running.usage();
                    self.ready.push_back(chunk.to_string());
                }
                self.end();
                continue;
            }
            match running.next().await {
                Ok((index, piece)) => self.ready.extend(running.piece(index, &piece)),
                Err(error) => {
                    self.ready.push_back(error.to_json().to_string());
                    self.end();
                }
            }
        }
    }

    fn end(&mut self) {
        self.ready.push_back("[DONE]".into());
        self.is_over = true;
        self.running = None;
    }
}
