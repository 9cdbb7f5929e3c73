//! Files of columns as rows: Parquet, Arrow IPC and CSV. A row becomes the text of a JSON object.
//!
//! A null of a nested field is left out: files of columns give every row the fields of all, and such a null says only
//! that the row had none. A string in a column that formats keep messages in, and that holds JSON, is that JSON.

use std::io::{BufRead, Read};

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::buffer::Buffer;
use arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow::ipc::reader::StreamDecoder;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use base64::Engine;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::ChunkReader;

use crate::feed::WHOLE_FILE_BYTES;
use crate::json::{Value, quote};
use crate::panics;
use crate::refusal::Refusal;
use crate::rows::Row;
use crate::tf_records;

/// Columns whose strings may be JSON.
const JSON_COLUMNS: [&str; 10] = [
    "messages",
    "conversations",
    "conversation",
    "traj",
    "trajectory",
    "history",
    "turns",
    "steps",
    "tools",
    "metadata",
];
/// Bytes of a batch that is read at once, by the file's own account of its rows.
const BATCH_BYTES: u64 = 32 << 20;
const MAX_BATCH_ROWS: u64 = 1024;
/// Bytes of an Arrow file that are read at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// How an Arrow file begins, before zeros.
const ARROW_MAGIC: &[u8] = b"ARROW1";
/// How a message of an Arrow stream begins.
const ARROW_STREAM: [u8; 4] = [0xff; 4];

/// Which kind of columns a file holds, by its first bytes or, for CSV, its name; records of TensorFlow are one too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Parquet,
    Arrow,
    Csv,
    TfRecords,
}

pub(crate) fn kind(head: &[u8], unpacked_name: &str) -> Option<Kind> {
    match () {
        () if head.starts_with(b"PAR1") => Some(Kind::Parquet),
        () if head.starts_with(ARROW_MAGIC) => Some(Kind::Arrow),
        () if head.starts_with(&ARROW_STREAM) && unpacked_name.ends_with(".arrow") => Some(Kind::Arrow),
        () if tf_records::is_first(head) => Some(Kind::TfRecords),
        () if unpacked_name.ends_with(".csv") || unpacked_name.ends_with(".tsv") => Some(Kind::Csv),
        () => None,
    }
}

/// Rows of a Parquet file.
pub(crate) fn parquet_rows(file: impl ChunkReader + 'static) -> Result<Box<dyn Iterator<Item = Row> + Send>, Refusal> {
    let wrong = |error: parquet::errors::ParquetError| Refusal::new("parquet", error.to_string());
    let mut reader = caught("parquet", || {
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(wrong)?;
        let groups = builder.metadata().row_groups();
        let (rows, bytes) = groups.iter().fold((0_u64, 0_u64), |(rows, bytes), group| {
            let of_group = [group.num_rows(), group.total_byte_size()].map(|number| number.max(0) as u64);
            (rows.saturating_add(of_group[0]), bytes.saturating_add(of_group[1]))
        });
        let batch = (BATCH_BYTES / (bytes / rows.max(1)).max(1)).clamp(1, MAX_BATCH_ROWS);
        builder.with_batch_size(batch as usize).build().map_err(wrong)
    })?;
    Ok(batch_rows("parquet", move || Ok(reader.next().transpose()?)))
}

/// Rows of an Arrow IPC stream, or of an Arrow file, which is a stream between a magic word and a footer. One batch is held.
pub(crate) fn arrow_rows(mut reader: impl BufRead + Send + 'static) -> Box<dyn Iterator<Item = Row> + Send> {
    let mut decoder = StreamDecoder::new();
    let (mut chunk, mut since_batch, mut is_file, mut num_batches) = (Buffer::default(), 0, None, 0);
    batch_rows("arrow", move || {
        loop {
            if chunk.is_empty() {
                let mut bytes = Vec::new();
                reader.by_ref().take(CHUNK_BYTES).read_to_end(&mut bytes)?;
                if bytes.is_empty() {
                    decoder.finish()?;
                    decoder.schema().ok_or("no schema")?;
                    return if is_file == Some(true) { Err("no footer".into()) } else { Ok(None) };
                }
                since_batch += bytes.len() as u64;
                if since_batch > WHOLE_FILE_BYTES {
                    return Err(format!("a batch of more than {WHOLE_FILE_BYTES} bytes").into());
                }
                chunk = Buffer::from_vec(bytes);
                if is_file.is_none() {
                    let padding = || chunk[ARROW_MAGIC.len()..].iter().take_while(|byte| **byte == 0).count();
                    let head = chunk.starts_with(ARROW_MAGIC).then(|| ARROW_MAGIC.len() + padding());
                    chunk.advance(head.unwrap_or(0));
                    is_file = Some(head.is_some());
                }
            }
            match decoder.decode(&mut chunk) {
                Ok(None) => {}
                Ok(batch) => {
                    (since_batch, num_batches) = (0, num_batches + 1);
                    return Ok(batch);
                }
                // What follows the end of the stream in a file is the footer.
                Err(_) if is_file == Some(true) && decoder.finish().is_ok() => {
                    let mut tail = chunk.to_vec();
                    reader.by_ref().take(WHOLE_FILE_BYTES).read_to_end(&mut tail)?;
                    let told = batches_of_footer(&tail).ok_or("no footer")?;
                    return match told == num_batches {
                        true => Ok(None),
                        false => Err(format!("{num_batches} batches, the footer has {told}").into()),
                    };
                }
                Err(error) => return Err(error.into()),
            }
        }
    })
}

/// The number of batches that an Arrow file has by its footer: the footer, its length, the magic word.
fn batches_of_footer(tail: &[u8]) -> Option<usize> {
    let (footer, length) = tail.strip_suffix(ARROW_MAGIC)?.split_last_chunk::<4>()?;
    let start = footer.len().checked_sub(i32::from_le_bytes(*length).try_into().ok()?)?;
    let footer = arrow::ipc::root_as_footer(&footer[start..]).ok()?;
    footer.schema()?;
    Some(footer.recordBatches()?.len())
}

/// The rows of batches, until there are no more or one cannot be read.
fn batch_rows(
    rule: &'static str,
    mut next: impl FnMut() -> Result<Option<RecordBatch>, Box<dyn std::error::Error>> + Send + 'static,
) -> Box<dyn Iterator<Item = Row> + Send> {
    let mut is_done = false;
    let batches = std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let batch = caught(rule, || next().map_err(|error| Refusal::new(rule, error.to_string())));
        is_done = batch.is_err();
        batch.transpose()
    });
    let texts = batches.flat_map(|batch| match batch {
        Ok(batch) => (0..batch.num_rows()).map(|at| Ok(row_text(&batch, at)?.into_bytes())).collect(),
        Err(refusal) => vec![Err(refusal)],
    });
    Box::new((0..).zip(texts).map(|(number, bytes)| Row { number, offset: 0, bytes }))
}

/// What the readers of columns say of a file. Some that are damaged make them panic, which is a refusal like another.
fn caught<T>(rule: &'static str, read: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    panics::catch(read).unwrap_or_else(|said| Err(Refusal::new(rule, format!("damaged: {said}"))))
}

/// Rows of a CSV file with a header; the first line says the separator.
pub(crate) fn csv_rows(mut reader: impl BufRead + Send + 'static) -> Box<dyn Iterator<Item = Row> + Send> {
    let head = reader.fill_buf().map(|head| head.split(|byte| *byte == b'\n').next().unwrap_or(head).to_vec());
    let count = |separator: u8| head.as_ref().map_or(0, |head| head.iter().filter(|byte| **byte == separator).count());
    let separator =
        *[b',', b'\t', b';'].iter().max_by_key(|separator| (count(**separator), **separator == b',')).unwrap_or(&b',');
    let mut csv = csv::ReaderBuilder::new().delimiter(separator).flexible(false).from_reader(reader);
    let names = csv.byte_headers().cloned().map_err(|error| Refusal::new("csv", error.to_string()));
    let (mut number, mut is_done) = (0, false);
    Box::new(std::iter::from_fn(move || {
        if is_done {
            return None;
        }
        let offset = csv.position().byte();
        let mut record = csv::ByteRecord::new();
        let bytes = match &names {
            Err(refusal) => {
                is_done = true;
                Err(refusal.clone())
            }
            Ok(names) => match csv.read_byte_record(&mut record) {
                Ok(false) => return None,
                Ok(true) => Ok(record_text(names, &record).into_bytes()),
                Err(error) => {
                    is_done = error.is_io_error();
                    Err(Refusal::new("csv", error.to_string()))
                }
            },
        };
        number += 1;
        Some(Row { number: number - 1, offset, bytes })
    }))
}

fn record_text(names: &csv::ByteRecord, record: &csv::ByteRecord) -> String {
    let field = |(name, value): (&[u8], &[u8])| {
        let name = String::from_utf8_lossy(name);
        format!("{}: {}", quote(&name), string_text(&name, &String::from_utf8_lossy(value)))
    };
    format!("{{{}}}", names.iter().zip(record.iter()).map(field).collect::<Vec<_>>().join(", "))
}

fn string_text(name: &str, text: &str) -> String {
    let is_json =
        JSON_COLUMNS.contains(&name) && text.trim_start().starts_with(['[', '{']) && Value::parse(text).is_ok();
    if is_json { text.to_string() } else { quote(text) }
}

fn row_text(batch: &RecordBatch, at: usize) -> Result<String, Refusal> {
    let mut out = String::from("{");
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        if out.len() > 1 {
            out.push_str(", ");
        }
        out.push_str(&quote(field.name()));
        out.push_str(": ");
        add_value(column, at, field.name(), &mut out)?;
    }
    out.push('}');
    Ok(out)
}

/// Writes one value as JSON; `name` is its column's.
fn add_value(array: &ArrayRef, at: usize, name: &str, out: &mut String) -> Result<(), Refusal> {
    if array.is_null(at) {
        out.push_str("null");
        return Ok(());
    }
    macro_rules! number {
        ($kind:ty) => {
            out.push_str(&array.as_primitive::<$kind>().value(at).to_string())
        };
    }
    macro_rules! float {
        ($kind:ty) => {{
            let value = f64::from(array.as_primitive::<$kind>().value(at));
            out.push_str(&serde_json::Number::from_f64(value).map_or("null".into(), |number| number.to_string()));
        }};
    }
    match array.data_type() {
        DataType::Null => out.push_str("null"),
        DataType::Boolean => out.push_str(if array.as_boolean().value(at) { "true" } else { "false" }),
        DataType::Int8 => number!(Int8Type),
        DataType::Int16 => number!(Int16Type),
        DataType::Int32 => number!(Int32Type),
        DataType::Int64 => number!(Int64Type),
        DataType::UInt8 => number!(UInt8Type),
        DataType::UInt16 => number!(UInt16Type),
        DataType::UInt32 => number!(UInt32Type),
        DataType::UInt64 => number!(UInt64Type),
        DataType::Float16 => float!(Float16Type),
        DataType::Float32 => float!(Float32Type),
        DataType::Float64 => float!(Float64Type),
        DataType::Utf8 => out.push_str(&string_text(name, array.as_string::<i32>().value(at))),
        DataType::LargeUtf8 => out.push_str(&string_text(name, array.as_string::<i64>().value(at))),
        DataType::Utf8View => out.push_str(&string_text(name, array.as_string_view().value(at))),
        DataType::Binary => add_binary(array.as_binary::<i32>().value(at), out),
        DataType::LargeBinary => add_binary(array.as_binary::<i64>().value(at), out),
        DataType::List(_) => add_list(&array.as_list::<i32>().value(at), name, out)?,
        DataType::LargeList(_) => add_list(&array.as_list::<i64>().value(at), name, out)?,
        DataType::FixedSizeList(..) => add_list(&array.as_fixed_size_list().value(at), name, out)?,
        DataType::Struct(fields) => {
            let columns = array.as_struct();
            let mut is_first = true;
            out.push('{');
            for (field, column) in fields.iter().zip(columns.columns()) {
                if column.is_null(at) {
                    continue;
                }
                if !std::mem::take(&mut is_first) {
                    out.push_str(", ");
                }
                out.push_str(&quote(field.name()));
                out.push_str(": ");
                add_value(column, at, field.name(), out)?;
            }
            out.push('}');
        }
        DataType::Map(..) => add_map(&array.as_map().value(at), name, out)?,
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = dictionary.normalized_keys()[at];
            add_value(dictionary.values(), key, name, out)?;
        }
        _ => {
            let wrong = |error: arrow::error::ArrowError| Refusal::new("column_type", format!("`{name}`: {error}"));
            let options = FormatOptions::default();
            out.push_str(&quote(&ArrayFormatter::try_new(array, &options).map_err(wrong)?.value(at).to_string()));
        }
    }
    Ok(())
}

fn add_binary(bytes: &[u8], out: &mut String) {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text.to_string(),
        Err(_) => base64::engine::general_purpose::STANDARD.encode(bytes),
    };
    out.push_str(&quote(&text));
}

fn add_list(items: &ArrayRef, name: &str, out: &mut String) -> Result<(), Refusal> {
    out.push('[');
    for at in 0..items.len() {
        if at > 0 {
            out.push_str(", ");
        }
        add_value(items, at, name, out)?;
    }
    out.push(']');
    Ok(())
}

fn add_map(entries: &arrow::array::StructArray, name: &str, out: &mut String) -> Result<(), Refusal> {
    out.push('{');
    for at in 0..entries.len() {
        if at > 0 {
            out.push_str(", ");
        }
        let mut key = String::new();
        add_value(entries.column(0), at, name, &mut key)?;
        out.push_str(&if key.starts_with('"') { key } else { quote(&key) });
        out.push_str(": ");
        add_value(entries.column(1), at, name, out)?;
    }
    out.push('}');
    Ok(())
}
