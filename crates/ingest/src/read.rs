//! One item of work to trajectories and rejects.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use worldloom_schema::{Document, Reject, Trajectory};

use crate::error::Result;
use crate::feed::{self, Content, Item, Opened};
use crate::files::{self, InputFile, InputFolder};
use crate::piece::{FilePiece, FolderPiece, Outcome, Piece, Sink};
use crate::refusal::{Counts, Refusal};
use crate::repair;
use crate::rows::Row;
use crate::source::{Origin, Source};

/// Something that is written.
pub(crate) enum Made {
    Trajectory(Box<Trajectory>),
    Document(Box<Document>),
}

/// What an item gave.
#[derive(Default)]
pub(crate) struct Converted {
    /// Rows of the item: its trajectories and rejects; a row that holds several episodes counts as so many.
    pub(crate) rows: u64,
    /// In the order they stand in the file.
    pub(crate) outcomes: Vec<std::result::Result<Made, Reject>>,
    pub(crate) counts: Counts,
}

/// Reads one item.
pub(crate) fn convert(
    item: Item<'_>,
    forced: Option<&dyn Source>,
    formats: &[&dyn Source],
    read_bytes: &Arc<AtomicU64>,
) -> Result<Converted> {
    let mut converted = Converted::default();
    match item {
        Item::Row { file, source, row } => converted.add_row(&file, source, row),
        Item::Whole { file, source, content } => converted.add_whole(&file, source, content),
        Item::Folder(folder) => converted.add_folder(&folder),
        Item::Refused { name, source, refusal } => {
            converted.rows += 1;
            converted.add(&Origin { file: &name, row: 0, offset: 0, source: &source }, Vec::new(), Err(refusal));
        }
        Item::Small(file) => match feed::open(file, forced, formats, read_bytes)? {
            Opened::Whole { file, source, content } => converted.add_whole(&file, source, content),
            Opened::Rows(mut rows) => {
                while let Some(row) = rows.next() {
                    converted.add_row(&rows.file, rows.source, row);
                }
            }
        },
    }
    Ok(converted)
}

impl Converted {
    /// Adds what a later item gave.
    pub(crate) fn merge(&mut self, other: Converted) {
        self.rows += other.rows;
        self.outcomes.extend(other.outcomes);
        for (name, number) in other.counts {
            crate::refusal::count(&mut self.counts, name, number);
        }
    }

    fn add_row(&mut self, file: &InputFile, source: Option<&dyn Source>, row: Row) {
        let origin = Origin { file: &file.name, row: row.number, offset: row.offset, source: &file.source };
        let mut sink = Sink::new(&mut self.counts);
        let result = row.bytes.and_then(|bytes| {
            let text = repair::to_text(bytes, sink.counts);
            let source = source.ok_or_else(|| Refusal::new("unknown_format", "no format of ours"))?;
            source.read(&Piece::Row(&text), &origin, &mut sink)
        });
        let outcomes = sink.finish();
        let before = self.outcomes.len();
        self.add(&origin, outcomes, result);
        self.rows += (self.outcomes.len() - before) as u64;
    }

    fn add_whole(&mut self, file: &InputFile, source: &dyn Source, content: std::result::Result<Content, Refusal>) {
        let origin = Origin { file: &file.name, row: 0, offset: 0, source: &file.source };
        let name = files::unpacked_name(&file.name);
        let mut sink = Sink::new(&mut self.counts);
        let result = content.and_then(|content| {
            let (bytes, rows) = match &content {
                Content::Bytes(bytes) => (bytes.as_slice(), &[][..]),
                Content::Rows(rows) => (&[][..], rows.as_slice()),
            };
            source.read(&Piece::File(&FilePiece { name: &name, bytes, rows, first_row: None }), &origin, &mut sink)
        });
        let outcomes = sink.finish();
        let before = self.outcomes.len();
        self.add(&origin, outcomes, result);
        self.rows += (self.outcomes.len() - before) as u64;
    }

    fn add_folder(&mut self, folder: &InputFolder<'_>) {
        let origin = Origin { file: &folder.name, row: 0, offset: 0, source: &folder.source };
        let reader = |entry: &str| files::read_entry(folder, entry);
        let piece = FolderPiece { name: &folder.name, entries: &folder.entries, reader: &reader };
        let mut sink = Sink::new(&mut self.counts);
        let result = folder.kind.read(&Piece::Folder(&piece), &origin, &mut sink);
        let outcomes = sink.finish();
        let before = self.outcomes.len();
        self.add(&origin, outcomes, result);
        self.rows += (self.outcomes.len() - before) as u64;
    }

    /// Takes over what a reading gave. One that gave nothing at all is refused: nothing is lost in silence.
    fn add(&mut self, origin: &Origin<'_>, outcomes: Vec<Outcome>, result: std::result::Result<(), Refusal>) {
        let reject = |row, byte_offset, refusal: Refusal| Reject {
            source: origin.source.into(),
            file: origin.file.into(),
            row,
            byte_offset,
            rule: refusal.rule.into(),
            detail: refusal.detail,
        };
        let is_empty = outcomes.is_empty();
        self.outcomes.extend(outcomes.into_iter().map(|outcome| match outcome {
            Outcome::Trajectory(trajectory) => Ok(Made::Trajectory(trajectory)),
            Outcome::Document(document) => Ok(Made::Document(document)),
            Outcome::Refused { row, offset, refusal } => Err(reject(row, offset, refusal)),
        }));
        let refusal = match result {
            Err(refusal) => refusal,
            Ok(()) if is_empty => Refusal::new("no_turns", "no episode with an action and its result"),
            Ok(()) => return,
        };
        self.outcomes.push(Err(reject(origin.row, origin.offset, refusal)));
    }
}
