//! A table that the client makes between two plans, batch by batch: columns of texts, then columns of numbers.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, LargeStringArray, RecordBatch, UInt64Array};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::{Compression, ZstdLevel};
use datafusion::parquet::errors::ParquetError;
use datafusion::parquet::file::properties::WriterProperties;

use crate::engine::{Engine, plan_error};
use crate::error::{Error, Result};
use crate::inputs::BATCH_BYTES;

/// A table that is not whole yet; it has its name once it is.
pub(crate) struct ClientTable {
    name: String,
    partial: PathBuf,
    stored: PathBuf,
    schema: SchemaRef,
    writer: ArrowWriter<fs_err::File>,
}

impl ClientTable {
    /// Starts a table among those that plans left.
    pub(crate) fn create(engine: &Engine, name: &str, texts: &[&str], numbers: &[&str]) -> Result<Self> {
        let field = |name: &str, kind: DataType| Field::new(name, kind, false);
        let texts = texts.iter().map(|name| field(name, DataType::LargeUtf8));
        let numbers = numbers.iter().map(|name| field(name, DataType::UInt64));
        let schema = Arc::new(Schema::new(texts.chain(numbers).collect::<Vec<_>>()));
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_max_row_group_bytes(Some(BATCH_BYTES))
            .build();
        let partial = engine.partial(name);
        let writer = ArrowWriter::try_new(fs_err::File::create(&partial)?, Arc::clone(&schema), Some(properties));
        let writer = writer.map_err(|error| failed(name, error))?;
        Ok(Self { name: name.into(), partial, stored: engine.stored(name), schema, writer })
    }

    /// Adds rows.
    pub(crate) fn write(&mut self, texts: Vec<Vec<&str>>, numbers: Vec<Vec<u64>>) -> Result<()> {
        let texts = texts.into_iter().map(|texts| Arc::new(LargeStringArray::from(texts)) as ArrayRef);
        let numbers = numbers.into_iter().map(|numbers| Arc::new(UInt64Array::from(numbers)) as ArrayRef);
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), texts.chain(numbers).collect());
        let batch = batch.map_err(|error| plan_error(&self.name, error.into()))?;
        self.writer.write(&batch).map_err(|error| failed(&self.name, error))
    }

    /// Closes the file and gives it its name.
    pub(crate) fn finish(self) -> Result<()> {
        let file = self.writer.into_inner().map_err(|error| failed(&self.name, error))?;
        file.sync_all()?;
        Ok(fs_err::rename(&self.partial, &self.stored)?)
    }
}

fn failed(name: &str, error: ParquetError) -> Error {
    plan_error(name, error.into())
}
