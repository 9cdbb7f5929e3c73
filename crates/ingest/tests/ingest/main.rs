//! Files and rows in, trajectories and rejects out.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod chat;
mod common;
mod files;
mod killed;
