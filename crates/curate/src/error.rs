//! The one error type of the crate.

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
    #[error("no trajectories in {inputs}")]
    Empty {
        /// The files.
        inputs: String,
    },
    /// The rules leave nothing.
    #[error("no trajectory of {rows} is left: {rules}")]
    NothingLeft {
        /// Trajectories read.
        rows: u64,
        /// Each rule with its count.
        rules: String,
    },
    /// An evaluation group that no trajectory has.
    #[error("eval_groups: no trajectory has the task group `{group}`; nearest: {nearest}")]
    UnknownGroup {
        /// The name in the config.
        group: String,
        /// The names that come nearest.
        nearest: String,
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
            Error::NothingLeft { .. } => "loosen the rule that dropped most".into(),
            Error::EmptyPool { .. } => {
                "a group is never split: use data with more task groups, or set that share to 0".into()
            }
            Error::NotDisjoint { .. } => {
                "equal trajectories under two task groups: set drop_exact_duplicates = true".into()
            }
            Error::UnknownGroup { .. } => "`worldloom inspect data` lists the task groups".into(),
            _ => return None,
        })
    }
}
