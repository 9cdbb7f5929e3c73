//! The gated feed-forward part, `down(silu(gate) · up)`.

use super::{Linear, Source};
use crate::ops;
use burn::module::Module;
use burn::tensor::Tensor;

/// `down(silu(gate) · up)`.
#[derive(Module, Debug)]
pub struct Mlp {
    /// What opens.
    pub gate_proj: Linear,
    /// What passes.
    pub up_proj: Linear,
    /// Back to the stream.
    pub down_proj: Linear,
}

impl Mlp {
    pub(crate) fn new<E>(source: &mut Source<'_, E>, path: &str, hidden: usize, inner: usize) -> Result<Mlp, E> {
        Ok(Mlp {
            gate_proj: Linear::new(source, &format!("{path}.gate_proj"), inner, hidden, false)?,
            up_proj: Linear::new(source, &format!("{path}.up_proj"), inner, hidden, false)?,
            down_proj: Linear::new(source, &format!("{path}.down_proj"), hidden, inner, false)?,
        })
    }

    /// By name.
    pub(crate) fn projections(&mut self) -> [(&'static str, &mut Linear); 3] {
        let Mlp { gate_proj, up_proj, down_proj } = self;
        [("gate_proj", gate_proj), ("up_proj", up_proj), ("down_proj", down_proj)]
    }

    /// `[batch, seq, hidden]` to the same.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let inner = ops::swiglu(self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        self.down_proj.forward(inner)
    }
}
