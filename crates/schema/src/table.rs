//! Parquet files of one Rust type: the Arrow schema comes from the type, the file says its name and version.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::{FieldRef, Schema};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::{Compression, ZstdLevel};
use parquet::column::writer::ColumnCloseResult;
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_arrow::schema::{SchemaLike, TracingOptions};

use crate::error::{Error, Result};

/// Rows that a writer or a reader holds at once, at most; and rows per row group, unless more are asked for.
const ROWS_AT_ONCE: usize = 1024;
/// Bytes that a reader holds at once where rows are large, before they are values.
const BYTES_AT_ONCE: u64 = 32 << 20;

/// A type that is stored as a Parquet table.
pub trait Table: Serialize + DeserializeOwned {
    /// Name written into the file.
    const NAME: &'static str;
    /// Version written into the file; a reader refuses a newer one.
    const VERSION: u32;
}

fn fields<T: Table>() -> Vec<FieldRef> {
    let options = TracingOptions::default().enums_without_data_as_strings(true);
    Vec::<FieldRef>::from_type::<T>(options).expect("every table type has an Arrow schema; a test makes each")
}

/// Writes a table row by row.
pub struct TableWriter<T: Table> {
    path: PathBuf,
    fields: Vec<FieldRef>,
    writer: ArrowWriter<fs_err::File>,
    pending: Vec<T>,
    rows: u64,
}

impl<T: Table> TableWriter<T> {
    /// Starts the file.
    pub fn create(path: &Path) -> Result<Self> {
        Self::create_with(path, ROWS_AT_ONCE)
    }

    /// [`TableWriter::create`] with row groups of up to so many rows. A file may have 32,767 row groups, and whoever opens
    /// it holds some tens of kilobytes for each.
    pub fn create_with(path: &Path, rows_per_group: usize) -> Result<Self> {
        let fields = fields::<T>();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_row_count(Some(rows_per_group))
            .set_key_value_metadata(Some(vec![
                KeyValue::new("worldloom.table".into(), T::NAME.to_string()),
                KeyValue::new("worldloom.version".into(), T::VERSION.to_string()),
            ]))
            .build();
        let file = fs_err::File::create(path)?;
        let writer = ArrowWriter::try_new(file, Arc::new(Schema::new(fields.clone())), Some(properties))
            .map_err(|error| Error::write(path, error))?;
        Ok(Self { path: path.into(), fields, writer, pending: Vec::new(), rows: 0 })
    }

    /// Adds a row.
    pub fn push(&mut self, row: T) -> Result<()> {
        self.pending.push(row);
        self.rows += 1;
        if self.pending.len() >= ROWS_AT_ONCE { self.encode() } else { Ok(()) }
    }

    /// Ends the row group, so that no more is held than was pushed since.
    pub fn end_group(&mut self) -> Result<()> {
        self.encode()?;
        self.writer.flush().map_err(|error| Error::write(&self.path, error))
    }

    /// Encodes what was pushed; the writer ends row groups that are full.
    fn encode(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batch = serde_arrow::to_record_batch(&self.fields, &self.pending)
            .map_err(|error| Error::write(&self.path, error))?;
        self.pending.clear();
        self.writer.write(&batch).map_err(|error| Error::write(&self.path, error))
    }

    /// Writes the footer and syncs; returns the number of rows.
    pub fn finish(mut self) -> Result<u64> {
        self.encode()?;
        let file = self.writer.into_inner().map_err(|error| Error::write(&self.path, error))?;
        file.sync_all()?;
        Ok(self.rows)
    }
}

/// Reads a table row by row.
pub struct TableReader<T: Table> {
    path: PathBuf,
    reader: ParquetRecordBatchReader,
    rows: std::vec::IntoIter<T>,
    total: u64,
    group: usize,
    row_type: PhantomData<T>,
}

impl<T: Table> TableReader<T> {
    /// Opens a file and checks what it says it is.
    pub fn open(path: &Path) -> Result<Self> {
        Self::open_part(path, 0, None)
    }

    /// [`TableReader::open`], then `limit` rows from row `first` on; other rows are not decoded.
    pub fn open_part(path: &Path, first: usize, limit: Option<usize>) -> Result<Self> {
        let file = fs_err::File::open(path)?;
        let builder = ParquetRecordBatchReaderBuilder::try_new(file.into_parts().0)
            .map_err(|error| Error::parquet(path, error))?;
        let total = builder.metadata().file_metadata().num_rows() as u64;
        let value = |key: &str| {
            let pairs = builder.metadata().file_metadata().key_value_metadata();
            pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == key)).and_then(|pair| pair.value.clone())
        };
        let name = value("worldloom.table");
        if name.as_deref() != Some(T::NAME) {
            let found = name.map_or("a Parquet file of another program".into(), |name| format!("a {name} table"));
            return Err(Error::Kind { path: path.into(), expected: format!("a {} table", T::NAME), found });
        }
        let version = value("worldloom.version").and_then(|version| version.parse::<u32>().ok()).unwrap_or(0);
        if version == 0 || version > T::VERSION {
            let expected = format!("{} version {} or older", T::NAME, T::VERSION);
            return Err(Error::Kind { path: path.into(), expected, found: format!("version {version}") });
        }
        let builder = match limit {
            Some(limit) => builder.with_limit(limit),
            None => builder,
        };
        let bytes: u64 =
            builder.metadata().row_groups().iter().map(|group| group.total_byte_size().max(0) as u64).sum();
        let rows = (BYTES_AT_ONCE / (bytes / total.max(1)).max(1)).clamp(1, ROWS_AT_ONCE as u64);
        let builder = builder.with_offset(first).with_batch_size(rows as usize);
        let reader = builder.build().map_err(|error| Error::parquet(path, error))?;
        Ok(Self { path: path.into(), reader, rows: Vec::new().into_iter(), total, group: 0, row_type: PhantomData })
    }

    /// Number of rows in the file.
    pub fn num_rows(&self) -> u64 {
        self.total
    }

    fn next_group(&mut self) -> Option<Result<()>> {
        let batch: RecordBatch = match self.reader.next()? {
            Ok(batch) => batch,
            Err(error) => return Some(Err(Error::parquet(&self.path, error))),
        };
        let group = self.group;
        self.group += 1;
        let rows: std::result::Result<Vec<T>, _> = serde_arrow::from_record_batch(&batch);
        Some(match rows {
            Ok(rows) => {
                self.rows = rows.into_iter();
                Ok(())
            }
            Err(error) => Err(Error::Columns { path: self.path.clone(), group, detail: error.to_string() }),
        })
    }
}

impl<T: Table> Iterator for TableReader<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        loop {
            if let Some(row) = self.rows.next() {
                return Some(Ok(row));
            }
            if let Err(error) = self.next_group()? {
                return Some(Err(error));
            }
        }
    }
}

/// Writes all rows; returns their number.
pub fn write_table<T: Table>(path: &Path, rows: impl IntoIterator<Item = T>) -> Result<u64> {
    let mut writer = TableWriter::create(path)?;
    for row in rows {
        writer.push(row)?;
    }
    writer.finish()
}

/// Joins tables of one type into one, row group by row group; returns the number of rows.
pub fn concat_tables<T: Table>(paths: &[PathBuf], out: &Path) -> Result<u64> {
    let empty = TableWriter::<T>::create(out)?;
    let Some(first) = paths.first() else { return empty.finish() };
    drop(empty);
    let open = |path: &Path| -> Result<SerializedFileReader<std::fs::File>> {
        TableReader::<T>::open(path)?;
        SerializedFileReader::new(fs_err::File::open(path)?.into_parts().0).map_err(|error| Error::parquet(path, error))
    };
    let failed = |error: ParquetError| Error::write(out, error);
    let head = open(first)?;
    let metadata = head.metadata().file_metadata();
    let properties = WriterProperties::builder().set_key_value_metadata(metadata.key_value_metadata().cloned()).build();
    let (file, _) = fs_err::File::create(out)?.into_parts();
    let schema = metadata.schema_descr().root_schema_ptr();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties)).map_err(failed)?;
    let mut rows = 0;
    for path in paths {
        let reader = open(path)?;
        let source = fs_err::File::open(path)?.into_parts().0;
        for group in reader.metadata().row_groups() {
            rows += group.num_rows() as u64;
            let mut out_group = writer.next_row_group().map_err(failed)?;
            for column in group.columns() {
                let close = ColumnCloseResult {
                    bytes_written: column.compressed_size() as u64,
                    rows_written: group.num_rows() as u64,
                    metadata: column.clone(),
                    bloom_filter: None,
                    column_index: None,
                    offset_index: None,
                };
                out_group.append_column(&source, close).map_err(failed)?;
            }
            out_group.close().map_err(failed)?;
        }
    }
    let file = writer.into_inner().map_err(failed)?;
    file.sync_all()?;
    Ok(rows)
}

/// Reads all rows.
pub fn read_table<T: Table>(path: &Path) -> Result<Vec<T>> {
    TableReader::open(path)?.collect()
}
