//! Token shard v1: packed rows in Arrow IPC, memory-mapped, addressed by number.
//!
//! A row of two documents, the second with its last two tokens trained:
//!
//! ```text
//! tokens    [ 7,  4,  9,  5,  3,  8,  2]
//! weights   [ 0,  0,  0,  0,  0,  1,  1]      weight of predicting THIS token; 0 = context
//! positions [ 0,  1,  2,  0,  1,  2,  3]      restart with each document
//! segments  [ 0,  0,  0,  1,  1,  1,  1]      a token sees earlier tokens of its own segment
//! continues [-1, -1]                          per segment: the segment it is a branch of, or -1
//! sources   ["a31f…", "77c0…"]                per segment: the trajectory inside
//! reasons   [ 0,  0,  4,  0,  0,  9, 10]      why, where the writer says; names in the file's metadata
//! ```
//!
//! A segment that continues another sees that one whole, with all that it sees, and its positions go on from there: a
//! branch, or more of the same document where it follows at once. The first token of a segment is never trained: nothing
//! in it predicts it. A branch that is trained from its start repeats the last token of what it continues.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeListBuilder, RecordBatch, UInt8Builder};
use arrow::buffer::Buffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float32Type, Int32Type, Schema, UInt8Type, UInt32Type};
use arrow::ipc::convert::fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::writer::FileWriter;
use arrow::ipc::{Block, root_as_footer};
use serde::{Deserialize, Serialize};
use serde_arrow::schema::{SchemaLike, TracingOptions};

use crate::error::{Error, Result};

/// Version of the shard format.
pub const SHARD_VERSION: u32 = 1;
const ROWS_PER_BATCH: usize = 64;
const EXTENSION: &str = "shard";
const VERSION_KEY: &str = "worldloom.shard";
const TOKENIZER_KEY: &str = "worldloom.tokenizer";
const REASONS_KEY: &str = "worldloom.reasons";
const REASONS: &str = "reasons";

/// One packed sequence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Loss weight of predicting each token; 0 = context.
    pub weights: Vec<f32>,
    /// Position inside its document.
    pub positions: Vec<u32>,
    /// Document number inside the row, counting up from 0.
    pub segments: Vec<u32>,
    /// Per segment: the segment it continues as a branch, or -1.
    pub continues: Vec<i32>,
    /// Per segment: id of the trajectory or document inside.
    pub sources: Vec<String>,
}

impl Row {
    /// The sum of the loss weights: the row's share of the denominator.
    pub fn total_weight(&self) -> f64 {
        self.weights.iter().map(|&weight| f64::from(weight)).sum()
    }

    /// What breaks the format's promises, if anything does.
    pub fn check(&self) -> std::result::Result<(), String> {
        let length = self.tokens.len();
        for (name, found) in
            [("weights", self.weights.len()), ("positions", self.positions.len()), ("segments", self.segments.len())]
        {
            if found != length {
                return Err(format!("{name} has {found} entries, expected {length}"));
            }
        }
        let segments = self.segments.last().map_or(0, |&last| last as usize + 1);
        if self.continues.len() != segments || self.sources.len() != segments {
            let (continues, sources) = (self.continues.len(), self.sources.len());
            return Err(format!("{segments} segments, but continues has {continues} and sources {sources} entries"));
        }
        for at in 0..length {
            let starts = at == 0 || self.segments[at] != self.segments[at - 1];
            if at > 0 && starts && self.segments[at] != self.segments[at - 1] + 1 {
                return Err(format!(
                    "segment {} follows segment {} at token {at}",
                    self.segments[at],
                    self.segments[at - 1]
                ));
            }
            let segment = self.segments[at];
            if starts && self.continues[segment as usize] >= segment as i32 {
                return Err(format!("segment {segment} continues a later one, {}", self.continues[segment as usize]));
            }
            if starts && self.weights[at] != 0.0 {
                return Err(format!(
                    "token {at} starts a document and has weight {}: nothing predicts it",
                    self.weights[at]
                ));
            }
            if !(self.weights[at].is_finite() && self.weights[at] >= 0.0) {
                return Err(format!("token {at} has weight {}", self.weights[at]));
            }
        }
        Ok(())
    }
}

fn fields() -> Vec<FieldRef> {
    Vec::<FieldRef>::from_type::<Row>(TracingOptions::default()).expect("Row has an Arrow schema; a test makes it")
}

fn reasons_field() -> Field {
    Field::new(REASONS, DataType::LargeList(Arc::new(reason_field())), false)
}

fn reason_field() -> Field {
    Field::new("element", DataType::UInt8, false)
}

fn reasons_column(explained: &[Vec<u8>]) -> ArrayRef {
    let mut builder = LargeListBuilder::new(UInt8Builder::new()).with_field(reason_field());
    for reasons in explained {
        builder.values().append_slice(reasons);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

/// Writes one shard file.
pub struct ShardWriter {
    path: PathBuf,
    fields: Vec<FieldRef>,
    writer: FileWriter<fs_err::File>,
    pending: Vec<Row>,
    /// Reasons of the pending rows.
    explained: Vec<Vec<u8>>,
    /// How many reasons have a name; 0: rows come without.
    num_reasons: usize,
    rows: u64,
}

impl ShardWriter {
    /// Starts the file; the name must end in `.shard`.
    pub fn create(path: &Path) -> Result<Self> {
        Self::create_for(path, None)
    }

    /// Starts the file and records the hash of the tokenizer whose ids it holds.
    pub fn create_for(path: &Path, tokenizer: Option<&str>) -> Result<Self> {
        Self::create_explained(path, tokenizer, &[])
    }

    /// The same for rows whose tokens each have a reason, by its place in `reasons`.
    pub fn create_explained(path: &Path, tokenizer: Option<&str>, reasons: &[&str]) -> Result<Self> {
        let fields = fields();
        let version = (VERSION_KEY.to_string(), SHARD_VERSION.to_string());
        let tokenizer = tokenizer.map(|hash| (TOKENIZER_KEY.to_string(), hash.to_string()));
        let names = serde_json::json!(reasons).to_string();
        let names = (!reasons.is_empty()).then(|| (REASONS_KEY.to_string(), names));
        let metadata = std::iter::once(version).chain(tokenizer).chain(names).collect();
        let column = (!reasons.is_empty()).then(|| Arc::new(reasons_field()));
        let schema = Schema::new(fields.iter().cloned().chain(column).collect::<Vec<_>>()).with_metadata(metadata);
        let writer = FileWriter::try_new(fs_err::File::create(path)?, &schema).map_err(|e| Error::write(path, e))?;
        let (pending, explained, num_reasons) = (Vec::new(), Vec::new(), reasons.len());
        Ok(Self { path: path.into(), fields, writer, pending, explained, num_reasons, rows: 0 })
    }

    /// Adds a row; a row that breaks the format is refused.
    pub fn push(&mut self, row: Row) -> Result<()> {
        self.push_explained(row, Vec::new())
    }

    /// Adds a row with a reason for each token.
    pub fn push_explained(&mut self, row: Row, reasons: Vec<u8>) -> Result<()> {
        let bad = |detail: String| Error::write(&self.path, format!("row {}: {detail}", self.rows));
        row.check().map_err(bad)?;
        let expected = if self.num_reasons > 0 { row.tokens.len() } else { 0 };
        if reasons.len() != expected {
            return Err(bad(format!("{} reasons, expected {expected}", reasons.len())));
        }
        if let Some(reason) = reasons.iter().find(|&&reason| usize::from(reason) >= self.num_reasons) {
            return Err(bad(format!("reason {reason} has no name, there are {}", self.num_reasons)));
        }
        self.explained.push(reasons);
        self.pending.push(row);
        self.rows += 1;
        if self.pending.len() >= ROWS_PER_BATCH { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batch =
            serde_arrow::to_record_batch(&self.fields, &self.pending).map_err(|e| Error::write(&self.path, e))?;
        self.pending.clear();
        let explained = std::mem::take(&mut self.explained);
        let column = (self.num_reasons > 0).then(|| reasons_column(&explained));
        let columns = batch.columns().iter().cloned().chain(column).collect();
        let schema = self.writer.schema().clone();
        let batch = RecordBatch::try_new(schema, columns).map_err(|e| Error::write(&self.path, e))?;
        self.writer.write(&batch).map_err(|e| Error::write(&self.path, e))
    }

    /// Writes the footer and syncs; returns the number of rows.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.writer.finish().map_err(|e| Error::write(&self.path, e))?;
        self.writer.get_ref().sync_all()?;
        Ok(self.rows)
    }
}

/// One shard file, memory-mapped.
pub struct Shard {
    path: PathBuf,
    buffer: Buffer,
    decoder: FileDecoder,
    blocks: Vec<Block>,
    /// First row number of each block, and the total at the end.
    starts: Vec<usize>,
    tokenizer: Option<String>,
    /// Names of reasons.
    reasons: Vec<String>,
}

#[expect(unsafe_code, reason = "the memory map of this crate; shards are written once and never changed in place")]
fn map(file: &fs_err::File) -> std::io::Result<memmap2::Mmap> {
    unsafe { memmap2::Mmap::map(file.file()) }
}

impl Shard {
    /// Maps the file and reads its index.
    pub fn open(path: &Path) -> Result<Self> {
        let bad = |detail: String| Error::Shard { path: path.into(), detail };
        let map = map(&fs_err::File::open(path)?)?;
        let buffer = Buffer::from(bytes::Bytes::from_owner(map));
        let size = buffer.len();
        if size < 10 {
            return Err(bad(format!("{size} bytes, too short for a shard")));
        }
        let trailer: [u8; 10] = buffer[size - 10..].try_into().expect("ten bytes were cut");
        let footer_length =
            read_footer_length(trailer).map_err(|_| bad("cut short: no Arrow footer at its end".into()))?;
        let from = (size - 10).checked_sub(footer_length).ok_or_else(|| bad("footer longer than the file".into()))?;
        let footer =
            root_as_footer(&buffer[from..size - 10]).map_err(|error| bad(format!("damaged footer: {error}")))?;
        let schema = footer.schema().ok_or_else(|| bad("no schema in the footer".into()))?;
        let schema = Arc::new(fb_to_schema(schema));
        match schema.metadata().get(VERSION_KEY).and_then(|version| version.parse::<u32>().ok()) {
            Some(SHARD_VERSION) => {}
            Some(other) => return Err(bad(format!("shard version {other}, expected {SHARD_VERSION}"))),
            None => return Err(bad("an Arrow file of another program, expected a token shard".into())),
        }
        let blocks: Vec<Block> = footer.recordBatches().iter().flatten().copied().collect();
        let tokenizer = schema.metadata().get(TOKENIZER_KEY).cloned();
        let reasons = schema.metadata().get(REASONS_KEY).map(|names| serde_json::from_str(names)).transpose();
        let reasons = reasons.map_err(|error| bad(format!("names of reasons: {error}")))?.unwrap_or_default();
        let decoder = FileDecoder::new(schema, footer.version());
        let mut shard = Self { path: path.into(), buffer, decoder, blocks, starts: vec![0], tokenizer, reasons };
        for block in 0..shard.blocks.len() {
            let rows = shard.batch(block)?.num_rows();
            shard.starts.push(shard.starts[block] + rows);
        }
        Ok(shard)
    }

    fn batch(&self, block: usize) -> Result<RecordBatch> {
        let bad = |detail: String| Error::Shard { path: self.path.clone(), detail };
        let at = &self.blocks[block];
        let (from, length) = (at.offset() as usize, at.metaDataLength() as usize + at.bodyLength() as usize);
        if from + length > self.buffer.len() {
            return Err(bad(format!("batch {block} lies beyond the end of the file")));
        }
        let data = self.buffer.slice_with_length(from, length);
        let batch =
            self.decoder.read_record_batch(at, &data).map_err(|error| bad(format!("batch {block}: {error}")))?;
        batch.ok_or_else(|| bad(format!("batch {block} is empty")))
    }

    /// Hash of the tokenizer whose ids it holds, where that was recorded.
    pub fn tokenizer(&self) -> Option<&str> {
        self.tokenizer.as_deref()
    }

    /// Names of the reasons that its tokens have, by number; empty where that was not recorded.
    pub fn reasons(&self) -> &[String] {
        &self.reasons
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        *self.starts.last().expect("starts holds at least the 0")
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row with this number.
    pub fn row(&self, index: usize) -> Result<Row> {
        let bad = |detail: String| Error::Shard { path: self.path.clone(), detail };
        let (batch, at) = self.place(index)?;
        let list = |name: &str| {
            let column = batch.column_by_name(name).ok_or_else(|| bad(format!("row {index}: no column `{name}`")))?;
            let list = column.as_list_opt::<i64>().ok_or_else(|| bad(format!("column `{name}` is not a list")))?;
            Ok::<_, Error>(list.value(at))
        };
        let wrong = |name: &str| bad(format!("row {index}: column `{name}` has another type"));
        let u32s = |name: &str| {
            let values = list(name)?;
            Ok::<_, Error>(values.as_primitive_opt::<UInt32Type>().ok_or_else(|| wrong(name))?.values().to_vec())
        };
        let weights = list("weights")?;
        let weights = weights.as_primitive_opt::<Float32Type>().ok_or_else(|| wrong("weights"))?.values().to_vec();
        let continues = list("continues")?;
        let continues = continues.as_primitive_opt::<Int32Type>().ok_or_else(|| wrong("continues"))?.values().to_vec();
        let sources = list("sources")?;
        let sources = sources.as_string_opt::<i64>().ok_or_else(|| wrong("sources"))?;
        let sources = sources.iter().map(|source| source.unwrap_or_default().to_string()).collect();
        let (tokens, positions, segments) = (u32s("tokens")?, u32s("positions")?, u32s("segments")?);
        let row = Row { tokens, weights, positions, segments, continues, sources };
        row.check().map_err(|detail| bad(format!("row {index}: {detail}")))?;
        Ok(row)
    }

    /// The reason of each token of a row, by number; none where that was not recorded.
    pub fn row_reasons(&self, index: usize) -> Result<Option<Vec<u8>>> {
        let (batch, at) = self.place(index)?;
        let Some(column) = batch.column_by_name(REASONS).filter(|_| !self.reasons.is_empty()) else { return Ok(None) };
        let bad = |detail: String| Error::Shard { path: self.path.clone(), detail: format!("row {index}: {detail}") };
        let list = column.as_list_opt::<i64>().ok_or_else(|| bad("column `reasons` is not a list".into()))?.value(at);
        let reasons = list.as_primitive_opt::<UInt8Type>().ok_or_else(|| bad("`reasons` has another type".into()))?;
        let reasons = reasons.values().to_vec();
        match reasons.iter().find(|&&reason| usize::from(reason) >= self.reasons.len()) {
            Some(reason) => Err(bad(format!("reason {reason} has no name, there are {}", self.reasons.len()))),
            None => Ok(Some(reasons)),
        }
    }

    /// The batch that holds a row, and where in it.
    fn place(&self, index: usize) -> Result<(RecordBatch, usize)> {
        if index >= self.len() {
            let detail = format!("row {index} asked for, {} rows in it", self.len());
            return Err(Error::Shard { path: self.path.clone(), detail });
        }
        let block = self.starts.partition_point(|&start| start <= index) - 1;
        Ok((self.batch(block)?, index - self.starts[block]))
    }
}

/// All shards of a folder, in order of their names, as one list of rows.
pub struct ShardSet {
    shards: Vec<Shard>,
    starts: Vec<usize>,
}

impl ShardSet {
    /// Opens every `*.shard` in the folder.
    pub fn open(folder: &Path) -> Result<Self> {
        let mut paths = Vec::new();
        for entry in fs_err::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == EXTENSION) {
                paths.push(path);
            }
        }
        if paths.is_empty() {
            return Err(Error::Shard { path: folder.into(), detail: "no `*.shard` file in this folder".into() });
        }
        paths.sort();
        let shards = paths.iter().map(|path| Shard::open(path)).collect::<Result<Vec<_>>>()?;
        let mut starts = vec![0];
        for shard in &shards {
            starts.push(starts.last().copied().unwrap_or(0) + shard.len());
        }
        Ok(Self { shards, starts })
    }

    /// Hash of the tokenizer of the first shard, where that was recorded.
    pub fn tokenizer(&self) -> Option<&str> {
        self.shards.first().and_then(Shard::tokenizer)
    }

    /// Names of the reasons that tokens of the first shard have; empty where that was not recorded.
    pub fn reasons(&self) -> &[String] {
        self.shards.first().map_or(&[], Shard::reasons)
    }

    /// Number of rows in all shards.
    pub fn len(&self) -> usize {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The row with this number.
    pub fn row(&self, index: usize) -> Result<Row> {
        let (shard, index) = self.place(index);
        shard.row(index)
    }

    /// The name of the reason of each token of a row; none where that was not recorded.
    pub fn row_reasons(&self, index: usize) -> Result<Option<Vec<&str>>> {
        let (shard, index) = self.place(index);
        let reasons = shard.row_reasons(index)?;
        let name = |reason: u8| shard.reasons[usize::from(reason)].as_str();
        Ok(reasons.map(|reasons| reasons.into_iter().map(name).collect()))
    }

    /// The shard of a row, and its number there.
    fn place(&self, index: usize) -> (&Shard, usize) {
        let shard = self.starts.partition_point(|&start| start <= index).saturating_sub(1).min(self.shards.len() - 1);
        (&self.shards[shard], index - self.starts[shard])
    }
}
