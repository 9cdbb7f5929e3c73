//! The two traits: what a backend computes, and what the graph calls.

use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, backend_extension};
use worldloom_kernels::matmul::MatmulPrecision;

/// A backend's float tensor, for short.
pub(super) type Float<B> = FloatTensor<B>;

/// What a backend must compute: each operation forward, with the state its backward pass needs, and backward.
/// Shapes are those of the functions in [`super`].
pub trait Kernels: Backend {
    /// Rows of the table.
    fn embedding_forward(weight: &Float<Self>, tokens: &IntTensor<Self>) -> Float<Self>;
    /// Gradient to the table of `vocabulary` rows.
    fn embedding_gradient(tokens: &IntTensor<Self>, dy: &Float<Self>, vocabulary: usize) -> Float<Self>;
    /// `x wᵀ`.
    fn linear_forward(x: &Float<Self>, weight: &Float<Self>, precision: MatmulPrecision) -> Float<Self>;
    /// `dy w`.
    fn linear_backward_input(weight: &Float<Self>, dy: &Float<Self>, precision: MatmulPrecision) -> Float<Self>;
    /// `dyᵀ x`.
    fn linear_backward_weight(x: &Float<Self>, dy: &Float<Self>, precision: MatmulPrecision) -> Float<Self>;
    /// Output and inverse root mean squares.
    fn rms_norm_forward(x: &Float<Self>, weight: &Float<Self>, eps: f32) -> [Float<Self>; 2];
    /// Gradients to the input and the weight.
    fn rms_norm_backward(
        x: &Float<Self>,
        weight: &Float<Self>,
        inverse_rms: &Float<Self>,
        dy: &Float<Self>,
    ) -> [Float<Self>; 2];
    /// Output and inverse root mean squares of each head; `tables` are cosine and sine.
    fn norm_rotary_forward(
        x: &Float<Self>,
        weight: &Float<Self>,
        tables: &[Float<Self>; 2],
        positions: &IntTensor<Self>,
        eps: f32,
    ) -> [Float<Self>; 2];
    /// Gradients to the input and the weight.
    fn norm_rotary_backward(
        x: &Float<Self>,
        weight: &Float<Self>,
        tables: &[Float<Self>; 2],
        positions: &IntTensor<Self>,
        inverse_rms: &Float<Self>,
        dy: &Float<Self>,
    ) -> [Float<Self>; 2];
    /// The turn alone.
    fn rotary_forward(x: &Float<Self>, tables: &[Float<Self>; 2], positions: &IntTensor<Self>) -> Float<Self>;
    /// Gradient to the input.
    fn rotary_backward(tables: &[Float<Self>; 2], positions: &IntTensor<Self>, dy: &Float<Self>) -> Float<Self>;
    /// `silu(gate) · up`.
    fn swiglu_forward(gate: &Float<Self>, up: &Float<Self>) -> Float<Self>;
    /// Gradients to gate and up.
    fn swiglu_backward(gate: &Float<Self>, up: &Float<Self>, dy: &Float<Self>) -> [Float<Self>; 2];
    /// Output and log denominators; `inputs` are queries, keys and values.
    fn attention_forward(inputs: &[Float<Self>; 3], visible: &IntTensor<Self>) -> [Float<Self>; 2];
    /// Gradients to queries, keys and values; `outputs` are those of the forward pass.
    fn attention_backward(
        inputs: &[Float<Self>; 3],
        visible: &IntTensor<Self>,
        outputs: &[Float<Self>; 2],
        dy: &Float<Self>,
    ) -> [Float<Self>; 3];
    /// The chosen experts of every token; `inputs` are the tokens, gate and up, down, and the weights of the choices.
    fn experts_forward(inputs: &[Float<Self>; 4], choices: &IntTensor<Self>, precision: MatmulPrecision)
    -> Float<Self>;
    /// Gradients to the four inputs.
    fn experts_backward(
        inputs: &[Float<Self>; 4],
        choices: &IntTensor<Self>,
        dy: &Float<Self>,
        precision: MatmulPrecision,
    ) -> [Float<Self>; 4];
    /// The convolution and its activation.
    fn causal_convolution_forward(x: &Float<Self>, weight: &Float<Self>, visible: &IntTensor<Self>) -> Float<Self>;
    /// Gradients to the input and the weight.
    fn causal_convolution_backward(
        x: &Float<Self>,
        weight: &Float<Self>,
        visible: &IntTensor<Self>,
        dy: &Float<Self>,
    ) -> [Float<Self>; 2];
    /// The gated delta rule; `inputs` are queries, keys, values, logarithms of decays and steps.
    fn delta_rule_forward(inputs: &[Float<Self>; 5], visible: &IntTensor<Self>) -> Float<Self>;
    /// Gradients to the five inputs.
    fn delta_rule_backward(inputs: &[Float<Self>; 5], visible: &IntTensor<Self>, dy: &Float<Self>) -> [Float<Self>; 5];
    /// The weighted total followed by each row's loss, `[1 + rows]`.
    fn linear_cross_entropy_forward(
        hidden: &Float<Self>,
        weight: &Float<Self>,
        targets: &IntTensor<Self>,
        row_weights: &Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self>;
    /// The same, with the total's gradient to the hidden states.
    fn linear_cross_entropy_with_hidden_gradient(
        hidden: &Float<Self>,
        weight: &Float<Self>,
        targets: &IntTensor<Self>,
        row_weights: &Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> [Float<Self>; 2];
    /// The same, with the total's gradients to the hidden states and the weight.
    fn linear_cross_entropy_with_gradients(
        hidden: &Float<Self>,
        weight: &Float<Self>,
        targets: &IntTensor<Self>,
        row_weights: &Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> [Float<Self>; 3];
    /// Loss, entropy and whether the target is the most probable (1 or 0) of each row, `[rows, 3]`.
    fn row_statistics_forward(
        hidden: &Float<Self>,
        weight: &Float<Self>,
        targets: &IntTensor<Self>,
        row_weights: &Float<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> Float<Self>;
    /// `x` times the first element of `by`.
    fn scale_by_first(x: Float<Self>, by: &Float<Self>) -> Float<Self>;
}

/// The differentiable operations, one tensor out each; the macro routes them by backend.
#[backend_extension(Flex, Autodiff)]
pub trait DecoderOps: Backend {
    /// See [`super::embedding`].
    fn embedding(weight: FloatTensor<Self>, tokens: IntTensor<Self>) -> FloatTensor<Self>;
    /// See [`super::linear`].
    fn linear(x: FloatTensor<Self>, weight: FloatTensor<Self>, precision: MatmulPrecision) -> FloatTensor<Self>;
    /// See [`super::rms_norm`].
    fn rms_norm(x: FloatTensor<Self>, weight: FloatTensor<Self>, eps: f32) -> FloatTensor<Self>;
    /// See [`super::norm_rotary`].
    fn norm_rotary(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        positions: IntTensor<Self>,
        eps: f32,
    ) -> FloatTensor<Self>;
    /// See [`super::rotary`].
    fn rotary(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        positions: IntTensor<Self>,
    ) -> FloatTensor<Self>;
    /// See [`super::swiglu`].
    fn swiglu(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self>;
    /// See [`super::attention`].
    fn attention(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        visible: IntTensor<Self>,
    ) -> FloatTensor<Self>;
    /// See [`super::experts`].
    fn experts(
        x: FloatTensor<Self>,
        gate_up: FloatTensor<Self>,
        down: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        choices: IntTensor<Self>,
        precision: MatmulPrecision,
    ) -> FloatTensor<Self>;
    /// See [`super::causal_convolution`].
    fn causal_convolution(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        visible: IntTensor<Self>,
    ) -> FloatTensor<Self>;
    /// See [`super::delta_rule`].
    fn delta_rule(
        q: FloatTensor<Self>,
        k: FloatTensor<Self>,
        v: FloatTensor<Self>,
        log_decay: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        visible: IntTensor<Self>,
    ) -> FloatTensor<Self>;
    /// The total, which carries the gradient, followed by each row's loss, which does not.
    fn linear_cross_entropy(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        row_weights: FloatTensor<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> FloatTensor<Self>;
    /// See [`super::row_statistics`].
    fn row_statistics(
        hidden: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        targets: IntTensor<Self>,
        row_weights: FloatTensor<Self>,
        temperature: f32,
        precision: MatmulPrecision,
    ) -> FloatTensor<Self>;
}
