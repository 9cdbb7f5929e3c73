//! The stage: trajectories in, four pools, rejects and a report out.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use datafusion::arrow::array::AsArray;
use datafusion::arrow::datatypes::Int64Type;
use worldloom_schema::{Pool, TableReader, Trajectory};

use crate::apply::Apply;
use crate::config::CurateConfig;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::groups::{Group, assign};
use crate::plans::Plans;
use crate::proof::check_disjoint;
use crate::report::Report;

/// Name of a pool's file.
pub fn pool_file(pool: Pool) -> String {
    format!("{pool}.parquet")
}

/// Reads a trajectory file and writes `cpt.parquet`, `sft.parquet`, `rl.parquet`, `eval.parquet`, `rejects.parquet` and
/// `report.json` into `out`.
///
/// The pools are sorted by trajectory id. The same trajectories give the same bytes in any order of files and rows and
/// with any number of threads. Trajectories keep the id of their full content when turns are removed. `progress` is told
/// steps done and steps in all.
pub fn run(
    config: &CurateConfig,
    trajectories: &Path,
    out: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report> {
    let num_threads = std::thread::available_parallelism().map_or(1, usize::from);
    run_with_threads(config, &[trajectories.into()], out, progress, num_threads)
}

/// [`run`] over several files with a number of threads.
pub fn run_with_threads(
    config: &CurateConfig,
    trajectories: &[PathBuf],
    out: &Path,
    progress: &(dyn Fn(u64, u64) + Sync),
    num_threads: usize,
) -> Result<Report> {
    config.check()?;
    let rows = count_rows(trajectories)?;
    let steps = Steps { done: Cell::new(0), total: Plans::COUNT * rows + rows, progress };
    let engine = Engine::start(out, num_threads)?;
    let plans = Plans { engine: &engine, config, inputs: trajectories };
    plans.run_rules(&mut || steps.add(rows))?;
    let groups = group_sizes(&plans)?;
    check_left(&groups, &plans, rows)?;
    plans.run_decisions(&assign(&groups, config)?, &mut || steps.add(rows))?;
    let mut apply = Apply::create(out, config.drop_exact_duplicates)?;
    let sorted = TableReader::open(&engine.stored("sorted"))?;
    apply.merge(sorted, TableReader::open(&engine.stored("verdicts"))?, &mut || steps.add(1))?;
    let mut report = apply.finish()?;
    report.finish();
    report.shared = check_disjoint(&engine, out)?;
    let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::other)?;
    fs_err::write(out.join("report.json"), text + "\n")?;
    Ok(report)
}

struct Steps<'a> {
    done: Cell<u64>,
    total: u64,
    progress: &'a (dyn Fn(u64, u64) + Sync),
}

impl Steps<'_> {
    fn add(&self, steps: u64) {
        self.done.set(self.done.get() + steps);
        (self.progress)(self.done.get(), self.total);
    }
}

/// Opens every input, so that a file that is none of ours is named before any plan runs.
fn count_rows(inputs: &[PathBuf]) -> Result<u64> {
    if inputs.is_empty() {
        return Err(Error::NoInput);
    }
    let mut rows = 0;
    for input in inputs {
        rows += TableReader::<Trajectory>::open(input)?.num_rows();
    }
    if rows == 0 {
        let inputs = inputs.iter().map(|input| format!("`{}`", input.display())).collect::<Vec<_>>().join(", ");
        return Err(Error::Empty { inputs });
    }
    Ok(rows)
}

fn group_sizes(plans: &Plans<'_>) -> Result<Vec<Group>> {
    let batches = plans.engine.collect("group_sizes", plans.group_sizes()?)?;
    let rows = batches.iter().flat_map(|batch| {
        let names = batch.column(0).as_string::<i64>();
        let left = batch.column(2).as_primitive::<Int64Type>();
        (0..batch.num_rows()).map(move |row| Group { name: names.value(row).into(), left: left.value(row) as u64 })
    });
    Ok(rows.collect())
}

fn check_left(groups: &[Group], plans: &Plans<'_>, rows: u64) -> Result<()> {
    if groups.iter().any(|group| group.left > 0) {
        return Ok(());
    }
    let batches = plans.engine.collect("rule_counts", plans.rule_counts()?)?;
    let mut rules = Vec::new();
    for batch in &batches {
        let (names, numbers) = (batch.column(0).as_string::<i64>(), batch.column(1).as_primitive::<Int64Type>());
        rules.extend((0..batch.num_rows()).map(|row| format!("{} {}", numbers.value(row), names.value(row))));
    }
    Err(Error::NothingLeft { rows, rules: rules.join(", ") })
}
