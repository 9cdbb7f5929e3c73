//! The input in parts that are finished one by one, so that a killed run goes on where it was.
//!
//! A *part* is a run of entries of some size. It is written into files of its own under `.parts/`; its record is written
//! last and names a key: config, program and the entries' names, sizes and times. A part with a record of its key is not
//! read again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::files::Entry;
use crate::listing::Listing;
use crate::report::Report;

/// Bytes on disk of a part, exceeded by one entry at most.
const PART_BYTES: u64 = 64 << 20;
const FOLDER: &str = ".parts";

/// Some entries that are read together.
pub(crate) struct Part<'s> {
    pub(crate) index: usize,
    pub(crate) key: String,
    pub(crate) entries: Vec<Entry<'s>>,
}

impl Part<'_> {
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.iter().map(Entry::bytes).sum()
    }
}

/// What is kept of a finished part.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PartRecord {
    pub(crate) key: String,
    pub(crate) report: Report,
    /// The first rejected row of each rule.
    pub(crate) examples: BTreeMap<String, String>,
}

/// The listing in parts, and what must live until they are read.
///
/// `settings` are what decides the output of a part beside the entries. The share of rejects only decides whether the
/// run is good.
pub(crate) fn split<'s>(listing: Listing<'s>, settings: &[&str]) -> (Vec<Part<'s>>, Vec<tempfile::TempDir>) {
    let (entries, unpacked) = listing.into_entries();
    let mut parts: Vec<Part<'s>> = Vec::new();
    let mut room = 0;
    for entry in entries {
        if room == 0 || parts.is_empty() {
            parts.push(Part { index: parts.len(), key: String::new(), entries: Vec::new() });
            room = PART_BYTES;
        }
        room = room.saturating_sub(entry.bytes());
        if let Some(part) = parts.last_mut() {
            part.entries.push(entry);
        }
    }
    for part in &mut parts {
        part.key = key(part, settings);
    }
    (parts, unpacked)
}

fn key(part: &Part<'_>, settings: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    let mut add = |text: &str| {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    add(env!("CARGO_PKG_VERSION"));
    settings.iter().for_each(|setting| add(setting));
    part.entries.iter().for_each(|entry| add(&entry.identity()));
    hasher.finalize().to_hex()[..32].to_string()
}

/// The trajectories or documents, the rejects and the record of a part.
pub(crate) fn paths(out: &Path, index: usize) -> [PathBuf; 3] {
    ["made.parquet", "rejects.parquet", "json"].map(|end| out.join(FOLDER).join(format!("{index:06}.{end}")))
}

/// The record of a part that was finished before.
pub(crate) fn finished(out: &Path, part: &Part<'_>) -> Result<Option<PartRecord>> {
    fs_err::create_dir_all(out.join(FOLDER))?;
    let [_, _, record] = paths(out, part.index);
    if !record.exists() {
        return Ok(None);
    }
    let record: Option<PartRecord> = serde_json::from_str(&fs_err::read_to_string(record)?).ok();
    Ok(record.filter(|record| record.key == part.key))
}

/// Writes the record of a part whose other files are written.
pub(crate) fn seal(out: &Path, index: usize, record: &PartRecord) -> Result<()> {
    let [_, _, path] = paths(out, index);
    let partial = path.with_extension("partial");
    fs_err::write(&partial, serde_json::to_string(record).map_err(std::io::Error::other)?)?;
    fs_err::File::open(&partial)?.sync_all()?;
    Ok(fs_err::rename(partial, path)?)
}

/// Removes all parts, if there are any.
pub(crate) fn remove(out: &Path) -> Result<()> {
    let folder = out.join(FOLDER);
    if folder.exists() {
        fs_err::remove_dir_all(folder)?;
    }
    Ok(())
}
