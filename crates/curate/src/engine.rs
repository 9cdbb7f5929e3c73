//! The engine: one DataFusion session with bounded memory, and a scratch folder where plans leave their results.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::config::TableParquetOptions;
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext};
use worldloom_schema::Table;

use crate::error::{Error, Result};
use crate::functions;

/// What plans may hold before they spill to disk.
const MEMORY_BYTES: usize = 1 << 30;
/// Rows per batch; observations can be long.
const BATCH_ROWS: usize = 1024;

/// A session, its threads and its scratch folder.
pub(crate) struct Engine {
    threads: tokio::runtime::Runtime,
    context: SessionContext,
    scratch: tempfile::TempDir,
}

impl Engine {
    /// A session that uses `num_threads` and keeps its intermediate files in a folder inside `out`.
    pub(crate) fn start(out: &Path, num_threads: usize) -> Result<Self> {
        let scratch = tempfile::Builder::new().prefix(".curate.").tempdir_in(out)?;
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(num_threads).enable_all().build()?;
        let mut config = SessionConfig::new().with_target_partitions(num_threads).with_batch_size(BATCH_ROWS);
        config.options_mut().execution.parquet.schema_force_view_types = false;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(MEMORY_BYTES)))
            .with_temp_file_path(scratch.path())
            .build_arc()
            .map_err(|error| plan_error("start", error))?;
        let context = SessionContext::new_with_config_rt(config, runtime);
        functions::register(&context);
        Ok(Self { threads, context, scratch })
    }

    /// One of our functions.
    pub(crate) fn function(&self, name: &str) -> Result<Arc<datafusion::logical_expr::ScalarUDF>> {
        use datafusion::execution::FunctionRegistry;
        self.context.udf(name).map_err(|error| plan_error(name, error))
    }

    /// Parquet files as a frame.
    pub(crate) fn read(&self, plan: &str, paths: &[PathBuf]) -> Result<DataFrame> {
        let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        self.wait(plan, self.context.read_parquet(names, ParquetReadOptions::default().file_extension("")))
    }

    /// Runs a frame and keeps its result under a name.
    pub(crate) fn store(&self, name: &str, frame: DataFrame) -> Result<()> {
        self.write(name, frame, TableParquetOptions::default())
    }

    /// Runs a frame whose rows are those of `T` and keeps its result as a table that [`TableReader`] opens.
    ///
    /// [`TableReader`]: worldloom_schema::TableReader
    pub(crate) fn store_table<T: Table>(&self, name: &str, frame: DataFrame) -> Result<()> {
        let mut format = TableParquetOptions::default();
        format.global.max_row_group_size = BATCH_ROWS;
        format.key_value_metadata =
            [("worldloom.table", T::NAME.to_string()), ("worldloom.version", T::VERSION.to_string())]
                .map(|(key, value)| (key.to_string(), Some(value)))
                .into();
        self.write(name, frame, format)
    }

    fn write(&self, name: &str, frame: DataFrame, format: TableParquetOptions) -> Result<()> {
        let path = self.stored(name).to_string_lossy().into_owned();
        let options = DataFrameWriteOptions::new().with_single_file_output(true);
        self.wait(name, frame.write_parquet(&path, options, Some(format)))?;
        Ok(())
    }

    /// What a plan left.
    pub(crate) fn table(&self, name: &str) -> Result<DataFrame> {
        self.read(name, &[self.stored(name)])
    }

    /// Where it lies.
    pub(crate) fn stored(&self, name: &str) -> PathBuf {
        self.scratch.path().join(format!("{name}.parquet"))
    }

    /// A batch of the client as a frame.
    pub(crate) fn values(&self, plan: &str, batch: RecordBatch) -> Result<DataFrame> {
        self.context.read_batch(batch).map_err(|error| plan_error(plan, error))
    }

    /// The rows of a frame, which the caller knows to be few.
    pub(crate) fn collect(&self, plan: &str, frame: DataFrame) -> Result<Vec<RecordBatch>> {
        self.wait(plan, frame.collect())
    }

    /// The number of rows of a frame.
    pub(crate) fn count(&self, plan: &str, frame: DataFrame) -> Result<u64> {
        Ok(self.wait(plan, frame.count())? as u64)
    }

    fn wait<T>(&self, plan: &str, work: impl Future<Output = std::result::Result<T, DataFusionError>>) -> Result<T> {
        self.threads.block_on(work).map_err(|error| plan_error(plan, error))
    }
}

/// A plan that failed, without the engine's own prefixes.
pub(crate) fn plan_error(plan: &str, error: DataFusionError) -> Error {
    Error::Plan { plan: plan.into(), detail: error.strip_backtrace() }
}
