//! Grouped-query attention (arXiv 2305.13245) with rotary positions.
//!
//! Families differ in what is added: biases of the projections (Qwen2), a norm of every query and key head (Qwen3), a gate
//! on every head's output (Qwen3-Next and Qwen3.5, arXiv 2505.06708).

use super::{Linear, Norm, Source};
use crate::ops::{self, RotaryTables};
use crate::{Layout, ModelConfig};
use burn::module::Module;
use burn::tensor::{Tensor, activation};

/// Grouped-query attention over the tokens of one document up to each token.
#[derive(Module, Debug)]
pub struct Attention {
    /// Queries; with an output gate twice as wide, per head first the query and then the gate.
    pub q_proj: Linear,
    /// Keys.
    pub k_proj: Linear,
    /// Values.
    pub v_proj: Linear,
    /// Output.
    pub o_proj: Linear,
    /// Norm of each query head.
    pub q_norm: Option<Norm>,
    /// Norm of each key head.
    pub k_norm: Option<Norm>,
    query_heads: usize,
    kv_heads: usize,
    head_dim: usize,
    has_output_gate: bool,
}

impl Attention {
    pub(crate) fn new<E>(source: &mut Source<'_, E>, path: &str, config: &ModelConfig) -> Result<Attention, E> {
        let (hidden, design) = (config.hidden_size, &config.design);
        let mut projection = |name: &str, outputs: usize, inputs: usize, has_bias: bool| {
            Linear::new(source, &format!("{path}.{name}"), outputs, inputs, has_bias)
        };
        let gates = if design.has_output_gate { config.query_width() } else { 0 };
        let q_proj = projection("q_proj", config.query_width() + gates, hidden, design.has_qkv_bias)?;
        let k_proj = projection("k_proj", config.kv_width(), hidden, design.has_qkv_bias)?;
        let v_proj = projection("v_proj", config.kv_width(), hidden, design.has_qkv_bias)?;
        let o_proj = projection("o_proj", hidden, config.query_width(), false)?;
        let mut norm = |name: &str| match design.has_head_norms {
            true => config.norm(source, &format!("{path}.{name}"), config.head_dim).map(Some),
            false => Ok(None),
        };
        let (q_norm, k_norm) = (norm("q_norm")?, norm("k_norm")?);
        Ok(Attention {
            q_proj,
            k_proj,
            v_proj,
            o_proj,
            q_norm,
            k_norm,
            query_heads: config.num_attention_heads,
            kv_heads: config.num_key_value_heads,
            head_dim: config.head_dim,
            has_output_gate: design.has_output_gate,
        })
    }

    /// By name.
    pub(crate) fn projections(&mut self) -> [(&'static str, &mut Linear); 4] {
        let Attention { q_proj, k_proj, v_proj, o_proj, .. } = self;
        [("q_proj", q_proj), ("k_proj", k_proj), ("v_proj", v_proj), ("o_proj", o_proj)]
    }

    /// `[batch, seq, hidden]` to the same.
    pub fn forward(&self, x: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        self.o_proj.forward(self.heads(x, rotary, layout))
    }

    /// What enters the output projection, `[batch, seq, query_heads · head_dim]`.
    pub(crate) fn heads(&self, x: Tensor<3>, rotary: &RotaryTables, layout: &Layout) -> Tensor<3> {
        let [batch, seq, _] = x.dims();
        let turned = |heads: Tensor<4>, norm: &Option<Norm>| match norm {
            Some(norm) => norm.forward_and_turn(heads, rotary),
            None => ops::rotary(heads, rotary),
        };
        let key_heads = |x: Tensor<3>| x.reshape([batch, seq, self.kv_heads, self.head_dim]);
        let (q, gate) = self.queries_and_gates(x.clone());
        let q = turned(q, &self.q_norm);
        let k = turned(key_heads(self.k_proj.forward(x.clone())), &self.k_norm);
        let v = key_heads(self.v_proj.forward(x));
        let out = ops::attention(q, k, v, layout.visible().clone());
        let out = match gate {
            Some(gate) => out * activation::sigmoid(gate),
            None => out,
        };
        out.reshape([batch, seq, self.query_heads * self.head_dim])
    }

    /// Each `[batch, seq, query_heads, head_dim]`.
    fn queries_and_gates(&self, x: Tensor<3>) -> (Tensor<4>, Option<Tensor<4>>) {
        let ([batch, seq, _], head_dim) = (x.dims(), self.head_dim);
        let projected = self.q_proj.forward(x);
        if !self.has_output_gate {
            return (projected.reshape([batch, seq, self.query_heads, head_dim]), None);
        }
        let both = projected.reshape([batch, seq, self.query_heads, 2 * head_dim]);
        (both.clone().narrow(3, 0, head_dim), Some(both.narrow(3, head_dim, head_dim)))
    }
}
