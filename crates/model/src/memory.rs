//! How much memory a decoder takes, counted from its shape: weights, what training keeps beside them, activations, cache.
//!
//! Everything is single precision. Activations are what the operations keep for the backward pass, as `ops/autodiff.rs`
//! has it; work space that lives for one operation is left out.

use crate::{
    Decoder, DeltaNetShape, Error, FeedForwardKind, LayerDesign, LoraConfig, Mixer, ModelConfig, parameter_shapes,
};
use burn::tensor::Device;
use serde::Serialize;

const FLOAT: u64 = size_of::<f32>() as u64;

/// Bytes for one sequence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryNeeds {
    /// Tokens of the sequence.
    pub context: u64,
    /// The weights alone.
    pub weights: u64,
    /// Cache and states of one sequence.
    pub cache: u64,
    /// What one training step keeps for its backward pass.
    pub activations: u64,
    /// Parameters of the adapters.
    pub adapter_parameters: u64,
    /// Weights and cache.
    pub inference: u64,
    /// Weights, adapters with gradient and two moments, activations.
    pub lora: u64,
    /// Weights with gradient and two moments, activations, the head's gradient once more while it is made.
    pub training: u64,
}

/// What a decoder of this config takes for one sequence of `context` tokens.
pub fn memory_needs(
    config: &ModelConfig,
    context: usize,
    lora: &LoraConfig,
    device: &Device,
) -> Result<MemoryNeeds, Error> {
    let numbers: usize = parameter_shapes(config, device).iter().map(|parameter| parameter.num_elements()).sum();
    let adapter_parameters = Decoder::without_numbers(config, device).with_lora(lora, 0, device)?.num_trained() as u64;
    let weights = numbers as u64 * FLOAT;
    let cache = cached_numbers(config, context) * FLOAT;
    let activations = kept_numbers(config) * context as u64 * FLOAT;
    let head = (config.vocab_size * config.hidden_size) as u64 * FLOAT;
    Ok(MemoryNeeds {
        context: context as u64,
        weights,
        cache,
        activations,
        adapter_parameters,
        inference: weights + cache,
        lora: weights + 4 * adapter_parameters * FLOAT + activations,
        training: 4 * weights + activations + head,
    })
}

/// Keys and values of every attention; window and state of every delta-net.
fn cached_numbers(config: &ModelConfig, context: usize) -> u64 {
    let of = |layer: &LayerDesign| match (layer.mixer, &config.design.delta_net) {
        (Mixer::DeltaNet, Some(shape)) => {
            let states = shape.num_value_heads * shape.key_head_dim * shape.value_head_dim;
            states + shape.conv_width() * (shape.conv_kernel_dim - 1)
        }
        _ => 2 * config.kv_width() * context,
    };
    config.design.layers.iter().map(|layer| of(layer) as u64).sum()
}

/// Numbers kept for each token.
fn kept_numbers(config: &ModelConfig) -> u64 {
    let hidden = config.hidden_size;
    let layers = config.design.layers.iter().map(|layer| {
        let mixer = match (layer.mixer, &config.design.delta_net) {
            (Mixer::DeltaNet, Some(shape)) => kept_by_delta_net(shape),
            _ => kept_by_attention(config),
        };
        // Each of the two norms keeps its input, and what follows keeps its output.
        4 * hidden + mixer + kept_by_feed_forward(config, layer.feed_forward)
    });
    // Embedding, final norm, hidden states and their gradient.
    layers.sum::<usize>() as u64 + 4 * hidden as u64
}

/// Queries and keys before and after their turn, values, the output; with a gate that too, before and after.
fn kept_by_attention(config: &ModelConfig) -> usize {
    let (queries, keys) = (config.query_width(), config.kv_width());
    let gates = if config.design.has_output_gate { 3 * queries } else { 0 };
    3 * queries + 3 * keys + gates + config.num_attention_heads
}

/// Queries, keys and values before and after the convolution and the heads' norm; gates; output before and after its norm
/// and gate.
fn kept_by_delta_net(shape: &DeltaNetShape) -> usize {
    2 * shape.conv_width() + 4 * shape.key_width() + 5 * shape.value_width() + 6 * shape.num_value_heads
}

/// What opens, what passes and their product, for every expert that a token passes.
fn kept_by_feed_forward(config: &ModelConfig, kind: FeedForwardKind) -> usize {
    match (kind, &config.design.experts) {
        (FeedForwardKind::Experts, Some(shape)) => {
            let chosen = shape.num_experts_per_tok * (3 * shape.moe_intermediate_size + config.hidden_size);
            let shared = shape.shared_expert_intermediate_size.map_or(0, |inner| 3 * inner + 2 * config.hidden_size);
            chosen + shared + 2 * shape.num_experts
        }
        _ => 3 * config.intermediate_size,
    }
}
