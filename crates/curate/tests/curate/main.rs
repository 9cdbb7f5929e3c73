//! Trajectories in, pools out.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod balance;
mod common;
mod documents;
mod duplicates;
mod job;
mod leaks;
mod pools;
mod resume;
mod rules;
mod secrets;
mod selection;
