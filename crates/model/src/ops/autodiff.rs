//! The backward passes, once for every backend that has the kernels.
//!
//! Each operation computes forward on the inner backend, keeps what its backward pass needs, and registers gradients
//! for those parents that want one.

use super::kernels::{DecoderOps, Float, Kernels};
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::tensor::IntTensor;
use burn::backend::{Autodiff, TensorMetadata};
use worldloom_kernels::matmul::MatmulPrecision;

#[derive(Debug)]
struct Embedding;

impl<B: Kernels> Backward<B, 1> for Embedding {
    type State = (IntTensor<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (tokens, vocabulary) = ops.state;
        let [weight] = ops.parents;
        if let Some(node) = weight {
            grads.register::<B>(node.id, B::embedding_gradient(&tokens, &dy, vocabulary));
        }
    }
}

#[derive(Debug)]
struct Linear {
    precision: MatmulPrecision,
}

impl<B: Kernels> Backward<B, 2> for Linear {
    type State = (Float<B>, Float<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, weight) = ops.state;
        let [x_node, weight_node] = ops.parents;
        if let Some(node) = x_node {
            grads.register::<B>(node.id, B::linear_backward_input(&weight, &dy, self.precision));
        }
        if let Some(node) = weight_node {
            grads.register::<B>(node.id, B::linear_backward_weight(&x, &dy, self.precision));
        }
    }
}

#[derive(Debug)]
struct RmsNorm;

impl<B: Kernels> Backward<B, 2> for RmsNorm {
    type State = (Float<B>, Float<B>, Float<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, weight, inverse_rms) = ops.state;
        let gradients = B::rms_norm_backward(&x, &weight, &inverse_rms, &dy);
        register::<B, 2>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

#[derive(Debug)]
struct NormRotary;

impl<B: Kernels> Backward<B, 2> for NormRotary {
    type State = (Float<B>, Float<B>, [Float<B>; 2], IntTensor<B>, Float<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, weight, tables, positions, inverse_rms) = ops.state;
        let gradients = B::norm_rotary_backward(&x, &weight, &tables, &positions, &inverse_rms, &dy);
        register::<B, 2>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

#[derive(Debug)]
struct Turn;

impl<B: Kernels> Backward<B, 1> for Turn {
    type State = ([Float<B>; 2], IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (tables, positions) = ops.state;
        let [x] = ops.parents;
        if let Some(node) = x {
            grads.register::<B>(node.id, B::rotary_backward(&tables, &positions, &dy));
        }
    }
}

#[derive(Debug)]
struct SwiGlu;

impl<B: Kernels> Backward<B, 2> for SwiGlu {
    type State = (Float<B>, Float<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (gate, up) = ops.state;
        register::<B, 2>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::swiglu_backward(&gate, &up, &dy),
        );
    }
}

#[derive(Debug)]
struct Attention;

impl<B: Kernels> Backward<B, 3> for Attention {
    type State = ([Float<B>; 3], IntTensor<B>, [Float<B>; 2]);

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (inputs, visible, outputs) = ops.state;
        register::<B, 3>(
            grads,
            ops.parents.map(|parent| parent.map(|node| node.id)),
            B::attention_backward(&inputs, &visible, &outputs, &dy),
        );
    }
}

#[derive(Debug)]
struct Experts {
    precision: MatmulPrecision,
}

impl<B: Kernels> Backward<B, 4> for Experts {
    type State = ([Float<B>; 4], IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (inputs, choices) = ops.state;
        let gradients = B::experts_backward(&inputs, &choices, &dy, self.precision);
        register::<B, 4>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

#[derive(Debug)]
struct CausalConvolution;

impl<B: Kernels> Backward<B, 2> for CausalConvolution {
    type State = (Float<B>, Float<B>, IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (x, weight, visible) = ops.state;
        let gradients = B::causal_convolution_backward(&x, &weight, &visible, &dy);
        register::<B, 2>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

#[derive(Debug)]
struct DeltaRule;

impl<B: Kernels> Backward<B, 5> for DeltaRule {
    type State = ([Float<B>; 5], IntTensor<B>);

    fn backward(self, ops: Ops<Self::State, 5>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let (inputs, visible) = ops.state;
        let gradients = B::delta_rule_backward(&inputs, &visible, &dy);
        register::<B, 5>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

/// Its gradients are made in the forward pass, where the logits are at hand.
#[derive(Debug)]
struct LinearCrossEntropy;

impl<B: Kernels> Backward<B, 2> for LinearCrossEntropy {
    type State = [Float<B>; 2];

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let gradients = ops.state.map(|gradient| B::scale_by_first(gradient, &dy));
        register::<B, 2>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), gradients);
    }
}

/// As [`LinearCrossEntropy`], for a projection that is not trained: its gradient is not even made.
#[derive(Debug)]
struct FrozenLinearCrossEntropy;

impl<B: Kernels> Backward<B, 1> for FrozenLinearCrossEntropy {
    type State = Float<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let dy = grads.consume::<B>(&ops.node);
        let gradient = B::scale_by_first(ops.state, &dy);
        register::<B, 1>(grads, ops.parents.map(|parent| parent.map(|node| node.id)), [gradient]);
    }
}

/// Hands each parent that wants a gradient its own.
fn register<B: Kernels, const N: usize>(grads: &mut Gradients, parents: [Option<NodeId>; N], gradients: [Float<B>; N]) {
    for (parent, gradient) in parents.into_iter().zip(gradients) {
        if let Some(id) = parent {
            grads.register::<B>(id, gradient);
        }
    }
}

impl<B: Kernels + DecoderOps, C: CheckpointStrategy> DecoderOps for Autodiff<B, C> {
    fn embedding(weight: Float<Self>, tokens: IntTensor<Self>) -> Float<Self> {
        let (weight, node) = weight.into_parts();
        let y = B::embedding_forward(&weight, &tokens);
        match Embedding.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((tokens, weight.shape()[0]), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn linear(x: Float<Self>, weight: Float<Self>, precision: MatmulPrecision) -> Float<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let y = B::linear_forward(&x, &weight, precision);
        match (Linear { precision }).prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn rms_norm(x: Float<Self>, weight: Float<Self>, eps: f32) -> Float<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let [y, inverse_rms] = B::rms_norm_forward(&x, &weight, eps);
        match RmsNorm.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, inverse_rms), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn norm_rotary(
        x: Float<Self>,
        weight: Float<Self>,
        cos: Float<Self>,
        sin: Float<Self>,
        positions: IntTensor<Self>,
        eps: f32,
    ) -> Float<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        // The tables are constants: their nodes are not wanted.
        let tables = [cos.into_primitive(), sin.into_primitive()];
        let [y, inverse_rms] = B::norm_rotary_forward(&x, &weight, &tables, &positions, eps);
        match NormRotary.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, tables, positions, inverse_rms), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn rotary(x: Float<Self>, cos: Float<Self>, sin: Float<Self>, positions: IntTensor<Self>) -> Float<Self> {
        let (x, node) = x.into_parts();
        let tables = [cos.into_primitive(), sin.into_primitive()];
        let y = B::rotary_forward(&x, &tables, &positions);
        match Turn.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((tables, positions), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn swiglu(gate: Float<Self>, up: Float<Self>) -> Float<Self> {
        let ((gate, gate_node), (up, up_node)) = (gate.into_parts(), up.into_parts());
        let y = B::swiglu_forward(&gate, &up);
        match SwiGlu.prepare::<C>([gate_node, up_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((gate, up), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn attention(q: Float<Self>, k: Float<Self>, v: Float<Self>, visible: IntTensor<Self>) -> Float<Self> {
        let ((q, q_node), (k, k_node), (v, v_node)) = (q.into_parts(), k.into_parts(), v.into_parts());
        let inputs = [q, k, v];
        let [out, log_sums] = B::attention_forward(&inputs, &visible);
        match Attention.prepare::<C>([q_node, k_node, v_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((inputs, visible, [out.clone(), log_sums]), out),
            OpsKind::UnTracked(prep) => prep.finish(out),
        }
    }

    fn experts(
        x: Float<Self>,
        gate_up: Float<Self>,
        down: Float<Self>,
        weights: Float<Self>,
        choices: IntTensor<Self>,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        let ((x, x_node), (gate_up, gate_up_node)) = (x.into_parts(), gate_up.into_parts());
        let ((down, down_node), (weights, weights_node)) = (down.into_parts(), weights.into_parts());
        let inputs = [x, gate_up, down, weights];
        let y = B::experts_forward(&inputs, &choices, precision);
        let nodes = [x_node, gate_up_node, down_node, weights_node];
        match (Experts { precision }).prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((inputs, choices), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn causal_convolution(x: Float<Self>, weight: Float<Self>, visible: IntTensor<Self>) -> Float<Self> {
        let ((x, x_node), (weight, weight_node)) = (x.into_parts(), weight.into_parts());
        let y = B::causal_convolution_forward(&x, &weight, &visible);
        match CausalConvolution.prepare::<C>([x_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((x, weight, visible), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn delta_rule(
        q: Float<Self>,
        k: Float<Self>,
        v: Float<Self>,
        log_decay: Float<Self>,
        beta: Float<Self>,
        visible: IntTensor<Self>,
    ) -> Float<Self> {
        let ((q, q_node), (k, k_node), (v, v_node)) = (q.into_parts(), k.into_parts(), v.into_parts());
        let ((log_decay, log_decay_node), (beta, beta_node)) = (log_decay.into_parts(), beta.into_parts());
        let inputs = [q, k, v, log_decay, beta];
        let y = B::delta_rule_forward(&inputs, &visible);
        let nodes = [q_node, k_node, v_node, log_decay_node, beta_node];
        match DeltaRule.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish((inputs, visible), y),
            OpsKind::UnTracked(prep) => prep.finish(y),
        }
    }

    fn linear_cross_entropy(
        hidden: Float<Self>,
        weight: Float<Self>,
        targets: IntTensor<Self>,
        row_weights: Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        let is_weight_trained = weight.is_tracked();
        let ((hidden, hidden_node), (weight, weight_node)) = (hidden.into_parts(), weight.into_parts());
        let row_weights = row_weights.into_primitive();
        if !is_weight_trained {
            return match FrozenLinearCrossEntropy.prepare::<C>([hidden_node]).compute_bound().stateful() {
                OpsKind::Tracked(prep) => {
                    let [loss, dhidden] = B::linear_cross_entropy_with_hidden_gradient(
                        &hidden,
                        &weight,
                        &targets,
                        &row_weights,
                        temperature,
                        precision,
                    );
                    prep.finish(dhidden, loss)
                }
                OpsKind::UnTracked(prep) => prep.finish(B::linear_cross_entropy_forward(
                    &hidden,
                    &weight,
                    &targets,
                    &row_weights,
                    temperature,
                    precision,
                )),
            };
        }
        match LinearCrossEntropy.prepare::<C>([hidden_node, weight_node]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let [loss, dhidden, dweight] = B::linear_cross_entropy_with_gradients(
                    &hidden,
                    &weight,
                    &targets,
                    &row_weights,
                    temperature,
                    precision,
                );
                prep.finish([dhidden, dweight], loss)
            }
            OpsKind::UnTracked(prep) => prep.finish(B::linear_cross_entropy_forward(
                &hidden,
                &weight,
                &targets,
                &row_weights,
                temperature,
                precision,
            )),
        }
    }

    fn row_statistics(
        hidden: Float<Self>,
        weight: Float<Self>,
        targets: IntTensor<Self>,
        row_weights: Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self> {
        let [hidden, weight, row_weights] = [hidden, weight, row_weights].map(|tensor| tensor.into_primitive());
        Float::<Self>::new(B::row_statistics_forward(&hidden, &weight, &targets, &row_weights, temperature, precision))
    }
}
