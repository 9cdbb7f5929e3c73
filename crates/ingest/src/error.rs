//! The one error type of the crate.

use std::path::PathBuf;

/// What ends an ingest. A bad row does not, unless the config says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// Writing a table failed.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// A path given does not exist.
    #[error("input `{path}` does not exist")]
    MissingInput {
        /// The path.
        path: PathBuf,
    },
    /// An address could not be read.
    #[error("read `{address}`: {detail}")]
    Remote {
        /// The address.
        address: String,
        /// What the store said.
        detail: String,
    },
    /// A folder could not be walked.
    #[error("walk `{path}`: {detail}")]
    Walk {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// No file of a known kind.
    #[error("no file to read in {inputs} ({skipped} files of other kinds)")]
    NoFiles {
        /// The paths given.
        inputs: String,
        /// Files passed over because of their names.
        skipped: u64,
    },
    /// Files, but no row in them.
    #[error("no rows in {inputs}: {files} file(s), all empty")]
    NoRows {
        /// The paths given.
        inputs: String,
        /// Files read.
        files: u64,
    },
    /// Rows, but no trajectory.
    #[error("no trajectory in {rows} row(s): all rejected, {count} by rule `{rule}`, such as {example}")]
    NoTrajectories {
        /// Rows read.
        rows: u64,
        /// The commonest rule.
        rule: String,
        /// Rows refused by it.
        count: u64,
        /// The first row refused by it.
        example: String,
    },
    /// More rejects than the config allows.
    #[error(
        "{rejects} of {rows} rows rejected ({:.1} %), above max_reject_share = {limit}: {count} by rule `{rule}`, such as {example}",
        100.0 * *rejects as f64 / (*rows).max(1) as f64
    )]
    TooManyRejects {
        /// Rows refused.
        rejects: u64,
        /// Rows read.
        rows: u64,
        /// The limit.
        limit: f64,
        /// The commonest rule.
        rule: String,
        /// Rows refused by it.
        count: u64,
        /// The first row refused by it.
        example: String,
    },
    /// The first rejected row of a strict run.
    #[error("{example}: refused by rule `{rule}`")]
    Strict {
        /// The rule.
        rule: String,
        /// File, row, byte offset and detail.
        example: String,
    },
    /// The format asked for is not one of ours.
    #[error("unknown format `{name}`; known: {known}")]
    UnknownFormat {
        /// The name given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A map that cannot be used.
    #[error("map `{path}`: {detail}")]
    Map {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// A config value outside its range.
    #[error("{field} = {found}, expected {expected}")]
    Config {
        /// The key.
        field: &'static str,
        /// The value.
        found: String,
        /// The range.
        expected: &'static str,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the user could do, where we know it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Error::NoFiles { .. } => format!(
                "folders are searched for {}; name a file of another ending itself",
                crate::files::ENDINGS.join(" ")
            ),
            Error::NoRows { .. } => "an ingest needs at least one trajectory; is the path right?".into(),
            Error::NoTrajectories { .. } => {
                format!("formats known: {}; `worldloom formats` shows an example of each", crate::source::names())
            }
            Error::TooManyRejects { .. } => {
                "see the rule and row named; raise max_reject_share if these rows are to be left out".into()
            }
            Error::Strict { .. } => "without strict, the row is listed in rejects.parquet and the rest is read".into(),
            Error::UnknownFormat { .. } => "leave format out to have it detected from the content".into(),
            _ => return None,
        })
    }
}
