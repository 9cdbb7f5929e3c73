//! How much memory a decoder takes, counted from its shape: weights, what training keeps beside them, activations, cache.
//!
//! Everything is single precision, but for matrices that are held in another. Activations are what the operations keep for
//! the backward pass, as `ops/autodiff.rs` has it; work space that lives for one operation is left out. Experts with
//! adapters are made whole in the forward pass, see `parts/moe.rs`: a backward pass keeps their weights, and a layer at a
//! time has their gradient.

use crate::{
    Decoder, DeltaNetShape, Error, FeedForward, FeedForwardKind, LayerDesign, LoraConfig, Mixer, ModelConfig,
    ParameterShape, Precision, parameter_shapes,
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
    /// The same with the matrices held in bfloat16.
    pub inference_in_bf16: u64,
    /// Weights, adapters with gradient and two moments, activations, experts made whole for their adapters.
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
    let shapes = parameter_shapes(config, device);
    let numbers: usize = shapes.iter().map(|parameter| parameter.num_elements()).sum();
    let adapted = Decoder::without_numbers(config, device).with_lora(lora, 0, device)?;
    let (adapter_parameters, made) = (adapted.num_trained() as u64, made_by_layers(&adapted));
    let experts = made.iter().sum::<u64>() + made.iter().max().copied().unwrap_or(0);
    let weights = numbers as u64 * FLOAT;
    let halved = weight_bytes(&shapes, Precision::BF16);
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
        inference_in_bf16: halved + cache,
        lora: weights + 4 * adapter_parameters * FLOAT + activations + experts,
        training: 4 * weights + activations + head,
    })
}

/// Bytes that a training run takes at its peak, part by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TrainingMemory {
    /// The weights.
    pub weights: u64,
    /// The weights once more in single precision, where updates are made in finer numbers than compute.
    pub masters: u64,
    /// Gradients summed over micro-batches.
    pub gradients: u64,
    /// What the optimizer remembers, as if all of it were AdamW's.
    pub moments: u64,
    /// What the backward pass of one micro-batch needs at its peak: activations, gradients not yet summed, the head.
    pub backward: u64,
}

impl TrainingMemory {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.weights + self.masters + self.gradients + self.moments + self.backward
    }

    /// With so many micro-batches at once: each has activations and sums of its own.
    pub fn side_by_side(self, micro_batches: u64) -> Self {
        let sums = if micro_batches > 1 { 1 + micro_batches } else { 1 };
        Self { gradients: self.gradients * sums, backward: self.backward * micro_batches.max(1), ..self }
    }
}

/// What training takes for micro-batches of `tokens` tokens: of all weights, or of the adapters that `lora` asks for.
///
/// With `recompute`, see [`Decoder::accumulate_recomputed`], the inputs of all blocks and the activations of one are kept in
/// place of all activations. Of matrices in bfloat16 the largest is there a second time, in single precision, while it is
/// read.
///
/// # Errors
/// Those of [`Decoder::with_lora`].
pub fn training_memory(
    config: &ModelConfig,
    lora: Option<&LoraConfig>,
    tokens: usize,
    recompute: bool,
    precision: Precision,
    device: &Device,
) -> Result<TrainingMemory, Error> {
    let shapes = parameter_shapes(config, device);
    let weights = weight_bytes(&shapes, precision);
    let largest_matrix = shapes.iter().map(|parameter| parameter.num_elements()).max().unwrap_or(0) as u64 * FLOAT;
    let decoder = Decoder::without_numbers(config, device);
    let decoder = lora.into_iter().try_fold(decoder, |decoder, lora| decoder.with_lora(lora, 0, device))?;
    let (trained, is_full) = (decoder.num_trained() as u64 * FLOAT, lora.is_none());
    let (hidden, tokens) = (config.hidden_size, tokens as u64);
    // The head's gradient is made in the forward pass and kept; a chunk of logits comes and goes.
    let head_gradient = if is_full { (config.vocab_size * hidden) as u64 * FLOAT } else { 0 };
    let logits = worldloom_kernels::cross_entropy::rows_per_chunk(config.vocab_size) * config.vocab_size;
    let head = head_gradient + logits as u64 * FLOAT;
    let kept = config.design.layers.iter().map(|layer| kept_by_layer(config, layer) as u64 * FLOAT * tokens);
    let made = made_by_layers(&decoder);
    let stream = 4 * hidden as u64 * FLOAT * tokens;
    let backward = if recompute {
        let inputs = (config.design.layers.len() * hidden) as u64 * FLOAT * tokens;
        let largest = kept.zip(&made).map(|(kept, made)| kept + 2 * made).max().unwrap_or(0);
        // A block's activations and their gradients, or the head.
        inputs + (largest + stream + trained / config.design.layers.len().max(1) as u64).max(stream + head)
    } else {
        // Activations fall while gradients rise: the larger end counts.
        let kept = kept.sum::<u64>() + made.iter().sum::<u64>() + stream;
        (kept + head.max(made.iter().max().copied().unwrap_or(0))).max(trained + stream)
    };
    let (masters, backward) = match (precision, is_full) {
        (Precision::F32, _) => (0, backward),
        (Precision::BF16, true) => (trained, backward + largest_matrix),
        (Precision::BF16, false) => (0, backward + largest_matrix),
    };
    Ok(TrainingMemory { weights, masters, gradients: trained, moments: 2 * trained, backward })
}

/// The largest tensor that a pass makes on a device without kernels of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargestTensor {
    /// A parameter's published name, or what is computed.
    pub name: String,
    /// Its size.
    pub bytes: u64,
}

/// What must fit into one buffer of a device for micro-batches of `rows` × `row_tokens` tokens: parameters in single
/// precision, which is what they are multiplied in, and the largest activations of `ops/plain.rs`.
pub fn largest_tensor(config: &ModelConfig, rows: usize, row_tokens: usize, device: &Device) -> LargestTensor {
    let tokens = rows * row_tokens;
    let of = |name: &str, numbers: usize| LargestTensor { name: name.to_owned(), bytes: numbers as u64 * FLOAT };
    let parameters = parameter_shapes(config, device).into_iter();
    let parameters = parameters.map(|parameter| of(&parameter.name, parameter.num_elements()));
    let inner = config.design.experts.as_ref().map_or(0, |shape| 2 * shape.moe_intermediate_size);
    let delta_net = config.design.delta_net.as_ref().map_or(0, |shape| shape.conv_width() + shape.value_width());
    let widest = [config.intermediate_size, inner, 2 * config.query_width(), delta_net, config.hidden_size];
    let activations = [
        of("the scores of attention", rows * config.num_attention_heads * row_tokens * row_tokens),
        of("one row of logits", config.vocab_size),
        of("the widest activation", tokens * widest.into_iter().max().unwrap_or(0)),
    ];
    let largest = parameters.chain(activations).max_by_key(|tensor| tensor.bytes);
    largest.expect("there are activations")
}

/// Bytes of the experts' weights that each layer makes whole for their adapters.
fn made_by_layers(decoder: &Decoder) -> Vec<u64> {
    let of = |feed_forward: &FeedForward| match feed_forward {
        FeedForward::Dense(_) => 0,
        FeedForward::Experts(moe) => moe.experts.num_made() as u64 * FLOAT,
    };
    decoder.model.layers.iter().map(|block| of(&block.mlp)).collect()
}

/// Bytes of all weights with the matrices held in a precision.
fn weight_bytes(shapes: &[ParameterShape], precision: Precision) -> u64 {
    let of = |parameter: &ParameterShape| {
        parameter.num_elements() as u64 * precision.of(&parameter.name, &parameter.shape).size() as u64
    };
    shapes.iter().map(of).sum()
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
    let layers = config.design.layers.iter().map(|layer| kept_by_layer(config, layer));
    // Embedding, final norm, hidden states and their gradient.
    layers.sum::<usize>() as u64 + 4 * config.hidden_size as u64
}

fn kept_by_layer(config: &ModelConfig, layer: &LayerDesign) -> usize {
    let mixer = match (layer.mixer, &config.design.delta_net) {
        (Mixer::DeltaNet, Some(shape)) => kept_by_delta_net(shape),
        _ => kept_by_attention(config),
    };
    // Each of the two norms keeps its input, and what follows keeps its output.
    4 * config.hidden_size + mixer + kept_by_feed_forward(config, layer.feed_forward)
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
