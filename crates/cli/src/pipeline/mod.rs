//! Pipelines: steps that meet on disk. A step's key is the hash of its resolved config, the keys of its inputs and the
//! step's version; a finished artifact with that key is not made again.

mod plan;
mod run;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::Deserialize;

pub(crate) use plan::{Missing, Planned, Reason, external, plan, step_key};
pub(crate) use run::{code_revision, run, run_step};

use crate::config::{UserError, read_toml, typed};

/// A pipeline file as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pipeline {
    /// Name; artifacts go to `runs/<name>/`.
    pub(crate) name: String,
    /// One sentence for `plan` and the report.
    #[serde(default)]
    pub(crate) description: String,
    /// The steps in order.
    pub(crate) step: Vec<StepSpec>,
}

/// One step of a pipeline file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepSpec {
    /// Name inside the pipeline.
    pub(crate) name: String,
    /// The command it is, such as `train cpt`.
    pub(crate) uses: String,
    /// Role → name of an earlier step, or a path from the pipeline's folder.
    #[serde(default)]
    pub(crate) inputs: BTreeMap<String, String>,
    /// A config file, from the pipeline's folder.
    pub(crate) config_file: Option<PathBuf>,
    /// Config keys; they win over the file's.
    #[serde(default)]
    pub(crate) config: toml::Table,
}

impl Pipeline {
    /// Reads and checks a pipeline file; `settings` are `step.key=value`.
    pub(crate) fn read(path: &Path, settings: &[String]) -> Result<Self> {
        let pipeline: Pipeline = typed(&read_toml(path)?, &format!("`{}`", path.display()))?;
        let mut pipeline = pipeline;
        let mut names = Vec::new();
        for step in &pipeline.step {
            if names.contains(&step.name) {
                return Err(UserError::new(format!("`{}`: two steps named `{}`", path.display(), step.name)).into());
            }
            names.push(step.name.clone());
        }
        for setting in settings {
            let (name, rest) = setting.split_once('.').unwrap_or((setting, ""));
            let Some(step) = pipeline.step.iter_mut().find(|step| step.name == name) else {
                let error = UserError::new(format!("`--set {setting}`: no step `{name}` in `{}`", path.display()));
                return Err(error.hint(format!("steps: {}", names.join(", "))).into());
            };
            crate::config::apply_set(&mut step.config, rest)?;
        }
        Ok(pipeline)
    }
}
