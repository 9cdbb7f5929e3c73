//! The stage: files in, `trajectories.parquet`, `rejects.parquet` and `report.json` out.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rayon::prelude::*;
use worldloom_schema::{Document, REJECT_FILE, Reject, Trajectory, concat_tables};

use crate::config::{CorpusConfig, IngestConfig};
use crate::error::{Error, Result};
use crate::feed::Feed;
use crate::files::{self, Entry, InputFile, Place};
use crate::listing::{self, SCRATCH_PREFIX, Search};
use crate::parts::{self, Part, PartRecord};
use crate::read::{Converted, Made, convert};
use crate::remote::Access;
use crate::report::{Product, Report, Writer};
use crate::source::corpus::{TEXT_ENDINGS, TextFile, TextRows};
use crate::source::{self, MappedSource, Source};

/// Reads the inputs and writes `trajectories.parquet`, `rejects.parquet` and `report.json` into `out`.
///
/// Every row becomes trajectories or one reject. The output is the same for any number of threads and any order of
/// files in a folder. A run that was stopped goes on after the last finished part of the input, if config and input are
/// the same. `progress` is told bytes read and bytes in all.
pub fn run(config: &IngestConfig, out: &Path, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report> {
    run_with(config, out, &Access::default(), progress)
}

/// [`run`] with a way to reach addresses.
pub fn run_with(
    config: &IngestConfig,
    out: &Path,
    access: &Access,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report> {
    let mapped = mapped_source(config)?;
    let forced = forced_source(config, mapped.as_ref())?;
    let map = mapped.as_ref().map_or("", MappedSource::text);
    let format = config.format.as_deref().unwrap_or_default();
    let job = Job {
        inputs: &config.inputs,
        product: Product::Trajectories,
        forced,
        formats: source::all(),
        endings: &files::ENDINGS,
        settings: &[format, map],
        max_reject_share: config.max_reject_share,
        is_strict: config.strict,
    };
    job.run(out, access, progress)
}

/// Reads texts and writes `documents.parquet`, `rejects.parquet` and `report.json` into `out`, in the manner of [`run`].
pub fn run_corpus(
    config: &CorpusConfig,
    out: &Path,
    access: &Access,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report> {
    let (licence, field) = (config.licence.clone(), config.text_field.clone().unwrap_or("text".into()));
    let text_file = TextFile { licence: licence.clone() };
    let text_rows = TextRows { field: field.clone(), licence };
    let endings: Vec<&str> = TEXT_ENDINGS.iter().chain(&ROW_ENDINGS).copied().collect();
    let job = Job {
        inputs: &config.inputs,
        product: Product::Documents,
        forced: None,
        formats: &[&text_file, &text_rows],
        endings: &endings,
        settings: &["corpus", &field, config.licence.as_deref().unwrap_or_default()],
        max_reject_share: config.max_reject_share,
        is_strict: config.strict,
    };
    job.run(out, access, progress)
}

/// Reads one file that lies in memory; `name` is what it is called, `format` forces a format.
pub fn read_bytes(name: &str, content: Vec<u8>, format: Option<&str>) -> Result<(Vec<Trajectory>, Vec<Reject>)> {
    let forced = match format {
        None => None,
        Some(format) => Some(named_source(format)?),
    };
    let content = bytes::Bytes::from(content);
    let file = InputFile {
        bytes: content.len() as u64,
        place: Place::Memory(content),
        name: name.into(),
        source: files::stem(name).into(),
        version: String::new(),
    };
    let mut feed = Feed::new(vec![Entry::File(file)], forced, source::all(), &Arc::default());
    let (mut trajectories, mut rejects) = (Vec::new(), Vec::new());
    loop {
        let chunk = feed.next_chunk()?;
        if chunk.is_empty() {
            return Ok((trajectories, rejects));
        }
        for item in chunk {
            for outcome in convert(item, forced, source::all(), &Arc::default())?.outcomes {
                match outcome {
                    Ok(Made::Trajectory(trajectory)) => trajectories.push(*trajectory),
                    Ok(Made::Document(_)) => {}
                    Err(reject) => rejects.push(reject),
                }
            }
        }
    }
}

/// Parts that are read at a time, at most.
const PARTS_AT_ONCE: usize = 4;

/// Endings of files with a text per row.
const ROW_ENDINGS: [&str; 6] = [".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".csv"];

/// One run: what is read, as which formats, into what.
struct Job<'s> {
    inputs: &'s [PathBuf],
    product: Product,
    forced: Option<&'s dyn Source>,
    formats: &'s [&'s dyn Source],
    endings: &'s [&'s str],
    settings: &'s [&'s str],
    max_reject_share: f64,
    is_strict: bool,
}

impl Job<'_> {
    /// Runs the job. A failed one leaves its finished parts, or its rejects where they are what is wrong; else nothing.
    fn run(&self, out: &Path, access: &Access, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report> {
        let result = self.run_parts(out, access, progress);
        let leaves = |error: &Error| {
            matches!(
                error,
                Error::TooManyRejects { .. } | Error::NoTrajectories { .. } | Error::Io(_) | Error::Schema(_)
            )
        };
        if result.as_ref().is_err_and(|error| !leaves(error)) {
            parts::remove(out)?;
            for name in [self.product.file(), REJECT_FILE, "report.json"] {
                if out.join(name).exists() {
                    fs_err::remove_file(out.join(name))?;
                }
            }
        }
        result
    }

    fn run_parts(&self, out: &Path, access: &Access, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Report> {
        let share = self.max_reject_share;
        if !(0.0..=1.0).contains(&share) {
            return Err(Error::Config { field: "max_reject_share", found: share.to_string(), expected: "0 to 1" });
        }
        fs_err::create_dir_all(out)?;
        remove_scratch(out)?;
        let (forced, formats, endings) = (self.forced, self.formats, self.endings);
        let search = Search { forced, formats, access, scratch: out, endings };
        let listing = listing::list(self.inputs, search)?;
        let mut report = Report::default();
        report.add("files", listing.files);
        report.add("files_skipped", listing.skipped);
        listing.counts.iter().for_each(|(name, number)| report.add(name, *number));
        let total = listing.bytes;
        let (parts, _unpacked) = parts::split(listing, self.settings);
        let records = self.run_each(parts, out, &|read| progress(read.min(total), total))?;
        records.iter().for_each(|record| report.merge(&record.report));
        self.finish(out, report, &records)
    }

    /// The records of all parts in their order, some read at a time: while one writes its table, which is one thread's work,
    /// others read. After an error no further part is begun; told is that of the first part that has one.
    fn run_each(&self, parts: Vec<Part<'_>>, out: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<Vec<PartRecord>> {
        let workers = PARTS_AT_ONCE.min(rayon::current_num_threads()).min(parts.len());
        let (waiting, read_bytes, is_failed) =
            (Mutex::new(parts.into_iter()), AtomicU64::new(0), AtomicBool::new(false));
        let next = || match is_failed.load(Ordering::Relaxed) {
            true => None,
            false => waiting.lock().unwrap_or_else(PoisonError::into_inner).next(),
        };
        let work = || {
            let mut results = Vec::new();
            while let Some(part) = next() {
                let (index, bytes, before) = (part.index, part.bytes(), AtomicU64::new(0));
                let told = |read: u64| {
                    let read = read.min(bytes);
                    let more = read.saturating_sub(before.fetch_max(read, Ordering::Relaxed));
                    progress(read_bytes.fetch_add(more, Ordering::Relaxed) + more);
                };
                let result = match parts::finished(out, &part) {
                    Ok(None) => self.run_part(part, out, &told),
                    Ok(Some(record)) => Ok(record),
                    Err(error) => Err(error),
                };
                told(bytes);
                if result.is_err() {
                    is_failed.store(true, Ordering::Relaxed);
                }
                results.push((index, result));
            }
            results
        };
        let mut results = std::thread::scope(|scope| {
            if workers <= 1 {
                return work();
            }
            let running: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let ended = running.into_iter().map(|worker| worker.join());
            ended
                .flat_map(|results| results.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Vec<_>>()
        });
        results.sort_by_key(|(index, _)| *index);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Reads one part of the input into files of its own; its record is written last.
    fn run_part(&self, part: Part<'_>, out: &Path, progress: &(dyn Fn(u64) + Sync)) -> Result<PartRecord> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let [made, rejects, _] = parts::paths(out, part.index);
        let mut writer = Writer::create(self.product, &made, &rejects, self.is_strict)?;
        let (index, key) = (part.index, part.key.clone());
        let mut feed = Feed::new(part.entries, self.forced, self.formats, &read_bytes);
        loop {
            let chunk = feed.next_chunk()?;
            if chunk.is_empty() {
                break;
            }
            let read = |item| convert(item, self.forced, self.formats, &read_bytes);
            let converted: Vec<Result<Converted>> = chunk.into_par_iter().map(read).collect();
            converted.into_iter().try_for_each(|converted| writer.push(converted?))?;
            progress(read_bytes.load(Ordering::Relaxed));
        }
        let (report, examples) = writer.finish()?;
        let record = PartRecord { key, report, examples };
        parts::seal(out, index, &record)?;
        Ok(record)
    }

    /// Joins the parts, writes the report, and says whether the run was good.
    fn finish(&self, out: &Path, mut report: Report, records: &[PartRecord]) -> Result<Report> {
        let made: &[&str] = match self.product {
            Product::Trajectories => &["trajectories", "turns"],
            Product::Documents => &["documents", "characters"],
        };
        ["rows", "rejects"].iter().chain(made).for_each(|name| report.add(name, 0));
        let of =
            |at: usize| -> Vec<_> { (0..records.len()).map(|index| parts::paths(out, index)[at].clone()).collect() };
        let path = out.join(self.product.file());
        match self.product {
            Product::Trajectories => concat_tables::<Trajectory>(&of(0), &path)?,
            Product::Documents => concat_tables::<Document>(&of(0), &path)?,
        };
        concat_tables::<Reject>(&of(1), &out.join(REJECT_FILE))?;
        let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::other)?;
        fs_err::write(out.join("report.json"), text + "\n")?;
        self.judge(&report, made[0], records)?;
        parts::remove(out)?;
        Ok(report)
    }

    fn judge(&self, report: &Report, made: &str, records: &[PartRecord]) -> Result<()> {
        let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
        let (rows, rejects) = (count("rows"), count("rejects"));
        if rows == 0 {
            return Err(Error::NoRows { inputs: files::names(self.inputs), files: count("files") });
        }
        let commonest = report.rejects_by_rule.iter().max_by_key(|(_, number)| **number);
        let (rule, number) = commonest.map_or((String::new(), 0), |(rule, number)| (rule.clone(), *number));
        let example = records.iter().find_map(|record| record.examples.get(&rule)).cloned().unwrap_or_default();
        if count(made) == 0 {
            return Err(Error::NoTrajectories { rows, rule, count: number, example });
        }
        if rejects as f64 > self.max_reject_share * rows as f64 {
            let limit = self.max_reject_share;
            return Err(Error::TooManyRejects { rejects, rows, limit, rule, count: number, example });
        }
        Ok(())
    }
}

/// The format of the user's own, read from the file that says where things are.
pub(crate) fn mapped_source(config: &IngestConfig) -> Result<Option<MappedSource>> {
    config.map.as_deref().map(MappedSource::read).transpose()
}

/// The one format that all files are read with, if there is one.
pub(crate) fn forced_source<'s>(
    config: &IngestConfig,
    mapped: Option<&'s MappedSource>,
) -> Result<Option<&'s dyn Source>> {
    if let (Some(_), Some(format)) = (mapped, &config.format) {
        let expected = "none beside map, which is a format itself";
        return Err(Error::Config { field: "format", found: format.clone(), expected });
    }
    if let Some(mapped) = mapped {
        return Ok(Some(mapped));
    }
    Ok(match config.format.as_deref() {
        Some(name) => Some(named_source(name)?),
        None => None,
    })
}

fn named_source(name: &str) -> Result<&'static dyn Source> {
    source::by_name(name).ok_or_else(|| Error::UnknownFormat { name: name.into(), known: source::names() })
}

/// Removes what a killed run left of its unpacked archives.
fn remove_scratch(out: &Path) -> Result<()> {
    for entry in fs_err::read_dir(out)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(SCRATCH_PREFIX) {
            fs_err::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
