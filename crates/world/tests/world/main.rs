//! The world crate on a tiny random decoder, a tiny tokenizer and hand-made trajectories.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod answers;
mod calibration;
mod engine;
mod evaluation;
mod judging;
mod reinforcement;
mod remote;
mod support;
mod traces;
