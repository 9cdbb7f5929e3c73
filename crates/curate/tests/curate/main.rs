//! Trajectories in, pools out.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod common;
mod pools;
mod rules;
