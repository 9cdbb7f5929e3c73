//! Document v1: a text for continued pretraining that is no trajectory.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Version of the document format, in the Parquet metadata and in manifests.
pub const DOCUMENT_VERSION: u32 = 1;
/// Name of the document file inside an artifact.
pub const DOCUMENT_FILE: &str = "documents.parquet";

/// One text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Document {
    /// Hash of the text ([`document_id`]).
    pub document_id: String,
    /// Name of the source.
    pub source: String,
    /// File it came from, relative to the path given to ingest.
    pub source_path: String,
    /// Row in that file, from 0.
    pub source_row: u64,
    /// Licence of the source, as an SPDX name.
    pub licence: Option<String>,
    /// Its title, where it has one: the first heading of Markdown, or the row's own.
    pub title: Option<String>,
    /// The text, unchanged.
    pub text: String,
}

impl Table for Document {
    const NAME: &'static str = "document";
    const VERSION: u32 = DOCUMENT_VERSION;
}

/// Content hash of a text.
pub fn document_id(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex()[..32].to_string()
}
