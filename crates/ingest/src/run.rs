//! The stage: files in, `trajectories.parquet`, `rejects.parquet` and `report.json` out.

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use worldloom_schema::{REJECT_FILE, Reject, TRAJECTORY_FILE, TableWriter, Trajectory};

use crate::config::IngestConfig;
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::files;
use crate::read::{Converted, convert};
use crate::source::{self, Source};

/// What one source gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Trajectories written.
    pub trajectories: u64,
    /// Their turns.
    pub turns: u64,
}

/// What an ingest did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Files, rows, trajectories, turns, rejects, and every repair and thing left out, by name.
    pub counts: BTreeMap<String, u64>,
    /// Rejected rows by rule.
    pub rejects_by_rule: BTreeMap<String, u64>,
    /// Trajectories by format.
    pub formats: BTreeMap<String, u64>,
    /// What each source gave.
    pub sources: BTreeMap<String, SourceCounts>,
}

/// Reads the inputs and writes `trajectories.parquet`, `rejects.parquet` and `report.json` into `out`.
///
/// Every row becomes trajectories or one reject. The output is the same for any number of threads and any order of
/// files in a folder. `progress` is told bytes read and bytes in all.
pub fn run(config: &IngestConfig, out: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report> {
    check(config)?;
    let forced = config.format.as_deref().map(forced_source).transpose()?;
    let listing = files::list(&config.inputs, forced)?;
    let total = listing.bytes;
    let mut writer = Writer::create(out, config.strict)?;
    writer.add("files", listing.files);
    writer.add("files_skipped", listing.skipped);
    let mut feed = Feed::new(listing.entries, forced);
    loop {
        let chunk = feed.next_chunk()?;
        if chunk.is_empty() {
            break;
        }
        let counter = feed.counter();
        let read = |item| convert(item, forced, &counter);
        let converted: Vec<Result<Converted>> = chunk.into_par_iter().map(read).collect();
        converted.into_iter().try_for_each(|converted| writer.push(converted?))?;
        progress(feed.read_bytes().min(total), total);
    }
    let report = writer.finish(config)?;
    let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::other)?;
    fs_err::write(out.join("report.json"), text + "\n")?;
    Ok(report)
}

fn check(config: &IngestConfig) -> Result<()> {
    let share = config.max_reject_share;
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::Config { field: "max_reject_share", found: share.to_string(), expected: "0 to 1" });
    }
    Ok(())
}

fn forced_source(name: &str) -> Result<&'static dyn Source> {
    source::by_name(name).ok_or_else(|| Error::UnknownFormat { name: name.into(), known: source::names() })
}

/// Writes in order and counts.
struct Writer {
    trajectories: TableWriter<Trajectory>,
    rejects: TableWriter<Reject>,
    report: Report,
    examples: BTreeMap<String, String>,
    is_strict: bool,
}

impl Writer {
    fn create(out: &Path, is_strict: bool) -> Result<Self> {
        Ok(Self {
            trajectories: TableWriter::create(&out.join(TRAJECTORY_FILE))?,
            rejects: TableWriter::create(&out.join(REJECT_FILE))?,
            report: Report::default(),
            examples: BTreeMap::new(),
            is_strict,
        })
    }

    fn add(&mut self, name: &str, number: u64) {
        *self.report.counts.entry(name.into()).or_default() += number;
    }

    fn push(&mut self, converted: Converted) -> Result<()> {
        self.add("rows", converted.rows);
        for (name, number) in converted.counts {
            self.add(name, number);
        }
        converted.outcomes.into_iter().try_for_each(|outcome| match outcome {
            Ok(trajectory) => self.push_trajectory(trajectory),
            Err(reject) => self.push_reject(reject),
        })
    }

    fn push_trajectory(&mut self, trajectory: Trajectory) -> Result<()> {
        let turns = trajectory.turns.len() as u64;
        self.add("trajectories", 1);
        self.add("turns", turns);
        *self.report.formats.entry(trajectory.format.clone()).or_default() += 1;
        let source = self.report.sources.entry(trajectory.source.clone()).or_default();
        source.trajectories += 1;
        source.turns += turns;
        Ok(self.trajectories.push(trajectory)?)
    }

    fn push_reject(&mut self, reject: Reject) -> Result<()> {
        let Reject { file, row, byte_offset, rule, detail, .. } = &reject;
        let example = format!("`{file}` row {row} at byte {byte_offset}: {detail}");
        if self.is_strict {
            return Err(Error::Strict { rule: rule.clone(), example });
        }
        tracing::debug!(file, row, byte_offset, rule, detail, "row rejected");
        self.add("rejects", 1);
        *self.report.rejects_by_rule.entry(reject.rule.clone()).or_default() += 1;
        self.examples.entry(reject.rule.clone()).or_insert(example);
        Ok(self.rejects.push(reject)?)
    }

    fn finish(mut self, config: &IngestConfig) -> Result<Report> {
        for name in ["rows", "trajectories", "turns", "rejects"] {
            self.add(name, 0);
        }
        self.trajectories.finish()?;
        self.rejects.finish()?;
        let count = |name: &str| self.report.counts[name];
        let (rows, rejects) = (count("rows"), count("rejects"));
        if rows == 0 {
            return Err(Error::NoRows { inputs: files::names(&config.inputs), files: count("files") });
        }
        let commonest = self.report.rejects_by_rule.iter().max_by_key(|(_, number)| **number);
        let (rule, number) = commonest.map_or((String::new(), 0), |(rule, number)| (rule.clone(), *number));
        let example = self.examples.get(&rule).cloned().unwrap_or_default();
        if count("trajectories") == 0 {
            return Err(Error::NoTrajectories { rows, rule, count: number, example });
        }
        if rejects as f64 > config.max_reject_share * rows as f64 {
            let limit = config.max_reject_share;
            return Err(Error::TooManyRejects { rejects, rows, limit, rule, count: number, example });
        }
        Ok(self.report)
    }
}
