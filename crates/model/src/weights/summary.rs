//! What a checkpoint is and what it takes, read off its config and the headers of its files.

use super::CONFIG;
use super::checkpoint::Checkpoint;
use super::load::{check, is_other_part, plan};
use crate::memory::{MemoryNeeds, memory_needs};
use crate::{Error, LoraConfig, ModelConfig, ParameterShape, parameter_shapes};
use burn::tensor::Device;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;

/// A checkpoint in figures. It is one that loads: what would be refused is an error here too.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSummary {
    /// The family, as the config names it.
    pub family: String,
    /// The larger model that the text decoder is part of, if there is one.
    pub inside: Option<String>,
    /// Parameters of the text decoder; a tied head counts once.
    pub parameters: u64,
    /// Parameters of each of its parts, in the order of the parts.
    pub parts: Vec<PartSummary>,
    /// Numbers of the text decoder by the type they are stored in.
    pub stored_as: BTreeMap<String, u64>,
    /// Whether the output projection is the embedding table.
    pub is_tied: bool,
    /// Files of weights.
    pub files: u64,
    /// Their bytes together.
    pub bytes: u64,
    /// Tensors that are passed over: parts that are no text decoder.
    pub passed_over: Vec<PassedOver>,
    /// What the decoder takes in memory.
    pub memory: MemoryNeeds,
}

/// One kind of part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartSummary {
    /// What it computes.
    pub part: &'static str,
    /// Its parameters, in all blocks.
    pub parameters: u64,
}

/// A tensor that is not read.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOver {
    /// Its name.
    pub tensor: String,
    /// Its axes.
    pub shape: Vec<usize>,
    /// Its type.
    pub stored_as: String,
}

/// Reads a checkpoint's config and headers; the memory is for one sequence of `context` tokens.
pub fn summarise(dir: &Path, context: usize, lora: &LoraConfig, device: &Device) -> Result<ModelSummary, Error> {
    let config = ModelConfig::from_file(&dir.join(CONFIG))?;
    let checkpoint = Checkpoint::open(dir)?;
    let parameters = parameter_shapes(&config, device);
    let plan = plan(&checkpoint, &parameters);
    check(&checkpoint, &plan, &config)?;
    let mut stored_as: BTreeMap<String, u64> = BTreeMap::new();
    for (tensor, shape) in &plan.tensors {
        let kind = format!("{:?}", checkpoint.tensors[tensor].dtype);
        *stored_as.entry(kind).or_default() += shape.iter().product::<usize>() as u64;
    }
    let others = checkpoint.tensors.iter().filter(|(tensor, _)| is_other_part(tensor));
    let passed_over = others.map(|(tensor, stored)| PassedOver {
        tensor: tensor.clone(),
        shape: stored.shape.clone(),
        stored_as: format!("{:?}", stored.dtype),
    });
    let outer = config.outer.as_ref().and_then(|outer| outer.get("model_type")?.as_str());
    Ok(ModelSummary {
        family: config.model_type.clone(),
        inside: outer.map(str::to_owned),
        parameters: parameters.iter().map(|parameter| parameter.num_elements() as u64).sum(),
        parts: parts(&parameters),
        stored_as,
        is_tied: config.tie_word_embeddings,
        files: checkpoint.file_bytes().len() as u64,
        bytes: checkpoint.file_bytes().iter().sum(),
        passed_over: passed_over.collect(),
        memory: memory_needs(&config, context, lora, device)?,
    })
}

/// The parts in reading order, and what in a parameter's name makes it one of them; the first that fits counts.
const PARTS: [(&str, &[&str]); 9] = [
    ("norms", &["norm.weight"]),
    ("embedding", &["model.embed_tokens."]),
    ("attention", &[".self_attn."]),
    ("delta-net", &[".linear_attn."]),
    ("router", &[".mlp.gate.", ".mlp.shared_expert_gate."]),
    ("experts", &[".mlp.experts."]),
    ("shared expert", &[".mlp.shared_expert."]),
    ("feed-forward", &[".mlp."]),
    ("head", &["lm_head."]),
];

fn parts(parameters: &[ParameterShape]) -> Vec<PartSummary> {
    let mut counts = [0u64; PARTS.len()];
    for parameter in parameters {
        let is_of = |(_, words): &(&str, &[&str])| words.iter().any(|word| parameter.name.contains(word));
        let part = PARTS.iter().position(is_of);
        counts[part.unwrap_or_else(|| panic!("`{}` belongs to no part", parameter.name))] +=
            parameter.num_elements() as u64;
    }
    let named = PARTS.iter().zip(counts).map(|((part, _), parameters)| PartSummary { part, parameters });
    named.filter(|part| part.parameters > 0).collect()
}
