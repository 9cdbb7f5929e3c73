//! Thinking traces: a teacher predicts each turn that SFT trains on, several times; what it thought on the way to the best
//! prediction becomes the turn's trace, where the prediction is good enough.
//!
//! For each query (a kept turn without a trace, or with one that has a fault): `candidates` answers to the prompt that SFT
//! gives; those without a prediction or without thinking, and those whose thinking speaks of the truth or writes it out
//! ([`leak`](worldloom_judge::leak)), are rejected by name; a judge that sees the truth scores the rest, and those below
//! `min_score` go; the ones left are compared pairwise; the best one's thinking is kept. The observation of the row stays
//! the environment's own.
//!
//! Each finished query is a line of `traces.jsonl`, under a key of all that decides it. A run that was stopped reads them
//! and goes on.

mod candidate;
mod choice;
mod report;
mod run;
mod words;

pub use report::{TRACE_REPORT_FILE, TraceReport};
pub use run::{TraceConfig, TraceInputs, trace};
pub use words::words_hash;
