//! `train cpt` and `train sft`: one loop, rows with a loss weight per token.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{Control, Data, Job, Observer, StepMetrics};

use super::{Counts, Role, Step, StepContext, copy_tokenizer, model_folder, resolve_as};
use crate::config::UserError;
use crate::device::open_device;
use crate::progress::Progress;

/// A supervised stage.
pub(super) struct Supervised {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
}

/// Shows the loss beside the bar.
struct Watch<'a> {
    progress: &'a Progress,
    steps: u64,
}

impl Observer for Watch<'_> {
    fn on_start(&mut self, info: &worldloom_train::StartInfo) {
        self.steps = info.steps;
        if info.done > 0 {
            eprintln!("  goes on after step {} of {}", info.done, info.steps);
        }
    }

    fn on_step(&mut self, metrics: &StepMetrics) {
        self.progress.update_with(metrics.step, self.steps, || {
            let validation = metrics.validation_loss.map(|loss| format!(" validation {loss:.3}")).unwrap_or_default();
            format!("loss {:.3}{validation} {:.0} tokens/s", metrics.loss, metrics.clock.tokens_per_s)
        });
    }
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
        let device = open_device().autodiff();
        let from = model_folder(context.input("model")?);
        let (decoder, model) = worldloom_model::load(&from, &device)?;
        let rows = Data::open(context.input("rows")?)?;
        let validation = context.optional("validation").map(Data::open).transpose()?;
        let mut watch = Watch { progress: context.progress, steps: 0 };
        let mut control = Control { observer: &mut watch, stop: context.stop };
        let job = Job { decoder, model, out: &context.out, device: &device };
        let report = supervised::run(&context.config::<StageConfig>()?, job, &rows, validation.as_ref(), &mut control)?;
        if report.is_stopped {
            return Err(stopped(report.steps));
        }
        copy_tokenizer(&from, &context.out.join("model"))?;
        Ok(report.counts)
    }
}

/// The way a stopped training ends: with its own exit code, to be gone on with.
pub(super) fn stopped(step: u64) -> anyhow::Error {
    UserError::new(format!("stopped after step {step}, its checkpoint is saved"))
        .hint("the same command goes on from there")
        .into()
}
