//! The files of a curation: opened before any plan runs, and read in batches of bounded size.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use datafusion::arrow::array::RecordBatch;
use datafusion::parquet::arrow::ProjectionMask;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use worldloom_schema::{Table, TableReader};

use crate::engine::plan_error;
use crate::error::{Error, Result};

/// Rows of a batch where rows are small.
pub(crate) const MOST_BATCH_ROWS: usize = 1024;
/// Bytes of a batch where rows are large.
pub(crate) const BATCH_BYTES: usize = 16 << 20;

/// What an error names where it is no plan that reads.
const READ: &str = "read";

/// What is known of the input files before they are read.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) rows: u64,
    bytes: u64,
}

impl Inputs {
    /// Opens every file, so that one that is none of ours is named at once.
    pub(crate) fn open<T: Table>(paths: &[PathBuf]) -> Result<Self> {
        let mut inputs = Self { paths: paths.into(), rows: 0, bytes: 0 };
        for path in paths {
            inputs.rows += TableReader::<T>::open(path)?.num_rows();
            inputs.bytes += text_bytes(path)?;
        }
        if inputs.rows == 0 && !paths.is_empty() {
            let names = paths.iter().map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ");
            return Err(Error::Empty { what: T::NAME.into(), inputs: names });
        }
        Ok(inputs)
    }

    /// Rows of a batch: fewer where trajectories are long, so that a batch has the same size.
    pub(crate) fn batch_rows(&self) -> usize {
        (BATCH_BYTES as u64 / (self.bytes / self.rows.max(1)).max(1)).clamp(4, MOST_BATCH_ROWS as u64) as usize
    }

    /// What tells these files from others without reading them: names, sizes and times.
    pub(crate) fn identity(&self) -> Result<Value> {
        let of = |path: &PathBuf| -> Result<Value> {
            let metadata = fs_err::metadata(path)?;
            let changed = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            Ok(json!([fs_err::canonicalize(path)?, metadata.len(), changed.as_nanos().to_string()]))
        };
        Ok(Value::Array(self.paths.iter().map(of).collect::<Result<_>>()?))
    }

    /// Reads some columns of all files, batch by batch.
    pub(crate) fn each_batch(&self, columns: &[&str], mut take: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        self.paths.iter().try_for_each(|path| columns_of(path, columns, self.batch_rows(), &mut take))
    }
}

/// Reads some columns of a file, which are short, batch by batch.
pub(crate) fn each_batch(path: &Path, columns: &[&str], take: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
    columns_of(path, columns, MOST_BATCH_ROWS, take)
}

fn columns_of(
    path: &Path,
    columns: &[&str],
    batch_rows: usize,
    take: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    let builder = reader(path, READ)?;
    let roots = builder.schema().fields().iter().enumerate();
    let is_wanted = |name: &String| columns.iter().any(|column| column == name);
    let wanted: Vec<usize> = roots.filter(|(_, field)| is_wanted(field.name())).map(|(at, _)| at).collect();
    let mask = ProjectionMask::roots(builder.parquet_schema(), wanted);
    each_batch_of(builder.with_projection(mask).with_batch_size(batch_rows), READ, take)
}

/// A Parquet file that is going to be read; `plan` is what an error names.
pub(crate) fn reader(path: &Path, plan: &str) -> Result<ParquetRecordBatchReaderBuilder<std::fs::File>> {
    let file = fs_err::File::open(path)?.into_parts().0;
    ParquetRecordBatchReaderBuilder::try_new(file).map_err(|error| plan_error(plan, error.into()))
}

/// Reads what was asked for, batch by batch.
pub(crate) fn each_batch_of(
    reader: ParquetRecordBatchReaderBuilder<std::fs::File>,
    plan: &str,
    mut take: impl FnMut(&RecordBatch) -> Result<()>,
) -> Result<()> {
    for batch in reader.build().map_err(|error| plan_error(plan, error.into()))? {
        take(&batch.map_err(|error| plan_error(plan, error.into()))?)?;
    }
    Ok(())
}

/// Bytes of a file's columns before compression.
fn text_bytes(path: &Path) -> Result<u64> {
    Ok(reader(path, READ)?.metadata().row_groups().iter().map(|group| group.total_byte_size().max(0) as u64).sum())
}
