//! The forward pass over rows: the tokens of a prompt block by block, or the last tokens of several sequences.

use worldloom_kernels::decode::{
    KeyValueCache, Store, View, attend, norm_heads, rms_norm, rotary_angles, rotate_heads, swiglu,
};

use super::weights::{Layer, Weights};

/// Prompt tokens that pass through the model together.
const PROMPT_BLOCK: usize = 96;

/// Where the rows of one pass keep their keys and values.
pub(super) trait Caches {
    /// Stores the key and value heads of `row`.
    fn write(&mut self, layer: usize, row: usize, keys: &[f32], values: &[f32]);
    /// What each row sees, its own token included.
    fn views(&self) -> Vec<View<'_>>;
}

/// Buffers of a pass, kept between steps.
#[derive(Default)]
pub(super) struct Workspace {
    stream: Vec<f32>,
    normed: Vec<f32>,
    query_key_value: Vec<f32>,
    attended: Vec<f32>,
    gate_up: Vec<f32>,
    activated: Vec<f32>,
    cosines: Vec<f32>,
    sines: Vec<f32>,
    logits: Vec<f32>,
}

/// The prompt's cache and the logits after its last token.
pub(super) fn prefill(weights: &Weights, prompt: &[u32], workspace: &mut Workspace) -> (KeyValueCache, Vec<f32>) {
    let mut cache = KeyValueCache::new(weights.cache_shape(), prompt.len());
    for (block, tokens) in prompt.chunks(PROMPT_BLOCK).enumerate() {
        let start = block * PROMPT_BLOCK;
        let positions: Vec<usize> = (start..start + tokens.len()).collect();
        let mut caches = PromptBlock { cache: &mut cache, start, num_rows: tokens.len() };
        // Only the last token's stream is used.
        let is_last = start + tokens.len() == prompt.len();
        let first_row = if is_last { tokens.len() - 1 } else { tokens.len() };
        hidden(weights, tokens, &positions, first_row, &mut caches, workspace);
    }
    let logits = head(weights, workspace).to_vec();
    (cache, logits)
}

/// The logits after each row's token, `[rows, vocab_size]`.
pub(super) fn decode<'w>(
    weights: &Weights,
    tokens: &[u32],
    positions: &[usize],
    caches: &mut dyn Caches,
    workspace: &'w mut Workspace,
) -> &'w mut [f32] {
    hidden(weights, tokens, positions, 0, caches, workspace);
    head(weights, workspace)
}

/// Runs all layers and leaves the residual stream of the rows from `first_row` on in the workspace. The last layer
/// computes keys and values of all rows, and everything else of these rows alone.
fn hidden(
    weights: &Weights,
    tokens: &[u32],
    positions: &[usize],
    first_row: usize,
    caches: &mut dyn Caches,
    workspace: &mut Workspace,
) {
    let config = &weights.config;
    let half = weights.rope_frequencies.len();
    workspace.stream.resize(tokens.len() * config.hidden_size, 0.0);
    for (token, row) in tokens.iter().zip(workspace.stream.chunks_exact_mut(config.hidden_size)) {
        weights.embed(*token, row);
    }
    workspace.cosines.resize(tokens.len() * half, 0.0);
    workspace.sines.resize(tokens.len() * half, 0.0);
    let angles = workspace.cosines.chunks_exact_mut(half).zip(workspace.sines.chunks_exact_mut(half));
    for (position, (cosines, sines)) in positions.iter().zip(angles) {
        rotary_angles(*position, &weights.rope_frequencies, cosines, sines);
    }
    for (index, layer) in weights.layers.iter().enumerate() {
        let is_last = index + 1 == weights.layers.len();
        attention(weights, index, if is_last { first_row } else { 0 }, caches, workspace);
        feed_forward(weights, layer, workspace);
    }
}

/// `stream += o(attend(rotate(norm(q)), rotate(norm(k)), v))`, with `q, k, v` from the normed stream; drops the rows
/// before `first_row` once their keys and values are stored.
fn attention(weights: &Weights, index: usize, first_row: usize, caches: &mut dyn Caches, workspace: &mut Workspace) {
    let (config, layer) = (&weights.config, &weights.layers[index]);
    let epsilon = config.rms_norm_eps as f32;
    let num_rows = workspace.stream.len() / config.hidden_size;
    let (query_width, kv_width, half) = (config.query_width(), config.kv_width(), weights.rope_frequencies.len());
    let width = query_width + 2 * kv_width;

    workspace.normed.resize(workspace.stream.len(), 0.0);
    rms_norm(&workspace.stream, &layer.input_norm, epsilon, &mut workspace.normed);
    workspace.query_key_value.resize(num_rows * width, 0.0);
    layer.query_key_value.multiply(&workspace.normed, &mut workspace.query_key_value, Store::Replace);

    let angles = workspace.cosines.chunks_exact(half).zip(workspace.sines.chunks_exact(half));
    for ((row, values), (cosines, sines)) in workspace.query_key_value.chunks_exact_mut(width).enumerate().zip(angles) {
        values.iter_mut().zip(&layer.query_key_value_bias).for_each(|(value, bias)| *value += bias);
        let (queries, keys_values) = values.split_at_mut(query_width);
        let (keys, values) = keys_values.split_at_mut(kv_width);
        for (heads, norm) in [(queries, &layer.query_norm), (&mut *keys, &layer.key_norm)] {
            if config.design.has_head_norms {
                norm_heads(heads, norm, epsilon);
            }
            rotate_heads(heads, config.head_dim, cosines, sines);
        }
        caches.write(index, row, keys, values);
    }
    workspace.stream.drain(..first_row * config.hidden_size);
    workspace.attended.resize((num_rows - first_row) * query_width, 0.0);
    let queries = &workspace.query_key_value[first_row * width..];
    let views = &caches.views()[first_row..];
    attend(index, config.num_attention_heads, queries, width, views, &mut workspace.attended);
    layer.attention_output.multiply(&workspace.attended, &mut workspace.stream, Store::Add);
}

/// `stream += down(silu(gate) · up)`, with `gate, up` from the normed stream.
fn feed_forward(weights: &Weights, layer: &Layer, workspace: &mut Workspace) {
    let config = &weights.config;
    let num_rows = workspace.stream.len() / config.hidden_size;
    let epsilon = config.rms_norm_eps as f32;
    workspace.normed.resize(workspace.stream.len(), 0.0);
    rms_norm(&workspace.stream, &layer.post_attention_norm, epsilon, &mut workspace.normed);
    workspace.gate_up.resize(num_rows * 2 * config.intermediate_size, 0.0);
    layer.gate_up.multiply(&workspace.normed, &mut workspace.gate_up, Store::Replace);
    workspace.activated.resize(num_rows * config.intermediate_size, 0.0);
    swiglu(&workspace.gate_up, config.intermediate_size, &mut workspace.activated);
    layer.down.multiply(&workspace.activated, &mut workspace.stream, Store::Add);
}

/// Final norm and logits of every row of the stream.
fn head<'w>(weights: &Weights, workspace: &'w mut Workspace) -> &'w mut [f32] {
    let config = &weights.config;
    workspace.normed.resize(workspace.stream.len(), 0.0);
    rms_norm(&workspace.stream, &weights.final_norm, config.rms_norm_eps as f32, &mut workspace.normed);
    workspace.logits.resize(workspace.stream.len() / config.hidden_size * config.vocab_size, 0.0);
    weights.head().multiply(&workspace.normed, &mut workspace.logits, Store::Replace);
    &mut workspace.logits
}

/// Rows that are consecutive tokens of one prompt.
struct PromptBlock<'a> {
    cache: &'a mut KeyValueCache,
    start: usize,
    num_rows: usize,
}

impl Caches for PromptBlock<'_> {
    fn write(&mut self, layer: usize, row: usize, keys: &[f32], values: &[f32]) {
        self.cache.write(layer, self.start + row, keys, values);
    }

    fn views(&self) -> Vec<View<'_>> {
        let cache = &*self.cache;
        (0..self.num_rows).map(|row| View { shared: cache, shared_len: self.start + row + 1, own: None }).collect()
    }
}
