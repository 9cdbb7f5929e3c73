//! `inspect model`: what a model folder holds and what it takes.

use std::path::PathBuf;

use anyhow::Result;
use clap::ArgMatches;
use worldloom_model::{LoraConfig, ModelSummary, summarise};

use crate::device::cpu;
use crate::progress::{grouped, size};

/// Tensors that are passed over, of which a person wants to see the names.
const SHOWN: usize = 12;

pub(super) fn inspect_model(matches: &ArgMatches) -> Result<()> {
    let dir = matches.get_one::<PathBuf>("DIR").cloned().unwrap_or_default();
    let number = |name: &str| matches.get_one::<u64>(name).copied().unwrap_or_default() as usize;
    let rank = number("rank");
    let targets = matches.get_one::<String>("targets").cloned().unwrap_or_default();
    let lora = LoraConfig { rank, alpha: 2.0 * rank as f64, dropout: 0.0, targets };
    let summary = summarise(&crate::steps::model_folder(&dir), number("context"), &lora, &cpu())?;
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print(&summary, &lora);
    }
    Ok(())
}

fn print(summary: &ModelSummary, lora: &LoraConfig) {
    let line = |name: &str, text: &str| println!("{name:16} {text}");
    match &summary.inside {
        Some(outer) => line("family", &format!("{}, the text part of {outer}", summary.family)),
        None => line("family", &summary.family),
    }
    line("parameters", &grouped(summary.parameters));
    for part in &summary.parts {
        let share = 100.0 * part.parameters as f64 / summary.parameters.max(1) as f64;
        line(&format!("  {}", part.part), &format!("{:>16}  {share:5.1} %", grouped(part.parameters)));
    }
    let stored: Vec<String> =
        summary.stored_as.iter().map(|(kind, numbers)| format!("{kind} ({} numbers)", grouped(*numbers))).collect();
    line("stored as", &stored.join(", "));
    line("head", if summary.is_tied { "tied: the embedding table" } else { "of its own" });
    line("files", &format!("{}, {}", summary.files, size(summary.bytes)));
    line("passed over", &format!("{} tensors", summary.passed_over.len()));
    for tensor in summary.passed_over.iter().take(SHOWN) {
        println!("  {} {:?} {}", tensor.tensor, tensor.shape, tensor.stored_as);
    }
    if summary.passed_over.len() > SHOWN {
        println!("  and {} more, see --json", summary.passed_over.len() - SHOWN);
    }
    let memory = &summary.memory;
    println!("memory for one sequence of {} tokens, in float32", grouped(memory.context));
    line(
        "  inference",
        &format!("{:>10}  weights {}, cache {}", size(memory.inference), size(memory.weights), size(memory.cache)),
    );
    let halved = format!("{:>10}  with the matrices in bfloat16", size(memory.inference_in_bf16));
    line("  inference, bf16", &halved);
    let adapters = format!("rank {}, {} parameters trained", lora.rank, grouped(memory.adapter_parameters));
    line("  LoRA", &format!("{:>10}  {adapters}, activations {}", size(memory.lora), size(memory.activations)));
    line("  full training", &format!("{:>10}  weights, gradient and two moments, activations", size(memory.training)));
}
