//! Drives real environments and writes what they answered as raw logs.
//!
//! The one environment so far is [`terminal`]: a real `bash` in a private, empty directory. A raw log is one
//! episode a line, each an OpenAI chat with tool calls; turning it into trajectories is the work of `ingest`.

mod error;
pub mod terminal;

pub use error::Error;
