//! The one error type of the crate.

use std::path::PathBuf;

/// What can go wrong in training.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// A shard, table or artifact of ours cannot be read or written.
    #[error(transparent)]
    Schema(#[from] worldloom_schema::Error),
    /// Model files cannot be read or written.
    #[error(transparent)]
    Model(#[from] worldloom_model::Error),
    /// A config value cannot be used.
    #[error("config: `{field}`: {detail}")]
    Config {
        /// The key, with dots.
        field: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A row cannot be trained on.
    #[error("row {row}: {detail}")]
    Row {
        /// Number of the row in its data.
        row: usize,
        /// What is wrong with it.
        detail: String,
    },
    /// A prompt cannot be used.
    #[error("prompt `{prompt}`: {detail}")]
    Prompt {
        /// Its id.
        prompt: String,
        /// What is wrong with it.
        detail: String,
    },
    /// No row has a target.
    #[error("nothing to train on: none of {rows} rows has a token with a loss weight above 0")]
    NoTargets {
        /// Rows looked at.
        rows: usize,
    },
    /// The rows would teach the wrong thing.
    #[error("the data is not fit to train on: {detail}")]
    Data {
        /// What was found and where the limit lies.
        detail: String,
    },
    /// A loss, gradient or weight is not a number any more.
    #[error("step {step}: the {what} is not finite ({rows}); the last good checkpoint is untouched")]
    NonFinite {
        /// The step, from 1.
        step: u64,
        /// What was looked at.
        what: String,
        /// The rows of the step.
        rows: String,
    },
    /// The run in the folder was started otherwise.
    #[error("`{path}` holds a run that was started with other inputs: {changes}")]
    ChangedRun {
        /// The run's folder.
        path: PathBuf,
        /// What changed, from what to what.
        changes: String,
    },
    /// Somebody else trains in the folder.
    #[error("another process trains in `{path}`")]
    Busy {
        /// The run's folder.
        path: PathBuf,
    },
    /// A checkpoint cannot be used.
    #[error("checkpoint `{path}`: {detail}")]
    Checkpoint {
        /// Its folder.
        path: PathBuf,
        /// What is wrong with it.
        detail: String,
    },
    /// Not enough free space for a checkpoint.
    #[error("`{path}`: a checkpoint takes {needed} bytes, {free} are free")]
    DiskSpace {
        /// Where it would go.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// A file of the run cannot be read or written.
    #[error("`{path}`: {detail}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        detail: String,
    },
    /// Another process of the job failed; it says why itself.
    #[error("rank {rank}: {detail}")]
    Rank {
        /// The process, from 0.
        rank: usize,
        /// Why.
        detail: String,
    },
    /// The sampler failed.
    #[error("step {step}: sampling completions failed")]
    Sampler {
        /// The step, from 1.
        step: u64,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The scorer failed as a whole.
    #[error("step {step}: scoring completions failed")]
    Scorer {
        /// The step, from 1.
        step: u64,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The scorer failed on too many completions: the run stops before the step, its state saved.
    #[error(
        "step {step}: the scorer failed on {unavailable} of {completions} completions ({reasons}), more than {limit} of \
         them; the run is saved and the same command goes on from there"
    )]
    ScorerUnavailable {
        /// The step, from 1.
        step: u64,
        /// Completions it failed on.
        unavailable: usize,
        /// Completions of the step.
        completions: usize,
        /// Counts by reason.
        reasons: String,
        /// The largest share allowed.
        limit: f64,
    },
    /// The sampler or the scorer answered something that does not fit the question.
    #[error("step {step}: {detail}")]
    Rollout {
        /// The step, from 1.
        step: u64,
        /// Expected and found.
        detail: String,
    },
    /// The sampler's log-probs are not the trainer's.
    #[error(
        "step {step}: prompt `{prompt}`, sample {sample}, token {token}: log-prob {sampler} in the sampler and {trainer} \
         in the trainer, more than {limit} apart: sampled from other weights or at another temperature"
    )]
    Mismatch {
        /// The step, from 1.
        step: u64,
        /// Id of the prompt.
        prompt: String,
        /// Number inside the group.
        sample: usize,
        /// Token of the completion, from 0.
        token: usize,
        /// The sampler's value.
        sampler: f64,
        /// The trainer's value.
        trainer: f64,
        /// The largest difference allowed.
        limit: f64,
    },
    /// Too many completions are unusable before the first update.
    #[error(
        "{faults} of the first {completions} completions are policy faults ({reasons}), more than {limit} of them: the \
         starting model does not produce what the scorer reads, so supervised fine-tuning has not taken"
    )]
    FaultsAtStart {
        /// Policy faults.
        faults: usize,
        /// Completions looked at.
        completions: usize,
        /// Counts by reason.
        reasons: String,
        /// The largest share allowed.
        limit: f64,
    },
}

/// Shorthand.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn config(field: &str, detail: impl Into<String>) -> Self {
        Error::Config { field: field.into(), detail: detail.into() }
    }

    pub(crate) fn file(path: &std::path::Path, detail: impl std::fmt::Display) -> Self {
        Error::File { path: path.into(), detail: detail.to_string() }
    }
}
