//! A batch's loss pushed back into sums of gradients: in one graph, or block by block.
//!
//! *Block recompute* keeps the input of every block and makes the rest again in the backward pass (arXiv 1604.06174, with
//! one segment per block). Activation memory is O(layers × hidden) and one block's own, in place of all blocks' own; the
//! price is one more forward pass. The gradients are those of one graph: the same operations in the same order, and the
//! sums that meet in a block have two terms. Only an embedding that is also the head adds its two parts to the sum one after
//! the other, and with a routers' loss three terms meet in a block.

use crate::counted::Counted;
use crate::ops::RowLoss;
use crate::routers::{RouterSum, RouterTerm};
use crate::{Decoder, Gradients, Layout};
use burn::module::Module;
use burn::tensor::{DType, Int, Tensor};

/// Weights that follow from the log-probs: takes one of each position (0 where nothing is weighed), in nats, and gives its
/// weight.
pub type Weigh<'a> = dyn Fn(&[f32]) -> Vec<f32> + Sync + 'a;

/// What is pushed back: [`Decoder::weighted_nll`] of these, and the routers' loss where there is one.
#[derive(Clone, Copy)]
pub struct Objective<'a> {
    /// The token predicted at each position.
    pub targets: &'a [u32],
    /// Its weight.
    pub weights: &'a [f32],
    /// In place of the weights, which then say by being 0 which positions are left out: one forward pass gives the log-probs
    /// and is pushed back.
    pub weigh: Option<&'a Weigh<'a>>,
    /// The logits are divided by it.
    pub temperature: f32,
    /// Added as it is.
    pub routers: Option<RouterTerm<'a>>,
}

/// The values of an [`Objective`], apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Losses {
    /// `Σ weight · nll`.
    pub nll: f32,
    /// The routers' loss; 0 where there is none.
    pub routers: f32,
}

impl Losses {
    /// Whether both are numbers.
    pub fn is_finite(&self) -> bool {
        self.nll.is_finite() && self.routers.is_finite()
    }
}

impl Decoder {
    /// Adds the gradients of an objective to `gradients` and returns its value; nothing is added where that is not finite.
    /// The decoder must be on an autodiff device.
    pub fn accumulate(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        objective: &Objective<'_>,
        gradients: &mut Gradients,
    ) -> Losses {
        let Objective { targets, weights, temperature, routers, .. } = *objective;
        self.check_targets(&tokens, targets, weights, temperature);
        let counted = Counted::weighed(weights, layout);
        let mut sum = RouterSum::new(routers);
        let stream = self.counted_stream(tokens, layout, &counted, &mut |routing| sum.add(routing));
        let nll = self.objective_losses(stream, objective, &counted).total;
        let routers = sum.into_sum();
        let losses = Losses { nll: value(&nll), routers: routers.as_ref().map_or(0.0, value) };
        if losses.is_finite() {
            gradients.accumulate(self, routers.map_or(nll.clone(), |routers| nll + routers));
        }
        losses
    }

    /// As [`Decoder::accumulate`], with the blocks computed again in the backward pass. A routers' loss that is not finite
    /// shows in its value and in the gradients.
    pub fn accumulate_recomputed(
        &self,
        tokens: Tensor<2, Int>,
        layout: &Layout,
        objective: &Objective<'_>,
        gradients: &mut Gradients,
    ) -> Losses {
        let Objective { targets, weights, temperature, routers, .. } = *objective;
        self.check_targets(&tokens, targets, weights, temperature);
        let counted = Counted::weighed(weights, layout);
        let (mut inputs, stream) = self.block_inputs(&tokens, layout, &counted);
        let stream = leaf(stream);
        let loss = self.objective_losses(stream.clone(), objective, &counted).total;
        let mut losses = Losses { nll: value(&loss), routers: 0.0 };
        if !losses.is_finite() {
            return losses;
        }
        let mut gradient = self.pull(stream, loss, gradients);
        let rotary = self.rotary(layout);
        while let Some(input) = inputs.pop() {
            let input = leaf(input);
            let mut sum = RouterSum::new(routers);
            let watch = &mut |routing: &_| sum.add(routing);
            let output = self.counted_block(inputs.len(), input.clone(), &rotary, layout, &counted, watch);
            let pushed = (output * Tensor::from_inner(gradient)).sum();
            let pushed = match sum.into_sum() {
                Some(routers) => {
                    losses.routers += value(&routers);
                    pushed + routers
                }
                None => pushed,
            };
            gradient = self.pull(input, pushed, gradients);
        }
        // Adapters leave the embedding as it is.
        if !self.is_adapted() {
            let pushed = (self.embed(tokens) * Tensor::from_inner(gradient)).sum();
            gradients.take(self, &mut pushed.backward());
        }
        losses
    }

    /// The losses of an objective from what leaves the last block at the positions that count.
    fn objective_losses(&self, stream: Tensor<3>, objective: &Objective<'_>, counted: &Counted) -> RowLoss {
        let Objective { targets, weights, weigh, temperature, .. } = *objective;
        let (targets, mut weights) = (counted.pick(targets), counted.pick(weights));
        if let Some(weigh) = weigh {
            let losses = self.valid().stream_losses(stream.clone().inner(), &targets, &weights, temperature);
            let log_probs = counted.spread(losses.log_probs());
            let weighed = weigh(&log_probs);
            assert_eq!(weighed.len(), log_probs.len(), "one weight per log-prob");
            weights = counted.pick(&weighed);
        }
        self.stream_losses(stream, &targets, &weights, temperature)
    }

    /// What enters each block, and what leaves the last, without a graph: a copy of the decoder whose parameters want no
    /// gradient. A graph that is made and dropped would keep its activations until the next backward pass; and on the
    /// inner device burn computes a softmax in another order, so that the bits would differ.
    fn block_inputs(&self, tokens: &Tensor<2, Int>, layout: &Layout, counted: &Counted) -> (Vec<Tensor<3>>, Tensor<3>) {
        let decoder = self.clone().no_grad();
        let rotary = decoder.rotary(layout);
        let mut stream = decoder.embed(tokens.clone()).inner();
        let mut inputs = Vec::with_capacity(decoder.model.layers.len());
        for index in 0..decoder.model.layers.len() {
            inputs.push(stream.clone());
            let input = Tensor::from_inner(stream);
            stream = decoder.counted_block(index, input, &rotary, layout, counted, &mut |_| ()).inner();
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
        input.grad_remove(&mut graph).unwrap_or_else(|| Tensor::zeros(dims, (&device, DType::F32)))
    }
}

fn leaf(tensor: Tensor<3>) -> Tensor<3> {
    Tensor::from_inner(tensor).require_grad()
}

fn value(scalar: &Tensor<1>) -> f32 {
    scalar.clone().into_scalar::<f32>()
}
