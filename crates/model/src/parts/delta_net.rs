//! The gated delta-net (arXiv 2412.06464): a state of fixed size per head in place of a cache that grows.
//!
//! Queries, keys and values pass a short causal convolution, then the gated delta rule; the output of every head is
//! normed and gated. A document starts with an empty state and nothing before its first token, a branch with what its
//! prefix left.
#![expect(non_snake_case, reason = "`A_log` is a published key")]

use super::{Linear, Norm, Source};
use crate::ops::{self, DeltaInputs};
use crate::{DeltaNetShape, Layout, ModelConfig};
use burn::module::{Module, Param};
use burn::tensor::{Tensor, activation};

/// Added to the sum of squares of a query or key head before its root.
pub(crate) const UNIT_EPS: f32 = 1e-6;

/// The gated delta-net of a block.
///
/// The input projections are published in two forms: per key head side by side in two matrices (Qwen3-Next), or one
/// after the other in four (Qwen3.5).
#[derive(Module, Debug)]
pub struct GatedDeltaNet {
    /// Per key head: its query, its key, its value heads and their gates.
    pub in_proj_qkvz: Option<Linear>,
    /// Per key head: steps and decays of its value heads.
    pub in_proj_ba: Option<Linear>,
    /// All queries, then all keys, then all values.
    pub in_proj_qkv: Option<Linear>,
    /// Output gates.
    pub in_proj_z: Option<Linear>,
    /// Steps.
    pub in_proj_b: Option<Linear>,
    /// Decays.
    pub in_proj_a: Option<Linear>,
    /// The convolution over queries, keys and values.
    pub conv1d: Convolution,
    /// Added before the decay's softplus, `[value_heads]`.
    pub dt_bias: Param<Tensor<1>>,
    /// Logarithm of the decay's rate, `[value_heads]`.
    pub A_log: Param<Tensor<1>>,
    /// Norm of each head's output; never zero-centred.
    pub norm: Norm,
    /// Back to the stream.
    pub out_proj: Linear,
    #[module(skip)]
    shape: DeltaNetShape,
}

/// A causal convolution of every channel by itself.
#[derive(Module, Debug)]
pub struct Convolution {
    /// `[channels, 1, kernel]`, the last of a channel for the token itself.
    pub weight: Param<Tensor<3>>,
}

/// What the input projections give, before the convolution.
struct Projected {
    /// `[batch, seq, 2 · key_width + value_width]`
    queries_keys_values: Tensor<3>,
    /// `[batch, seq, value_width]`
    gates: Tensor<3>,
    /// `[batch, seq, value_heads]`
    steps: Tensor<3>,
    /// `[batch, seq, value_heads]`
    decays: Tensor<3>,
}

impl GatedDeltaNet {
    pub(crate) fn new<E>(
        source: &mut Source<'_, E>,
        path: &str,
        config: &ModelConfig,
        shape: &DeltaNetShape,
    ) -> Result<GatedDeltaNet, E> {
        let (hidden, heads) = (config.hidden_size, shape.num_value_heads);
        let is_interleaved = shape.has_interleaved_projections;
        let mut projection = |name: &str, outputs: usize, is_here: bool| match is_here {
            true => Linear::new(source, &format!("{path}.{name}"), outputs, hidden, false).map(Some),
            false => Ok(None),
        };
        let (keys_values, gates) = (shape.conv_width(), shape.value_width());
        let in_proj_qkvz = projection("in_proj_qkvz", keys_values + gates, is_interleaved)?;
        let in_proj_ba = projection("in_proj_ba", 2 * heads, is_interleaved)?;
        let in_proj_qkv = projection("in_proj_qkv", keys_values, !is_interleaved)?;
        let in_proj_z = projection("in_proj_z", gates, !is_interleaved)?;
        let in_proj_b = projection("in_proj_b", heads, !is_interleaved)?;
        let in_proj_a = projection("in_proj_a", heads, !is_interleaved)?;
        let kernel = [shape.conv_width(), 1, shape.conv_kernel_dim];
        Ok(GatedDeltaNet {
            in_proj_qkvz,
            in_proj_ba,
            in_proj_qkv,
            in_proj_z,
            in_proj_b,
            in_proj_a,
            conv1d: Convolution { weight: source.parameter(&format!("{path}.conv1d.weight"), kernel)? },
            dt_bias: source.parameter(&format!("{path}.dt_bias"), [heads])?,
            A_log: source.parameter(&format!("{path}.A_log"), [heads])?,
            norm: Norm::new(source, &format!("{path}.norm"), shape.value_head_dim, config.rms_norm_eps, false)?,
            out_proj: Linear::new(source, &format!("{path}.out_proj"), hidden, shape.value_width(), false)?,
            shape: *shape,
        })
    }

    /// By name.
    pub(crate) fn projections(&mut self) -> impl Iterator<Item = (&'static str, &mut Linear)> {
        let optional = [
            ("in_proj_qkvz", &mut self.in_proj_qkvz),
            ("in_proj_ba", &mut self.in_proj_ba),
            ("in_proj_qkv", &mut self.in_proj_qkv),
            ("in_proj_z", &mut self.in_proj_z),
            ("in_proj_b", &mut self.in_proj_b),
            ("in_proj_a", &mut self.in_proj_a),
        ];
        let inward = optional.into_iter().filter_map(|(name, projection)| Some((name, projection.as_mut()?)));
        inward.chain([("out_proj", &mut self.out_proj)])
    }

    /// `[batch, seq, hidden]` to the same.
    pub fn forward(&self, x: Tensor<3>, layout: &Layout) -> Tensor<3> {
        let ([batch, seq, _], shape) = (x.dims(), &self.shape);
        let (key_width, value_width) = (shape.key_width(), shape.value_width());
        ops::assert_single("delta_net", [("dt_bias", self.dt_bias.dtype()), ("A_log", self.A_log.dtype())]);
        let projected = self.project(x);
        let visible = layout.visible().clone();
        let mixed = ops::causal_convolution(projected.queries_keys_values, self.conv1d.weight.val(), visible.clone());
        let keys = |start: usize| {
            let heads = mixed.clone().narrow(2, start, key_width);
            unit(heads.reshape([batch, seq, shape.num_key_heads, shape.key_head_dim]))
        };
        let value_heads = [batch, seq, shape.num_value_heads, shape.value_head_dim];
        let out = ops::delta_rule(DeltaInputs {
            q: keys(0) / (shape.key_head_dim as f32).sqrt(),
            k: keys(key_width),
            v: mixed.clone().narrow(2, 2 * key_width, value_width).reshape(value_heads),
            log_decay: softplus(projected.decays + self.dt_bias.val().unsqueeze())
                * self.A_log.val().exp().neg().unsqueeze(),
            beta: activation::sigmoid(projected.steps),
            visible,
        });
        let out = ops::swiglu(projected.gates.reshape(value_heads), self.norm.forward(out));
        self.out_proj.forward(out.reshape([batch, seq, value_width]))
    }

    fn project(&self, x: Tensor<3>) -> Projected {
        let part = |projection: &Option<Linear>| {
            let projection = projection.as_ref().expect("a delta-net has its projections in one form or the other");
            projection.forward(x.clone())
        };
        if !self.shape.has_interleaved_projections {
            return Projected {
                queries_keys_values: part(&self.in_proj_qkv),
                gates: part(&self.in_proj_z),
                steps: part(&self.in_proj_b),
                decays: part(&self.in_proj_a),
            };
        }
        let ([batch, seq, _], shape) = (x.dims(), &self.shape);
        let heads = shape.num_key_heads;
        let (key, value) = (shape.key_head_dim, shape.value_width() / heads);
        let joint = part(&self.in_proj_qkvz).reshape([batch, seq, heads, 2 * (key + value)]);
        let of_all =
            |start: usize, width: usize| joint.clone().narrow(3, start, width).reshape([batch, seq, heads * width]);
        let per_key = shape.num_value_heads / heads;
        let pairs = part(&self.in_proj_ba).reshape([batch, seq, heads, 2 * per_key]);
        let of_pairs =
            |start: usize| pairs.clone().narrow(3, start, per_key).reshape([batch, seq, shape.num_value_heads]);
        Projected {
            queries_keys_values: Tensor::cat(vec![of_all(0, key), of_all(key, key), of_all(2 * key, value)], 2),
            gates: of_all(2 * key + value, value),
            steps: of_pairs(0),
            decays: of_pairs(per_key),
        }
    }
}

/// Every head over its length: `x / sqrt(Σ x² + eps)`.
fn unit(heads: Tensor<4>) -> Tensor<4> {
    let length = (heads.clone().square().sum_dim(3) + UNIT_EPS).sqrt();
    heads / length
}

/// `ln(1 + exp(x))`, without overflow.
fn softplus(x: Tensor<3>) -> Tensor<3> {
    x.clone().clamp_min(0.0) + x.abs().neg().exp().log1p()
}
