//! Trajectories to tokens: templates, chat formats, tokenizer, loss weights, packing.
//!
//! The road through the crate: a trajectory becomes a [`Document`] (pieces of text and control tokens, each with the
//! reason why it is trained or not), the [`Renderer`] encodes it piece by piece, and [`run`] packs the result into rows
//! or writes prompts for RL. Text that came from outside never becomes a control token.

mod bench;
mod blocks;
mod bundles;
mod chat;
mod config;
mod document;
mod error;
mod extension;
mod family;
mod fit;
mod form;
mod gguf;
mod instructions;
mod layout;
mod pack;
mod prompts;
mod renderer;
mod report;
mod rows;
mod run;
mod seeds;
mod share;
mod stage;
mod template;
mod tokenizer;
mod tools;
mod training;
mod values;

pub use bench::{BenchTurn, bench_turn, turn_texts};
pub use blocks::{Blocks, Chapter, CommonBlocks, Example, Part};
pub use chat::{ChatForm, ChatTemplate, Conversation, Message, TEMPLATE_FILE, ToolCall};
pub use config::{Long, RenderConfig};
pub use document::{Content, ContextReason, Control, Document, Piece, Reason, Role, TrainReason};
pub use error::{Error, Refusal, Result};
pub use extension::{AddedToken, extend_tokenizer};
pub use family::TAG_INSTRUCTION;
pub use form::{FORM_FILE, FormSettings, PromptForm};
pub use gguf::GgufVocabulary;
pub use layout::{
    OBSERVATION_MARKER, PromptStyle, Thinking, check_taggable, cpt_document, prompt_document, sft_document,
};
pub use renderer::{CPT_VERSION, RL_VERSION, Rendered, Renderer, Span, plain_observation};
pub use report::{DomainReport, Dropped, REPORT_FILE, RenderReport};
pub use run::{Progress, run};
pub use stage::Stage;
pub use template::Templates;
pub use tokenizer::{TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, Tokenizer};
pub use training::{CHAT_TEMPLATE, TokenizerConfig, TokenizerReport, WordSplit, run_tokenizer, train_tokenizer};
