//! The Qwen3 dense decoder (arXiv 2505.09388): pre-norm blocks of grouped-query attention with normed heads, and SwiGLU.
//!
//! Field names are the published key names, so a parameter's path is its key. The seams are [`Decoder::embed`],
//! [`Decoder::block`] and [`Decoder::norm_and_head`]; everything else is made of them.

use crate::ops::{self, RotaryTables, RowLoss, RowTargets};
use crate::{Layout, ModelConfig};
use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};

/// A decoder: tokens in, logits of each next token out.
#[derive(Module, Debug)]
pub struct Decoder {
    /// Everything below the output projection.
    pub model: Backbone,
    /// The output projection, `[vocabulary, hidden]`; none where the embedding table serves.
    pub lm_head: Option<Linear>,
    query_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    rope_theta: f64,
    rms_norm_eps: f64,
}

/// Embedding, blocks and final norm.
#[derive(Module, Debug)]
pub struct Backbone {
    /// The embedding table.
    pub embed_tokens: Linear,
    /// The blocks in order.
    pub layers: Vec<Block>,
    /// The final norm.
    pub norm: Norm,
}

/// Attention and feed-forward part, each behind its norm and added to the stream.
#[derive(Module, Debug)]
pub struct Block {
    /// Norm before attention.
    pub input_layernorm: Norm,
    /// Attention.
    pub self_attn: Attention,
    /// Norm before the feed-forward part.
    pub post_attention_layernorm: Norm,
    /// The feed-forward part.
    pub mlp: FeedForward,
}

/// Grouped-query attention with a norm over each query and key head.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries.
    pub q_proj: Linear,
    /// Keys.
    pub k_proj: Linear,
    /// Values.
    pub v_proj: Linear,
    /// Output.
    pub o_proj: Linear,
    /// Norm of each query head.
    pub q_norm: Norm,
    /// Norm of each key head.
    pub k_norm: Norm,
}

/// `down(silu(gate) · up)`.
#[derive(Module, Debug)]
pub struct FeedForward {
    /// What opens.
    pub gate_proj: Linear,
    /// What passes.
    pub up_proj: Linear,
    /// Back to the stream.
    pub down_proj: Linear,
}

/// A matrix as published, `[outputs, inputs]`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Param<Tensor<2>>,
}

/// The weight of a root-mean-square norm.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[width]`.
    pub weight: Param<Tensor<1>>,
}

impl Decoder {
    /// A decoder whose parameters come from `values`, asked by published name and shape in a fixed order.
    pub(crate) fn from_values<E>(config: &ModelConfig, device: &Device, values: Values<'_, E>) -> Result<Decoder, E> {
        let (hidden, inner, heads) = (config.hidden_size, config.intermediate_size, config.head_dim);
        let mut source = Source { values, device };
        let embed_tokens = source.linear("model.embed_tokens", config.vocab_size, hidden)?;
        let mut layers = Vec::with_capacity(config.num_hidden_layers);
        for layer in 0..config.num_hidden_layers {
            let path = |name: &str| format!("model.layers.{layer}.{name}");
            layers.push(Block {
                input_layernorm: source.norm(&path("input_layernorm"), hidden)?,
                self_attn: Attention {
                    q_proj: source.linear(&path("self_attn.q_proj"), config.query_width(), hidden)?,
                    k_proj: source.linear(&path("self_attn.k_proj"), config.kv_width(), hidden)?,
                    v_proj: source.linear(&path("self_attn.v_proj"), config.kv_width(), hidden)?,
                    o_proj: source.linear(&path("self_attn.o_proj"), hidden, config.query_width())?,
                    q_norm: source.norm(&path("self_attn.q_norm"), heads)?,
                    k_norm: source.norm(&path("self_attn.k_norm"), heads)?,
                },
                post_attention_layernorm: source.norm(&path("post_attention_layernorm"), hidden)?,
                mlp: FeedForward {
                    gate_proj: source.linear(&path("mlp.gate_proj"), inner, hidden)?,
                    up_proj: source.linear(&path("mlp.up_proj"), inner, hidden)?,
                    down_proj: source.linear(&path("mlp.down_proj"), hidden, inner)?,
                },
            });
        }
        let norm = source.norm("model.norm", hidden)?;
        let lm_head = match config.tie_word_embeddings {
            true => None,
            false => Some(source.linear("lm_head", config.vocab_size, hidden)?),
        };
        Ok(Decoder {
            model: Backbone { embed_tokens, layers, norm },
            lm_head,
            query_heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            rope_theta: config.rope_theta,
            rms_norm_eps: config.rms_norm_eps,
        })
    }

    /// Rows of the embedding table: `[batch, seq]` to `[batch, seq, hidden]`.
    pub fn embed(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        ops::embedding(self.model.embed_tokens.weight.val(), tokens)
    }

    /// The rotary tables of a layout, for [`Decoder::block`].
    ///
    /// Angles are computed in single precision, as the reference does.
    pub fn rotary(&self, layout: &Layout) -> RotaryTables {
        let half = self.head_dim / 2;
        let frequency = |i: usize| 1.0 / (self.rope_theta as f32).powf((2 * i) as f32 / self.head_dim as f32);
        let frequencies: Vec<f32> = (0..half).map(frequency).collect();
        let angles: Vec<f32> = (0..layout.num_positions())
            .flat_map(|position| frequencies.iter().map(move |frequency| position as f32 * frequency))
            .collect();
        let device = layout.positions().device();
        let table = |of_angle: fn(f32) -> f32| {
            let values: Vec<f32> = angles.iter().copied().map(of_angle).collect();
            Tensor::from_data(TensorData::new(values, [layout.num_positions(), half]), &device)
        };
        RotaryTables { cos: table(f32::cos), sin: table(f32::sin), positions: layout.positions().clone() }
    }

    /// One block over `[batch, seq, hidden]`.
    pub fn block(&self, index: usize, stream: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        let block = &self.model.layers[index];
        let normed = self.norm(&block.input_layernorm, stream.clone());
        let stream = stream + self.attend(&block.self_attn, normed, rotary, layout);
        let normed = self.norm(&block.post_attention_layernorm, stream.clone());
        let mlp = &block.mlp;
        let inner = ops::swiglu(linear(&mlp.gate_proj, normed.clone()), linear(&mlp.up_proj, normed));
        stream + linear(&mlp.down_proj, inner)
    }

    /// The final norm and the output projection: `[batch, seq, hidden]` to `[batch, seq, vocabulary]`.
    pub fn norm_and_head(&self, stream: Tensor<3>) -> Tensor<3> {
        ops::linear(self.norm(&self.model.norm, stream), self.head())
    }

    /// Hidden states after the final norm, `[batch, seq, hidden]`.
    pub fn hidden(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        self.norm(&self.model.norm, self.stream(tokens, layout))
    }

    /// Logits of the token that follows each position, `[batch, seq, vocabulary]`.
    pub fn logits(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        self.norm_and_head(self.stream(tokens, layout))
    }

    /// `Σ_t weights[t] · nll_t`, unnormalised, `[1]`: the one law that every stage's loss is made of.
    ///
    /// `targets[t]` is the token predicted **at** position `t`, already shifted by the caller, and `weights[t]` its
    /// weight, row after row; rows of weight 0 are not computed. CPT and SFT pass loss weights over the step's sum, RL
    /// passes `−∂loss/∂log-prob`, which may be negative. The logits are divided by `temperature` first.
    pub fn weighted_nll(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        weights: &[f32],
        temperature: f32,
    ) -> Tensor<1> {
        self.row_losses(tokens, layout, targets, weights, temperature).total
    }

    /// As [`Decoder::weighted_nll`], with each row's `nll` beside the sum.
    pub fn row_losses(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        weights: &[f32],
        temperature: f32,
    ) -> RowLoss {
        let [batch, seq] = tokens.dims();
        assert_eq!(targets.len(), batch * seq, "one target per token");
        assert_eq!(weights.len(), batch * seq, "one weight per token");
        assert!(temperature > 0.0, "a loss needs a temperature above 0");
        let hidden = self.hidden(tokens, layout);
        let [_, _, width] = hidden.dims();
        let device = layout.positions().device();
        let targets = RowTargets {
            tokens: Tensor::from_data(TensorData::new(crate::layout::integers(targets), [batch * seq]), &device),
            weights: Tensor::from_data(TensorData::new(weights.to_vec(), [batch * seq]), &device),
            temperature,
        };
        ops::linear_cross_entropy(hidden.reshape([batch * seq, width]), self.head(), targets)
    }

    /// Log-probability of each target where `selected`, 0 elsewhere, without a graph.
    ///
    /// `targets` as in [`Decoder::weighted_nll`]; the logits are divided by `temperature` first.
    pub fn token_log_probs(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        selected: &[bool],
        temperature: f32,
    ) -> Vec<f32> {
        let weights: Vec<f32> = selected.iter().map(|&selected| if selected { 1.0 } else { 0.0 }).collect();
        let losses = self.valid().row_losses(tokens.inner(), layout, targets, &weights, temperature);
        losses.nll.into_data().iter::<f32>().map(|nll| -nll).collect()
    }

    fn stream(&self, tokens: Tensor<2, Int>, layout: &Layout) -> Tensor<3> {
        assert_eq!(tokens.dims(), layout.dims(), "tokens and layout differ in shape");
        let rotary = self.rotary(layout);
        let embedded = self.embed(tokens);
        (0..self.model.layers.len()).fold(embedded, |stream, index| self.block(index, stream, &rotary, layout))
    }

    fn attend(&self, attention: &Attention, x: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        let [batch, seq, _] = x.dims();
        let (query_heads, kv_heads, head_dim) = (self.query_heads, self.kv_heads, self.head_dim);
        let split = |x: Tensor<3>, heads: usize| x.reshape([batch, seq, heads, head_dim]);
        let turned =
            |x: Tensor<4>, norm: &Norm| ops::norm_rotary(x, norm.weight.val(), rotary, self.rms_norm_eps as f32);
        let q = turned(split(linear(&attention.q_proj, x.clone()), query_heads), &attention.q_norm);
        let k = turned(split(linear(&attention.k_proj, x.clone()), kv_heads), &attention.k_norm);
        let v = split(linear(&attention.v_proj, x), kv_heads);
        let out = ops::attention(q, k, v, layout.first_keys().clone());
        linear(&attention.o_proj, out.reshape([batch, seq, query_heads * head_dim]))
    }

    fn norm(&self, norm: &Norm, x: Tensor<3>) -> Tensor<3> {
        ops::rms_norm(x, norm.weight.val(), self.rms_norm_eps as f32)
    }

    fn head(&self) -> Tensor<2> {
        self.lm_head.as_ref().unwrap_or(&self.model.embed_tokens).weight.val()
    }
}

fn linear(linear: &Linear, x: Tensor<3>) -> Tensor<3> {
    ops::linear(x, linear.weight.val())
}

/// Answers the values of a parameter by its published name and shape; an empty answer stands for zeros that take no
/// memory.
type Values<'a, E> = &'a mut dyn FnMut(&str, &[usize]) -> Result<Vec<f32>, E>;

/// Makes parameters of what a source of values answers.
struct Source<'a, E> {
    values: Values<'a, E>,
    device: &'a Device,
}

impl<E> Source<'_, E> {
    fn linear(&mut self, path: &str, outputs: usize, inputs: usize) -> Result<Linear, E> {
        Ok(Linear { weight: self.parameter(path, [outputs, inputs])? })
    }

    fn norm(&mut self, path: &str, width: usize) -> Result<Norm, E> {
        Ok(Norm { weight: self.parameter(path, [width])? })
    }

    fn parameter<const D: usize>(&mut self, path: &str, shape: [usize; D]) -> Result<Param<Tensor<D>>, E> {
        let values = (self.values)(&format!("{path}.weight"), &shape)?;
        let tensor = match values.is_empty() {
            true => Tensor::<D>::zeros([1; D], self.device).expand(shape),
            false => Tensor::from_data(TensorData::new(values, shape), self.device),
        };
        let tensor = if self.device.is_autodiff() { tensor.require_grad() } else { tensor };
        Ok(Param::from_tensor(tensor))
    }
}
