//! What must hold of rendering: spans, control text, templates, chat form, tokenizer, rows and prompts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod chat;
mod control;
mod corpora;
mod gguf;
mod published;
mod rows;
mod spans;
mod support;
mod templates;
mod tokenizer;
