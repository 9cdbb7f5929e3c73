//! The one error type of the crate.

use std::path::PathBuf;

use worldloom_schema::Pool;

/// What ends a curation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A table of ours cannot be read or written.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// A plan failed.
    #[error("plan `{plan}`: {detail}")]
    Plan {
        /// Name of the plan.
        plan: String,
        /// What the engine said.
        detail: String,
    },
    /// A config value outside its range.
    #[error("{field} = {found}, expected {expected}")]
    Config {
        /// The key.
        field: String,
        /// The value.
        found: String,
        /// The range.
        expected: String,
    },
    /// No input file.
    #[error("no trajectory file given")]
    NoInput,
    /// The input holds no trajectory.
    #[error("no {what} in {inputs}")]
    Empty {
        /// What a row is.
        what: String,
        /// The files.
        inputs: String,
    },
    /// Documents without what the config asks of them.
    #[error("documents are given, but the config has no part `documents`")]
    NoDocumentRules,
    /// The rules leave nothing.
    #[error("no trajectory of {rows} is left: {rules}")]
    NothingLeft {
        /// Trajectories read.
        rows: u64,
        /// Each rule with its count.
        rules: String,
    },
    /// A group of the config that no trajectory has.
    #[error("{list}: no trajectory has the task group `{group}`; nearest: {nearest}")]
    UnknownGroup {
        /// The key that names it.
        list: String,
        /// The name in the config.
        group: String,
        /// The names that come nearest.
        nearest: String,
    },
    /// A source to hold out that no trajectory has.
    #[error("holdout_sources: no trajectory has the source `{source_name}`; sources: {known}")]
    UnknownSource {
        /// The name in the config.
        source_name: String,
        /// The sources there are.
        known: String,
    },
    /// An evaluation set that cannot be read.
    #[error("evaluation set `{path}`, row {row}: {detail}")]
    EvaluationSet {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: usize,
        /// What is wrong.
        detail: String,
    },
    /// An evaluation set without a word.
    #[error("evaluation set `{path}` holds no text")]
    EmptyEvaluationSet {
        /// The file or folder.
        path: PathBuf,
    },
    /// A pool that had trajectories loses them to the rules that are asked last.
    #[error("the {pool} pool is empty: its trajectories were dropped by {rules}")]
    EmptiedPool {
        /// The pool.
        pool: Pool,
        /// Each rule with its count.
        rules: String,
    },
    /// A pool that should have trajectories has none.
    #[error("the {pool} pool is empty: {groups} task group(s) for {pools} pools")]
    EmptyPool {
        /// The pool.
        pool: Pool,
        /// Groups there are.
        groups: u64,
        /// Pools that should have some.
        pools: u64,
    },
    /// Two pools share a group or a trajectory.
    #[error("pools {first} and {second} share {groups} task group(s) and {ids} trajectory id(s), expected none")]
    NotDisjoint {
        /// One pool.
        first: Pool,
        /// The other.
        second: Pool,
        /// Groups in both.
        groups: u64,
        /// Trajectories in both.
        ids: u64,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn config(field: &str, found: impl ToString, expected: &str) -> Self {
        Error::Config { field: field.into(), found: found.to_string(), expected: expected.into() }
    }

    /// What the user could do, where we know it.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Error::NothingLeft { .. } | Error::EmptiedPool { .. } => "loosen the rule that dropped most".into(),
            Error::EmptyPool { .. } => {
                "a group is never split: use data with more task groups, or set that share to 0".into()
            }
            Error::NotDisjoint { .. } => {
                "equal trajectories under two task groups: set drop_exact_duplicates = true".into()
            }
            Error::NoDocumentRules => "add `documents = { min_chars = 200, max_chars = 1000000 }`".into(),
            Error::UnknownGroup { .. } => "`worldloom inspect data` lists the task groups".into(),
            _ => return None,
        })
    }
}
