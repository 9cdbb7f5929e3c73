//! Rows that could not be used, each with its reason.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::table::Table;

/// Name of the rejects file inside an artifact.
pub const REJECT_FILE: &str = "rejects.parquet";

/// One row that was not used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Reject {
    /// Name of the source.
    pub source: String,
    /// The file, relative to the path given.
    pub file: String,
    /// Row in the file, from 0.
    pub row: u64,
    /// Where the row starts, in bytes of the decompressed file.
    pub byte_offset: u64,
    /// Name of the rule that refused it.
    pub rule: String,
    /// Field, found and expected.
    pub detail: String,
}

impl Table for Reject {
    const NAME: &'static str = "reject";
    const VERSION: u32 = 1;
}
