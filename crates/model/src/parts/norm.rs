//! The root-mean-square norm, plain and zero-centred.

use super::Source;
use crate::ops::{self, RotaryTables};
use burn::module::{Module, Param};
use burn::tensor::Tensor;

/// `x / sqrt(mean(x²) + eps) · scale` over the last axis.
#[derive(Module, Debug)]
pub struct Norm {
    /// `[width]`: the scale, or the scale less 1 where the family stores it zero-centred.
    pub weight: Param<Tensor<1>>,
    eps: f64,
    is_zero_centred: bool,
}

impl Norm {
    pub(crate) fn new<E>(
        source: &mut Source<'_, E>,
        path: &str,
        width: usize,
        eps: f64,
        is_zero_centred: bool,
    ) -> Result<Norm, E> {
        Ok(Norm { weight: source.parameter(&format!("{path}.weight"), [width])?, eps, is_zero_centred })
    }

    /// The norm of each row of the last axis.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        ops::rms_norm(x, self.scale(), self.eps as f32)
    }

    /// The norm of each head, `[batch, seq, heads, head_dim]`, and its rotary turn.
    pub(crate) fn forward_and_turn(&self, heads: Tensor<4>, rotary: &RotaryTables) -> Tensor<4> {
        ops::norm_rotary(heads, self.scale(), rotary, self.eps as f32)
    }

    fn scale(&self) -> Tensor<1> {
        if self.is_zero_centred { self.weight.val() + 1.0 } else { self.weight.val() }
    }
}
