//! The server with real clients over loopback, on models that were never trained.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod environment;
mod errors;
mod limits;
mod mcp;
mod openai;
mod support;
