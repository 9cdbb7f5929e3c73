//! The one error type of the crate: every variant is a sentence with the file in it.

use std::path::{Path, PathBuf};

/// What can go wrong with files of ours.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A Parquet file cannot be read: cut, damaged or not Parquet at all.
    #[error("read `{path}`: not a readable Parquet file ({detail})")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// What the reader said.
        detail: String,
    },
    /// A column is missing or has another type than this version of the format.
    #[error("read `{path}`: row group {group}: {detail}")]
    Columns {
        /// The file.
        path: PathBuf,
        /// The row group, from 0.
        group: usize,
        /// Which column, what was expected and what was found.
        detail: String,
    },
    /// A token shard cannot be read.
    #[error("read shard `{path}`: {detail}")]
    Shard {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the row where there is one.
        detail: String,
    },
    /// A folder is not a finished artifact.
    #[error("`{path}` is not a finished artifact: no `manifest.json` in it")]
    NoManifest {
        /// The folder.
        path: PathBuf,
    },
    /// A JSON file of ours does not parse.
    #[error("read `{path}`: {detail}")]
    Json {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        detail: String,
    },
    /// An artifact is of another kind than asked for.
    #[error("`{path}` holds {found}, expected {expected}")]
    Kind {
        /// The folder.
        path: PathBuf,
        /// The kind asked for.
        expected: String,
        /// The kind found in the manifest.
        found: String,
    },
    /// A file differs from what its manifest says.
    #[error("`{path}` differs from its manifest: {detail}")]
    Changed {
        /// The file.
        path: PathBuf,
        /// Expected and found.
        detail: String,
    },
    /// A value could not be written.
    #[error("write `{path}`: {detail}")]
    Write {
        /// The file.
        path: PathBuf,
        /// What the writer said.
        detail: String,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn write(path: &Path, detail: impl std::fmt::Display) -> Self {
        Error::Write { path: path.into(), detail: detail.to_string() }
    }

    pub(crate) fn parquet(path: &Path, detail: impl std::fmt::Display) -> Self {
        Error::Parquet { path: path.into(), detail: detail.to_string() }
    }
}
