//! The decoder's operations on tensors. burn's internals are used in this folder only.
//!
//! [`Kernels`] is what a backend computes, forward and backward. [`DecoderOps`] is what the graph calls; `autodiff` has
//! one backward pass for every backend that has the kernels. [`plain`] says the same with burn's own operations: the
//! reference that the tests compare with, and what a device without kernels of ours computes ([`has_kernels`]).

mod autodiff;
mod flex;
mod kernels;
pub mod plain;

pub use kernels::{DecoderOps, Kernels};

use burn::backend::{Dispatch, DispatchDevice};
use burn::tensor::{DType, Device, Int, Tensor};
use worldloom_kernels::matmul::MatmulPrecision;

/// Whether a device has our kernels: the CPU does. On another one the [`plain`] bodies compute.
pub fn has_kernels(device: &Device) -> bool {
    matches!(device.clone().inner().as_dispatch(), DispatchDevice::Flex(_))
}

/// The border: burn does not look at types, and what happens with another one depends on the device.
pub(crate) fn assert_single<const N: usize>(operation: &str, tensors: [(&str, DType); N]) {
    for (name, found) in tensors {
        assert!(found == DType::F32, "{operation}: {name} is {found:?}, expected F32; cast it before");
    }
}

/// As [`assert_single`], for a matrix of weights.
fn assert_weight<const D: usize>(operation: &str, weight: &Tensor<D>) {
    let found = weight.dtype();
    let is_known = matches!(found, DType::F32 | DType::BF16);
    assert!(is_known, "{operation}: the weight is {found:?}, expected F32 or BF16; cast it before");
}

/// As [`assert_single`], for products: burn's own operations round no operands.
fn assert_plain_precision(operation: &str, precision: MatmulPrecision) {
    assert!(precision.is_single(), "{operation}: products of bfloat16 are for the CPU");
}

/// Cosine and sine tables, `[rows, half]`, and the row of each token's position, `[batch, seq]`. Twice `half` dimensions of
/// a head turn; the rest of it does not.
#[derive(Clone, Debug)]
pub struct RotaryTables {
    /// Cosines of each position's angles.
    pub cos: Tensor<2>,
    /// Sines of the same angles.
    pub sin: Tensor<2>,
    /// Row of the tables for each token.
    pub positions: Tensor<2, Int>,
}

/// What the gated delta rule reads; see [`delta_rule`].
#[derive(Clone, Debug)]
pub struct DeltaInputs {
    /// Queries, scaled already, `[batch, seq, key_heads, key_dim]`.
    pub q: Tensor<4>,
    /// Keys of length at most 1, as the queries.
    pub k: Tensor<4>,
    /// Values, `[batch, seq, value_heads, value_dim]`.
    pub v: Tensor<4>,
    /// Logarithm of each token's decay, at most 0, `[batch, seq, value_heads]`.
    pub log_decay: Tensor<3>,
    /// How far each token moves the state, 0 to 1, `[batch, seq, value_heads]`.
    pub beta: Tensor<3>,
    /// The keys that each token sees, `[batch, seq, 3]`.
    pub visible: Tensor<3, Int>,
}

/// What each row of hidden states should have said; see [`linear_cross_entropy`].
#[derive(Clone, Debug)]
pub struct RowTargets {
    /// Target token of each row, `[rows]`; not read where the weight is 0.
    pub tokens: Tensor<1, Int>,
    /// Factor of each row's loss, `[rows]`; 0 leaves the row out.
    pub weights: Tensor<1>,
    /// The logits are divided by it.
    pub temperature: f32,
}

/// The weighted sum of a cross entropy and its parts.
#[derive(Clone, Debug)]
pub struct RowLoss {
    /// `Σ weight · nll`, `[1]`, with its graph.
    pub total: Tensor<1>,
    /// `nll` of each row, `[rows]`, 0 where the weight is 0; without a graph.
    pub nll: Tensor<1>,
}

impl RowLoss {
    /// Log-probability of each row's target, 0 where the weight is 0.
    pub fn log_probs(self) -> Vec<f32> {
        self.nll.into_data().iter::<f32>().map(|nll| -nll).collect()
    }
}

/// Rows of the embedding table.
///
/// # Shapes
/// - `weight`: `[vocabulary, hidden]`
/// - `tokens`: `[batch, seq]`
/// - output: `[batch, seq, hidden]`
pub fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    assert_weight("embedding", &weight);
    if !has_kernels(&weight.device()) {
        return plain::embedding(weight, tokens);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::embedding(weight.into_dispatch(), tokens.into_dispatch()))
}

/// `x wᵀ`: the weight lies as published. Factors are rounded as `precision` says, those of the gradients too; so in all
/// operations that take one.
///
/// # Shapes
/// - `x`: `[.., inputs]`
/// - `weight`: `[outputs, inputs]`
/// - output: `[.., outputs]`
pub fn linear<const D: usize>(x: Tensor<D>, weight: Tensor<2>, precision: MatmulPrecision) -> Tensor<D> {
    let (inputs, [_, columns]) = (x.dims()[D - 1], weight.dims());
    assert_eq!(inputs, columns, "linear: inputs of {inputs}, weight of {columns} columns");
    assert_single("linear", [("x", x.dtype())]);
    assert_weight("linear", &weight);
    if !has_kernels(&x.device()) {
        assert_plain_precision("linear", precision);
        return plain::linear(x, weight);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::linear(x.into_dispatch(), weight.into_dispatch(), precision))
}

/// `x / sqrt(mean(x²) + eps) · w` over the last axis (RMSNorm, arXiv 1910.07467, equation 4). Departure: `eps`, which the
/// published models have.
///
/// # Shapes
/// - `x`, output: `[.., width]`
/// - `weight`: `[width]`
pub fn rms_norm<const D: usize>(x: Tensor<D>, weight: Tensor<1>, eps: f32) -> Tensor<D> {
    let (width, [weights]) = (x.dims()[D - 1], weight.dims());
    assert_eq!(width, weights, "rms_norm: rows of {width}, weight of {weights}");
    assert_single("rms_norm", [("x", x.dtype()), ("the weight", weight.dtype())]);
    if !has_kernels(&x.device()) {
        return plain::rms_norm(x, weight, eps);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::rms_norm(x.into_dispatch(), weight.into_dispatch(), eps))
}

/// [`rms_norm`] over each head, then [`rotary`]: the query and key norms of Qwen3 (arXiv 2505.09388, section 2).
///
/// # Shapes
/// - `x`, output: `[batch, seq, heads, head_dim]`
/// - `weight`: `[head_dim]`
pub fn norm_rotary(x: Tensor<4>, weight: Tensor<1>, rotary: &RotaryTables, eps: f32) -> Tensor<4> {
    let RotaryTables { cos, sin, positions } = rotary.clone();
    assert_single("norm_rotary", [("x", x.dtype()), ("the weight", weight.dtype()), ("cos", cos.dtype())]);
    if !has_kernels(&x.device()) {
        return plain::norm_rotary(x, weight, rotary, eps);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::norm_rotary(
        x.into_dispatch(),
        weight.into_dispatch(),
        cos.into_dispatch(),
        sin.into_dispatch(),
        positions.into_dispatch(),
        eps,
    ))
}

/// The rotary turn of the halves of each head's first dimensions, `(a cos − b sin, b cos + a sin)` (RoFormer, arXiv
/// 2104.09864, equation 34). Departure: a pair is a dimension of one half and its like in the other, not two neighbours, as
/// published checkpoints have their rows; what lies beyond the tables does not turn.
///
/// # Shapes
/// - `x`, output: `[batch, seq, heads, head_dim]`
pub fn rotary(x: Tensor<4>, rotary: &RotaryTables) -> Tensor<4> {
    let RotaryTables { cos, sin, positions } = rotary.clone();
    assert_single("rotary", [("x", x.dtype()), ("cos", cos.dtype()), ("sin", sin.dtype())]);
    if !has_kernels(&x.device()) {
        return plain::rotary(x, rotary);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::rotary(
        x.into_dispatch(),
        cos.into_dispatch(),
        sin.into_dispatch(),
        positions.into_dispatch(),
    ))
}

/// `silu(gate) · up`, with `silu(x) = x / (1 + exp(−x))` (SwiGLU, arXiv 2002.05202, equation 5, with β = 1 and without
/// biases; the projections are the caller's).
///
/// # Shapes
/// - `gate`, `up`, output: the same
pub fn swiglu<const D: usize>(gate: Tensor<D>, up: Tensor<D>) -> Tensor<D> {
    assert_eq!(gate.dims(), up.dims(), "swiglu: gate and up differ in shape");
    assert_single("swiglu", [("gate", gate.dtype()), ("up", up.dtype())]);
    if !has_kernels(&gate.device()) {
        return plain::swiglu(gate, up);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::swiglu(gate.into_dispatch(), up.into_dispatch()))
}

/// `softmax(q kᵀ / sqrt(head_dim)) v` for every query head (arXiv 1706.03762, equation 1), query head `h` with key head
/// `h * kv_heads / query_heads` (grouped queries, arXiv 2305.13245). Each position sees a prefix of its row and its own run
/// up to itself, as [`Layout::visible`](crate::Layout::visible) says. Departure: no `[seq, seq]` matrix is kept, the
/// backward pass makes the weights again from the sums' logarithms (arXiv 2205.14135, algorithm 4).
///
/// # Shapes
/// - `q`, output: `[batch, seq, query_heads, head_dim]`
/// - `k`, `v`: `[batch, seq, kv_heads, head_dim]`
/// - `visible`: `[batch, seq, 3]`
pub fn attention(q: Tensor<4>, k: Tensor<4>, v: Tensor<4>, visible: Tensor<3, Int>) -> Tensor<4> {
    assert_single("attention", [("q", q.dtype()), ("k", k.dtype()), ("v", v.dtype())]);
    if !has_kernels(&q.device()) {
        return plain::attention(q, k, v, visible);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::attention(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        visible.into_dispatch(),
    ))
}

/// The chosen experts of every token: `Σ weight · down_e(silu(gate_e x) · up_e x)` (arXiv 1701.06538, equation 1, over the
/// experts whose weight is not 0; each is a SwiGLU part, see [`swiglu`]). No expert has a capacity: none is left out.
///
/// # Shapes
/// - `x`, output: `[batch, seq, hidden]`
/// - `gate_up`: `[experts, 2 · inner, hidden]`, per expert first the gate's rows
/// - `down`: `[experts, hidden, inner]`
/// - `weights`, `choices`: `[batch, seq, chosen]`
pub fn experts(
    x: Tensor<3>,
    gate_up: Tensor<3>,
    down: Tensor<3>,
    weights: Tensor<3>,
    choices: Tensor<3, Int>,
    precision: MatmulPrecision,
) -> Tensor<3> {
    assert_eq!(weights.dims(), choices.dims(), "experts: one weight per choice");
    assert_single("experts", [("x", x.dtype()), ("weights", weights.dtype())]);
    assert_weight("experts", &gate_up);
    assert_weight("experts", &down);
    if !has_kernels(&x.device()) {
        assert_plain_precision("experts", precision);
        return plain::experts(x, gate_up, down, weights, choices);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::experts(
        x.into_dispatch(),
        gate_up.into_dispatch(),
        down.into_dispatch(),
        weights.into_dispatch(),
        choices.into_dispatch(),
        precision,
    ))
}

/// `silu(Σ_j weight[c, j] · x[t − kernel + 1 + j, c])`, the causal convolution of every channel `c` by itself: the short
/// convolution of the gated delta-net (arXiv 2412.06464, figure 1; arXiv 2312.00752, section 3.4), without a bias. Departure:
/// a branch goes on from its prefix, and what stands before a document counts as zero.
///
/// # Shapes
/// - `x`, output: `[batch, seq, channels]`
/// - `weight`: `[channels, 1, kernel]`, the last of a channel for the token itself
/// - `visible`: `[batch, seq, 3]`
pub fn causal_convolution(x: Tensor<3>, weight: Tensor<3>, visible: Tensor<3, Int>) -> Tensor<3> {
    let ([_, _, channels], [filters, _, _]) = (x.dims(), weight.dims());
    assert_eq!(channels, filters, "causal_convolution: one filter per channel");
    assert_single("causal_convolution", [("x", x.dtype()), ("the weight", weight.dtype())]);
    if !has_kernels(&x.device()) {
        return plain::causal_convolution(x, weight, visible);
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::causal_convolution(
        x.into_dispatch(),
        weight.into_dispatch(),
        visible.into_dispatch(),
    ))
}

/// The gated delta rule (arXiv 2412.06464). From an empty state at a document's start, and at a branch's start from that
/// of its prefix, for every token
/// `S ← exp(g) S; S ← S + k (β (v − Sᵀ k))ᵀ; o = Sᵀ q`. Value head `h` uses key head `h * key_heads / value_heads`.
///
/// # Shapes
/// - output: as the values, `[batch, seq, value_heads, value_dim]`
pub fn delta_rule(inputs: DeltaInputs) -> Tensor<4> {
    let DeltaInputs { q, k, v, log_decay, beta, visible } = inputs;
    assert_single("delta_rule", [("q", q.dtype()), ("k", k.dtype()), ("v", v.dtype())]);
    assert_single("delta_rule", [("log_decay", log_decay.dtype()), ("beta", beta.dtype())]);
    if !has_kernels(&q.device()) {
        return plain::delta_rule(DeltaInputs { q, k, v, log_decay, beta, visible });
    }
    Tensor::from_dispatch(<Dispatch as DecoderOps>::delta_rule(
        q.into_dispatch(),
        k.into_dispatch(),
        v.into_dispatch(),
        log_decay.into_dispatch(),
        beta.into_dispatch(),
        visible.into_dispatch(),
    ))
}

/// `Σ_r weight_r · (log Σ_v exp(z_rv) − z_r,target)` with `z = hidden · weightᵀ / temperature`, the output projection and
/// the cross entropy in one, in chunks of rows (FusedLinearCrossEntropy, arXiv 2410.10989, section 3.2): no `[rows,
/// vocabulary]` tensor is kept. The gradients are made in the forward pass where there is a graph. Departure: each row has
/// its weight and the sum is not divided; rows of weight 0 are left out.
///
/// # Shapes
/// - `hidden`: `[rows, hidden]`
/// - `weight`: `[vocabulary, hidden]`
pub fn linear_cross_entropy(
    hidden: Tensor<2>,
    weight: Tensor<2>,
    targets: RowTargets,
    precision: MatmulPrecision,
) -> RowLoss {
    let [rows, _] = hidden.dims();
    assert_rows("linear_cross_entropy", &hidden, &weight, &targets);
    if !has_kernels(&hidden.device()) {
        assert_plain_precision("linear_cross_entropy", precision);
        return plain::linear_cross_entropy(hidden, weight, targets);
    }
    let total_then_rows: Tensor<1> = Tensor::from_dispatch(<Dispatch as DecoderOps>::linear_cross_entropy(
        hidden.into_dispatch(),
        weight.into_dispatch(),
        targets.tokens.into_dispatch(),
        targets.weights.into_dispatch(),
        targets.temperature,
        precision,
    ));
    RowLoss { nll: total_then_rows.clone().inner().narrow(0, 1, rows), total: total_then_rows.narrow(0, 0, 1) }
}

/// Loss, entropy and whether the target is the most probable token (1 or 0) of each row, without a graph; zeros where the
/// weight is 0. In chunks, as [`linear_cross_entropy`].
///
/// # Shapes
/// - `hidden`: `[rows, hidden]`
/// - `weight`: `[vocabulary, hidden]`
/// - output: `[rows, 3]`
pub fn row_statistics(
    hidden: Tensor<2>,
    weight: Tensor<2>,
    targets: RowTargets,
    precision: MatmulPrecision,
) -> Tensor<2> {
    assert_rows("row_statistics", &hidden, &weight, &targets);
    if !has_kernels(&hidden.device()) {
        assert_plain_precision("row_statistics", precision);
        return plain::row_statistics(hidden, weight, targets);
    }
    let statistics: Tensor<2> = Tensor::from_dispatch(<Dispatch as DecoderOps>::row_statistics(
        hidden.into_dispatch(),
        weight.into_dispatch(),
        targets.tokens.into_dispatch(),
        targets.weights.into_dispatch(),
        targets.temperature,
        precision,
    ));
    statistics.inner()
}

fn assert_rows(operation: &str, hidden: &Tensor<2>, weight: &Tensor<2>, targets: &RowTargets) {
    assert_single(operation, [("hidden", hidden.dtype()), ("the row weights", targets.weights.dtype())]);
    assert_weight(operation, weight);
}
