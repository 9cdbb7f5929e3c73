//! Low-rank adapters (LoRA, arXiv 2106.09685): `scale · B A x` beside a projection whose weight stays as it is.
#![expect(non_snake_case, reason = "`lora_A` and `lora_B` are published keys")]

use crate::ops;
use burn::module::{Module, Param};
use burn::tensor::{DType, Tensor, TensorData};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::{Arc, Mutex, PoisonError};
use worldloom_kernels::matmul::MatmulPrecision;

/// The adapter of one projection.
#[derive(Module, Debug)]
pub struct Adapter {
    /// `[rank, inputs]`.
    pub lora_A: Param<Tensor<2>>,
    /// `[outputs, rank]`.
    pub lora_B: Param<Tensor<2>>,
    pub(crate) scale: f64,
    #[module(skip)]
    pub(crate) dropout: Dropout,
}

impl Adapter {
    /// `scale · B A x`, with dropout on `x` while it is on.
    ///
    /// # Shapes
    /// - `x`: `[batch, seq, inputs]`
    /// - output: `[batch, seq, outputs]`
    pub(crate) fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let inner = ops::linear(self.dropout.apply(x), self.lora_A.val(), MatmulPrecision::F32);
        ops::linear(inner, self.lora_B.val(), MatmulPrecision::F32) * self.scale
    }
}

/// The adapters of one projection of all experts.
#[derive(Module, Debug)]
pub struct ExpertAdapter {
    /// `[experts, rank, inputs]`.
    pub lora_A: Param<Tensor<3>>,
    /// `[experts, outputs, rank]`.
    pub lora_B: Param<Tensor<3>>,
    pub(crate) scale: f64,
}

impl ExpertAdapter {
    /// What the weights of all experts gain, `[experts, outputs, inputs]`.
    pub(crate) fn delta(&self) -> Tensor<3> {
        self.lora_B.val().matmul(self.lora_A.val()) * self.scale
    }
}

/// Leaves out inputs of an adapter at random, while a seed is set.
///
/// The seed is shared by all adapters of a decoder, and each draws from a stream of its own: what is left out depends on
/// the seed and on nothing else.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropout {
    pub(crate) share: f64,
    pub(crate) stream: u64,
    pub(crate) seed: DropoutSeed,
}

/// The seed of all adapters; none: nothing is left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct DropoutSeed(Arc<Mutex<Option<u64>>>);

impl DropoutSeed {
    pub(crate) fn set(&self, seed: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = seed;
    }

    fn get(&self) -> Option<u64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dropout {
    fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        let Some(seed) = self.seed.get().filter(|_| self.share > 0.0) else { return x };
        let mut generator = ChaCha8Rng::seed_from_u64(seed);
        generator.set_stream(self.stream);
        let limit = (self.share * 2f64.powi(32)) as u32;
        let kept = (1.0 / (1.0 - self.share)) as f32;
        let shape = x.dims();
        let factors: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|_| if generator.random::<u32>() < limit { 0.0 } else { kept })
            .collect();
        let factors = Tensor::from_data(TensorData::new(factors, shape), (&x.device(), DType::F32));
        x * factors
    }
}
