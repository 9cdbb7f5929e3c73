//! What a source is given to read, and where it puts what it found.
//!
//! Words: a *piece* is as much of the input as makes episodes by itself: a row, a file, a folder of files that belong
//! together. An *entry* is one file inside such a folder.

use std::borrow::Cow;

use worldloom_schema::{Document, Trajectory};

use crate::json::{Fields, Value};
use crate::refusal::{Counts, Refusal, count};
use crate::repair;
use crate::rows::{Row, Rows};

/// How much of the input one reading takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One value of a JSON file: an object, a line, an element of an array.
    Row,
    /// A whole file: a log of records or lines that make one or more episodes together.
    File,
    /// Several files that make one episode.
    Folder,
}

impl Shape {
    /// What a person calls it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shape::Row => "row",
            Shape::File => "file",
            Shape::Folder => "folder",
        }
    }
}

/// A piece of input.
pub(crate) enum Piece<'a> {
    /// The text of one row.
    Row(&'a str),
    /// One unpacked file; for detection, its head.
    File(&'a FilePiece<'a>),
    /// A folder's listing with a way to read its files.
    Folder(&'a FolderPiece<'a>),
}

impl<'a> Piece<'a> {
    /// The row; none where the piece is another.
    pub(crate) fn row(&self) -> Option<&'a str> {
        match self {
            Piece::Row(text) => Some(text),
            _ => None,
        }
    }

    /// The fields of the row, where it is an object.
    pub(crate) fn row_fields(&self) -> Option<Fields<'a>> {
        match Value::parse(self.row()?) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        }
    }

    /// The file; none where the piece is another.
    pub(crate) fn file(&self) -> Option<&'a FilePiece<'a>> {
        match self {
            Piece::File(file) => Some(file),
            _ => None,
        }
    }

    /// The folder; none where the piece is another.
    pub(crate) fn folder(&self) -> Option<&'a FolderPiece<'a>> {
        match self {
            Piece::Folder(folder) => Some(folder),
            _ => None,
        }
    }
}

/// A file's bytes, unpacked.
pub(crate) struct FilePiece<'a> {
    /// Its path relative to the input, without the ending of a packed form, in lower case.
    pub(crate) name: &'a str,
    /// Its bytes; for detection the first ones only.
    pub(crate) bytes: &'a [u8],
    /// Its rows, where it is a file of columns or records, whose bytes are then none.
    pub(crate) rows: &'a [Row],
    /// For detection: its first row, where it has rows and the row could be read.
    pub(crate) first_row: Option<&'a str>,
}

impl<'a> FilePiece<'a> {
    /// The bytes as text; what is no UTF-8 is replaced and counted.
    pub(crate) fn text(&self, counts: &mut Counts) -> Cow<'a, str> {
        match std::str::from_utf8(self.bytes) {
            Ok(text) => Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)),
            Err(_) => {
                let places = self.bytes.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count();
                count(counts, "repaired_invalid_utf8", places as u64);
                String::from_utf8_lossy(self.bytes)
            }
        }
    }

    /// The rows of a file: those of a file of columns or records, or JSON in lines, in an array or in documents. A row
    /// that cannot be read is a refusal; the rows after it follow where the file's layout allows that.
    pub(crate) fn rows(&self, counts: &mut Counts) -> Vec<RecordRow> {
        let mut read = |number, offset, bytes: Result<Vec<u8>, Refusal>| RecordRow {
            number,
            offset,
            text: bytes.map(|bytes| repair::to_text(bytes, counts)),
        };
        match self.rows {
            [] => {
                Rows::open(Box::new(self.bytes), self.name).map(|row| read(row.number, row.offset, row.bytes)).collect()
            }
            rows => rows.iter().map(|row| read(row.number, row.offset, row.bytes.clone())).collect(),
        }
    }

    /// The fields of the first row, where that is an object.
    pub(crate) fn first_fields(&self) -> Option<Fields<'a>> {
        match Value::parse(self.first_row?) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        }
    }
}

/// One row of a [`FilePiece`].
pub(crate) struct RecordRow {
    /// Number in the file, from 0.
    pub(crate) number: u64,
    /// Where it starts, in bytes of the unpacked file.
    pub(crate) offset: u64,
    /// Its text, or why it cannot be read.
    pub(crate) text: Result<String, Refusal>,
}

/// A folder: the files in it and below it.
pub(crate) struct FolderPiece<'a> {
    /// Its path relative to the input; empty for the input itself.
    pub(crate) name: &'a str,
    /// The paths of its files relative to it, sorted, with `/` on every system.
    pub(crate) entries: &'a [String],
    /// Reads an entry, unpacked; for detection, the first bytes of a long one.
    pub(crate) reader: &'a (dyn Fn(&str) -> Result<Vec<u8>, Refusal> + Sync),
}

impl FolderPiece<'_> {
    /// Whether it has this entry.
    pub(crate) fn has(&self, entry: &str) -> bool {
        self.entries.binary_search_by(|name| name.as_str().cmp(entry)).is_ok()
    }

    /// An entry as text; what is no UTF-8 is replaced and counted.
    pub(crate) fn text(&self, entry: &str, counts: &mut Counts) -> Result<String, Refusal> {
        let bytes = self.read(entry)?;
        Ok(FilePiece { name: entry, bytes: &bytes, rows: &[], first_row: None }.text(counts).into_owned())
    }

    /// The bytes of an entry, unpacked.
    pub(crate) fn read(&self, entry: &str) -> Result<Vec<u8>, Refusal> {
        (self.reader)(entry)
    }
}

/// Where a reading puts what it found, in order.
pub(crate) struct Sink<'a> {
    outcomes: Vec<Outcome>,
    /// Repairs and things left out, by name.
    pub(crate) counts: &'a mut Counts,
}

/// A trajectory or document, or why there is none.
pub(crate) enum Outcome {
    Trajectory(Box<Trajectory>),
    Document(Box<Document>),
    Refused {
        /// Row in the file, from 0.
        row: u64,
        /// Where the row starts.
        offset: u64,
        refusal: Refusal,
    },
}

impl<'a> Sink<'a> {
    pub(crate) fn new(counts: &'a mut Counts) -> Self {
        Self { outcomes: Vec::new(), counts }
    }

    /// A trajectory; the row it came from is its own `source_row`.
    pub(crate) fn push(&mut self, trajectory: Trajectory) {
        self.outcomes.push(Outcome::Trajectory(Box::new(trajectory)));
    }

    /// A text.
    pub(crate) fn push_document(&mut self, document: Document) {
        self.outcomes.push(Outcome::Document(Box::new(document)));
    }

    /// A row that is not used, while the rest of the piece is read on.
    pub(crate) fn refuse(&mut self, row: u64, offset: u64, refusal: Refusal) {
        self.outcomes.push(Outcome::Refused { row, offset, refusal });
    }

    /// Adds to a count.
    pub(crate) fn count(&mut self, name: &'static str, number: u64) {
        count(self.counts, name, number);
    }

    /// Adds all counts of an episode.
    pub(crate) fn add_counts(&mut self, counts: &Counts) {
        counts.iter().for_each(|(name, number)| count(self.counts, name, *number));
    }

    pub(crate) fn finish(self) -> Vec<Outcome> {
        self.outcomes
    }
}
