//! The decoder's weights as the kernels want them: projections that share their input side by side, all packed.

use worldloom_kernels::decode::{CacheShape, PackedMatrix};

use crate::ModelConfig;
use crate::parts::rope;

pub(super) struct Weights {
    pub(super) config: ModelConfig,
    pub(super) rope_frequencies: Vec<f32>,
    embedding: PackedMatrix,
    /// None when the embedding is the head.
    head: Option<PackedMatrix>,
    pub(super) final_norm: Vec<f32>,
    pub(super) layers: Vec<Layer>,
}

pub(super) struct Layer {
    pub(super) input_norm: Vec<f32>,
    /// Rows of the query, key and value projections.
    pub(super) query_key_value: PackedMatrix,
    /// What is added to them, where the family has it; empty elsewhere.
    pub(super) query_key_value_bias: Vec<f32>,
    /// Norms of each query and key head, where the family has them; empty elsewhere.
    pub(super) query_norm: Vec<f32>,
    pub(super) key_norm: Vec<f32>,
    pub(super) attention_output: PackedMatrix,
    pub(super) post_attention_norm: Vec<f32>,
    /// Rows of the gate and up projections.
    pub(super) gate_up: PackedMatrix,
    pub(super) down: PackedMatrix,
}

impl Weights {
    /// Weights of the right shapes, to be filled by [`Self::set`].
    pub(super) fn zeros(config: &ModelConfig) -> Weights {
        let matrix = |outputs| PackedMatrix::zeros(outputs, config.hidden_size);
        let layer = || Layer {
            input_norm: Vec::new(),
            query_key_value: matrix(config.query_width() + 2 * config.kv_width()),
            query_key_value_bias: match config.design.has_qkv_bias {
                true => vec![0.0; config.query_width() + 2 * config.kv_width()],
                false => Vec::new(),
            },
            query_norm: Vec::new(),
            key_norm: Vec::new(),
            attention_output: PackedMatrix::zeros(config.hidden_size, config.query_width()),
            post_attention_norm: Vec::new(),
            gate_up: matrix(2 * config.intermediate_size),
            down: PackedMatrix::zeros(config.hidden_size, config.intermediate_size),
        };
        Weights {
            rope_frequencies: rope::frequencies(config),
            embedding: matrix(config.vocab_size),
            head: (!config.tie_word_embeddings).then(|| matrix(config.vocab_size)),
            final_norm: Vec::new(),
            layers: (0..config.num_hidden_layers).map(|_| layer()).collect(),
            config: config.clone(),
        }
    }

    /// Packs one parameter under its published name.
    pub(super) fn set(&mut self, path: &str, values: &[f32]) {
        match path {
            "model.embed_tokens.weight" => self.embedding.set_rows(0, values),
            "model.norm.weight" => self.final_norm = values.to_vec(),
            // A tied head is the embedding, whether or not it is shown a second time.
            "lm_head.weight" => self.head.iter_mut().for_each(|head| head.set_rows(0, values)),
            _ => self.set_in_layer(path, values),
        }
    }

    fn set_in_layer(&mut self, path: &str, values: &[f32]) {
        let in_layers = path.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (index, name) = in_layers.unwrap_or_else(|| panic!("generation knows no parameter `{path}`"));
        let index: usize = index.parse().unwrap_or_else(|_| panic!("`{path}` names no layer"));
        let (query_width, kv_width) = (self.config.query_width(), self.config.kv_width());
        let layer = &mut self.layers[index];
        match name {
            "input_layernorm.weight" => layer.input_norm = values.to_vec(),
            "self_attn.q_proj.weight" => layer.query_key_value.set_rows(0, values),
            "self_attn.k_proj.weight" => layer.query_key_value.set_rows(query_width, values),
            "self_attn.v_proj.weight" => layer.query_key_value.set_rows(query_width + kv_width, values),
            "self_attn.q_proj.bias" => layer.query_key_value_bias[..query_width].copy_from_slice(values),
            "self_attn.k_proj.bias" => layer.query_key_value_bias[query_width..][..kv_width].copy_from_slice(values),
            "self_attn.v_proj.bias" => layer.query_key_value_bias[query_width + kv_width..].copy_from_slice(values),
            "self_attn.q_norm.weight" => layer.query_norm = values.to_vec(),
            "self_attn.k_norm.weight" => layer.key_norm = values.to_vec(),
            "self_attn.o_proj.weight" => layer.attention_output.set_rows(0, values),
            "post_attention_layernorm.weight" => layer.post_attention_norm = values.to_vec(),
            "mlp.gate_proj.weight" => layer.gate_up.set_rows(0, values),
            "mlp.up_proj.weight" => layer.gate_up.set_rows(self.config.intermediate_size, values),
            "mlp.down_proj.weight" => layer.down.set_rows(0, values),
            _ => panic!("generation knows no parameter `{path}`"),
        }
    }

    pub(super) fn embed(&self, token: u32, row: &mut [f32]) {
        self.embedding.copy_row(token as usize, row);
    }

    pub(super) fn head(&self) -> &PackedMatrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    pub(super) fn cache_shape(&self) -> CacheShape {
        CacheShape {
            num_layers: self.config.num_hidden_layers,
            num_kv_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        }
    }

    pub(super) fn cache_bytes_per_token(&self) -> usize {
        2 * self.config.num_hidden_layers * self.config.kv_width() * size_of::<f32>()
    }
}
