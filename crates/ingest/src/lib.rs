//! Raw sources of any format to canonical trajectories; every rejected row is listed.
//!
//! Words: a *row* is one value of a file (a line, an element of an array, a whole document). A *source* reads the
//! *pieces* of one upstream format: rows, whole files or folders. A *refusal* is the rule and the detail for which a
//! row or episode is not used; it becomes a line of `rejects.parquet`. A *repair* is a change to text that was needed to
//! read it; repairs are counted.
//!
//! Pieces are read in chunks and converted in parallel; the output is in file order whatever the thread count.

mod config;
mod episode;
mod error;
mod feed;
mod files;
mod json;
mod piece;
mod read;
mod refusal;
mod repair;
mod rows;
mod run;
mod source;
mod yaml;

pub use config::IngestConfig;
pub use error::{Error, Result};
pub use run::{Report, SourceCounts, run};
pub use source::{FormatInfo, formats};
