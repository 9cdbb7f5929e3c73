//! The input as work, in file order: rows of large files, small files as they lie, whole files, folders.
//!
//! A chunk of work is read by all cores at once. Small files are opened inside the chunk, so that a folder of many is
//! read in parallel; a large file is cut into rows here, so that one is as well.

use std::collections::VecDeque;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::files::{self, Entry, InputFile, InputFolder};
use crate::piece::{FilePiece, Shape};
use crate::refusal::{Counts, Refusal};
use crate::repair;
use crate::rows::{Row, Rows};
use crate::source::{self, Source};

/// Items per chunk at most; a chunk is what is in memory at once.
const CHUNK_ITEMS: usize = 512;
/// Bytes per chunk, exceeded by one item at most.
const CHUNK_BYTES: usize = 8 << 20;
/// A file up to this size on disk is opened by the core that reads it; one that may be packed, only if much smaller.
const SMALL_BYTES: u64 = 1 << 20;
const SMALL_PACKED_BYTES: u64 = 1 << 14;
/// Rows that are looked at before a file is of no known format.
const DETECTION_ROWS: usize = 32;
/// Bytes that are looked at before a file is of no known format, exceeded by one row at most.
const DETECTION_BYTES: usize = 64 << 20;
/// First bytes of a file that a source for whole files is shown.
const HEAD_BYTES: u64 = 64 << 10;
/// A file that is read whole may have this many bytes, unpacked.
pub(crate) const WHOLE_FILE_BYTES: u64 = 1 << 30;

/// A piece of the input for one core.
pub(crate) enum Item {
    /// A row and the format of its file.
    Row { file: Arc<InputFile>, source: Option<&'static dyn Source>, row: Row },
    /// A file that has not been opened.
    Small(Arc<InputFile>),
    /// A file to be read whole by its format.
    Whole { file: Arc<InputFile>, source: &'static dyn Source, bytes: std::result::Result<Vec<u8>, Refusal> },
    /// A folder to be read by its format.
    Folder(Arc<InputFolder>),
}

/// Reads the entries one after the other.
pub(crate) struct Feed {
    entries: VecDeque<Entry>,
    forced: Option<&'static dyn Source>,
    current: Option<Opened>,
    read_bytes: Arc<AtomicU64>,
}

/// A file whose format was found.
pub(crate) enum Opened {
    /// Its rows are read one by one.
    Rows(OpenRows),
    /// It is read whole.
    Whole { file: Arc<InputFile>, source: &'static dyn Source, bytes: std::result::Result<Vec<u8>, Refusal> },
}

/// The rows of a file, those first that were looked at to find its format.
pub(crate) struct OpenRows {
    pub(crate) file: Arc<InputFile>,
    pub(crate) source: Option<&'static dyn Source>,
    looked_at: VecDeque<Row>,
    rows: Rows<'static>,
}

impl Iterator for OpenRows {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.looked_at.pop_front().or_else(|| self.rows.next())
    }
}

impl Feed {
    /// A feed over `entries`; `forced` reads all of them with one format.
    pub(crate) fn new(entries: Vec<Entry>, forced: Option<&'static dyn Source>) -> Self {
        Self { entries: entries.into(), forced, current: None, read_bytes: Arc::default() }
    }

    /// Bytes taken from the disk so far.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Where bytes taken from the disk are counted.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        self.read_bytes.clone()
    }

    /// The next work; empty at the end.
    pub(crate) fn next_chunk(&mut self) -> Result<Vec<Item>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < CHUNK_ITEMS && bytes < CHUNK_BYTES {
            let Some(item) = self.next_item()? else { break };
            bytes += match &item {
                Item::Row { row, .. } => row.bytes.as_ref().map_or(0, Vec::len),
                Item::Small(file) => file.bytes as usize,
                Item::Whole { bytes, .. } => bytes.as_ref().map_or(0, Vec::len),
                Item::Folder(folder) => folder.bytes as usize,
            };
            chunk.push(item);
        }
        Ok(chunk)
    }

    fn next_item(&mut self) -> Result<Option<Item>> {
        loop {
            match self.current.take() {
                Some(Opened::Rows(mut rows)) => {
                    if let Some(row) = rows.next() {
                        let (file, source) = (rows.file.clone(), rows.source);
                        self.current = Some(Opened::Rows(rows));
                        return Ok(Some(Item::Row { file, source, row }));
                    }
                }
                Some(Opened::Whole { file, source, bytes }) => return Ok(Some(Item::Whole { file, source, bytes })),
                None => {}
            }
            match self.entries.pop_front() {
                None => return Ok(None),
                Some(Entry::Folder(folder)) => return Ok(Some(Item::Folder(Arc::new(folder)))),
                Some(Entry::File(file)) if is_small(&file) => return Ok(Some(Item::Small(Arc::new(file)))),
                Some(Entry::File(file)) => self.current = Some(open(Arc::new(file), self.forced, &self.read_bytes)?),
            }
        }
    }
}

fn is_small(file: &InputFile) -> bool {
    let limit = if files::is_packed(&file.name) { SMALL_PACKED_BYTES } else { SMALL_BYTES };
    file.bytes <= limit
}

/// Opens a file and finds its format.
pub(crate) fn open(
    file: Arc<InputFile>,
    forced: Option<&'static dyn Source>,
    read_bytes: &Arc<AtomicU64>,
) -> Result<Opened> {
    if let Some(source) = forced.filter(|source| source.shape() == Shape::File) {
        return whole(file, source, read_bytes);
    }
    let name = files::unpacked_name(&file.name);
    let mut reader = files::open(&file, read_bytes)?;
    let mut head = Vec::new();
    // A damaged file is refused by its rows, which meet the same damage.
    let _ = reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head);
    let mut rows = Rows::open(Box::new(Cursor::new(head.clone()).chain(reader)), &name);
    if forced.is_some() {
        return Ok(Opened::Rows(OpenRows { file, source: forced, looked_at: VecDeque::new(), rows }));
    }
    let first = rows.next();
    let text = |row: &Row| Some(repair::to_text(row.bytes.as_ref().ok()?.clone(), &mut Counts::new()));
    let first_row = first.as_ref().and_then(text);
    let piece = FilePiece { name: &name, bytes: &head, first_row: first_row.as_deref() };
    match source::detect_file(&piece) {
        Some(source) if source.shape() == Shape::File => whole(file, source, read_bytes),
        source => {
            let mut rows = OpenRows { file, source, looked_at: first.into_iter().collect(), rows };
            if source.is_none() {
                detect(&mut rows);
            }
            Ok(Opened::Rows(rows))
        }
    }
}

/// The file with all of its bytes, unless it is too large for a format that needs them at once.
fn whole(file: Arc<InputFile>, source: &'static dyn Source, read_bytes: &Arc<AtomicU64>) -> Result<Opened> {
    let mut content = Vec::new();
    let read = files::open(&file, read_bytes)?.take(WHOLE_FILE_BYTES + 1).read_to_end(&mut content);
    let bytes = match read {
        Err(error) => Err(crate::rows::unreadable(&error)),
        Ok(_) if content.len() as u64 > WHOLE_FILE_BYTES => {
            let detail = format!("more than {WHOLE_FILE_BYTES} bytes, and `{}` is read whole", source.name());
            Err(Refusal::new("file_too_large", detail))
        }
        Ok(_) => Ok(content),
    };
    Ok(Opened::Whole { file, source, bytes })
}

/// Finds the format from further rows. A file of no known format becomes one refused row.
fn detect(current: &mut OpenRows) {
    let mut bytes = 0;
    while current.looked_at.len() < DETECTION_ROWS && bytes < DETECTION_BYTES {
        let Some(row) = current.rows.next() else { break };
        if let Ok(content) = &row.bytes {
            bytes += content.len();
            current.source = source::detect_row(&repair::to_text(content.clone(), &mut Counts::new()));
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
