//! The input as work, in file order: rows of large files, small files as they lie, whole files, folders.
//!
//! A chunk of work is read by all cores at once. Small files are opened inside the chunk, so that a folder of many is
//! read in parallel; a large file is cut into rows here, so that one is as well.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::error::Result;
use crate::files::{self, Entry, InputFile, InputFolder, Place};
use crate::piece::{FilePiece, Shape};
use crate::refusal::{Counts, Refusal};
use crate::repair;
use crate::rows::{Row, Rows};
use crate::source::{self, Source};
use crate::tables;
use crate::tf_records;

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
pub(crate) enum Item<'s> {
    /// A row and the format of its file.
    Row { file: Arc<InputFile>, source: Option<&'s dyn Source>, row: Row },
    /// A file that has not been opened.
    Small(Arc<InputFile>),
    /// A file to be read whole by its format.
    Whole { file: Arc<InputFile>, source: &'s dyn Source, content: std::result::Result<Content, Refusal> },
    /// A folder to be read by its format.
    Folder(Arc<InputFolder<'s>>),
    /// An archive that could not be unpacked.
    Refused { name: String, source: String, refusal: Refusal },
}

/// Reads the entries one after the other.
pub(crate) struct Feed<'s> {
    entries: VecDeque<Entry<'s>>,
    forced: Option<&'s dyn Source>,
    formats: &'s [&'s dyn Source],
    current: Option<Opened<'s>>,
    read_bytes: Arc<AtomicU64>,
}

/// A file whose format was found.
pub(crate) enum Opened<'s> {
    /// Its rows are read one by one.
    Rows(OpenRows<'s>),
    /// It is read whole.
    Whole { file: Arc<InputFile>, source: &'s dyn Source, content: std::result::Result<Content, Refusal> },
}

/// What a format for whole files is given.
pub(crate) enum Content {
    Bytes(Vec<u8>),
    /// Of a file of columns or records, which are no text.
    Rows(Vec<Row>),
}

impl Content {
    fn bytes(&self) -> usize {
        match self {
            Content::Bytes(bytes) => bytes.len(),
            Content::Rows(rows) => rows.iter().map(|row| row.bytes.as_ref().map_or(0, Vec::len)).sum(),
        }
    }
}

/// The rows of a file, those first that were looked at to find its format.
pub(crate) struct OpenRows<'s> {
    pub(crate) file: Arc<InputFile>,
    pub(crate) source: Option<&'s dyn Source>,
    looked_at: VecDeque<Row>,
    rows: Box<dyn Iterator<Item = Row> + Send>,
}

impl Iterator for OpenRows<'_> {
    type Item = Row;

    fn next(&mut self) -> Option<Row> {
        self.looked_at.pop_front().or_else(|| self.rows.next())
    }
}

impl<'s> Feed<'s> {
    /// A feed over `entries` of one of the `formats`; `forced` reads all of them with one format; `read_bytes` counts bytes taken from the disk.
    pub(crate) fn new(
        entries: Vec<Entry<'s>>,
        forced: Option<&'s dyn Source>,
        formats: &'s [&'s dyn Source],
        read_bytes: &Arc<AtomicU64>,
    ) -> Self {
        Self { entries: entries.into(), forced, formats, current: None, read_bytes: read_bytes.clone() }
    }

    /// The next work; empty at the end.
    pub(crate) fn next_chunk(&mut self) -> Result<Vec<Item<'s>>> {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < CHUNK_ITEMS && bytes < CHUNK_BYTES {
            let Some(item) = self.next_item()? else { break };
            bytes += match &item {
                Item::Row { row, .. } => row.bytes.as_ref().map_or(0, Vec::len),
                Item::Small(file) => file.bytes as usize,
                Item::Whole { content, .. } => content.as_ref().map_or(0, Content::bytes),
                Item::Folder(folder) => folder.bytes as usize,
                Item::Refused { .. } => 0,
            };
            chunk.push(item);
        }
        Ok(chunk)
    }

    fn next_item(&mut self) -> Result<Option<Item<'s>>> {
        loop {
            match self.current.take() {
                Some(Opened::Rows(mut rows)) => {
                    if let Some(row) = rows.next() {
                        let (file, source) = (rows.file.clone(), rows.source);
                        self.current = Some(Opened::Rows(rows));
                        return Ok(Some(Item::Row { file, source, row }));
                    }
                }
                Some(Opened::Whole { file, source, content }) => {
                    return Ok(Some(Item::Whole { file, source, content }));
                }
                None => {}
            }
            match self.entries.pop_front() {
                None => return Ok(None),
                Some(Entry::Refused { name, source, refusal }) => {
                    return Ok(Some(Item::Refused { name, source, refusal }));
                }
                Some(Entry::Folder(folder)) => return Ok(Some(Item::Folder(Arc::new(folder)))),
                Some(Entry::File(file)) if is_small(&file) => return Ok(Some(Item::Small(Arc::new(file)))),
                Some(Entry::File(file)) => {
                    self.current = Some(open(Arc::new(file), self.forced, self.formats, &self.read_bytes)?)
                }
            }
        }
    }
}

fn is_small(file: &InputFile) -> bool {
    let limit = if files::is_packed(&file.name) { SMALL_PACKED_BYTES } else { SMALL_BYTES };
    file.bytes <= limit
}

/// Opens a file and finds its format.
pub(crate) fn open<'s>(
    file: Arc<InputFile>,
    forced: Option<&'s dyn Source>,
    formats: &[&'s dyn Source],
    read_bytes: &Arc<AtomicU64>,
) -> Result<Opened<'s>> {
    let name = files::unpacked_name(&file.name);
    let mut reader = files::open(&file, read_bytes)?;
    let mut head = Vec::new();
    if let Err(error) = reader.by_ref().take(HEAD_BYTES).read_to_end(&mut head) {
        reader = Box::new(BufReader::new(Damage(Some(error))));
    }
    let table = tables::kind(&head, &name);
    if let Some(source) = forced.filter(|source| source.shape() == Shape::File && table.is_none()) {
        return whole(file, source, None, read_bytes);
    }
    let mut rows: Box<dyn Iterator<Item = Row> + Send> = match table {
        None => Box::new(Rows::open(Box::new(Cursor::new(head.clone()).chain(reader)), &name)),
        Some(kind) => table_rows(kind, &file, head.clone(), reader),
    };
    if let Some(source) = forced.filter(|source| source.shape() == Shape::File) {
        return whole(file, source, Some(&mut rows), read_bytes);
    }
    if forced.is_some() {
        return Ok(Opened::Rows(OpenRows { file, source: forced, looked_at: VecDeque::new(), rows }));
    }
    let first = rows.next();
    let text = |row: &Row| Some(repair::to_text(row.bytes.as_ref().ok()?.clone(), &mut Counts::new()));
    let first_row = first.as_ref().and_then(text);
    let piece = FilePiece { name: &name, bytes: &head, rows: &[], first_row: first_row.as_deref() };
    match source::detect_file(formats, &piece) {
        Some(source) if source.shape() == Shape::File => {
            let mut rows = first.into_iter().chain(rows);
            whole(file, source, table.map(|_| &mut rows as _), read_bytes)
        }
        source => {
            let mut rows = OpenRows { file, source, looked_at: first.into_iter().collect(), rows };
            if source.is_none() {
                detect(&mut rows, formats);
            }
            Ok(Opened::Rows(rows))
        }
    }
}

/// A reader whose next bytes cannot be read: a decoder that said so once may say that there are none.
struct Damage(Option<std::io::Error>);

impl Read for Damage {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// The rows of a file of columns. Parquet is read from the disk, or from memory where it lies packed.
fn table_rows(
    kind: tables::Kind,
    file: &InputFile,
    head: Vec<u8>,
    reader: Box<dyn BufRead + Send>,
) -> Box<dyn Iterator<Item = Row> + Send> {
    let reader = Cursor::new(head).chain(reader);
    match kind {
        tables::Kind::Csv => return tables::csv_rows(reader),
        tables::Kind::TfRecords => return tf_records::rows(reader),
        tables::Kind::Arrow => return tables::arrow_rows(reader),
        tables::Kind::Parquet => {}
    }
    let opened = match &file.place {
        Place::Path(path) if !files::is_packed(&file.name) => fs_err::File::open(path)
            .map_err(|error| crate::rows::unreadable(&error))
            .and_then(|opened| tables::parquet_rows(opened.into_parts().0)),
        _ => all_bytes(reader, "a packed table").and_then(|bytes| tables::parquet_rows(bytes::Bytes::from(bytes))),
    };
    opened.unwrap_or_else(|refusal| Box::new(std::iter::once(Row { number: 0, offset: 0, bytes: Err(refusal) })))
}

fn all_bytes(reader: impl Read, what: &str) -> std::result::Result<Vec<u8>, Refusal> {
    let mut bytes = Vec::new();
    reader.take(WHOLE_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|error| crate::rows::unreadable(&error))?;
    if bytes.len() as u64 > WHOLE_FILE_BYTES {
        return Err(too_large(what));
    }
    Ok(bytes)
}

/// The file with all that is in it, `rows` where it is no text, unless it is too large for a format that needs that at once.
fn whole<'s>(
    file: Arc<InputFile>,
    source: &'s dyn Source,
    rows: Option<&mut dyn Iterator<Item = Row>>,
    read_bytes: &Arc<AtomicU64>,
) -> Result<Opened<'s>> {
    let what = format!("`{}`", source.name());
    let content = match rows {
        Some(rows) => all_rows(rows, &what),
        None => all_bytes(files::open(&file, read_bytes)?, &what).map(Content::Bytes),
    };
    Ok(Opened::Whole { file, source, content })
}

fn too_large(what: &str) -> Refusal {
    Refusal::new("file_too_large", format!("more than {WHOLE_FILE_BYTES} bytes, and {what} is read whole"))
}

/// All rows of a file of columns or records. Pictures are left out of them before they are together in memory.
fn all_rows(rows: &mut dyn Iterator<Item = Row>, what: &str) -> std::result::Result<Content, Refusal> {
    let (mut all, mut bytes) = (Vec::new(), 0);
    for row in rows {
        bytes += row.bytes.as_ref().map_or(0, Vec::len) as u64;
        if bytes > WHOLE_FILE_BYTES {
            return Err(too_large(what));
        }
        all.push(row);
    }
    Ok(Content::Rows(all))
}

/// Finds the format from further rows. A file of no known format becomes one refused row.
fn detect<'s>(current: &mut OpenRows<'s>, formats: &[&'s dyn Source]) {
    let mut bytes = 0;
    while current.looked_at.len() < DETECTION_ROWS && bytes < DETECTION_BYTES {
        let Some(row) = current.rows.next() else { break };
        if let Ok(content) = &row.bytes {
            bytes += content.len();
            current.source = source::detect_row(formats, &repair::to_text(content.clone(), &mut Counts::new()));
        }
        current.looked_at.push_back(row);
        if current.source.is_some() {
            return;
        }
    }
    let Some(first) = current.looked_at.front() else { return };
    let refusal = match &first.bytes {
        Err(refusal) => refusal.clone(),
        Ok(content) => unknown(content, formats),
    };
    current.looked_at = VecDeque::from([Row { number: 0, offset: first.offset, bytes: Err(refusal) }]);
    current.rows = Box::new(std::iter::empty());
}

fn unknown(content: &[u8], formats: &[&dyn Source]) -> Refusal {
    let known = source::names_of(formats);
    let text = String::from_utf8_lossy(content);
    match crate::json::Value::parse(&text) {
        Err(error) => Refusal::json(&error),
        Ok(crate::json::Value::Object(fields)) => {
            let keys = fields.keys().take(12).map(String::as_str).collect::<Vec<_>>().join(", ");
            Refusal::new("unknown_format", format!("an object with {keys}; known formats: {known}"))
        }
        Ok(other) => Refusal::new("unknown_format", format!("{}; known formats: {known}", other.kind())),
    }
}
