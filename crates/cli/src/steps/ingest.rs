//! Raw logs to trajectories, and raw texts to documents.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use worldloom_ingest::{Access, CorpusConfig, IngestConfig, Report};

use super::{Counts, Role, Step, StepContext, rebase};
use crate::config::{resolved, typed};
use crate::pipeline::external;

/// Variables of the environment that say how stores are reached.
const STORE_VARIABLES: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];

/// How addresses are reached, as the environment says.
pub(crate) fn store_access() -> Access {
    Access::with_options(
        std::env::vars().filter(|(name, _)| STORE_VARIABLES.iter().any(|start| name.starts_with(start))),
    )
}

/// Logs to trajectories.
pub(super) struct Ingest;

impl Step for Ingest {
    fn name(&self) -> &'static str {
        "ingest"
    }

    fn about(&self) -> &'static str {
        "Read raw agent logs and write trajectories, with every rejected row listed"
    }

    fn version(&self) -> u32 {
        2
    }

    fn artifact(&self) -> &'static str {
        "trajectories"
    }

    fn roles(&self) -> &'static [Role] {
        &[]
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: IngestConfig = typed(table, origin)?;
        config.inputs.iter_mut().for_each(|path| *path = rebase_input(base, path));
        config.map = config.map.map(|path| rebase(base, &path));
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: IngestConfig = serde_json::from_value(config.clone())?;
        input_keys(config.inputs.iter().chain(&config.map).map(|path| path.as_path()))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        summary(out)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let (config, progress) = (context.config()?, context.advance());
        Ok(worldloom_ingest::run_with(&config, &context.out, &store_access(), &progress)?.counts)
    }
}

/// Texts to documents.
pub(super) struct Corpus;

impl Step for Corpus {
    fn name(&self) -> &'static str {
        "corpus"
    }

    fn about(&self) -> &'static str {
        "Read texts and write documents for continued pretraining (also `ingest --as corpus`)"
    }

    fn artifact(&self) -> &'static str {
        "documents"
    }

    fn roles(&self) -> &'static [Role] {
        &[]
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: CorpusConfig = typed(table, origin)?;
        config.inputs.iter_mut().for_each(|path| *path = rebase_input(base, path));
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: CorpusConfig = serde_json::from_value(config.clone())?;
        input_keys(config.inputs.iter().map(|path| path.as_path()))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        summary(out)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let (config, progress) = (context.config()?, context.advance());
        Ok(worldloom_ingest::run_corpus(&config, &context.out, &store_access(), &progress)?.counts)
    }
}

/// An address stays as it is.
fn rebase_input(base: &Path, input: &Path) -> std::path::PathBuf {
    if worldloom_ingest::is_address(input) { input.into() } else { rebase(base, input) }
}

fn input_keys<'a>(inputs: impl Iterator<Item = &'a Path>) -> Result<Value> {
    let access = store_access();
    let key = |path: &Path| match worldloom_ingest::is_address(path) {
        true => Ok(worldloom_ingest::address_key(path, &access)?),
        false => Ok(external(path)?.key),
    };
    Ok(json!(inputs.map(key).collect::<Result<Vec<String>>>()?))
}

/// What each source gave, and the rejected rows by rule.
fn summary(out: &Path) -> Result<Vec<String>> {
    let report: Report = serde_json::from_str(&fs_err::read_to_string(out.join("report.json"))?)?;
    let mut lines = Vec::new();
    for (name, source) in &report.sources {
        let rejects: Vec<String> = source.rejects.iter().map(|(rule, count)| format!("{rule} {count}")).collect();
        let made = match source.documents {
            0 => format!("{:>8} trajectories {:>9} turns", source.trajectories, source.turns),
            documents => format!("{documents:>8} documents"),
        };
        let rejected = if rejects.is_empty() { String::new() } else { format!("  rejected: {}", rejects.join(", ")) };
        lines.push(format!("  {name:28} {made}{rejected}"));
    }
    for (rule, count) in &report.rejects_by_rule {
        lines.push(format!("{:24} {count}", format!("rejected by {rule}")));
    }
    Ok(lines)
}
