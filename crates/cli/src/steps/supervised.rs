//! `train cpt` and `train sft`: one loop, rows with a loss weight per token.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use worldloom_render::PromptForm;
use worldloom_schema::Artifact;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{Data, agree, loaded_in};

use super::form::form_of_rows;
use super::labels::{labels, stop_tokens};
use super::training::{MicroBatch, train};
use super::{Counts, Role, Step, StepContext, model_folder, resolve_as};

/// Roles of rows beside the first.
const MORE_ROWS: [&str; 4] = ["rows-2", "rows-3", "rows-4", "rows-5"];

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
            Role::optional("rows-2", Some("rendered"), "more rows, for the key `mixture`"),
            Role::optional("rows-3", Some("rendered"), "more rows, for the key `mixture`"),
            Role::optional("rows-4", Some("rendered"), "more rows, for the key `mixture`"),
            Role::optional("rows-5", Some("rendered"), "more rows, for the key `mixture`"),
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

    fn trains(&self) -> bool {
        true
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let Prepared { config, rows, validation, form, micro_batch } = agree(context.ranks, prepare(context))?;
        let precision = loaded_in(config.precision, config.lora.as_ref());
        train(context, precision, form.as_ref(), micro_batch, |job, control| {
            Ok(supervised::run_on(context.ranks, &config, job, &rows, validation.as_ref(), control)?)
        })
    }
}

/// What is read before a training.
struct Prepared {
    config: StageConfig,
    rows: Data,
    validation: Option<Data>,
    form: Option<PromptForm>,
    micro_batch: MicroBatch,
}

fn prepare(context: &StepContext<'_>) -> Result<Prepared> {
    let config: StageConfig = context.config()?;
    let named = MORE_ROWS.iter().filter_map(|role| Some((*role, context.optional(role)?)));
    let all: Vec<(&str, &Path)> = [("rows", context.input("rows")?)].into_iter().chain(named).collect();
    let model = model_folder(context.input("model")?);
    let rendered: Vec<&Path> = all.iter().map(|(_, folder)| *folder).chain(context.optional("validation")).collect();
    let form = form_of_rows(&model, &rendered)?;
    let mut rows = open_rows(&all)?;
    rows.stop_tokens = stop_tokens(&model, form.as_ref())?;
    let mut validation = context.optional("validation").map(Data::open).transpose()?;
    if config.validation.is_some() {
        validation.as_mut().unwrap_or(&mut rows).labels = labels(&model, &rendered)?;
    }
    let micro_batch = MicroBatch {
        rows: config.rows_per_micro_batch.min(config.rows_per_step),
        row_tokens: longest_row(&rendered)?,
        at_once: config.micro_batches_at_once,
    };
    Ok(Prepared { config, rows, validation, form, micro_batch })
}

/// Tokens of the longest row that artifacts of `render` may hold.
fn longest_row(rendered: &[&Path]) -> Result<usize> {
    let mut longest = 0;
    for folder in rendered {
        let manifest = Artifact::open(folder, "rendered")?.manifest;
        longest = longest.max(manifest.config["row_tokens"].as_u64().unwrap_or(0) as usize);
    }
    Ok(longest)
}

/// Rows of one artifact, or of several by their roles.
fn open_rows(named: &[(&str, &Path)]) -> Result<Data> {
    match named {
        [(_, folder)] => Ok(Data::open(folder)?),
        _ => {
            let parts = named.iter().map(|(role, folder)| Ok((role.to_string(), Data::open(folder)?)));
            Ok(Data::mix(parts.collect::<Result<_>>()?))
        }
    }
}
