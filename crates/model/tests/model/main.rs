//! What the decoder must obey: golden numbers, isolation of documents, fused against plain, weights in and out.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on fails its test")]

mod checkpoints;
mod config;
mod copying;
mod counted;
mod device;
mod generation;
mod gguf;
mod golden;
mod gradients;
mod isolation;
mod laws;
mod lora;
mod ops;
mod precision;
mod recompute;
mod routers;
mod smollm2;
mod summary;
mod support;
mod vocabulary;
mod weights;
