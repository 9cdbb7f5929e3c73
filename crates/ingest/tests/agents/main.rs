//! Logs of agent frameworks in, trajectories out: fixtures written by us, odd cases, and the real sources where they are.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]
#![expect(clippy::print_stdout, reason = "a test says what it skips")]

mod broken;
mod common;
mod fixtures;
mod real;
