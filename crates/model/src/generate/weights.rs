//! The decoder's weights as the kernels want them: projections that share their input side by side, all packed.

use worldloom_kernels::decode::{CacheShape, PackedMatrix};

use super::attention::Attention;
use super::delta_net::{DeltaNet, RecurrentState};
use super::feed_forward::{Experts, FeedForward, Mlp};
use crate::parts::rope;
use crate::{Design, FeedForwardKind, Mixer as MixerKind, ModelConfig, Precision};

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
    pub(super) mixer: Mixer,
    pub(super) post_attention_norm: Vec<f32>,
    pub(super) feed_forward: FeedForward,
}

pub(super) enum Mixer {
    Attention(Attention),
    DeltaNet(DeltaNet),
}

/// A matrix of zeros, to be filled.
pub(super) fn zeros(precision: Precision, outputs: usize, inputs: usize) -> PackedMatrix {
    match precision {
        Precision::F32 => PackedMatrix::zeros(outputs, inputs),
        Precision::BF16 => PackedMatrix::zeros_in_bf16(outputs, inputs),
    }
}

impl Design {
    /// What a norm's stored weight multiplies by.
    pub(super) fn norm_scale(&self, weight: &[f32]) -> Vec<f32> {
        let offset = if self.has_zero_centred_norms { 1.0 } else { 0.0 };
        weight.iter().map(|value| value + offset).collect()
    }

    /// Layers whose mixer is a delta-net; all others have a cache.
    pub(super) fn num_delta_nets(&self) -> usize {
        self.layers.iter().filter(|layer| layer.mixer == MixerKind::DeltaNet).count()
    }

    fn num_attentions(&self) -> usize {
        self.layers.len() - self.num_delta_nets()
    }
}

impl Weights {
    /// Weights of the right shapes, to be filled by [`Self::set`].
    pub(super) fn zeros(config: &ModelConfig, precision: Precision) -> Weights {
        let matrix = |outputs| zeros(precision, outputs, config.hidden_size);
        let (mut attentions, mut delta_nets) = (0.., 0..);
        let mut layer = |index: usize| Layer {
            input_norm: Vec::new(),
            mixer: match (config.design.layers[index].mixer, &config.design.delta_net) {
                (MixerKind::DeltaNet, Some(shape)) => {
                    Mixer::DeltaNet(DeltaNet::zeros(config, precision, shape, delta_nets.next().unwrap_or_default()))
                }
                _ => Mixer::Attention(Attention::zeros(config, precision, attentions.next().unwrap_or_default())),
            },
            post_attention_norm: Vec::new(),
            feed_forward: match (config.design.layers[index].feed_forward, &config.design.experts) {
                (FeedForwardKind::Experts, Some(shape)) => {
                    FeedForward::Experts(Experts::zeros(precision, config.hidden_size, shape))
                }
                _ => FeedForward::Dense(Mlp::zeros(precision, config.hidden_size, config.intermediate_size)),
            },
        };
        Weights {
            rope_frequencies: rope::frequencies(config),
            embedding: matrix(config.vocab_size),
            head: (!config.tie_word_embeddings).then(|| matrix(config.vocab_size)),
            final_norm: Vec::new(),
            layers: (0..config.num_hidden_layers).map(&mut layer).collect(),
            config: config.clone(),
        }
    }

    /// Packs one parameter under its published name.
    pub(super) fn set(&mut self, path: &str, values: &[f32]) {
        match path {
            "model.embed_tokens.weight" => self.embedding.set_rows(0, values),
            "model.norm.weight" => self.final_norm = self.config.design.norm_scale(values),
            // A tied head is the embedding, whether or not it is shown a second time.
            "lm_head.weight" => self.head.iter_mut().for_each(|head| head.set_rows(0, values)),
            _ => self.set_in_layer(path, values),
        }
    }

    fn set_in_layer(&mut self, path: &str, values: &[f32]) {
        let in_layers = path.strip_prefix("model.layers.").and_then(|rest| rest.split_once('.'));
        let (index, name) = in_layers.unwrap_or_else(|| panic!("generation knows no parameter `{path}`"));
        let index: usize = index.parse().unwrap_or_else(|_| panic!("`{path}` names no layer"));
        let (config, layer) = (&self.config, &mut self.layers[index]);
        let (part, rest) = name.split_once('.').unwrap_or((name, ""));
        let is_known = match (part, &mut layer.mixer) {
            ("input_layernorm", _) => {
                layer.input_norm = config.design.norm_scale(values);
                true
            }
            ("post_attention_layernorm", _) => {
                layer.post_attention_norm = config.design.norm_scale(values);
                true
            }
            ("self_attn", Mixer::Attention(attention)) => attention.set(config, rest, values),
            ("linear_attn", Mixer::DeltaNet(delta_net)) => delta_net.set(config, rest, values),
            ("mlp", _) => layer.feed_forward.set(config, rest, values),
            _ => false,
        };
        assert!(is_known, "generation knows no parameter `{path}`");
    }

    pub(super) fn embed(&self, token: u32, row: &mut [f32]) {
        self.embedding.copy_row(token as usize, row);
    }

    pub(super) fn head(&self) -> &PackedMatrix {
        self.head.as_ref().unwrap_or(&self.embedding)
    }

    pub(super) fn cache_shape(&self) -> CacheShape {
        CacheShape {
            num_layers: self.config.design.num_attentions(),
            num_kv_heads: self.config.num_key_value_heads,
            head_dim: self.config.head_dim,
        }
    }

    pub(super) fn cache_bytes_per_token(&self) -> usize {
        2 * self.config.design.num_attentions() * self.config.kv_width() * size_of::<f32>()
    }

    pub(super) fn state_bytes_per_sequence(&self) -> usize {
        RecurrentState::num_bytes(&self.config)
    }

    /// Positions of the cache that take as much memory as the delta-nets' states of one sequence; 1 where nothing is
    /// cached for a position.
    pub(super) fn state_positions(&self) -> usize {
        match (self.state_bytes_per_sequence(), self.cache_bytes_per_token()) {
            (0, _) => 0,
            (_, 0) => 1,
            (state, position) => state.div_ceil(position),
        }
    }
}
