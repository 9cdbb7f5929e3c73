//! The one error type of the crate.

use std::path::PathBuf;

/// What can go wrong while a report is made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file of ours cannot be read.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// A line of a metrics file is not a JSON object.
    #[error("read `{path}`: line {line}: {detail}")]
    Metrics {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What the parser said.
        detail: String,
    },
    /// A step's report is not a JSON object.
    #[error("read `{path}`: {detail}")]
    StepReport {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        detail: String,
    },
    /// A folder without a trajectory file in it.
    #[error("no trajectory file in `{path}`")]
    NoTrajectories {
        /// The folder.
        path: PathBuf,
    },
    /// A row that the file does not have.
    #[error("read `{path}`: no row {row}")]
    NoRow {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: usize,
    },
    /// A figure could not be drawn.
    #[error("draw `{figure}`: {detail}")]
    Draw {
        /// The figure's title.
        figure: String,
        /// What the drawing library said.
        detail: String,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;
