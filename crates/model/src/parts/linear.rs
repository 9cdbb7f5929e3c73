//! A projection `x wᵀ + b`, the weight as published.

use super::{Adapter, Source};
use crate::Error;
use crate::lora::Adapters;
use crate::ops;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use worldloom_kernels::matmul::MatmulPrecision;

/// A matrix as published, `[outputs, inputs]`, and what is added after it.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[outputs, inputs]`.
    pub weight: Param<Tensor<2>>,
    /// `[outputs]`, where the family has one.
    pub bias: Option<Param<Tensor<1>>>,
    /// What is trained in its place.
    pub adapter: Option<Adapter>,
    /// Of the product with the weight; an adapter's are in single precision.
    #[module(skip)]
    pub(crate) matmul: MatmulPrecision,
}

impl Linear {
    pub(crate) fn new<E>(
        source: &mut Source<'_, E>,
        path: &str,
        outputs: usize,
        inputs: usize,
        has_bias: bool,
    ) -> Result<Linear, E> {
        let weight = source.parameter(&format!("{path}.weight"), [outputs, inputs])?;
        let bias = match has_bias {
            true => Some(source.parameter(&format!("{path}.bias"), [outputs])?),
            false => None,
        };
        Ok(Linear { weight, bias, adapter: None, matmul: MatmulPrecision::F32 })
    }

    /// Gives those that are chosen of a part's projections an adapter.
    pub(crate) fn adapt<'a>(
        projections: impl IntoIterator<Item = (&'static str, &'a mut Linear)>,
        path: &str,
        adapters: &mut Adapters<'_, '_>,
    ) -> Result<(), Error> {
        for (name, projection) in projections {
            projection.adapter = adapters.of(&format!("{path}.{name}"), projection.weight.dims())?;
        }
        Ok(())
    }

    /// `x wᵀ + b`, and what the adapter adds.
    ///
    /// # Shapes
    /// - `x`: `[batch, seq, inputs]`
    /// - output: `[batch, seq, outputs]`
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let added = self.adapter.as_ref().map(|adapter| adapter.forward(x.clone()));
        let y = ops::linear(x, self.weight.val(), self.matmul);
        let y = match &self.bias {
            Some(bias) => {
                ops::assert_single("linear", [("the bias", bias.dtype())]);
                y + bias.val().unsqueeze()
            }
            None => y,
        };
        match added {
            Some(added) => y + added,
            None => y,
        }
    }
}
