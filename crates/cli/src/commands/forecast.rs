//! What a training of a plan would take: steps and memory, from configs alone where nothing is made yet.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use worldloom_model::{LoraConfig, ModelConfig, Precision, training_memory};
use worldloom_schema::Artifact;
use worldloom_train::rl::RlConfig;
use worldloom_train::supervised::StageConfig;

use crate::device::cpu;
use crate::pipeline::Planned;
use crate::progress::{grouped, size};
use crate::steps::{model_folder, planned_shape, without_device};

/// Where shapes of published models lie, from the folder of a pipeline: for models that are not fetched yet.
const SHAPES: &str = "../configs/models";

/// Lines about a training step; none about others.
pub(super) fn forecast(step: &Planned, planned: &[Planned], base: &Path) -> Result<Vec<String>> {
    match step.step.name() {
        "train cpt" | "train sft" => supervised(step, planned, base),
        "train rl" => reinforcement(step, planned, base),
        _ => Ok(Vec::new()),
    }
}

fn supervised(step: &Planned, planned: &[Planned], base: &Path) -> Result<Vec<String>> {
    let config: StageConfig = without_device(&step.config)?;
    let rows = step.inputs.get("rows").map(|input| input.path.clone()).unwrap_or_default();
    let steps = match (config.steps, config.epochs, count_of(&rows, "rows")) {
        (Some(steps), ..) => format!("{} steps of {} rows", grouped(steps), config.rows_per_step),
        (_, Some(epochs), Some(rows)) => {
            let steps = (epochs * rows as f64 / config.rows_per_step as f64).ceil() as u64;
            format!("about {} steps of {} rows", grouped(steps), config.rows_per_step)
        }
        (_, epochs, _) => {
            format!("{} epochs in steps of {} rows, not rendered yet", epochs.unwrap_or(0.0), config.rows_per_step)
        }
    };
    let row_tokens = config_of(&rows, planned).and_then(|render| render["row_tokens"].as_u64());
    let Some(model) = shape_of(step, planned, base)? else { return Ok(vec![steps]) };
    let Some(row_tokens) = row_tokens.map(|tokens| tokens as usize) else { return Ok(vec![steps]) };
    let micro_batch = config.rows_per_micro_batch.min(config.rows_per_step);
    let at_once = config.micro_batches_at_once.min(config.rows_per_step.div_ceil(micro_batch));
    let what = format!("{} × {} tokens", micro_batch * at_once, grouped(row_tokens as u64));
    let (recompute, precision) = (config.recompute, config.precision);
    let passes = Passes { tokens: micro_batch * row_tokens, at_once, recompute, precision };
    Ok(vec![steps, memory_line(&model, config.lora.as_ref(), passes, &what)?])
}

fn reinforcement(step: &Planned, planned: &[Planned], base: &Path) -> Result<Vec<String>> {
    let config: RlConfig = serde_json::from_value(step.config["train"].clone())?;
    let steps = format!(
        "{} steps of {} prompts × {} completions, {} updates each",
        grouped(config.steps),
        config.prompts_per_step,
        config.group_size,
        config.mini_batches
    );
    let prompts = step.inputs.get("prompts").and_then(|input| config_of(&input.path, planned));
    let prompt_tokens = prompts.and_then(|render| render["max_prompt_tokens"].as_u64());
    let Some(model) = shape_of(step, planned, base)? else { return Ok(vec![steps]) };
    let Some(prompt_tokens) = prompt_tokens.map(|tokens| tokens as usize) else { return Ok(vec![steps]) };
    let completions = if config.share_prompts { config.group_size } else { 1 };
    let row_tokens = prompt_tokens + completions * config.max_completion_tokens;
    let (micro_batch, at_once) = (config.rows_per_micro_batch, config.micro_batches_at_once);
    let what = format!("{} × up to {} tokens", micro_batch * at_once, grouped(row_tokens as u64));
    let (recompute, precision) = (config.recompute, config.precision);
    let passes = Passes { tokens: micro_batch * row_tokens, at_once, recompute, precision };
    Ok(vec![steps, memory_line(&model, config.lora.as_ref(), passes, &what)?])
}

/// Backward passes that run side by side.
struct Passes {
    tokens: usize,
    at_once: usize,
    recompute: bool,
    precision: Precision,
}

fn memory_line(model: &ModelConfig, lora: Option<&LoraConfig>, passes: Passes, what: &str) -> Result<String> {
    let Passes { tokens, at_once, recompute, precision } = passes;
    let device = cpu();
    let memory = training_memory(model, lora, tokens, recompute, precision, &device)?.side_by_side(at_once as u64);
    Ok(format!(
        "memory about {} for {what}: weights {}, gradients {}, moments {}, backward {}{}",
        size(memory.total()),
        size(memory.weights + memory.masters),
        size(memory.gradients),
        size(memory.moments),
        size(memory.backward),
        if recompute { " (blocks computed again)" } else { "" }
    ))
}

/// A count of a finished artifact.
fn count_of(folder: &Path, name: &str) -> Option<u64> {
    Artifact::open_any(folder).ok()?.manifest.counts.get(name).copied()
}

/// The config that an artifact was or will be made with.
fn config_of<'a>(folder: &Path, planned: &'a [Planned]) -> Option<std::borrow::Cow<'a, Value>> {
    use std::borrow::Cow;
    let step = planned.iter().find(|step| step.folder == folder);
    step.map(|step| Cow::Borrowed(&step.config))
        .or_else(|| Some(Cow::Owned(Artifact::open_any(folder).ok()?.manifest.config)))
}

/// The shape of the model that a step starts from, as far as it can be known before anything runs.
fn shape_of(step: &Planned, planned: &[Planned], base: &Path) -> Result<Option<ModelConfig>> {
    let Some(input) = step.inputs.get("model") else { return Ok(None) };
    let read = |file: &Path| -> Result<ModelConfig> {
        let text = fs_err::read_to_string(file)?;
        ModelConfig::from_json(&text).with_context(|| format!("read `{}`", file.display()))
    };
    let file = model_folder(&input.path).join("config.json");
    if file.exists() {
        return read(&file).map(Some);
    }
    let Some(earlier) = planned.iter().find(|step| step.folder == input.path) else {
        let name = input.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = base.join(SHAPES).join(format!("{name}.json"));
        return if file.exists() { read(&file).map(Some) } else { Ok(None) };
    };
    if earlier.step.name() == "model init" {
        let tokenizer = earlier.inputs.get("tokenizer").and_then(|input| config_of(&input.path, planned));
        let vocabulary = tokenizer.and_then(|config| config["vocab_size"].as_u64());
        return vocabulary.map(|size| planned_shape(&earlier.config, size as usize)).transpose();
    }
    shape_of(earlier, planned, base)
}
