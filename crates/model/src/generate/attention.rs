//! Attention of the engine: one product for queries, keys, values and gates, then the cache.

use worldloom_kernels::decode::{PackedMatrix, Store, attend, norm_heads, rms_norm, rotate_heads, sigmoid};

use super::forward::{Caches, Workspace};
use super::weights::{Weights, zeros};
use crate::{ModelConfig, Precision};

pub(super) struct Attention {
    /// Place among the attentions of the model, and so in the cache.
    slot: usize,
    /// Rows of the query, key and value projections, and of the output gates where the family has them.
    projections: PackedMatrix,
    /// What is added to queries, keys and values, where the family has it; empty elsewhere.
    biases: Vec<f32>,
    /// Norms of each query and key head, where the family has them; empty elsewhere.
    query_norm: Vec<f32>,
    key_norm: Vec<f32>,
    output: PackedMatrix,
}

impl Attention {
    pub(super) fn zeros(config: &ModelConfig, precision: Precision, slot: usize) -> Attention {
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let gates = if config.design.has_output_gate { query_width } else { 0 };
        Attention {
            slot,
            projections: zeros(precision, query_width + 2 * kv_width + gates, config.hidden_size),
            biases: match config.design.has_qkv_bias {
                true => vec![0.0; query_width + 2 * kv_width],
                false => Vec::new(),
            },
            query_norm: Vec::new(),
            key_norm: Vec::new(),
            output: zeros(precision, config.hidden_size, query_width),
        }
    }

    /// Packs a parameter of `self_attn`; false where there is none of this name.
    pub(super) fn set(&mut self, config: &ModelConfig, name: &str, values: &[f32]) -> bool {
        let (query_width, kv_width) = (config.query_width(), config.kv_width());
        let keys = query_width;
        let ends = [keys, keys + kv_width, keys + 2 * kv_width];
        match name {
            "q_proj.weight" if config.design.has_output_gate => self.set_queries_and_gates(config, values, ends[2]),
            "q_proj.weight" => self.projections.set_rows(0, values),
            "k_proj.weight" => self.projections.set_rows(ends[0], values),
            "v_proj.weight" => self.projections.set_rows(ends[1], values),
            "q_proj.bias" => self.biases[..ends[0]].copy_from_slice(values),
            "k_proj.bias" => self.biases[ends[0]..ends[1]].copy_from_slice(values),
            "v_proj.bias" => self.biases[ends[1]..].copy_from_slice(values),
            "q_norm.weight" => self.query_norm = config.design.norm_scale(values),
            "k_norm.weight" => self.key_norm = config.design.norm_scale(values),
            "o_proj.weight" => self.output.set_rows(0, values),
            _ => return false,
        }
        true
    }

    /// Published per head, first the query and then the gate.
    fn set_queries_and_gates(&mut self, config: &ModelConfig, values: &[f32], gates: usize) {
        let head = config.head_dim * config.hidden_size;
        for (index, rows) in values.chunks_exact(2 * head).enumerate() {
            let (query, gate) = rows.split_at(head);
            self.projections.set_rows(index * config.head_dim, query);
            self.projections.set_rows(gates + index * config.head_dim, gate);
        }
    }

    /// `stream += o(gate · attend(turn(norm(q)), turn(norm(k)), v))`, with all of them from the normed stream; drops the
    /// rows before `first_row` once their keys and values are stored.
    pub(super) fn forward(
        &self,
        weights: &Weights,
        norm: &[f32],
        first_row: usize,
        caches: &mut dyn Caches,
        workspace: &mut Workspace,
    ) {
        let config = &weights.config;
        let epsilon = config.rms_norm_eps as f32;
        let num_rows = workspace.stream.len() / config.hidden_size;
        let (query_width, kv_width, half) = (config.query_width(), config.kv_width(), weights.rope_frequencies.len());
        let width = self.projections.outputs();

        workspace.normed.resize(workspace.stream.len(), 0.0);
        rms_norm(&workspace.stream, norm, epsilon, &mut workspace.normed);
        workspace.projected.resize(num_rows * width, 0.0);
        self.projections.multiply(&workspace.normed, &mut workspace.projected, Store::Replace);

        let angles = workspace.cosines.chunks_exact(half).zip(workspace.sines.chunks_exact(half));
        for ((row, values), (cosines, sines)) in workspace.projected.chunks_exact_mut(width).enumerate().zip(angles) {
            values.iter_mut().zip(&self.biases).for_each(|(value, bias)| *value += bias);
            let (queries, rest) = values.split_at_mut(query_width);
            let (keys, rest) = rest.split_at_mut(kv_width);
            for (heads, norm) in [(queries, &self.query_norm), (&mut *keys, &self.key_norm)] {
                if config.design.has_head_norms {
                    norm_heads(heads, norm, epsilon);
                }
                rotate_heads(heads, config.head_dim, cosines, sines);
            }
            caches.write(self.slot, row, keys, &rest[..kv_width]);
        }
        workspace.stream.drain(..first_row * config.hidden_size);
        workspace.mixed.resize((num_rows - first_row) * query_width, 0.0);
        let projected = &workspace.projected[first_row * width..];
        let views = &caches.views()[first_row..];
        attend(self.slot, config.num_attention_heads, projected, width, views, &mut workspace.mixed);
        if config.design.has_output_gate {
            let rows = workspace.mixed.chunks_exact_mut(query_width).zip(projected.chunks_exact(width));
            for (mixed, projected) in rows {
                let gates = &projected[query_width + 2 * kv_width..];
                mixed.iter_mut().zip(gates).for_each(|(value, gate)| *value *= sigmoid(*gate));
            }
        }
        self.output.multiply(&workspace.mixed, &mut workspace.stream, Store::Add);
    }
}
