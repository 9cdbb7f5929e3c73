//! Recordings of phones, pages and desktops: fixtures of ours, the real sources, and what is broken.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

#[path = "../ingest/common.rs"]
#[expect(dead_code, reason = "shared with the tests of chat-like rows")]
mod common;

mod broken;
mod fixtures;
mod real;
mod show;
