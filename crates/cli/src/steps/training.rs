//! What the training steps have in common: the model they start from, the bar, the way they stop and end.

use anyhow::Result;
use worldloom_train::rl::RlStepMetrics;
use worldloom_train::{Control, Job, Observer, Report, StartInfo, StepMetrics};

use super::{Counts, StepContext, copy_tokenizer, model_folder};
use crate::config::UserError;
use crate::device::open_device;
use crate::progress::Progress;

/// Loads the step's `model`, trains it with `run`, and puts the tokenizer beside the trained one.
pub(super) fn train(
    context: &StepContext<'_>,
    run: impl FnOnce(Job<'_>, &mut Control<'_>) -> Result<Report>,
) -> Result<Counts> {
    let device = open_device().autodiff();
    let from = model_folder(context.input("model")?);
    let (decoder, model) = worldloom_model::load(&from, &device)?;
    let mut watch = Watch { progress: context.progress, steps: 0 };
    let mut control = Control { observer: &mut watch, stop: context.stop };
    let report = run(Job { decoder, model, out: &context.out, device: &device }, &mut control)?;
    if report.is_stopped {
        let error = UserError::new(format!("stopped after step {}, its checkpoint is saved", report.steps));
        return Err(error.hint("the same command goes on from there").into());
    }
    copy_tokenizer(&from, &context.out.join("model"))?;
    Ok(report.counts)
}

/// Shows the figures of a step beside the bar.
struct Watch<'a> {
    progress: &'a Progress,
    steps: u64,
}

impl Observer for Watch<'_> {
    fn on_start(&mut self, info: &StartInfo) {
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

    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        self.progress.update_with(metrics.step, self.steps, || {
            let (reward, faults) = (metrics.reward_mean, 100.0 * metrics.fault_share);
            format!("reward {reward:.2} faults {faults:.1} % length {:.0}", metrics.response_length)
        });
    }
}
