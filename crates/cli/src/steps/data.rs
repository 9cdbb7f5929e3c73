//! The data plane: ingest, curate, tokenizer train, render.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use worldloom_curate::{CurateConfig, Resources};
use worldloom_render::{REPORT_FILE, RenderConfig, RenderReport, TokenizerConfig, TokenizerReport};
use worldloom_report::shard::histogram;
use worldloom_schema::{DOCUMENT_FILE, TRAJECTORY_FILE};

use super::{Counts, Role, Step, StepContext, rebase, resolve_as, templates_key};
use crate::cluster;
use crate::config::{resolved, typed};
use crate::pipeline::external;

/// Trajectories to disjoint pools.
pub(crate) struct Curate {
    /// The cluster that runs the plans; none: this process. The same pools come out.
    pub(crate) cluster: Option<String>,
}

impl Step for Curate {
    fn name(&self) -> &'static str {
        "curate"
    }

    fn about(&self) -> &'static str {
        "Clean trajectories and split them into disjoint pools: cpt, sft, rl, eval"
    }

    fn artifact(&self) -> &'static str {
        "pools"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("trajectories", Some("trajectories"), "artifact of `ingest`"),
            Role::optional("documents", Some("documents"), "artifact of `ingest --as corpus`"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: CurateConfig = typed(table, origin)?;
        for path in config.decontaminate.iter_mut().flat_map(|against| &mut against.against) {
            *path = rebase(base, path);
        }
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: CurateConfig = serde_json::from_value(config.clone())?;
        let paths = config.decontaminate.iter().flat_map(|against| &against.against);
        match paths.map(|path| Ok(external(path)?.key)).collect::<Result<Vec<_>>>()? {
            keys if keys.is_empty() => Ok(Value::Null),
            keys => Ok(json!(keys)),
        }
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config = context.config()?;
        let trajectories = vec![context.input("trajectories")?.join(TRAJECTORY_FILE)];
        let documents: Vec<PathBuf> =
            context.optional("documents").map(|folder| folder.join(DOCUMENT_FILE)).into_iter().collect();
        let report = match &self.cluster {
            Some(address) => {
                let (address, out) = (address.clone(), context.out.clone());
                let job = worldloom_curate::Job { address, config, trajectories, documents, out };
                cluster::curate(&job, &context.advance())?
            }
            None => worldloom_curate::run(
                &config,
                &trajectories,
                &documents,
                &context.out,
                Resources::default(),
                &context.advance(),
            )?,
        };
        context.progress.say(&report.flow_table());
        Ok(report.counts)
    }
}

/// A byte-level BPE trained on the CPT pool and the texts beside it.
pub(super) struct TokenizerTrain;

impl Step for TokenizerTrain {
    fn name(&self) -> &'static str {
        "tokenizer train"
    }

    fn about(&self) -> &'static str {
        "Train a byte-level BPE tokenizer on what CPT will read"
    }

    fn version(&self) -> u32 {
        2
    }

    fn artifact(&self) -> &'static str {
        "tokenizer"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[Role::required("pools", Some("pools"), "artifact of `curate`")];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<TokenizerConfig>(table, origin)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: TokenizerConfig = serde_json::from_value(config.clone())?;
        templates_key(Some(&config.family), None)
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let report: TokenizerReport = read_report(out)?;
        let line = |(name, bytes): (&String, &f64)| format!("{name:<12} {bytes:.2} bytes a token");
        Ok(report.bytes_per_token.iter().map(line).collect())
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let pools = context.input("pools")?;
        let report = worldloom_render::run_tokenizer(&context.config()?, pools, &context.out, &context.advance())?;
        Ok(report.counts)
    }
}

/// A pool to token shards or prompts.
pub(super) struct Render;

impl Step for Render {
    fn name(&self) -> &'static str {
        "render"
    }

    fn about(&self) -> &'static str {
        "Render a pool to packed token rows with a loss weight each (cpt, sft) or to prompts (rl)"
    }

    fn artifact(&self) -> &'static str {
        "rendered"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("pools", Some("pools"), "artifact of `curate`"),
            Role::required(
                "tokenizer",
                None,
                "artifact of `tokenizer train`, a folder with `tokenizer.json`, or that file",
            ),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: RenderConfig = typed(table, origin)?;
        config.templates = config.templates.map(|path| rebase(base, &path));
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: RenderConfig = serde_json::from_value(config.clone())?;
        templates_key(config.family.as_deref(), config.templates.as_deref())
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let report: RenderReport = read_report(out)?;
        let lines = report.table().into_iter().chain(lengths(&report));
        Ok(lines.chain((report.waste > MUCH_WASTE).then(|| WASTE_HINT.to_string())).collect())
    }

    fn version(&self) -> u32 {
        4
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let (pools, tokenizer) = (context.input("pools")?, context.input("tokenizer")?);
        let report = worldloom_render::run(&context.config()?, pools, tokenizer, &context.out, &context.advance())?;
        Ok(report.counts)
    }
}

/// The share of rows that may stay empty without a word.
const MUCH_WASTE: f64 = 0.02;
const WASTE_HINT: &str = "much of the rows stays empty: beside a document nearly as long as a row nothing fits; larger row_tokens leave less";

/// How long documents were, and what long ones lost, as bars.
pub(crate) fn lengths(report: &RenderReport) -> Vec<String> {
    let histograms = [
        ("tokens of a document before it is cut", &report.lengths),
        ("tokens that a long document lost", &report.cuts),
    ];
    let drawn = histograms.into_iter().filter(|(_, counts)| !counts.is_empty());
    drawn.flat_map(|(title, counts)| histogram(title, counts)).collect()
}

fn read_report<T: DeserializeOwned>(out: &Path) -> Result<T> {
    Ok(serde_json::from_slice(&fs_err::read(out.join(REPORT_FILE))?)?)
}
