//! Raw sources of any format to canonical trajectories; every rejected row is listed.
//!
//! Words: a *row* is one value of a file (a line, an element of an array, a whole document). A *source* reads the
//! *pieces* of one upstream format: rows, whole files or folders. A *refusal* is the rule and the detail for which a
//! row or episode is not used; it becomes a line of `rejects.parquet`. A *repair* is a change to text that was needed to
//! read it; repairs are counted.
//!
//! Pieces are read in chunks and converted in parallel; the output is in file order whatever the thread count.

mod archive;
mod config;
mod episode;
mod error;
mod explain;
mod feed;
mod files;
mod json;
mod listing;
mod panics;
mod parts;
mod piece;
mod read;
mod refusal;
mod remote;
mod repair;
mod report;
mod rows;
mod run;
mod source;
mod tables;
mod tf_records;
mod yaml;

pub use config::{CorpusConfig, IngestConfig};
pub use error::{Error, Result};
pub use explain::{Explanation, explain};
pub use remote::{Access, address_key, is_address};
pub use report::{Report, SourceCounts};
pub use run::{read_bytes, run, run_corpus, run_with};
pub use source::{FormatInfo, formats};
