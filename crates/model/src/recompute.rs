//! Block recompute: a backward pass that keeps the input of every block and makes the rest again, block by block
//! (arXiv 1604.06174, with one segment per block).
//!
//! Activation memory is O(layers × hidden) and one block's own, in place of all blocks' own; the price is one more forward
//! pass. The gradients are those of one graph: the same operations in the same order, and the sums that meet in a block
//! have two terms. Only an embedding that is also the head adds its two parts to the sum one after the other.

use crate::{Decoder, Gradients, Layout};
use burn::module::Module;
use burn::tensor::{Int, Tensor};

impl Decoder {
    /// Adds the gradients of [`Decoder::weighted_nll`] to `gradients` and returns its value; nothing is added where that
    /// is not finite. The decoder must be on an autodiff device.
    pub fn accumulate_recomputed(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        targets: &[u32],
        weights: &[f32],
        temperature: f32,
        gradients: &mut Gradients,
    ) -> f32 {
        self.check_targets(&tokens, targets, weights, temperature);
        let (mut inputs, stream) = self.block_inputs(&tokens, layout);
        let stream = leaf(stream);
        let loss = self.stream_losses(stream.clone(), targets, weights, temperature).total;
        let value = loss.clone().into_scalar::<f32>();
        if !value.is_finite() {
            return value;
        }
        let mut gradient = self.pull(stream, loss, gradients);
        let rotary = self.rotary(layout);
        while let Some(input) = inputs.pop() {
            let input = leaf(input);
            let output = self.block(inputs.len(), input.clone(), &rotary, layout);
            gradient = self.pull(input, (output * Tensor::from_inner(gradient)).sum(), gradients);
        }
        // Adapters leave the embedding as it is.
        if !self.is_adapted() {
            let pushed = (self.embed(tokens) * Tensor::from_inner(gradient)).sum();
            gradients.take(self, &mut pushed.backward());
        }
        value
    }

    /// What enters each block, and what leaves the last, without a graph: a copy of the decoder whose parameters want no
    /// gradient. A graph that is made and dropped would keep its activations until the next backward pass; and on the
    /// inner device burn computes a softmax in another order, so that the bits would differ.
    fn block_inputs(&self, tokens: &Tensor<2, Int>, layout: &Layout) -> (Vec<Tensor<3>>, Tensor<3>) {
        let decoder = self.clone().no_grad();
        let rotary = decoder.rotary(layout);
        let mut stream = decoder.embed(tokens.clone()).inner();
        let mut inputs = Vec::with_capacity(decoder.model.layers.len());
        for index in 0..decoder.model.layers.len() {
            inputs.push(stream.clone());
            stream = decoder.block(index, Tensor::from_inner(stream), &rotary, layout).inner();
        }
        (inputs, stream)
    }

    /// Runs a backward pass, takes the parameters' gradients and returns that of `input`.
    fn pull(&self, input: Tensor<3>, scalar: Tensor<1>, gradients: &mut Gradients) -> Tensor<3> {
        let mut graph = scalar.backward();
        gradients.take(self, &mut graph);
        let dims = input.dims();
        let device = input.device().inner();
        // No gradient: no row has a weight.
        input.grad_remove(&mut graph).unwrap_or_else(|| Tensor::zeros(dims, &device))
    }
}

fn leaf(tensor: Tensor<3>) -> Tensor<3> {
    Tensor::from_inner(tensor).require_grad()
}
