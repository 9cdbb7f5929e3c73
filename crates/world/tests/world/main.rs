//! The world crate on a tiny random decoder, a tiny tokenizer and hand-made trajectories.

mod answers;
mod evaluation;
mod reinforcement;
mod support;
