//! Every fused operation against burn's plain ones: forward and every gradient, at odd sizes.

use crate::support::random;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use worldloom_model::ops::{self, DeltaInputs, RotaryTables, RowTargets, plain};
use worldloom_model::{MatmulPrecision, visible_keys};

fn device() -> Device {
    Device::flex().autodiff()
}

fn leaf<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
    constant(shape, seed).require_grad()
}

fn constant<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
    Tensor::from_data(TensorData::new(random(shape.iter().product(), seed), shape), &device())
}

fn integers<const D: usize>(values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values, shape), &device().inner())
}

fn close<const D: usize>(what: &str, fused: Tensor<D>, plain: Tensor<D>) {
    let (fused, plain) = (fused.inner(), plain.inner());
    let largest: f32 = plain.clone().abs().max().into_scalar();
    let error: f32 = (fused - plain).abs().max().into_scalar();
    assert!(largest > 0.0, "{what}: the reference is zero everywhere");
    assert!(error <= 1e-5 * largest.max(1.0), "{what}: largest {largest}, error {error}");
}

/// Compares the outputs and, through a random projection of them, the gradients of the leaves.
macro_rules! compare {
    ($name:literal, $fused:expr, $plain:expr, $($leaf:ident),+) => {{
        let (fused, plain) = ($fused, $plain);
        close(concat!($name, " output"), fused.clone(), plain.clone());
        let upstream = constant(fused.dims(), 999);
        let fused = (fused * upstream.clone()).sum().backward();
        let plain = (plain * upstream).sum().backward();
        $(close(
            concat!($name, " gradient of ", stringify!($leaf)),
            $leaf.grad(&fused).unwrap(),
            $leaf.grad(&plain).unwrap(),
        );)+
    }};
}

#[test]
fn embedding_equals_the_plain_one() {
    let weight = leaf([301, 24], 1);
    let tokens = integers((0..77).map(|i| i * 37 % 301).chain((0..77).map(|i| i % 5)).collect(), [2, 77]);
    compare!(
        "embedding",
        ops::embedding(weight.clone(), tokens.clone()),
        plain::embedding(weight.clone(), tokens),
        weight
    );
}

#[test]
fn linear_equals_the_plain_one() {
    for [rows, inputs, outputs] in [[50, 24, 40], [1, 7, 3], [257, 33, 65]] {
        let (x, weight) = (leaf([3, rows, inputs], 2), leaf([outputs, inputs], 3));
        let (fused, plain) =
            (ops::linear(x.clone(), weight.clone(), MatmulPrecision::F32), plain::linear(x.clone(), weight.clone()));
        compare!("linear", fused, plain, x, weight);
    }
}

/// The same numbers, rounded to the nearest bfloat16.
fn rounded<const D: usize>(x: &Tensor<D>) -> Tensor<D> {
    x.clone().inner().cast(DType::BF16).cast(DType::F32)
}

#[test]
fn linear_in_bfloat16_is_the_plain_one_of_rounded_operands_forward_and_backward() {
    for [rows, inputs, outputs] in [[50, 24, 40], [1, 7, 3], [257, 33, 65]] {
        let (x, weight) = (leaf([3, rows, inputs], 2), leaf([outputs, inputs], 3));
        let y = ops::linear(x.clone(), weight.clone(), MatmulPrecision::Bf16Emulated);
        close("output", y.clone(), plain::linear(rounded(&x), rounded(&weight)));
        let dy = constant([3, rows, outputs], 999);
        let gradients = (y * dy.clone()).sum().backward();
        let dy = rounded(&dy);
        close("gradient of x", x.grad(&gradients).unwrap(), plain::linear(dy.clone(), rounded(&weight).transpose()));
        let [dy, x] = [(dy, outputs), (rounded(&x), inputs)].map(|(of, width)| of.reshape([3 * rows, width]));
        close("gradient of the weight", weight.grad(&gradients).unwrap(), dy.transpose().matmul(x));
    }
}

#[test]
fn rms_norm_equals_the_plain_one() {
    for width in [96, 17, 1] {
        let (x, weight) = (leaf([3, 67, width], 4), leaf([width], 5));
        let fused = ops::rms_norm(x.clone(), weight.clone(), 1e-6);
        compare!("rms_norm", fused, plain::rms_norm(x.clone(), weight.clone(), 1e-6), x, weight);
    }
}

#[test]
fn the_rotary_turn_equals_the_plain_one_of_whole_heads_and_of_parts() {
    for [heads, dim, half] in [[3, 32, 16], [5, 10, 5], [1, 2, 1], [3, 33, 4], [2, 12, 1]] {
        let (batch, seq, positions) = (2, 45, 50);
        let (x, weight) = (leaf([batch, seq, heads, dim], 6), leaf([dim], 7));
        let rotary = RotaryTables {
            cos: constant([positions, half], 8).inner(),
            sin: constant([positions, half], 9).inner(),
            positions: integers((0..90).map(|i| i * 7 % 50).collect(), [batch, seq]),
        };
        let fused = ops::norm_rotary(x.clone(), weight.clone(), &rotary, 1e-5);
        compare!("norm_rotary", fused, plain::norm_rotary(x.clone(), weight.clone(), &rotary, 1e-5), x, weight);
        compare!("rotary", ops::rotary(x.clone(), &rotary), plain::rotary(x.clone(), &rotary), x);
    }
}

#[test]
fn swiglu_equals_the_plain_one() {
    let (gate, up) = (leaf([2, 333, 51], 10) * 8.0, leaf([2, 333, 51], 11));
    let (gate, up) = (gate.detach().require_grad(), up);
    compare!("swiglu", ops::swiglu(gate.clone(), up.clone()), plain::swiglu(gate.clone(), up.clone()), gate, up);
}

#[derive(Clone, Copy)]
enum Rows {
    OneDocument,
    ManyDocuments,
    Branches,
}

/// What the positions of some rows see; other boundaries in each row.
fn sights(batch: usize, seq: usize, kind: Rows) -> Tensor<3, Int> {
    let of_row = |row: usize| {
        let segment = |at: usize| match kind {
            Rows::OneDocument => 0,
            Rows::ManyDocuments | Rows::Branches => (at + row) / (seq / 5 + 1),
        };
        let first = segment(0);
        let segments: Vec<u32> = (0..seq).map(|at| (segment(at) - first) as u32).collect();
        // A document, two branches of it, another document and its branch.
        let continues: &[i32] = if matches!(kind, Rows::Branches) { &[-1, 0, 0, -1, 3, 3] } else { &[] };
        visible_keys(&segments, continues).unwrap()
    };
    let visible: Vec<i32> = (0..batch).flat_map(of_row).flatten().map(|at| at as i32).collect();
    Tensor::from_data(TensorData::new(visible, [batch, seq, 3]), &device().inner())
}

#[test]
fn attention_equals_the_plain_one_for_one_document_many_and_branches() {
    let sizes = [[2, 150, 6, 2, 32], [1, 33, 4, 4, 16], [3, 1, 2, 1, 8], [1, 97, 3, 1, 10], [1, 70, 24, 2, 6]];
    for [batch, seq, query_heads, kv_heads, dim] in sizes {
        for kind in [Rows::OneDocument, Rows::ManyDocuments, Rows::Branches] {
            let q = leaf([batch, seq, query_heads, dim], 12);
            let (k, v) = (leaf([batch, seq, kv_heads, dim], 13), leaf([batch, seq, kv_heads, dim], 14));
            let visible = sights(batch, seq, kind);
            let fused = ops::attention(q.clone(), k.clone(), v.clone(), visible.clone());
            let plain = plain::attention(q.clone(), k.clone(), v.clone(), visible);
            if seq == 1 {
                close("attention of one position", fused, plain);
            } else {
                compare!("attention", fused, plain, q, k, v);
            }
        }
    }
}

#[test]
fn the_causal_convolution_equals_the_plain_one() {
    for [batch, seq, channels, kernel] in [[2, 150, 24, 4], [1, 3, 5, 4], [3, 70, 7, 1], [1, 65, 16, 2]] {
        for kind in [Rows::OneDocument, Rows::ManyDocuments, Rows::Branches] {
            let (x, weight) = (leaf([batch, seq, channels], 21), leaf([channels, 1, kernel], 22));
            let visible = sights(batch, seq, kind);
            let fused = ops::causal_convolution(x.clone(), weight.clone(), visible.clone());
            compare!("convolution", fused, plain::causal_convolution(x.clone(), weight.clone(), visible), x, weight);
        }
    }
}

#[test]
fn the_delta_rule_equals_its_definition_for_one_document_many_and_branches() {
    // Slow and fast decays: the state of a long document must still be there, and must go.
    for [batch, seq, key_heads, heads, key_dim, value_dim] in
        [[2, 150, 2, 4, 8, 12], [1, 64, 1, 1, 16, 16], [1, 65, 3, 3, 5, 7], [3, 1, 1, 2, 4, 3]]
    {
        for kind in [Rows::OneDocument, Rows::ManyDocuments, Rows::Branches] {
            let unit = |seed| {
                let x = constant([batch, seq, key_heads, key_dim], seed);
                (x.clone() / x.square().sum_dim(3).sqrt()).detach().require_grad()
            };
            let (q, k, v) = (unit(23), unit(24), leaf([batch, seq, heads, value_dim], 25));
            let numbers = |seed| constant::<3>([batch, seq, heads], seed);
            let log_decay = (numbers(26).abs().powi_scalar(4) * -3.0).detach().require_grad();
            let beta = numbers(27).abs().detach().require_grad();
            let inputs = DeltaInputs {
                q: q.clone(),
                k: k.clone(),
                v: v.clone(),
                log_decay: log_decay.clone(),
                beta: beta.clone(),
                visible: sights(batch, seq, kind),
            };
            let fused = ops::delta_rule(inputs.clone());
            if seq == 1 {
                close("delta rule of one token", fused, plain::delta_rule(inputs));
            } else {
                compare!("delta rule", fused, plain::delta_rule(inputs), q, k, v, log_decay, beta);
            }
        }
    }
}

#[test]
fn experts_equal_every_expert_for_every_token() {
    for [tokens, num_experts, per_token, hidden, inner] in [[75, 6, 2, 20, 12], [3, 8, 3, 8, 5], [130, 1, 1, 16, 8]] {
        let x = leaf([2, tokens, hidden], 28);
        let (gate_up, down) = (leaf([num_experts, 2 * inner, hidden], 29), leaf([num_experts, hidden, inner], 30));
        let weights = leaf([2, tokens, per_token], 31);
        // Each token's own run of experts; the last expert of the second case is never chosen.
        let most = if num_experts == 8 { 7 } else { num_experts };
        let choice = |i: usize| ((i / per_token * 5 + i % per_token) % most) as i32;
        let choices: Tensor<3, Int> =
            integers((0..2 * tokens * per_token).map(choice).collect(), [2, tokens, per_token]);
        let fused = ops::experts(
            x.clone(),
            gate_up.clone(),
            down.clone(),
            weights.clone(),
            choices.clone(),
            MatmulPrecision::F32,
        );
        let plain = plain::experts(x.clone(), gate_up.clone(), down.clone(), weights.clone(), choices);
        compare!("experts", fused, plain, x, gate_up, down, weights);
    }
}

#[test]
fn linear_cross_entropy_equals_the_plain_one_with_weights_and_temperature() {
    let (rows, hidden, vocabulary) = (1_100, 48, 1_203);
    let targets = |weights: Vec<f32>, temperature| RowTargets {
        tokens: integers((0..rows as i32).map(|row| row * 7_919 % vocabulary as i32).collect(), [rows]),
        weights: Tensor::from_data(TensorData::new(weights, [rows]), &device().inner()),
        temperature,
    };
    let weightings: [fn(usize) -> f32; 3] =
        [|_| 1.0 / 1_100.0, |row| if row % 3 == 0 { 0.002 } else { 0.0 }, |row| (row % 7) as f32 * 0.01 - 0.03];
    for weighting in weightings {
        for temperature in [1.0, 0.7] {
            let targets = targets((0..rows).map(weighting).collect(), temperature);
            let (x, weight) = (leaf([rows, hidden], 15), leaf([vocabulary, hidden], 16));
            let fused = ops::linear_cross_entropy(x.clone(), weight.clone(), targets.clone(), MatmulPrecision::F32);
            let plain = plain::linear_cross_entropy(x.clone(), weight.clone(), targets);
            close("losses of rows", fused.nll, plain.nll);
            close("weighted loss", fused.total.clone(), plain.total.clone());
            // Another factor than 1 reaches the gradients, which are made in the forward pass.
            let (fused, plain) = ((fused.total * 3.0).backward(), (plain.total * 3.0).backward());
            let largest: f32 = x.grad(&plain).unwrap().abs().max().into_scalar();
            let scaled = |tensor: Tensor<2>| tensor / largest;
            close("gradient of the hidden states", scaled(x.grad(&fused).unwrap()), scaled(x.grad(&plain).unwrap()));
            let largest: f32 = weight.grad(&plain).unwrap().abs().max().into_scalar();
            let scaled = |tensor: Tensor<2>| tensor / largest;
            close("gradient of the head", scaled(weight.grad(&fused).unwrap()), scaled(weight.grad(&plain).unwrap()));
        }
    }
}

#[test]
fn a_row_of_weight_zero_is_not_read() {
    let mut hidden = random(4 * 8, 17);
    hidden[8..16].fill(f32::NAN);
    let hidden = Tensor::<2>::from_data(TensorData::new(hidden, [4, 8]), &device()).require_grad();
    let targets = RowTargets {
        tokens: integers(vec![1, -5, 3, 4], [4]),
        weights: Tensor::from_data(TensorData::new(vec![1.0f32, 0.0, 1.0, 1.0], [4]), &device().inner()),
        temperature: 1.0,
    };
    let bodies: [fn(Tensor<2>, Tensor<2>, RowTargets) -> ops::RowLoss; 2] =
        [|x, w, t| ops::linear_cross_entropy(x, w, t, MatmulPrecision::F32), plain::linear_cross_entropy];
    for body in bodies {
        let loss = body(hidden.clone(), leaf([11, 8], 18), targets.clone()).total;
        assert!(loss.clone().into_scalar::<f32>().is_finite());
        let gradient: Vec<f32> = hidden.grad(&loss.backward()).unwrap().into_data().iter::<f32>().collect();
        assert!(gradient[8..16].iter().all(|&value| value == 0.0));
        assert!(gradient.iter().all(|value| value.is_finite()));
    }
}

#[test]
fn a_broken_number_shows_in_the_loss() {
    let mut weight = random(11 * 8, 19);
    weight[40] = f32::NAN;
    let weight = Tensor::<2>::from_data(TensorData::new(weight, [11, 8]), &device());
    let targets = RowTargets {
        tokens: integers(vec![1], [1]),
        weights: Tensor::from_data(TensorData::new(vec![1.0f32], [1]), &device().inner()),
        temperature: 1.0,
    };
    // The broken logit is not the target's: only the softmax's denominator can tell.
    let loss = ops::linear_cross_entropy(leaf([1, 8], 20), weight, targets, MatmulPrecision::F32).total;
    assert!(loss.into_scalar::<f32>().is_nan());
}
