//! The one error type of the crate.

use std::path::PathBuf;

/// What can go wrong when a model is asked or measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A file of ours cannot be read or written.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// A tokenizer or template cannot be used.
    #[error(transparent)]
    Render(#[from] worldloom_render::Error),
    /// A reward config cannot be used.
    #[error(transparent)]
    Judge(#[from] worldloom_judge::Error),
    /// An endpoint cannot be used.
    #[error(transparent)]
    Endpoint(#[from] worldloom_judge::endpoint::SetupError),
    /// Model files cannot be read.
    #[error(transparent)]
    Model(#[from] worldloom_model::Error),
    /// The model could not complete a prompt.
    #[error(transparent)]
    Generate(#[from] worldloom_model::generate::Error),
    /// A config value cannot be used.
    #[error("config: `{field}`: {detail}")]
    Config {
        /// The key.
        field: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// A tokenizer of another model.
    #[error("tokenizer `{tokenizer}` has {tokens} tokens, the model's vocabulary has {vocab_size}")]
    Vocabulary {
        /// The tokenizer's file.
        tokenizer: PathBuf,
        /// Its tokens.
        tokens: usize,
        /// Rows of the model's embedding.
        vocab_size: usize,
    },
    /// More wait than are taken.
    #[error("{waiting} requests wait already")]
    Busy {
        /// The bound.
        waiting: usize,
    },
    /// The engine's thread is gone.
    #[error("the engine has stopped")]
    EngineStopped,
    /// A completion broke off: the model gave numbers that are none, or its text cannot be read.
    #[error("the completion broke off: {detail}")]
    Completion {
        /// What happened.
        detail: String,
    },
    /// It took longer than the asker waits.
    #[error("no answer within the time limit")]
    TimedOut,
    /// The asker has gone.
    #[error("given up by the one who asked")]
    GivenUp,
    /// A scenario or an action that no episode can have.
    #[error("`{field}`: {detail}")]
    Episode {
        /// The field.
        field: &'static str,
        /// Expected and found.
        detail: String,
    },
    /// There is nothing to measure on.
    #[error("`{path}` holds no turn to evaluate ({trajectories} trajectories)")]
    NoTurns {
        /// The pool.
        path: PathBuf,
        /// Its trajectories.
        trajectories: u64,
    },
    /// A run that keeps what it has was asked to stop.
    #[error("stopped after {done} of {total}; what was answered is kept, the same command goes on from there")]
    Stopped {
        /// Done.
        done: u64,
        /// Of how many.
        total: u64,
    },
    /// Too much was left without an answer.
    #[error(
        "{unavailable} of {queries} questions have no answer of teacher or judge, more than `max_unavailable_share` {limit} allows; the same command asks those again{details}"
    )]
    Unanswered {
        /// Questions without an answer.
        unavailable: u64,
        /// All questions.
        queries: u64,
        /// The share allowed.
        limit: f64,
        /// The last reason, and where all are.
        details: String,
    },
    /// An endpoint that takes no question, or answers that cannot be kept.
    #[error("ask the teacher (requests are in `{log}`): {source}")]
    Asking {
        /// The log.
        log: PathBuf,
        /// What came of the question.
        source: worldloom_judge::endpoint::Failure,
    },
    /// Predictions that do not go with their pool, or cannot be read.
    #[error("predictions `{path}`: {detail}")]
    Predictions {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// A group to score that does not belong to the prompts.
    #[error("prompt {prompt} was to be scored, there are {prompts}")]
    NoPrompt {
        /// Its number, from 0.
        prompt: usize,
        /// Number of prompts.
        prompts: usize,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn episode(field: &'static str, detail: impl Into<String>) -> Self {
        Error::Episode { field, detail: detail.into() }
    }

    pub(crate) fn config(field: &'static str, detail: impl Into<String>) -> Self {
        Error::Config { field, detail: detail.into() }
    }
}
