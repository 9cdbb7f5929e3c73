//! Where logs come from: archives, files of columns, addresses; maps, texts, explanations; a run that goes on.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../ingest/common.rs"]
mod common;

mod archives;
mod content;
mod maps;
mod mutations;
mod remote;
mod runs;
mod tables;
