//! `trace` and `instruct`: what a teacher writes into pools, thinking and simulation instructions.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use worldloom_schema::Pool;
use worldloom_world::JudgePlace;
use worldloom_world::instruct::{self, INSTRUCT_REPORT_FILE, InstructConfig, InstructInputs, InstructReport};
use worldloom_world::traces::{self, TRACE_REPORT_FILE, TraceConfig, TraceInputs, TraceReport};

use super::{Counts, Role, Step, StepContext, rebase, templates_key, variable};
use crate::config::{resolved, typed};
use crate::device::cpu;
use crate::pipeline::external;
use crate::signals::listen;

const POOLS: &[Role] = &[Role::required("pools", Some("pools"), "artifact of `curate`, `instruct` or `trace`")];

/// Gives SFT's turns a trace.
pub(super) struct Trace;

impl Step for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn about(&self) -> &'static str {
        "Let a teacher think about the turns SFT trains on; keep the thinking of its best predictions as traces"
    }

    fn artifact(&self) -> &'static str {
        "pools"
    }

    fn roles(&self) -> &'static [Role] {
        POOLS
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: TraceConfig = typed(table, origin)?;
        config.teacher = config.teacher.from_base(base);
        config.judge = config.judge.from_base(base);
        config.templates = config.templates.map(|path| rebase(base, &path));
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: TraceConfig = serde_json::from_value(config.clone())?;
        let templates = templates_key(Some(&config.family), config.templates.as_deref())?;
        Ok(json!([files(&config)?, templates]))
    }

    /// 2: traces that are there are looked at, and the teacher is asked with a template of SFT.
    fn version(&self) -> u32 {
        2
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let report: TraceReport = serde_json::from_slice(&fs_err::read(out.join(TRACE_REPORT_FILE))?)?;
        Ok(report.table())
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config: TraceConfig = context.config()?;
        let pools = context.input("pools")?;
        copy_others(pools, &context.out, &[Pool::Sft])?;
        let (device, progress) = (cpu(), context.advance());
        let place = JudgePlace { folder: &context.out, key: &variable, device: &device };
        let pool = pools.join(format!("{}.parquet", Pool::Sft));
        let _listening = listen();
        let files = files(&config)?.to_string();
        let inputs = TraceInputs { pool: &pool, files: &files, place: &place, stop: context.stop, progress: &progress };
        Ok(traces::trace(&config, &inputs, &context.out)?.counts())
    }
}

/// Gives trajectories a simulation instruction.
pub(super) struct Instruct;

impl Step for Instruct {
    fn name(&self) -> &'static str {
        "instruct"
    }

    fn about(&self) -> &'static str {
        "Let a teacher write simulation instructions from what happened, so that control is trained"
    }

    fn artifact(&self) -> &'static str {
        "pools"
    }

    fn roles(&self) -> &'static [Role] {
        POOLS
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: InstructConfig = typed(table, origin)?;
        config.teacher = config.teacher.from_base(base);
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: InstructConfig = serde_json::from_value(config.clone())?;
        Ok(json!([keys(config.teacher.paths().into_iter())?, instruct::words_hash()]))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let report: InstructReport = serde_json::from_slice(&fs_err::read(out.join(INSTRUCT_REPORT_FILE))?)?;
        Ok(vec![format!("{} of {} trajectories have an instruction now", report.instructed, report.trajectories)])
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config: InstructConfig = context.config()?;
        let pools = context.input("pools")?;
        copy_others(pools, &context.out, &config.pools)?;
        let (device, progress) = (cpu(), context.advance());
        let place = JudgePlace { folder: &context.out, key: &variable, device: &device };
        let _listening = listen();
        let inputs = InstructInputs { pools, place: &place, stop: context.stop, progress: &progress };
        Ok(instruct::instruct(&config, &inputs, &context.out)?.counts())
    }
}

/// Models, prompts of the user's, and our own words that decide traces.
fn files(config: &TraceConfig) -> Result<Value> {
    let models = keys(config.teacher.paths().into_iter().chain(config.judge.paths()))?;
    Ok(json!([models, traces::words_hash()]))
}

fn keys<'a>(paths: impl Iterator<Item = &'a Path>) -> Result<Value> {
    let keys: Result<Vec<String>> = paths.map(|path| Ok(external(path)?.key)).collect();
    Ok(json!(keys?))
}

/// The pools and texts that stay as they are, so that what comes out can be used as what came in.
fn copy_others(pools: &Path, out: &Path, changed: &[Pool]) -> Result<()> {
    let is_changed = |name: &str| changed.iter().any(|pool| name == format!("{pool}.parquet"));
    for entry in fs_err::read_dir(pools)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.extension().is_some_and(|extension| extension == "parquet") && !is_changed(&name) {
            fs_err::copy(&path, out.join(name))?;
        }
    }
    Ok(())
}
