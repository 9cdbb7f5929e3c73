//! One request from the cache or over the wire, with its retries.

use std::path::Path;
use std::time::Duration;

use futures::{StreamExt, stream};
use reqwest::StatusCode;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::cache::{self, Cache};
use super::config::EndpointConfig;
use super::failure::{Failure, SetupError};
use super::ledger::{Entry, Ledger, Totals};
use super::limiter::Limiter;
use super::reply::{ChatReply, CompletionReply, Reply, Usage};
use super::request::{ChatRequest, CompletionRequest};

const CHAT: &str = "chat/completions";
const COMPLETIONS: &str = "completions";
/// Characters of an error body that are shown.
const SHOWN: usize = 300;

/// The client. One per endpoint: its limits hold over everything that asks through it. All calls must come from one
/// tokio runtime, with its time and io on.
pub struct Endpoint {
    config: EndpointConfig,
    key: Option<String>,
    http: reqwest::Client,
    permits: Semaphore,
    limiter: Limiter,
    cache: Option<Cache>,
    ledger: Ledger,
}

/// Why an attempt has no answer.
enum Miss {
    /// Another attempt may have one.
    Passing { detail: String, is_malformed: bool, retry_after: Option<Duration> },
    /// None will.
    Final(Failure),
}

impl Miss {
    fn passing(detail: impl Into<String>) -> Self {
        Miss::Passing { detail: detail.into(), is_malformed: false, retry_after: None }
    }
}

impl Endpoint {
    /// Without cache and log. `key` is sent as a bearer token.
    pub fn new(config: EndpointConfig, key: Option<String>) -> Result<Self, SetupError> {
        config.check()?;
        let mut builder = reqwest::Client::builder().pool_max_idle_per_host(config.concurrency);
        if config.is_loopback() {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| SetupError::Client { detail: chain(&error) })?;
        let limiter = Limiter::new(config.requests_per_minute, config.tokens_per_minute);
        let permits = Semaphore::new(config.concurrency.min(Semaphore::MAX_PERMITS));
        Ok(Self { config, key, http, permits, limiter, cache: None, ledger: Ledger::default() })
    }

    /// Keeps answers in `folder` and looks for them there first.
    pub fn with_cache(mut self, folder: &Path) -> Result<Self, SetupError> {
        self.cache = Some(Cache::open(folder)?);
        Ok(self)
    }

    /// Appends a JSON line for each request to `path`.
    pub fn with_log(mut self, path: &Path) -> Result<Self, SetupError> {
        self.ledger.write_to(path)?;
        Ok(self)
    }

    /// What it was made with.
    pub fn config(&self) -> &EndpointConfig {
        &self.config
    }

    /// Sums so far.
    pub fn totals(&self) -> Totals {
        self.ledger.totals()
    }

    /// Asks for the answer to a conversation.
    pub async fn chat(&self, request: &ChatRequest) -> Result<ChatReply, Failure> {
        self.ask(CHAT, request.body(&self.config.model), request.draw).await
    }

    /// Asks for the continuation of a prompt.
    pub async fn complete(&self, request: &CompletionRequest) -> Result<CompletionReply, Failure> {
        self.ask(COMPLETIONS, request.body(&self.config.model), request.draw).await
    }

    /// Asks all, as many at once as allowed, and calls `done` with each number and outcome in the order in which they
    /// come.
    pub async fn chat_each(&self, requests: &[ChatRequest], mut done: impl FnMut(usize, Result<ChatReply, Failure>)) {
        let ask = |(number, request)| async move { (number, self.chat(request).await) };
        let mut asked = stream::iter(requests.iter().enumerate().map(ask)).buffer_unordered(self.config.concurrency);
        while let Some((number, outcome)) = asked.next().await {
            done(number, outcome);
        }
    }

    /// As [`Self::chat_each`], for completions.
    pub async fn complete_each(
        &self,
        requests: &[CompletionRequest],
        mut done: impl FnMut(usize, Result<CompletionReply, Failure>),
    ) {
        let ask = |(number, request)| async move { (number, self.complete(request).await) };
        let mut asked = stream::iter(requests.iter().enumerate().map(ask)).buffer_unordered(self.config.concurrency);
        while let Some((number, outcome)) = asked.next().await {
            done(number, outcome);
        }
    }

    /// Posts `body` as it is to a path of the endpoint that answers something else (a server's reload call), once and
    /// without cache; the body of a 2xx answer, or null where it is no JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        let seconds = Duration::from_secs_f64(self.config.timeout_s);
        let unavailable = |detail| Failure::Unavailable { attempts: 1, seconds: self.config.timeout_s, detail };
        match timeout(seconds, self.send(path, body)).await {
            Ok(Ok(bytes)) => Ok(serde_json::from_slice(&bytes).unwrap_or(Value::Null)),
            Ok(Err(Miss::Final(failure))) => Err(failure),
            Ok(Err(Miss::Passing { detail, .. })) => Err(unavailable(detail)),
            Err(_) => Err(unavailable("no answer in time".into())),
        }
    }

    async fn ask<R: Reply>(&self, path: &'static str, body: Value, draw: u32) -> Result<R, Failure> {
        let key = self.key(path, &body, draw);
        if let Some(reply) = self.cached(&key) {
            self.ledger.note(&self.entry(&key, path, "cached"))?;
            return Ok(reply);
        }
        let permit = self.permits.acquire().await;
        let _permit =
            permit.map_err(|error| Failure::Unavailable { attempts: 0, seconds: 0.0, detail: error.to_string() })?;
        let started = Instant::now();
        let mut attempts = 0;
        let outcome = self.try_until::<R>(path, &body, &key, started, &mut attempts).await;
        let mut entry = self.entry(&key, path, outcome.as_ref().map_or_else(Failure::kind, |_| "answered"));
        (entry.attempts, entry.seconds) = (attempts, started.elapsed().as_secs_f64());
        match outcome {
            Ok((reply, raw)) => {
                let usage = Usage::of(&raw);
                self.limiter.use_tokens(usage.prompt_tokens + usage.completion_tokens);
                let kept = self.cache.as_ref().map_or(Ok(()), |cache| cache.write(&key, &raw));
                let cost = self.config.cost(usage.prompt_tokens, usage.completion_tokens);
                self.ledger.note(&entry.with_usage(usage, cost))?;
                kept.map(|()| reply)
            }
            Err(failure) => {
                entry.detail = Some(failure.to_string());
                self.ledger.note(&entry)?;
                tracing::warn!(endpoint = %self.config.url, attempts, "{failure}");
                Err(failure)
            }
        }
    }

    /// Takes the answer to a conversation out of the cache: one that was no use is asked for again another time.
    pub fn forget(&self, request: &ChatRequest) -> Result<(), Failure> {
        let key = self.key(CHAT, &request.body(&self.config.model), request.draw);
        self.cache.as_ref().map_or(Ok(()), |cache| cache.remove(&key))
    }

    fn key(&self, path: &str, body: &Value, draw: u32) -> String {
        cache::key(self.config.cache_name.as_deref().unwrap_or(&self.config.url), path, body, draw)
    }

    fn cached<R: Reply>(&self, key: &str) -> Option<R> {
        R::read(&self.cache.as_ref()?.read(key)?, true).ok()
    }

    fn entry<'a>(&'a self, key: &'a str, path: &'a str, outcome: &'a str) -> Entry<'a> {
        Entry {
            key,
            path,
            model: &self.config.model,
            outcome,
            attempts: 0,
            seconds: 0.0,
            prompt_tokens: 0,
            completion_tokens: 0,
            cost: 0.0,
            detail: None,
        }
    }

    /// Attempts until there is an answer, none will come, or the bounds are reached.
    async fn try_until<R: Reply>(
        &self,
        path: &str,
        body: &Value,
        key: &str,
        started: Instant,
        attempts: &mut u32,
    ) -> Result<(R, Value), Failure> {
        let latest = started + Duration::from_secs_f64(self.config.deadline_s);
        let mut last = ("no turn within the deadline by the rate limits".to_string(), false);
        while *attempts < self.config.attempts && self.limiter.turn(latest).await {
            let left = latest.saturating_duration_since(Instant::now());
            let limit = Duration::from_secs_f64(self.config.timeout_s).min(left);
            *attempts += 1;
            let miss = match timeout(limit, self.attempt::<R>(path, body)).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(miss)) => miss,
                Err(_) => Miss::passing(format!("no answer within {:.1} s", limit.as_secs_f64())),
            };
            let (detail, is_malformed, retry_after) = match miss {
                Miss::Final(failure) => return Err(failure),
                Miss::Passing { detail, is_malformed, retry_after } => (detail, is_malformed, retry_after),
            };
            tracing::debug!(endpoint = %self.config.url, attempt = *attempts, "{detail}");
            last = (detail, is_malformed);
            if let Some(pause) = retry_after {
                self.limiter.hold_back(pause);
            }
            let pause = self.config.pause(*attempts, jitter(key, *attempts)).max(retry_after.unwrap_or_default());
            if *attempts == self.config.attempts || Instant::now() + pause > latest {
                break;
            }
            tokio::time::sleep(pause).await;
        }
        let (attempts, seconds, (detail, is_malformed)) = (*attempts, started.elapsed().as_secs_f64(), last);
        Err(match is_malformed {
            true => Failure::Malformed { attempts, detail },
            false => Failure::Unavailable { attempts, seconds, detail },
        })
    }

    async fn attempt<R: Reply>(&self, path: &str, body: &Value) -> Result<(R, Value), Miss> {
        let malformed = |detail| Miss::Passing { detail, is_malformed: true, retry_after: None };
        let bytes = self.send(path, body).await?;
        let body: Value = serde_json::from_slice(&bytes)
            .map_err(|error| malformed(format!("the body is no JSON ({error}): {}", shown(&bytes))))?;
        let reply = R::read(&body, false).map_err(|detail| malformed(format!("{detail}: {}", shown(&bytes))))?;
        Ok((reply, body))
    }

    /// The body of a 2xx answer.
    async fn send(&self, path: &str, body: &Value) -> Result<Vec<u8>, Miss> {
        let mut request = self.http.post(self.config.address(path)).json(body);
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let mut response = request.send().await.map_err(|error| Miss::passing(chain(&error)))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| Miss::passing(chain(&error)))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > self.config.largest_answer {
                let detail = format!("a body of more than {} bytes", self.config.largest_answer);
                return Err(Miss::Passing { detail, is_malformed: true, retry_after: None });
            }
        }
        if status.is_success() {
            return Ok(bytes);
        }
        let detail = message(&bytes);
        Err(match may_pass(status) {
            true => Miss::Passing {
                detail: format!("status {}: {detail}", status.as_u16()),
                is_malformed: false,
                retry_after: retry_after(&headers),
            },
            false => Miss::Final(Failure::Rejected { status: status.as_u16(), detail }),
        })
    }
}

fn may_pass(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 409 | 425 | 429) || status.is_server_error()
}

/// Seconds, or a date; a date that has passed is no pause, and none is longer than a day.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let pause = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok()?,
        Err(_) => {
            let date = httpdate::parse_http_date(text).ok()?;
            date.duration_since(std::time::SystemTime::now()).unwrap_or_default()
        }
    };
    Some(pause.min(Duration::from_secs(86_400)))
}

/// The error's message in the API's shape, or the beginning of the body.
fn message(bytes: &[u8]) -> String {
    let body: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let found = [&body["error"]["message"], &body["message"], &body["error"], &body["detail"]];
    match found.into_iter().find_map(Value::as_str) {
        Some(message) => shown(message.as_bytes()),
        None => shown(bytes),
    }
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None if text.is_empty() => "an empty body".into(),
        None => text.into_owned(),
    }
}

/// An error with its causes: reqwest's own message hides them.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// From 0 to 1, the same for the same request and attempt.
fn jitter(key: &str, attempt: u32) -> f64 {
    let hash = blake3::hash(format!("{key}#{attempt}").as_bytes());
    f64::from(u16::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1]])) / f64::from(u16::MAX)
}
