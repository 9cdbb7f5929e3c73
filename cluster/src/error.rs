//! The one error type of the crate.

use ballista_core::error::BallistaError;
use datafusion::error::DataFusionError;

/// What ends a part of the cluster, or keeps a client from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An address of another form.
    #[error("cluster `{found}`: expected ballista://HOST:PORT")]
    Address {
        /// What was given.
        found: String,
    },
    /// No scheduler answers.
    #[error("no scheduler at {address}: {detail}")]
    NoScheduler {
        /// Host and port.
        address: String,
        /// What the system said.
        detail: String,
    },
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The cluster failed.
    #[error("ballista: {0}")]
    Ballista(#[from] BallistaError),
    /// The engine failed.
    #[error("datafusion: {0}")]
    Engine(#[from] DataFusionError),
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What the user could do, where we know it.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::NoScheduler { .. } => {
                Some("start one with `worldloom scheduler`, and executors with `worldloom worker`")
            }
            _ => None,
        }
    }
}
