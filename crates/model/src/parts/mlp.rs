//! The gated feed-forward part, `down(silu(gate) · up)`.

use super::{Linear, Source};
use crate::Error;
use crate::lora::Adapters;
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

    pub(crate) fn adapt(&mut self, path: &str, adapters: &mut Adapters<'_, '_>) -> Result<(), Error> {
        self.gate_proj.adapt(&format!("{path}.gate_proj"), adapters)?;
        self.up_proj.adapt(&format!("{path}.up_proj"), adapters)?;
        self.down_proj.adapt(&format!("{path}.down_proj"), adapters)
    }

    /// `[batch, seq, hidden]` to the same.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let inner = ops::swiglu(self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        self.down_proj.forward(inner)
    }
}
