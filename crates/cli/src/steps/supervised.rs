//! `train cpt` and `train sft`: one loop, rows with a loss weight per token.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use worldloom_train::Data;
use worldloom_train::supervised::{self, StageConfig};

use super::training::train;
use super::{Counts, Role, Step, StepContext, resolve_as};

/// A supervised stage.
pub(super) struct Supervised {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

impl Step for Supervised {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn artifact(&self) -> &'static str {
        "checkpoint"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("model", None, "artifact of `model init` or of a training, or a folder with `config.json`"),
            Role::required("rows", Some("rendered"), "artifact of `render`"),
            Role::optional("validation", Some("rendered"), "artifact of `render` with rows to measure on"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<StageConfig>(table, origin)
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let rows = Data::open(context.input("rows")?)?;
        let validation = context.optional("validation").map(Data::open).transpose()?;
        let config: StageConfig = context.config()?;
        train(context, |job, control| Ok(supervised::run(&config, job, &rows, validation.as_ref(), control)?))
    }
}
