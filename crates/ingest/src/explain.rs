//! What ingest makes of one file, for a person: the format found, and the first trajectory.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use serde::Serialize;
use worldloom_schema::{Reject, Trajectory};

use crate::config::IngestConfig;
use crate::error::Result;
use crate::feed::{self, Item, Opened};
use crate::files::{self, Entry};
use crate::listing::{self, Search};
use crate::read::{Converted, Made, convert};
use crate::remote::Access;
use crate::run::{forced_source, mapped_source};
use crate::source::Source;

/// What was found.
#[derive(Debug, Clone, Serialize)]
pub struct Explanation {
    /// The file or folder that was read: the first one of the input.
    pub file: String,
    /// Files in the input.
    pub files: u64,
    /// Name of the format; none where no format knows the file.
    pub format: Option<String>,
    /// What a reading takes: row, file or folder.
    pub shape: &'static str,
    /// Rows that were read for this.
    pub rows: u64,
    /// The first trajectory.
    pub trajectory: Option<Trajectory>,
    /// Why there is none, or what else was refused on the way.
    pub rejects: Vec<Reject>,
    /// Repairs and things left out on the way, by name.
    pub counts: std::collections::BTreeMap<&'static str, u64>,
}

/// Reads the first file of the inputs until it gives a trajectory; `scratch` is where archives may be unpacked.
pub fn explain(config: &IngestConfig, scratch: &Path, access: &Access) -> Result<Explanation> {
    let mapped = mapped_source(config)?;
    let forced = forced_source(config, mapped.as_ref())?;
    let formats = crate::source::all();
    let search = Search { forced, formats, access, scratch, endings: &files::ENDINGS };
    let listing = listing::list(&config.inputs, search)?;
    let files = listing.files;
    let (entries, _unpacked) = listing.into_entries();
    let read_bytes = Arc::new(AtomicU64::new(0));
    let mut converted = Converted::default();
    let Some(entry) = entries.into_iter().next() else { return Ok(explanation(String::new(), files, None, converted)) };
    let name = entry.name().to_string();
    let mut add = |item: Item<'_>| -> Result<bool> {
        converted.merge(convert(item, forced, formats, &read_bytes)?);
        Ok(converted.outcomes.iter().any(|outcome| outcome.is_ok()))
    };
    let source: Option<&dyn Source> = match entry {
        Entry::Refused { name, source, refusal } => {
            add(Item::Refused { name, source, refusal })?;
            None
        }
        Entry::Folder(folder) => {
            let kind = folder.kind;
            add(Item::Folder(Arc::new(folder)))?;
            Some(kind)
        }
        Entry::File(file) => match feed::open(Arc::new(file), forced, formats, &Arc::default())? {
            Opened::Whole { file, source, content } => {
                add(Item::Whole { file, source, content })?;
                Some(source)
            }
            Opened::Rows(mut rows) => {
                let source = rows.source;
                while let Some(row) = rows.next() {
                    if add(Item::Row { file: rows.file.clone(), source, row })? {
                        break;
                    }
                }
                source
            }
        },
    };
    Ok(explanation(name, files, source, converted))
}

fn explanation(file: String, files: u64, source: Option<&dyn Source>, converted: Converted) -> Explanation {
    let (mut trajectory, mut rejects) = (None, Vec::new());
    for outcome in converted.outcomes {
        match outcome {
            Ok(Made::Trajectory(made)) => trajectory = trajectory.or(Some(*made)),
            Ok(Made::Document(_)) => {}
            Err(reject) => rejects.push(reject),
        }
    }
    Explanation {
        file,
        files,
        format: source.map(|source| source.name().to_string()),
        shape: source.map_or("", |source| source.shape().name()),
        rows: converted.rows,
        trajectory,
        rejects,
        counts: converted.counts,
    }
}
