//! The engine: one DataFusion session with bounded memory, and a folder where plans leave their results.
//!
//! With a [`Cluster`], plans run there and their rows are fetched; what this process makes itself, and every file it
//! leaves, is as without one.
//!
//! What a plan leaves is written beside and renamed when it is whole, so that a run that was killed goes on from the
//! plans that are done. The folder says what it was made of and how; for anything else it is emptied first.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::config::{MaxRowGroupBytes, SpillCompression, TableParquetOptions};
use datafusion::dataframe::DataFrameWriteOptions;
use datafusion::error::DataFusionError;
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::logical_expr::ScalarUDF;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::file::properties::WriterPropertiesBuilder;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionConfig, SessionContext};
use futures::StreamExt;
use worldloom_schema::Table;

use crate::error::{Error, Result};
use crate::functions;
use crate::inputs::{BATCH_BYTES, MOST_BATCH_ROWS, each_batch_of, reader};

/// What a partition needs to sort without spilling tiny files.
const PARTITION_BYTES: usize = 64 << 20;
/// Name of the file that says what the folder was made of.
const KEY: &str = "key";
/// Times a plan is sent to a cluster: a machine that is lost takes with it the rows that were not fetched yet.
const CLUSTER_ATTEMPTS: usize = 3;

/// Other machines that plans can run on. They see the files of a curation under the paths that this one sees, and know
/// our functions ([`register`](crate::register)).
pub trait Cluster: std::fmt::Debug + Sync {
    /// The session that sends its plans there, from one that would run them here.
    fn session(&self, here: &SessionContext) -> std::result::Result<SessionContext, DataFusionError>;
}

/// What a curation may use; it does not change its result.
#[derive(Debug, Clone, Copy)]
pub struct Resources<'a> {
    /// Threads of the plans and of the masks.
    pub num_threads: usize,
    /// What plans may hold before they spill to disk.
    pub plan_memory_bytes: usize,
    /// Where plans run; unless given, in this process.
    pub cluster: Option<&'a dyn Cluster>,
}

impl Default for Resources<'_> {
    fn default() -> Self {
        let num_threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { num_threads, plan_memory_bytes: 1 << 30, cluster: None }
    }
}

/// A session, its threads and its folder.
pub(crate) struct Engine {
    threads: tokio::runtime::Runtime,
    /// The session of this process.
    here: SessionContext,
    /// The session of the plans, where it is another.
    there: Option<SessionContext>,
    folder: PathBuf,
}

impl Engine {
    /// A session that keeps its results in `folder`, and those it finds there if they were made under the same key.
    pub(crate) fn start(folder: &Path, key: &str, resources: Resources<'_>, batch_rows: usize) -> Result<Self> {
        let folder = std::path::absolute(folder)?;
        prepare(&folder, key)?;
        let num_threads = resources.num_threads.max(1);
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(num_threads).enable_all().build()?;
        let partitions = num_threads.min(resources.plan_memory_bytes / PARTITION_BYTES).max(1);
        let mut config = SessionConfig::new().with_target_partitions(partitions).with_batch_size(batch_rows);
        config.options_mut().execution.parquet.schema_force_view_types = false;
        config.options_mut().execution.spill_compression = SpillCompression::Zstd;
        // Sorts spill to disk, hash joins cannot.
        config.options_mut().optimizer.prefer_hash_join = false;
        let runtime = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(FairSpillPool::new(resources.plan_memory_bytes)))
            .with_temp_file_path(folder.join("spill"))
            .build_arc()
            .map_err(|error| plan_error("start", error))?;
        let here = SessionContext::new_with_config_rt(config, runtime);
        functions::register(&here);
        let there = resources.cluster.map(|cluster| cluster.session(&here)).transpose();
        let there = there.map_err(|error| plan_error("start", error))?;
        Ok(Self { threads, here, there, folder })
    }

    /// The session of the plans.
    fn session(&self) -> &SessionContext {
        self.there.as_ref().unwrap_or(&self.here)
    }

    /// One of our functions.
    pub(crate) fn function(&self, name: &str) -> Result<Arc<ScalarUDF>> {
        use datafusion::execution::FunctionRegistry;
        self.session().udf(name).map_err(|error| plan_error(name, error))
    }

    /// Parquet files as a frame.
    pub(crate) fn read(&self, plan: &str, paths: &[PathBuf]) -> Result<DataFrame> {
        let names: Vec<String> = paths.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        self.wait(plan, self.session().read_parquet(names, ParquetReadOptions::default().file_extension("")))
    }

    /// Whether a plan is done.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.stored(name).exists()
    }

    /// Runs a frame and keeps its result under a name.
    pub(crate) fn store(&self, name: &str, frame: DataFrame) -> Result<()> {
        self.write(name, frame, TableParquetOptions::default())
    }

    /// Runs a frame whose rows are those of `T` and keeps its result as a table that [`TableReader`] opens.
    ///
    /// [`TableReader`]: worldloom_schema::TableReader
    pub(crate) fn store_table<T: Table>(&self, name: &str, frame: DataFrame) -> Result<()> {
        let keys = [("worldloom.table", T::NAME.to_string()), ("worldloom.version", T::VERSION.to_string())];
        let key_value_metadata = keys.map(|(key, value)| (key.to_string(), Some(value))).into();
        let format = TableParquetOptions { key_value_metadata, ..TableParquetOptions::default() };
        self.write(name, frame, format)
    }

    fn write(&self, name: &str, frame: DataFrame, mut format: TableParquetOptions) -> Result<()> {
        // Writers of several row groups at once count rows only, a million a group, and readers hold a group.
        format.global.allow_single_file_parallelism = false;
        // One thread encodes then: the quickest level.
        format.global.compression = Some("zstd(1)".into());
        format.global.max_row_group_bytes =
            Some(MaxRowGroupBytes::try_new(BATCH_BYTES).map_err(|error| plan_error(name, error))?);
        let partial = self.partial(name);
        match self.there {
            Some(_) => self.wait_again(name, async || fetch(frame.clone(), &partial, format.clone()).await)?,
            None => {
                let options = DataFrameWriteOptions::new().with_single_file_output(true);
                self.wait(name, frame.write_parquet(&partial.to_string_lossy(), options, Some(format)))?;
            }
        }
        fs_err::File::open(&partial)?.sync_all()?;
        Ok(fs_err::rename(&partial, self.stored(name))?)
    }

    /// What a plan left.
    pub(crate) fn table(&self, name: &str) -> Result<DataFrame> {
        self.read(name, &[self.stored(name)])
    }

    /// What a plan left, batch by batch.
    pub(crate) fn each_batch(&self, name: &str, take: impl FnMut(&RecordBatch) -> Result<()>) -> Result<()> {
        each_batch_of(reader(&self.stored(name), name)?.with_batch_size(MOST_BATCH_ROWS), name, take)
    }

    /// The number of rows that a plan left.
    pub(crate) fn num_rows(&self, name: &str) -> Result<usize> {
        Ok(reader(&self.stored(name), name)?.metadata().file_metadata().num_rows().max(0) as usize)
    }

    /// Where it lies.
    pub(crate) fn stored(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.parquet"))
    }

    /// Where it is made.
    pub(crate) fn partial(&self, name: &str) -> PathBuf {
        self.folder.join(format!("partial.{name}.parquet"))
    }

    /// Where files of the client's lie.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where a file of the client's lies.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The rows of a frame, which the caller knows to be few.
    pub(crate) fn collect(&self, plan: &str, frame: DataFrame) -> Result<Vec<RecordBatch>> {
        self.wait_again(plan, async || frame.clone().collect().await)
    }

    /// Removes the folder: the results that count are elsewhere.
    pub(crate) fn finish(self) -> Result<()> {
        let folder = self.folder.clone();
        drop(self);
        Ok(fs_err::remove_dir_all(folder)?)
    }

    fn wait<T>(&self, plan: &str, work: impl Future<Output = std::result::Result<T, DataFusionError>>) -> Result<T> {
        self.threads.block_on(work).map_err(|error| plan_error(plan, error))
    }

    /// Waits for work whose rows may be lost with a machine that held them, and does it from the start again then.
    fn wait_again<T>(&self, plan: &str, work: impl AsyncFn() -> std::result::Result<T, DataFusionError>) -> Result<T> {
        let attempts = if self.there.is_some() { CLUSTER_ATTEMPTS } else { 1 };
        for attempt in 1..attempts {
            match self.threads.block_on(work()) {
                Ok(done) => return Ok(done),
                Err(error) => tracing::warn!(plan, attempt, %error, "the cluster lost a plan, which is sent again"),
            }
        }
        self.wait(plan, work())
    }
}

/// Runs a frame elsewhere and writes its rows here.
async fn fetch(
    frame: DataFrame,
    path: &Path,
    mut format: TableParquetOptions,
) -> std::result::Result<(), DataFusionError> {
    format.arrow_schema(frame.schema().inner());
    let properties = WriterPropertiesBuilder::try_from(&format)?.build();
    let file = fs_err::File::create(path).map_err(DataFusionError::IoError)?;
    let mut rows = frame.execute_stream().await?;
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties))?;
    while let Some(batch) = rows.next().await {
        writer.write(&with_types(&batch?, &rows.schema())?)?;
    }
    writer.close()?;
    Ok(())
}

/// The batch with the types of the plan's schema: lists of 64-bit offsets come back from a cluster with 32-bit ones.
fn with_types(batch: &RecordBatch, schema: &SchemaRef) -> std::result::Result<RecordBatch, DataFusionError> {
    let columns = batch.columns().iter().zip(schema.fields()).map(|(column, field)| cast(column, field.data_type()));
    let columns = columns.collect::<std::result::Result<Vec<_>, _>>()?;
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// Empties a folder that was made of something else, and takes away what was not finished.
fn prepare(folder: &Path, key: &str) -> Result<()> {
    let made_of = folder.join(KEY);
    let is_same = made_of.exists() && fs_err::read_to_string(&made_of)? == key;
    if folder.exists() && !is_same {
        fs_err::remove_dir_all(folder)?;
    }
    let spill = folder.join("spill");
    if spill.exists() {
        fs_err::remove_dir_all(&spill)?;
    }
    fs_err::create_dir_all(&spill)?;
    Ok(fs_err::write(made_of, key)?)
}

/// A plan that failed, without the engine's own prefixes.
pub(crate) fn plan_error(plan: &str, error: DataFusionError) -> Error {
    Error::Plan { plan: plan.into(), detail: error.strip_backtrace() }
}
