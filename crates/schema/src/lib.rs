//! What is on disk: trajectories, token shards, prompts, rollouts, rejects and manifests, with their versions, readers
//! and writers.
//!
//! Words: a *trajectory* is one episode, a system context and a list of *turns* (action, observation). A *pool* is a
//! disjoint set of trajectories for one purpose. A *row* is one packed sequence of tokens with a loss weight each. A
//! *shard* is a file of rows. An *artifact* is a folder with a `manifest.json` that is written last; without it, the
//! artifact does not exist. This crate knows no text format of others (that is `ingest`) and no tensors.

mod artifact;
mod document;
mod error;
mod evaluation;
mod prompt;
mod reject;
mod rollout;
mod shard;
mod table;
mod trajectory;

pub use artifact::{Artifact, ArtifactWriter, FileEntry, InputRef, MANIFEST, Manifest, hash_file, hash_json, seal};
pub use document::{DOCUMENT_FILE, DOCUMENT_VERSION, Document, document_id};
pub use error::{Error, Result};
pub use evaluation::{
    CalibrationBin, Difference, EVALUATION_FILE, Evaluation, Example, Interval, Measures, Prediction, Predictor,
    PredictorKind,
};
pub use prompt::{PROMPT_FILE, Prompt, PromptTurn};
pub use reject::{REJECT_FILE, Reject};
pub use rollout::{Outcome as RolloutOutcome, ROLLOUT_VERSION, Rollout};
pub use shard::{Row, SHARD_VERSION, Shard, ShardSet, ShardWriter};
pub use table::{Table, TableReader, TableWriter, concat_tables, read_table, write_table};
pub use trajectory::{
    ActionKind, Domain, KeepClass, ObservationKind, Outcome, Pool, System, TRAJECTORY_FILE, TRAJECTORY_VERSION,
    Trajectory, Turn, trajectory_id,
};
