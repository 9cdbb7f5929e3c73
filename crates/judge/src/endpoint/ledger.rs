//! What was asked and what it cost: one JSON line a request, and the sums.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::failure::{Failure, SetupError};
use super::reply::Usage;

/// Sums over the requests of one client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Requests.
    pub requests: u64,
    /// Those answered by the server.
    pub answered: u64,
    /// Those answered from the cache.
    pub cached: u64,
    /// Those without an answer, by kind of [`Failure`].
    pub failed: BTreeMap<String, u64>,
    /// Times a request was sent.
    pub attempts: u64,
    /// Tokens of prompts, as the server counted them; the cache's cost nothing and are not in here.
    pub prompt_tokens: u64,
    /// Tokens of answers.
    pub completion_tokens: u64,
    /// By the prices of the configuration.
    pub cost: f64,
}

/// One request, as its line has it.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub(super) key: &'a str,
    pub(super) path: &'a str,
    pub(super) model: &'a str,
    /// `answered`, `cached`, or a kind of failure.
    pub(super) outcome: &'a str,
    pub(super) attempts: u32,
    pub(super) seconds: f64,
    pub(super) prompt_tokens: u64,
    pub(super) completion_tokens: u64,
    pub(super) cost: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
}

impl Entry<'_> {
    pub(super) fn with_usage(mut self, usage: Usage, cost: f64) -> Self {
        (self.prompt_tokens, self.completion_tokens, self.cost) = (usage.prompt_tokens, usage.completion_tokens, cost);
        self
    }
}

#[derive(Default)]
pub(super) struct Ledger {
    totals: Mutex<Totals>,
    lines: Option<(PathBuf, Mutex<fs_err::File>)>,
}

impl Ledger {
    /// Lines go to the end of `path` from here on.
    pub(super) fn write_to(&mut self, path: &Path) -> Result<(), SetupError> {
        let failed = |source| SetupError::Open { path: path.into(), source };
        if let Some(folder) = path.parent() {
            fs_err::create_dir_all(folder).map_err(failed)?;
        }
        let file = fs_err::OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        self.lines = Some((path.into(), Mutex::new(file)));
        Ok(())
    }

    pub(super) fn note(&self, entry: &Entry<'_>) -> Result<(), Failure> {
        self.add(entry);
        let Some((path, file)) = &self.lines else { return Ok(()) };
        let write = || -> std::io::Result<()> {
            let mut line = serde_json::to_vec(entry)?;
            line.push(b'\n');
            file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line)
        };
        write().map_err(|error| Failure::Keep { detail: format!("`{}`: {error}", path.display()) })
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn add(&self, entry: &Entry<'_>) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.requests += 1;
        totals.attempts += u64::from(entry.attempts);
        match entry.outcome {
            "answered" => totals.answered += 1,
            "cached" => totals.cached += 1,
            kind => *totals.failed.entry(kind.into()).or_default() += 1,
        }
        totals.prompt_tokens += entry.prompt_tokens;
        totals.completion_tokens += entry.completion_tokens;
        totals.cost += entry.cost;
    }
}
