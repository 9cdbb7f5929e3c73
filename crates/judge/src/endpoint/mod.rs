//! The client of an OpenAI-compatible endpoint: what judges, traces, evaluation and rollouts ask models through.
//!
//! - [`Endpoint`] asks from async code, [`BlockingEndpoint`] from the rest; both take `/chat/completions`
//!   ([`ChatRequest`]) and `/completions` ([`CompletionRequest`], text or token ids in, log-probs and token ids out).
//! - At most `concurrency` requests are under way, no more than `requests_per_minute` start, and a server that says
//!   `Retry-After` holds all of them back.
//! - What may pass (time-outs, hang-ups, 408, 409, 425, 429, 5xx, bodies that are no answer) is tried again with
//!   growing, jittered pauses up to `attempts` times and within `deadline_s`; what cannot pass (400, 401, 403, 404, …)
//!   fails at once. Nobody waits for ever: each failure is a [`Failure`] with its kind.
//! - With a cache folder, an answer is one file named by the hash of address, model, path, body and `draw`, written
//!   whole or not at all: a run that was killed goes on where it stopped, and pays for nothing twice.
//! - With a log, each request is one JSON line: attempts, seconds, tokens, cost; [`Totals`] adds them up.
//!
//! What an answer means (scores, refusals, tags) is its reader's business. The key is given by the caller and stands in
//! no file; nothing is read from the environment.

mod blocking;
mod cache;
mod client;
mod config;
mod failure;
mod ledger;
mod limiter;
mod reply;
mod request;
pub mod scripted;

pub use blocking::BlockingEndpoint;
pub use client::Endpoint;
pub use config::EndpointConfig;
pub use failure::{Failure, SetupError};
pub use ledger::Totals;
pub use reply::{ChatChoice, ChatReply, CompletionChoice, CompletionReply, Finish, TokenLogProb, Usage};
pub use request::{ChatRequest, CompletionPrompt, CompletionRequest, Message, Parameters, Role};
