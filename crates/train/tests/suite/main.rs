//! What must hold for training: equivalences, exact resume, refusals, golden values.

mod adamw;
mod common;
mod objective;
mod refusals;
mod resume;
mod rl;
mod supervised;
