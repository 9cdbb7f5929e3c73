//! Chunks of rows across all files, in file order, each with the format of its file.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::files::{self, InputFile};
use crate::refusal::{Counts, Refusal};
use crate::repair;
use crate::rows::{Row, Rows};
use crate::source::{self, Source};

/// Rows per chunk at most; a chunk is what is in memory at once.
const CHUNK_ROWS: usize = 512;
/// Bytes per chunk, exceeded by one row at most.
const CHUNK_BYTES: usize = 8 << 20;
/// Rows that are looked at before a file is of no known format.
const DETECTION_ROWS: usize = 32;
/// Bytes that are looked at before a file is of no known format, exceeded by one row at most.
const DETECTION_BYTES: usize = 64 << 20;

/// A row with its file and format.
pub(crate) struct Item {
    pub(crate) file: Arc<InputFile>,
    pub(crate) source: Option<&'static dyn Source>,
    pub(crate) row: Row,
}

/// Reads the files one after the other.
pub(crate) struct Feed {
    files: VecDeque<Arc<InputFile>>,
    forced: Option<&'static dyn Source>,
    current: Option<Current>,
    read_bytes: Arc<AtomicU64>,
}

struct Current {
    file: Arc<InputFile>,
    source: Option<&'static dyn Source>,
    looked_at: VecDeque<Row>,
    rows: Rows,
}

impl Feed {
    /// A feed over `files`; `forced` reads all of them with one format.
    pub(crate) fn new(files: Vec<InputFile>, forced: Option<&'static dyn Source>) -> Self {
        let files = files.into_iter().map(Arc::new).collect();
        Self { files, forced, current: None, read_bytes: Arc::default() }
    }

    /// Bytes taken from the disk so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// The next rows; empty at the end.
    pub(crate) fn next_chunk(&mut self) -> Result<Vec<Item>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < CHUNK_ROWS && bytes < CHUNK_BYTES {
            let Some(item) = self.next_item()? else { break };
            bytes += item.row.bytes.as_ref().map_or(0, Vec::len);
            chunk.push(item);
        }
        Ok(chunk)
    }

    fn next_item(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(row) = current.looked_at.pop_front().or_else(|| current.rows.next()) {
                    return Ok(Some(Item { file: current.file.clone(), source: current.source, row }));
                }
                self.current = None;
            }
            let Some(file) = self.files.pop_front() else { return Ok(None) };
            self.current = Some(self.open(file)?);
        }
    }

    fn open(&self, file: Arc<InputFile>) -> Result<Current> {
        let reader = files::open(&file, &self.read_bytes)?;
        let rows = Rows::open(reader, &files::unpacked_name(&file.name));
        let mut current = Current { file, source: self.forced, looked_at: VecDeque::new(), rows };
        if current.source.is_none() {
            detect(&mut current);
        }
        Ok(current)
    }
}

/// Finds the format from the first rows. A file of no known format becomes one refused row.
fn detect(current: &mut Current) {
    let mut bytes = 0;
    while current.looked_at.len() < DETECTION_ROWS && bytes < DETECTION_BYTES {
        let Some(row) = current.rows.next() else { break };
        if let Ok(content) = &row.bytes {
            bytes += content.len();
            current.source = source::detect(&repair::to_text(content.clone(), &mut Counts::new()));
        }
        current.looked_at.push_back(row);
        if current.source.is_some() {
            return;
        }
    }
    let Some(first) = current.looked_at.front() else { return };
    let refusal = match &first.bytes {
        Err(refusal) => refusal.clone(),
        Ok(content) => unknown(content),
    };
    current.looked_at = VecDeque::from([Row { number: 0, offset: first.offset, bytes: Err(refusal) }]);
    current.rows = Rows::nothing();
}

fn unknown(content: &[u8]) -> Refusal {
    let text = String::from_utf8_lossy(content);
    match crate::json::Value::parse(&text) {
        Err(error) => Refusal::json(&error),
        Ok(crate::json::Value::Object(fields)) => {
            let keys = fields.keys().take(12).map(String::as_str).collect::<Vec<_>>().join(", ");
            Refusal::new("unknown_format", format!("an object with {keys}; known formats: {}", source::names()))
        }
        Ok(other) => Refusal::new("unknown_format", format!("{}; known formats: {}", other.kind(), source::names())),
    }
}
