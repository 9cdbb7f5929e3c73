//! What a user says about an ingest.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Configuration of [`run`](crate::run).
///
/// ```toml
/// inputs = ["data/terminal-sample.jsonl.zst"]
/// max_reject_share = 0.01
/// strict = false
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IngestConfig {
    /// Files and folders; a folder is walked and its files are read in the order of their names.
    pub inputs: Vec<PathBuf>,
    /// Name of the format (see [`formats`](crate::formats)); without it, each file's format is found from its content.
    pub format: Option<String>,
    /// Share of rows that may be rejected before the run is an error, from 0 to 1.
    pub max_reject_share: f64,
    /// Whether the first rejected row is an error.
    pub strict: bool,
}
