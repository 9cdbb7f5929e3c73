//! The client for code without a runtime.

use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Runtime;

use super::client::Endpoint;
use super::config::EndpointConfig;
use super::failure::{Failure, SetupError};
use super::ledger::Totals;
use super::reply::{ChatReply, CompletionReply};
use super::request::{ChatRequest, CompletionRequest};

/// An [`Endpoint`] with a runtime of its own. Cheap to clone; any number of threads may ask at once. It must not be
/// used, nor its last clone dropped, inside async code.
#[derive(Clone)]
pub struct BlockingEndpoint {
    endpoint: Arc<Endpoint>,
    runtime: Arc<Runtime>,
}

impl BlockingEndpoint {
    /// Around a client.
    pub fn new(endpoint: Endpoint) -> Result<Self, SetupError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("endpoint").enable_all().build();
        let runtime = runtime.map_err(|error| SetupError::Client { detail: error.to_string() })?;
        Ok(Self { endpoint: Arc::new(endpoint), runtime: Arc::new(runtime) })
    }

    /// What it was made with.
    pub fn config(&self) -> &EndpointConfig {
        self.endpoint.config()
    }

    /// Sums so far.
    pub fn totals(&self) -> Totals {
        self.endpoint.totals()
    }

    /// See [`Endpoint::chat`].
    pub fn chat(&self, request: &ChatRequest) -> Result<ChatReply, Failure> {
        self.runtime.block_on(self.endpoint.chat(request))
    }

    /// See [`Endpoint::complete`].
    pub fn complete(&self, request: &CompletionRequest) -> Result<CompletionReply, Failure> {
        self.runtime.block_on(self.endpoint.complete(request))
    }

    /// See [`Endpoint::chat_each`].
    pub fn chat_each(&self, requests: &[ChatRequest], done: impl FnMut(usize, Result<ChatReply, Failure>)) {
        self.runtime.block_on(self.endpoint.chat_each(requests, done));
    }

    /// See [`Endpoint::complete_each`].
    pub fn complete_each(
        &self,
        requests: &[CompletionRequest],
        done: impl FnMut(usize, Result<CompletionReply, Failure>),
    ) {
        self.runtime.block_on(self.endpoint.complete_each(requests, done));
    }

    /// All answers, in the order of the requests.
    pub fn chat_all(&self, requests: &[ChatRequest]) -> Vec<Result<ChatReply, Failure>> {
        let mut replies: Vec<Option<Result<ChatReply, Failure>>> = requests.iter().map(|_| None).collect();
        self.chat_each(requests, |number, outcome| replies[number] = Some(outcome));
        replies.into_iter().flatten().collect()
    }

    /// All completions, in the order of the requests.
    pub fn complete_all(&self, requests: &[CompletionRequest]) -> Vec<Result<CompletionReply, Failure>> {
        let mut replies: Vec<Option<Result<CompletionReply, Failure>>> = requests.iter().map(|_| None).collect();
        self.complete_each(requests, |number, outcome| replies[number] = Some(outcome));
        replies.into_iter().flatten().collect()
    }

    /// See [`Endpoint::post`].
    pub fn post(&self, path: &str, body: &Value) -> Result<Value, Failure> {
        self.runtime.block_on(self.endpoint.post(path, body))
    }
}
