//! What can come of a request other than an answer.

use std::path::PathBuf;

/// Why a request has no answer. None of it says anything about what was asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The server will not take this request, however often it is sent: a wrong key, an unknown model, a prompt that
    /// is too long.
    #[error("the endpoint refused the request with status {status}: {detail}")]
    Rejected {
        /// The HTTP status.
        status: u16,
        /// The message of the body, shortened.
        detail: String,
    },
    /// It was tried as often or as long as allowed.
    #[error("the endpoint gave no answer in {attempts} attempts and {seconds:.1} s: {detail}")]
    Unavailable {
        /// Attempts made.
        attempts: u32,
        /// Seconds since the first.
        seconds: f64,
        /// What went wrong last.
        detail: String,
    },
    /// The last attempt was answered, but the body is no reply of this kind.
    #[error("the endpoint's reply cannot be read after {attempts} attempts: {detail}")]
    Malformed {
        /// Attempts made.
        attempts: u32,
        /// What is wrong with the body.
        detail: String,
    },
    /// An answer could not be put into the cache or the log: going on would lose what was paid for.
    #[error("keep the endpoint's answer: {detail}")]
    Keep {
        /// The file and what is wrong with it.
        detail: String,
    },
}

impl Failure {
    /// The kind as it is logged and counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Failure::Rejected { .. } => "rejected",
            Failure::Unavailable { .. } => "unavailable",
            Failure::Malformed { .. } => "malformed",
            Failure::Keep { .. } => "keep",
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// A setting cannot work.
    #[error("endpoint: `{field}`: {detail}")]
    Config {
        /// The setting.
        field: &'static str,
        /// What is wrong.
        detail: String,
    },
    /// The HTTP client cannot be made.
    #[error("make the HTTP client: {detail}")]
    Client {
        /// What is wrong.
        detail: String,
    },
    /// The cache folder or the log cannot be opened.
    #[error("open `{path}`: {source}")]
    Open {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong.
        source: std::io::Error,
    },
}
