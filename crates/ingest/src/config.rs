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
    /// Files, folders and addresses (`s3://`, `gs://`, `az://`, `https://`); a folder is walked and its files are read in
    /// the order of their names.
    pub inputs: Vec<PathBuf>,
    /// Name of the format (see [`formats`](crate::formats)); without it, each file's format is found from its content.
    pub format: Option<String>,
    /// A TOML file that describes a format of your own; all files are then read with it.
    pub map: Option<PathBuf>,
    /// Share of rows that may be rejected before the run is an error, from 0 to 1.
    pub max_reject_share: f64,
    /// Whether the first rejected row is an error.
    pub strict: bool,
}

/// Configuration of [`run_corpus`](crate::run_corpus).
///
/// ```toml
/// inputs = ["texts/"]
/// text_field = "text"
/// licence = "CC-BY-4.0"
/// max_reject_share = 0.01
/// strict = false
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CorpusConfig {
    /// Files, folders and addresses.
    pub inputs: Vec<PathBuf>,
    /// The field or column that holds the text of a row; `text` without it.
    pub text_field: Option<String>,
    /// Licence of all texts that do not say theirs, as an SPDX name.
    pub licence: Option<String>,
    /// Share of rows that may be rejected before the run is an error, from 0 to 1.
    pub max_reject_share: f64,
    /// Whether the first rejected row is an error.
    pub strict: bool,
}
