//! The stage: trajectories in, four pools, rejects and a report out.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use serde_json::json;
use worldloom_schema::{Document, Pool, TableReader, Trajectory, hash_file, hash_json};

use crate::apply::Apply;
use crate::config::CurateConfig;
use crate::engine::{Engine, Resources};
use crate::error::{Error, Result};
use crate::evaluation_sets;
use crate::groups::is_wanted;
use crate::inputs::Inputs;
use crate::overlap::OverlapBuilder;
use crate::plans::Plans;
use crate::proof::check_disjoint;
use crate::report::Report;

/// Name of a pool's file.
pub fn pool_file(pool: Pool) -> String {
    format!("{pool}.parquet")
}

/// Where a curation keeps what its plans left, inside its folder, until it is done.
const WORK_FOLDER: &str = ".curate";
/// Moves when plans leave something else for the same config and inputs.
const VERSION: u32 = 2;

/// Reads trajectory files and writes `cpt.parquet`, `sft.parquet`, `rl.parquet`, `eval.parquet`, `rejects.parquet` and
/// `report.json` into `out`, and `documents.parquet` where documents are given.
///
/// The pools are sorted by trajectory id. The same trajectories give the same bytes in any order of files and rows and
/// with any resources. Trajectories keep the id of their full content when turns are removed or masked. A run that was
/// killed goes on from the plans that are done when it is started again with the same config and files into the same
/// folder. `progress` is told steps done and steps in all.
pub fn run(
    config: &CurateConfig,
    trajectories: &[PathBuf],
    documents: &[PathBuf],
    out: &Path,
    resources: Resources<'_>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Report> {
    config.check()?;
    if trajectories.is_empty() {
        return Err(Error::NoInput);
    }
    let inputs = Inputs::open::<Trajectory>(trajectories)?;
    let texts = Inputs::open::<Document>(documents)?;
    let of_documents = match (&config.documents, documents) {
        (_, []) => None,
        (Some(rules), _) => Some(rules),
        (None, _) => return Err(Error::NoDocumentRules),
    };
    let steps = Steps { done: Cell::new(0), total: (Plans::COUNT + 1) * inputs.rows, progress };
    let key = hash_json(&json!([VERSION, config, inputs.identity()?, texts.identity()?, evaluation_identity(config)?]));
    let engine = Engine::start(&out.join(WORK_FOLDER), &key, resources, inputs.batch_rows().min(texts.batch_rows()))?;
    let plans = Plans { engine: &engine, config, inputs: &inputs, documents: &texts };
    run_plans(&plans, &mut || steps.add(inputs.rows))?;
    let mut apply = Apply::create(out, config, resources)?;
    let sorted = TableReader::open(&engine.stored("sorted"))?;
    apply.merge(sorted, TableReader::open(&engine.stored("verdicts"))?, &mut || steps.add(1))?;
    let written = match of_documents {
        Some(rules) => {
            plans.run_documents(rules)?;
            Some(apply.write_documents(&plans, out)?)
        }
        None => None,
    };
    let mut report = apply.finish()?;
    report.documents = written;
    report.finish();
    check_filled(config, &report)?;
    check_disjoint(out, &mut report)?;
    engine.finish()?;
    let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::other)?;
    fs_err::write(out.join("report.json"), text + "\n")?;
    Ok(report)
}

fn run_plans(plans: &Plans<'_>, progress: &mut dyn FnMut()) -> Result<()> {
    let (config, engine) = (plans.config, plans.engine);
    let mut done = |name: &str| {
        tracing::debug!(plan = name, "plan done");
        progress();
    };
    let groups = match &config.decontaminate {
        Some(against) if !against.against.is_empty() && !engine.has("trajectories") => {
            let held = OverlapBuilder::new(against.run_words, engine.folder());
            let sets = evaluation_sets::read(&against.against, held)?;
            let (texts, groups) = (sets.texts, sets.task_groups);
            let runs = sets.runs.write(&engine.file("evaluation.runs"))?.len();
            tracing::info!(texts, runs, groups = groups.len(), "evaluation sets read");
            Some(groups)
        }
        _ => None,
    };
    let runs = groups.as_ref().map(|_| engine.file("evaluation.runs"));
    plans.run("facts", || plans.facts(runs.as_deref()))?;
    done("facts");
    plans.run("turns", || plans.turns())?;
    done("turns");
    let groups: Vec<String> = groups.map(|groups| groups.into_iter().collect()).unwrap_or_default();
    plans.run("trajectories", || plans.trajectories(&groups))?;
    done("trajectories");
    if let Some(near) = &config.near_duplicates {
        plans.run("sketches", || plans.sketches())?;
        plans.find_clusters(near, "")?;
    }
    plans.assign_groups(plans.inputs.rows)?;
    if let Some(against) = config.decontaminate.as_ref().filter(|against| against.own_evaluation)
        && !engine.has("pool_overlaps")
    {
        let runs = plans.evaluation_runs(against.run_words)?;
        plans.run("pool_overlaps", || plans.pool_overlaps(&runs))?;
    }
    plans.mix()?;
    plans.run("fates", || plans.fates())?;
    done("fates");
    plans.run("decisions", || plans.decisions())?;
    done("decisions");
    plans.run_tables()?;
    done("verdicts");
    done("sorted");
    Ok(())
}

/// What tells evaluation sets from others: their names and the hashes of their files.
fn evaluation_identity(config: &CurateConfig) -> Result<serde_json::Value> {
    let against = config.decontaminate.iter().flat_map(|against| &against.against);
    let of = |path: &PathBuf| -> Result<serde_json::Value> {
        let files = evaluation_sets::files(path)?;
        let hashes = files.iter().map(|file| Ok(hash_file(file)?)).collect::<Result<Vec<_>>>()?;
        Ok(json!([path, hashes]))
    };
    Ok(serde_json::Value::Array(against.map(of).collect::<Result<_>>()?))
}

/// A pool that should have trajectories and lost all of them to rules that are asked after the groups are assigned.
fn check_filled(config: &CurateConfig, report: &Report) -> Result<()> {
    let is_empty = |pool: &Pool| report.pools.get(pool.as_str()).is_none_or(|pool| pool.trajectories == 0);
    match Pool::ALL.into_iter().find(|pool| is_wanted(*pool, config) && is_empty(pool)) {
        Some(pool) => {
            let dropped = report.dropped_trajectories.iter();
            let rules = dropped.map(|(rule, number)| format!("{rule} {number}")).collect::<Vec<_>>().join(", ");
            Err(Error::EmptiedPool { pool, rules })
        }
        None => Ok(()),
    }
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
