//! What a run tells: metrics a step, to a file and to an observer.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::events::EventFile;
use crate::memory::Memory;
use crate::rl::RlStepMetrics;
use crate::validation::Validation;

/// Name of the metrics file in a run's folder: one JSON object a step.
pub(crate) const METRICS_FILE: &str = "metrics.jsonl";

/// Wall-clock figures, apart from the rest: everything else in a line is the same for the same run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Clock {
    /// Seconds the step took.
    pub seconds: f64,
    /// Tokens of the step (context and targets, without padding) over those seconds.
    pub tokens_per_s: f64,
}

/// Figures of the machine, apart from the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct StepClock {
    /// Seconds the step took.
    pub seconds: f64,
    /// Tokens of the step (context and targets, without padding) over those seconds.
    pub tokens_per_s: f64,
    /// Resident bytes of the process, where the system says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Bytes that burn's pool holds on a device that is not the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device_bytes: Option<u64>,
    /// Seconds of the step in which gradients were summed over processes, waiting for the slowest included; none in one
    /// process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange_seconds: Option<f64>,
}

/// One step of a supervised stage.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepMetrics {
    /// Updates made so far, from 1.
    pub step: u64,
    /// `Σ w·nll / Σ w` over the step, before its update: the value that was optimised.
    pub loss: f64,
    /// Learning rate of the update.
    pub learning_rate: f64,
    /// Norm of the gradient before clipping.
    pub grad_norm: f64,
    /// What the routers add, where they have a loss; it is not in `loss`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub routers: Option<RouterMetrics>,
    /// Rows of the step.
    pub rows: u64,
    /// Tokens of its rows.
    pub tokens: u64,
    /// Tokens with a weight above 0.
    pub trained_tokens: u64,
    /// Share of the places in its micro-batches that hold padding.
    pub padding: f64,
    /// Tokens by part of a mixture; empty where there is none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, u64>,
    /// Whether it changed no weight, because its loss or gradient was not finite.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Figures that jumped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<String>,
    /// The validation rows before the first update, where any are measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_before: Option<Validation>,
    /// `Σ w·nll / Σ w` over the validation rows after the update, where this step measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// More about the validation rows, where this step measured it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<Validation>,
    /// Wall-clock figures.
    pub clock: StepClock,
    /// Numbers of its rows; not in the file, for messages.
    #[serde(skip)]
    pub row_numbers: Vec<usize>,
}

/// The routers of a step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RouterMetrics {
    /// Their loss, times its factors.
    pub loss: f64,
    /// Choices of the busiest expert as a multiple of an even share.
    pub busiest: f64,
}

/// What is known when a run starts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StartInfo {
    /// Steps in all.
    pub steps: u64,
    /// Steps made by an earlier call.
    pub done: u64,
    /// Parameters of the model.
    pub parameters: u64,
    /// Rows (or prompts) to train on.
    pub rows: u64,
    /// Rows left out because nothing in them is trained.
    pub untrained_rows: u64,
    /// Rows held out or given for validation.
    pub validation_rows: u64,
}

/// Watches a run.
pub trait Observer {
    /// Before the first step of this call.
    fn on_start(&mut self, _info: &StartInfo) {}

    /// Before and after the largest micro-batch of a supervised stage goes through once, before its first step.
    fn on_memory(&mut self, _memory: &Memory) {}

    /// After a step of a supervised stage.
    fn on_step(&mut self, _metrics: &StepMetrics) {}

    /// After a step of RL.
    fn on_rl_step(&mut self, _metrics: &RlStepMetrics) {}

    /// After a checkpoint is in place.
    fn on_checkpoint(&mut self, _step: u64, _folder: &Path) {}
}

/// Watches nothing.
pub struct Silent;

impl Observer for Silent {}

/// The hands on a run: who watches and how it is stopped.
pub struct Control<'a> {
    /// Told of every step.
    pub observer: &'a mut dyn Observer,
    /// Once true, the run saves a checkpoint before its next step and returns.
    pub stop: &'a AtomicBool,
}

impl Control<'_> {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The metrics file, cut to the steps of the checkpoint a run goes on from.
pub(crate) struct MetricsFile {
    /// None: another process of the job writes.
    open: Option<Open>,
    /// The steps that were there.
    lines: Vec<Value>,
}

struct Open {
    path: PathBuf,
    file: fs_err::File,
    events: EventFile,
}

impl MetricsFile {
    /// Keeps the lines of steps up to `step` and opens the file for more.
    pub(crate) fn resume(folder: &Path, step: u64) -> Result<Self> {
        let path = folder.join(METRICS_FILE);
        let text = match path.exists() {
            true => String::from_utf8_lossy(&fs_err::read(&path)?).into_owned(),
            false => String::new(),
        };
        let is_kept = |line: &&str| step_of(line).is_some_and(|found| found <= step);
        let kept: String = text.split_inclusive('\n').filter(is_kept).collect();
        if kept.len() != text.len() {
            let partial = folder.join(".metrics.partial");
            fs_err::write(&partial, &kept)?;
            fs_err::File::open(&partial)?.sync_all()?;
            fs_err::rename(&partial, &path)?;
        }
        let file = fs_err::OpenOptions::new().create(true).append(true).open(&path)?;
        let lines: Vec<Value> = kept.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let events = EventFile::create(folder, &lines)?;
        Ok(Self { open: Some(Open { path, file, events }), lines })
    }

    /// Of a process that writes none.
    pub(crate) fn of_others() -> Self {
        Self { open: None, lines: Vec::new() }
    }

    /// The steps that were there when the file was opened.
    pub(crate) fn lines(&self) -> &[Value] {
        &self.lines
    }

    pub(crate) fn push(&mut self, metrics: &impl Serialize) -> Result<()> {
        let Some(Open { path, file, events }) = &mut self.open else { return Ok(()) };
        let line = serde_json::to_string(metrics).map_err(|error| Error::file(path, error))?;
        file.write_all(format!("{line}\n").as_bytes())?;
        let value: Value = serde_json::from_str(&line).map_err(|error| Error::file(path, error))?;
        events.push(&value)
    }

    /// Makes the lines so far survive a power cut; called before a checkpoint becomes visible.
    pub(crate) fn sync(&self) -> Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| Ok(open.file.sync_all()?))
    }
}

/// The step of a whole line; none for the torn last line of a killed run.
fn step_of(line: &str) -> Option<u64> {
    let value: Value = serde_json::from_str(line.strip_suffix('\n')?).ok()?;
    value["step"].as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resuming_cuts_later_and_torn_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(METRICS_FILE);
        fs_err::write(&path, "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.5}\n{\"step\":3,\"lo").unwrap();
        let mut file = MetricsFile::resume(folder.path(), 1).unwrap();
        file.push(&serde_json::json!({"step": 2, "loss": 1.25})).unwrap();
        let text = fs_err::read_to_string(&path).unwrap();
        assert_eq!(text, "{\"step\":1,\"loss\":2.0}\n{\"step\":2,\"loss\":1.25}\n");
    }
}
