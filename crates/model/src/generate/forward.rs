//! The forward pass over rows: the tokens of a prompt block by block, or the last tokens of several sequences.

use std::ops::Range;

use worldloom_kernels::decode::{KeyValueCache, Store, View, rms_norm, rotary_angles};

use super::delta_net::RecurrentState;
use super::weights::{Mixer, Weights};

/// Prompt tokens that pass through the model together.
const PROMPT_BLOCK: usize = 96;

/// Where the rows of one pass keep their keys and values.
pub(super) trait Caches {
    /// Stores the key and value heads of `row`.
    fn write(&mut self, layer: usize, row: usize, keys: &[f32], values: &[f32]);
    /// What each row sees, its own token included.
    fn views(&self) -> Vec<View<'_>>;
    /// Runs of rows, in order and all of them, each with the recurrent state that it goes through.
    fn states(&mut self) -> Vec<(Range<usize>, &mut RecurrentState)>;
}

/// Buffers of a pass, kept between steps.
#[derive(Default)]
pub(super) struct Workspace {
    pub(super) stream: Vec<f32>,
    pub(super) normed: Vec<f32>,
    /// What a mixer's input projections give.
    pub(super) projected: Vec<f32>,
    /// What goes into a mixer's output projection.
    pub(super) mixed: Vec<f32>,
    pub(super) gate_up: Vec<f32>,
    pub(super) activated: Vec<f32>,
    pub(super) cosines: Vec<f32>,
    pub(super) sines: Vec<f32>,
    logits: Vec<f32>,
}

/// What a prompt leaves behind: its cache, its recurrent state, and the logits after its last token.
pub(super) struct Prefilled {
    pub(super) cache: KeyValueCache,
    pub(super) state: RecurrentState,
    pub(super) logits: Vec<f32>,
}

/// Takes a whole prompt through the model.
pub(super) fn prefill(weights: &Weights, prompt: &[u32], workspace: &mut Workspace) -> Prefilled {
    prefill_from(weights, None, prompt, workspace)
}

/// Takes a prompt through the model, of which the first tokens went through it already; at least one did not. With
/// delta-nets, those first tokens are all that `start` has seen.
pub(super) fn prefill_from(
    weights: &Weights,
    start: Option<(&Prefilled, usize)>,
    prompt: &[u32],
    workspace: &mut Workspace,
) -> Prefilled {
    let mut cache = KeyValueCache::new(weights.cache_shape(), prompt.len());
    let mut state = RecurrentState::empty(&weights.config);
    let mut first = 0;
    if let Some((known, len)) = start {
        cache.copy_start(&known.cache, len);
        state.clone_from(&known.state);
        first = len;
    }
    for (block, tokens) in prompt[first..].chunks(PROMPT_BLOCK).enumerate() {
        let start = first + block * PROMPT_BLOCK;
        let positions: Vec<usize> = (start..start + tokens.len()).collect();
        let mut caches = PromptBlock { cache: &mut cache, state: &mut state, start, num_rows: tokens.len() };
        // Only the last token's stream is used.
        let is_last = start + tokens.len() == prompt.len();
        let first_row = if is_last { tokens.len() - 1 } else { tokens.len() };
        hidden(weights, tokens, &positions, first_row, &mut caches, workspace);
    }
    let logits = head(weights, workspace).to_vec();
    Prefilled { cache, state, logits }
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
/// computes what it remembers of all rows, and everything else of these rows alone.
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
    let last = weights.layers.len() - 1;
    for (index, layer) in weights.layers.iter().enumerate() {
        let first_row = if index == last { first_row } else { 0 };
        match &layer.mixer {
            Mixer::Attention(attention) => {
                attention.forward(weights, &layer.input_norm, first_row, caches, workspace);
            }
            Mixer::DeltaNet(delta_net) => delta_net.forward(weights, &layer.input_norm, first_row, caches, workspace),
        }
        workspace.normed.resize(workspace.stream.len(), 0.0);
        let epsilon = config.rms_norm_eps as f32;
        rms_norm(&workspace.stream, &layer.post_attention_norm, epsilon, &mut workspace.normed);
        layer.feed_forward.forward(config.hidden_size, workspace);
    }
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
    state: &'a mut RecurrentState,
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

    fn states(&mut self) -> Vec<(Range<usize>, &mut RecurrentState)> {
        vec![(0..self.num_rows, &mut *self.state)]
    }
}
