//! A curation for another process: what `worldloom` and `worldloom-cluster` say to each other.
//!
//! The one writes a [`Job`] as JSON to the other's input and closes it; the other answers with one [`Answer`] as JSON a
//! line, the last of them [`Answer::Failed`] or [`Answer::Done`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::config::CurateConfig;

/// A curation whose plans a cluster runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// `ballista://HOST:PORT`.
    pub address: String,
    /// What is done.
    pub config: CurateConfig,
    /// Files of trajectories.
    pub trajectories: Vec<PathBuf>,
    /// Files of documents.
    pub documents: Vec<PathBuf>,
    /// The folder for pools, rejects and report.
    pub out: PathBuf,
}

/// What is said about a job while it runs and when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Answer {
    /// Steps done and steps in all.
    Progress {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
    },
    /// It was not done.
    Failed {
        /// Why.
        error: String,
        /// What to do about it, where we know.
        hint: Option<String>,
    },
    /// `report.json` is written.
    Done,
}
