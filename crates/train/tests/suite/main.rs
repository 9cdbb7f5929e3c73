//! What must hold for training: equivalences, exact resume, refusals, golden values.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod adamw;
mod chaos;
mod common;
mod device;
mod guards;
mod keeping;
mod laws;
mod lora;
mod objective;
mod parity;
mod precision;
mod ranks;
mod refusals;
mod resume;
mod rl;
mod rl_prompts;
mod rl_sources;
mod rl_toys;
mod routers;
mod supervised;
