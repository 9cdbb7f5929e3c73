//! Every fused operation against burn's plain ones: forward and every gradient, at odd sizes.

use crate::support::random;
use burn::tensor::{Device, Int, Tensor, TensorData};
use worldloom_model::ops::{self, RotaryTables, RowTargets, plain};

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
        let (fused, plain) = (ops::linear(x.clone(), weight.clone()), plain::linear(x.clone(), weight.clone()));
        compare!("linear", fused, plain, x, weight);
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

#[test]
fn attention_equals_the_plain_one_for_one_document_and_many() {
    let sizes = [[2, 150, 6, 2, 32], [1, 33, 4, 4, 16], [3, 1, 2, 1, 8], [1, 97, 3, 1, 10], [1, 70, 24, 2, 6]];
    for [batch, seq, query_heads, kv_heads, dim] in sizes {
        for documents in [1, 4] {
            let q = leaf([batch, seq, query_heads, dim], 12);
            let (k, v) = (leaf([batch, seq, kv_heads, dim], 13), leaf([batch, seq, kv_heads, dim], 14));
            let len = seq.div_ceil(documents) as i32;
            let first_keys = (0..batch).flat_map(|row| {
                // Other boundaries in each row.
                (0..seq as i32).map(move |position| (position + row as i32).div_euclid(len) * len - row as i32)
            });
            let first_keys = integers(first_keys.map(|first| first.max(0)).collect(), [batch, seq]);
            let fused = ops::attention(q.clone(), k.clone(), v.clone(), first_keys.clone());
            let plain = plain::attention(q.clone(), k.clone(), v.clone(), first_keys);
            if seq == 1 {
                close("attention of one position", fused, plain);
            } else {
                compare!("attention", fused, plain, q, k, v);
            }
        }
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
            let fused = ops::linear_cross_entropy(x.clone(), weight.clone(), targets.clone());
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
    let loss = ops::linear_cross_entropy(hidden.clone(), leaf([11, 8], 18), targets).total;
    assert!(loss.clone().into_scalar::<f32>().is_finite());
    let gradient: Vec<f32> = hidden.grad(&loss.backward()).unwrap().into_data().iter::<f32>().collect();
    assert!(gradient[8..16].iter().all(|&value| value == 0.0));
    assert!(gradient.iter().all(|value| value.is_finite()));
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
    let loss = ops::linear_cross_entropy(leaf([1, 8], 20), weight, targets).total;
    assert!(loss.into_scalar::<f32>().is_nan());
}
