//! The gated delta-net of the engine: a window of the convolution and a state per head, token after token.

use std::ops::Range;

use rayon::prelude::*;
use worldloom_kernels::decode::{
    PackedMatrix, Store, convolve_token, delta_token, norm_heads, rms_norm, scale_to_unit, sigmoid,
};

use super::forward::{Caches, Workspace};
use super::weights::{Weights, zeros};
use crate::parts::delta_net::UNIT_EPS;
use crate::{DeltaNetShape, ModelConfig, Precision};

pub(super) struct DeltaNet {
    /// Place among the delta-nets of the model, and so in the states.
    slot: usize,
    shape: DeltaNetShape,
    /// Rows of queries, keys and values, output gates, steps and decays.
    projections: PackedMatrix,
    /// `[kernel, channels]`
    convolution: Vec<f32>,
    decay_bias: Vec<f32>,
    /// What the softplus is multiplied by, negative.
    decay_rates: Vec<f32>,
    norm: Vec<f32>,
    output: PackedMatrix,
}

/// What the delta-nets of a model know of a sequence: the last tokens before each convolution, and the states.
#[derive(Clone, Debug, Default)]
pub(super) struct RecurrentState {
    /// `[layer, kernel − 1, channels]`
    windows: Vec<f32>,
    /// `[layer, head, key_dim, value_dim]`
    states: Vec<f32>,
}

impl RecurrentState {
    /// Before the first token.
    pub(super) fn empty(config: &ModelConfig) -> RecurrentState {
        let Some(shape) = &config.design.delta_net else { return RecurrentState::default() };
        let layers = config.design.num_delta_nets();
        RecurrentState {
            windows: vec![0.0; layers * window_len(shape)],
            states: vec![0.0; layers * state_len(shape) * shape.num_value_heads],
        }
    }

    /// What one takes, without making it.
    pub(super) fn num_bytes(config: &ModelConfig) -> usize {
        let Some(shape) = &config.design.delta_net else { return 0 };
        let of_layer = window_len(shape) + state_len(shape) * shape.num_value_heads;
        config.design.num_delta_nets() * of_layer * size_of::<f32>()
    }
}

fn window_len(shape: &DeltaNetShape) -> usize {
    (shape.conv_kernel_dim - 1) * shape.conv_width()
}

fn state_len(shape: &DeltaNetShape) -> usize {
    shape.key_head_dim * shape.value_head_dim
}

/// Rows that follow each other in one sequence, and what that sequence knows.
struct Run<'a> {
    rows: usize,
    projected: &'a [f32],
    mixed: &'a mut [f32],
    window: &'a mut [f32],
    states: &'a mut [f32],
}

impl DeltaNet {
    pub(super) fn zeros(config: &ModelConfig, precision: Precision, shape: &DeltaNetShape, slot: usize) -> DeltaNet {
        let outputs = shape.conv_width() + shape.value_width() + 2 * shape.num_value_heads;
        DeltaNet {
            slot,
            shape: *shape,
            projections: zeros(precision, outputs, config.hidden_size),
            convolution: Vec::new(),
            decay_bias: Vec::new(),
            decay_rates: Vec::new(),
            norm: Vec::new(),
            output: zeros(precision, config.hidden_size, shape.value_width()),
        }
    }

    /// Packs a parameter of `linear_attn`; false where there is none of this name.
    pub(super) fn set(&mut self, config: &ModelConfig, name: &str, values: &[f32]) -> bool {
        let shape = self.shape;
        let (gates, hidden) = (shape.conv_width(), config.hidden_size);
        let steps = gates + shape.value_width();
        let decays = steps + shape.num_value_heads;
        match name {
            "in_proj_qkv.weight" => self.projections.set_rows(0, values),
            "in_proj_z.weight" => self.projections.set_rows(gates, values),
            "in_proj_b.weight" => self.projections.set_rows(steps, values),
            "in_proj_a.weight" => self.projections.set_rows(decays, values),
            "in_proj_qkvz.weight" => {
                let (key, value) = (shape.key_head_dim, shape.value_width() / shape.num_key_heads);
                let places = [(0, key), (shape.key_width(), key), (2 * shape.key_width(), value), (gates, value)];
                self.set_interleaved(&places, hidden, values);
            }
            "in_proj_ba.weight" => {
                let per_key = shape.num_value_heads / shape.num_key_heads;
                self.set_interleaved(&[(steps, per_key), (decays, per_key)], hidden, values);
            }
            "conv1d.weight" => {
                let (kernel, channels) = (shape.conv_kernel_dim, shape.conv_width());
                self.convolution = (0..values.len()).map(|i| values[i % channels * kernel + i / channels]).collect();
            }
            "dt_bias" => self.decay_bias = values.to_vec(),
            "A_log" => self.decay_rates = values.iter().map(|value| -value.exp()).collect(),
            "norm.weight" => self.norm = values.to_vec(),
            "out_proj.weight" => self.output.set_rows(0, values),
            _ => return false,
        }
        true
    }

    /// Packs what is published per key head side by side: for each place where its rows of a key head begin and how many.
    fn set_interleaved(&mut self, places: &[(usize, usize)], hidden: usize, values: &[f32]) {
        let mut rest = values;
        for head in 0..self.shape.num_key_heads {
            for (start, width) in places {
                let (rows, after) = rest.split_at(width * hidden);
                self.projections.set_rows(start + head * width, rows);
                rest = after;
            }
        }
    }

    /// `stream += out(norm(delta_rule(convolution(q, k, v))) · silu(z))`, with all of them from the normed stream; drops
    /// the rows before `first_row` once they have gone through the states.
    pub(super) fn forward(
        &self,
        weights: &Weights,
        norm: &[f32],
        first_row: usize,
        caches: &mut dyn Caches,
        workspace: &mut Workspace,
    ) {
        let (hidden, epsilon) = (weights.config.hidden_size, weights.config.rms_norm_eps as f32);
        let num_rows = workspace.stream.len() / hidden;
        let (width, value_width) = (self.projections.outputs(), self.shape.value_width());
        workspace.normed.resize(workspace.stream.len(), 0.0);
        rms_norm(&workspace.stream, norm, epsilon, &mut workspace.normed);
        workspace.projected.resize(num_rows * width, 0.0);
        self.projections.multiply(&workspace.normed, &mut workspace.projected, Store::Replace);
        workspace.mixed.resize(num_rows * value_width, 0.0);
        let runs = self.runs(caches.states(), &workspace.projected, &mut workspace.mixed);
        runs.into_par_iter().for_each(|run| self.advance(run));

        workspace.stream.drain(..first_row * hidden);
        let rows = workspace.mixed.chunks_exact_mut(value_width).zip(workspace.projected.chunks_exact(width));
        for (mixed, projected) in rows.skip(first_row) {
            let gates = &projected[self.shape.conv_width()..][..value_width];
            let heads = mixed.chunks_exact_mut(self.norm.len()).zip(gates.chunks_exact(self.norm.len()));
            for (head, gates) in heads {
                norm_heads(head, &self.norm, epsilon);
                head.iter_mut().zip(gates).for_each(|(value, gate)| *value *= gate * sigmoid(*gate));
            }
        }
        let mixed = &workspace.mixed[first_row * value_width..];
        self.output.multiply(mixed, &mut workspace.stream, Store::Add);
    }

    /// Cuts rows and states into the runs that are independent of each other.
    fn runs<'a>(
        &self,
        states: Vec<(Range<usize>, &'a mut RecurrentState)>,
        projected: &'a [f32],
        mixed: &'a mut [f32],
    ) -> Vec<Run<'a>> {
        let (width, value_width) = (self.projections.outputs(), self.shape.value_width());
        let (window, state) = (window_len(&self.shape), state_len(&self.shape) * self.shape.num_value_heads);
        let mut rest = mixed;
        let mut runs = Vec::with_capacity(states.len());
        for (rows, known) in states {
            let (mixed, after) = rest.split_at_mut(rows.len() * value_width);
            rest = after;
            runs.push(Run {
                rows: rows.len(),
                projected: &projected[rows.start * width..rows.end * width],
                mixed,
                window: &mut known.windows[self.slot * window..][..window],
                states: &mut known.states[self.slot * state..][..state],
            });
        }
        runs
    }

    /// Takes the rows of a run through the convolution, and then through the state of every head.
    fn advance(&self, run: Run<'_>) {
        let shape = &self.shape;
        let (channels, width) = (shape.conv_width(), self.projections.outputs());
        let mut convolved = vec![0f32; run.rows * channels];
        for (convolved, projected) in convolved.chunks_exact_mut(channels).zip(run.projected.chunks_exact(width)) {
            convolve_token(run.window, &projected[..channels], &self.convolution, convolved);
            let (queries, rest) = convolved.split_at_mut(shape.key_width());
            let scale = 1.0 / (shape.key_head_dim as f32).sqrt();
            queries.chunks_exact_mut(shape.key_head_dim).for_each(|head| scale_to_unit(head, scale, UNIT_EPS));
            let keys = &mut rest[..shape.key_width()];
            keys.chunks_exact_mut(shape.key_head_dim).for_each(|head| scale_to_unit(head, 1.0, UNIT_EPS));
        }
        let (projected, convolved) = (run.projected, convolved.as_slice());
        let of_head = |(head, state): (usize, &mut [f32])| self.head(head, state, projected, convolved);
        let heads = run.states.chunks_exact_mut(state_len(shape)).enumerate();
        // A single row is one of many tasks already.
        let outputs: Vec<Vec<f32>> = match run.rows {
            1 => heads.map(of_head).collect(),
            _ => heads.collect::<Vec<_>>().into_par_iter().map(of_head).collect(),
        };
        let value_dim = shape.value_head_dim;
        for (row, mixed) in run.mixed.chunks_exact_mut(shape.value_width()).enumerate() {
            for (mixed, output) in mixed.chunks_exact_mut(value_dim).zip(&outputs) {
                mixed.copy_from_slice(&output[row * value_dim..][..value_dim]);
            }
        }
    }

    /// The outputs of one value head, `[rows, value_dim]`.
    fn head(&self, head: usize, state: &mut [f32], projected: &[f32], convolved: &[f32]) -> Vec<f32> {
        let shape = &self.shape;
        let (key_dim, value_dim) = (shape.key_head_dim, shape.value_head_dim);
        let key_head = head / (shape.num_value_heads / shape.num_key_heads);
        let steps = shape.conv_width() + shape.value_width();
        let rows = convolved.chunks_exact(shape.conv_width()).zip(projected.chunks_exact(self.projections.outputs()));
        let mut outputs = vec![0f32; rows.len() * value_dim];
        for ((convolved, projected), output) in rows.zip(outputs.chunks_exact_mut(value_dim)) {
            let q = &convolved[key_head * key_dim..][..key_dim];
            let k = &convolved[shape.key_width() + key_head * key_dim..][..key_dim];
            let v = &convolved[2 * shape.key_width() + head * value_dim..][..value_dim];
            let beta = sigmoid(projected[steps + head]);
            let rate = softplus(projected[steps + shape.num_value_heads + head] + self.decay_bias[head]);
            delta_token(state, [q, k, v], (self.decay_rates[head] * rate).exp(), beta, output);
        }
        outputs
    }
}

/// `ln(1 + exp(x))`, without overflow.
fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}
