//! What must hold of rendering: spans, control text, templates, chat form, tokenizer, rows and prompts.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(clippy::print_stdout, reason = "a test says what it skips")]

mod chat;
mod control;
mod corpora;
mod extension;
mod form;
mod gguf;
mod lengths;
mod pieces;
mod published;
mod rows;
mod spans;
mod support;
mod templates;
mod tokenizer;
