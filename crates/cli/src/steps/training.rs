//! What the training steps have in common: the model they start from, what they show, the way they stop and end.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use burn::tensor::Device;
use worldloom_model::{ModelConfig, Precision, Products, largest_tensor};
use worldloom_render::PromptForm;
use worldloom_train::rl::RlStepMetrics;
use worldloom_train::{Control, Job, Memory, Observer, Report, Silent, StartInfo, StepMetrics, agree};

use super::form::write_form;
use super::lineage::write_lineage;
use super::live::Live;
use super::{Counts, StepContext, copy_tokenizer, model_folder, place_of};
use crate::config::UserError;
use crate::device::{Limits, cpu};
use crate::progress::{Progress, size};
use crate::signals::listen;

/// The largest that a training computes at once.
#[derive(Clone, Copy)]
pub(super) struct MicroBatch {
    pub(super) rows: usize,
    pub(super) row_tokens: usize,
    /// So many of them side by side.
    pub(super) at_once: usize,
}

/// Loads the step's `model`, its matrices held in `precision`, trains it with `run`, and puts the tokenizer and the form it
/// is asked in beside the trained one. What the step's device cannot compute is refused before.
pub(super) fn train(
    context: &StepContext<'_>,
    precision: Precision,
    form: Option<&PromptForm>,
    micro_batch: MicroBatch,
    run: impl FnOnce(Job<'_>, &mut Control<'_>) -> Result<Report>,
) -> Result<Counts> {
    let from = model_folder(context.input("model")?);
    let opened = open(context, &from, precision, micro_batch).and_then(|device| {
        let device = device.autodiff();
        let (decoder, model) = worldloom_model::load_in(&from, precision, &device)?;
        Ok((device, decoder, model))
    });
    let (device, decoder, model) = agree(context.ranks, opened)?;
    if context.is_first() {
        write_lineage(context)?;
    }
    let mut watch = Watch { progress: context.progress, live: None, has_begun: false, steps: 0 };
    let mut silent = Silent;
    let observer: &mut dyn Observer = if context.is_first() { &mut watch } else { &mut silent };
    let mut control = Control { observer, stop: context.stop };
    let listening = listen();
    let report = run(Job { decoder, model, out: &context.out, device: &device }, &mut control)?;
    drop((watch, listening));
    if !context.is_first() {
        return Ok(report.counts);
    }
    if report.is_stopped {
        let error = UserError::new(format!("stopped after step {}, its checkpoint is saved", report.steps));
        return Err(error.hint("the same command goes on from there").into());
    }
    let made = context.out.join("model");
    copy_tokenizer(&from, &made)?;
    if let Some(form) = form {
        write_form(form, &made)?;
    }
    Ok(report.counts)
}

/// The step's device, which has computed rightly and has room for the model.
fn open(context: &StepContext<'_>, model: &Path, precision: Precision, micro_batch: MicroBatch) -> Result<Device> {
    let place = place_of(context.config)?;
    if place.is_cpu() {
        return place.open();
    }
    let limits = Limits::of(&place.find()?);
    let file = model.join("config.json");
    let config = ModelConfig::from_json(&fs_err::read_to_string(&file)?)
        .with_context(|| format!("read `{}`", file.display()))?;
    limits.check(place, &largest_tensor(&config, micro_batch.rows, micro_batch.row_tokens, &cpu()))?;
    if !precision.is_single() && !limits.holds_bf16 {
        let error = UserError::new(format!("device `{place}` ({}) cannot hold bfloat16", limits.name));
        return Err(error.hint("leave `precision` out: f32").into());
    }
    if micro_batch.at_once > 1 {
        let found = micro_batch.at_once;
        let error = UserError::new(format!(
            "`micro_batches_at_once` {found} on device `{place}`: it shares out the CPU's threads"
        ));
        return Err(error.hint("leave it out, and take more rows_per_micro_batch").into());
    }
    context.progress.say(&format!("  device {place}: {}, self-test runs\n", limits.name));
    let started = Instant::now();
    let device = place.open()?;
    let seconds = started.elapsed().as_secs_f64();
    context.progress.say(&format!("  device {place}: computes rightly ({seconds:.1} s)\n"));
    if place.back_end.products() == Products::TensorFloat {
        context.progress.say("  products of float32 are rounded to TensorFloat-32 on this device\n");
    }
    Ok(device)
}

/// Shows steps: a live view on a terminal, a line now and then elsewhere.
struct Watch<'a> {
    progress: &'a Progress,
    live: Option<Live>,
    /// Whether a step of RL was heard of: its view opens with the first.
    has_begun: bool,
    steps: u64,
}

impl Observer for Watch<'_> {
    fn on_start(&mut self, info: &StartInfo) {
        self.steps = info.steps;
        if info.done > 0 {
            self.progress.say(&format!("  goes on after step {} of {}\n", info.done, info.steps));
        }
    }

    fn on_memory(&mut self, memory: &Memory) {
        let estimate = memory.estimate;
        let Some(resident) = memory.resident else {
            self.progress.say(&format!(
                "  memory: about {} for micro-batches of {} tokens (weights {}, gradients {}, moments {}, backward {})\n",
                size(estimate.total()),
                memory.tokens,
                size(estimate.weights + estimate.masters),
                size(estimate.gradients),
                size(estimate.moments),
                size(estimate.backward)
            ));
            if let Some(available) = crate::machine::available_bytes().filter(|&available| available < estimate.total())
            {
                let available = size(available);
                self.progress.say(&format!(
                    "  warning: this machine has {available} free: take fewer rows_per_micro_batch, recompute, or lora\n"
                ));
            }
            return;
        };
        self.progress.say(&format!("  memory: {} taken after the largest micro-batch\n", size(resident)));
        self.live = Live::open(self.progress.label(), self.steps);
    }

    fn on_step(&mut self, metrics: &StepMetrics) {
        if let Some(live) = &mut self.live {
            live.show(metrics);
            return;
        }
        self.progress.update_with(metrics.step, self.steps, || {
            let before = metrics.validation_before.as_ref().map(|before| before.all.loss);
            let validation = metrics.validation_loss.or(before);
            let validation = validation.map(|loss| format!(" validation {loss:.3}")).unwrap_or_default();
            let memory = metrics.clock.memory_bytes.map(|bytes| format!(" {}", size(bytes))).unwrap_or_default();
            format!(
                "loss {:.3}{validation} norm {:.2} rate {:.1e} {:.0} tokens/s{memory}",
                metrics.loss, metrics.grad_norm, metrics.learning_rate, metrics.clock.tokens_per_s
            )
        });
    }

    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.live = Live::open(self.progress.label(), self.steps);
        }
        if let Some(live) = &mut self.live {
            live.show_rl(metrics);
            return;
        }
        self.progress.update_with(metrics.step, self.steps, || {
            let (reward, faults) = (metrics.reward_mean, 100.0 * metrics.fault_share);
            format!("reward {reward:.2} faults {faults:.1} % length {:.0}", metrics.response_length)
        });
    }
}
