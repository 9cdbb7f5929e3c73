//! Every kernel gives the same bits for any number of threads; and AdamW is the published one.
#![expect(clippy::unwrap_used, reason = "a test helper that cannot go on fails its test")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use worldloom_kernels::attention::{Attended, Heads, attention, attention_backward};
use worldloom_kernels::cross_entropy::{
    Targets, linear_cross_entropy_with_gradients, linear_cross_entropy_with_hidden_gradient,
};
use worldloom_kernels::embedding::embedding_backward;
use worldloom_kernels::matmul::{
    MatmulPrecision, Matrix, Threads, Weight, linear, linear_backward_input, linear_backward_weight, multiply,
};
use worldloom_kernels::norm::{rms_norm, rms_norm_backward};
use worldloom_kernels::rotary::{Rotary, norm_rotary, norm_rotary_backward, rotary as turn, rotary_backward};
use worldloom_kernels::swiglu::{swiglu, swiglu_backward};
use worldloom_kernels::{AdamWStep, adamw, sum_of_squares};

/// Seeded numbers in −1..1 (splitmix64).
fn random(len: usize, seed: u64) -> Vec<f32> {
    let state = AtomicU64::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    (0..len)
        .map(|_| {
            let mut z = state.fetch_add(0x9E37_79B9_7F4A_7C15, Relaxed);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// Runs `work` with one, two, three and five threads and compares the bits.
fn same_bits(what: &str, work: impl Fn() -> Vec<Vec<f32>> + Sync) {
    let bits = |threads| -> Vec<Vec<u32>> {
        let results = with_threads(threads, &work);
        results.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
    };
    let one = bits(1);
    assert!(one.iter().all(|values| !values.is_empty()));
    for threads in [2, 3, 5] {
        assert!(bits(threads) == one, "{what}: {threads} threads differ from one");
    }
}

#[test]
fn products_have_the_same_bits_for_any_number_of_threads() {
    let shapes = [
        [4096, 192, 192],
        [4096, 192, 64],
        [4096, 512, 192],
        [2048, 384, 1024],
        [513, 1030, 67],
        [64, 2048, 33],
        [1, 300, 700],
        [5, 2, 900],
    ];
    for [rows, inputs, outputs] in shapes {
        let (x, weight, dy) = (random(rows * inputs, 1), random(outputs * inputs, 2), random(rows * outputs, 3));
        for precision in precisions() {
            let weight = Weight { values: &weight, inputs, precision };
            same_bits(&format!("{rows}x{inputs}x{outputs} {precision:?}"), || {
                vec![
                    linear(&x, weight),
                    linear_backward_input(weight, &dy),
                    linear_backward_weight(&x, &dy, inputs, precision),
                ]
            });
        }
    }
}

/// Those that this processor computes.
fn precisions() -> impl Iterator<Item = MatmulPrecision> {
    let all = [MatmulPrecision::F32, MatmulPrecision::Bf16Emulated, MatmulPrecision::Bf16];
    all.into_iter().filter(|precision| precision.is_available())
}

#[test]
fn products_are_the_sums_they_should_be_in_every_order_of_memory() {
    let (rows, inner, columns) = (13, 37, 21);
    let (a, b) = (random(rows * inner, 4), random(inner * columns, 5));
    let transposed = |values: &[f32], rows: usize, columns: usize| -> Vec<f32> {
        (0..rows * columns).map(|i| values[i % rows * columns + i / rows]).collect()
    };
    let (a_columns, b_columns) = (transposed(&a, rows, inner), transposed(&b, inner, columns));
    let lefts = [Matrix::new(&a, rows, inner), Matrix::new(&a_columns, inner, rows).transposed()];
    let rights = [Matrix::new(&b, inner, columns), Matrix::new(&b_columns, columns, inner).transposed()];
    for left in lefts {
        for right in rights {
            let mut out = vec![f32::NAN; rows * columns];
            multiply(&mut out, left, right, 0.5, Threads::Pool);
            for (index, &value) in out.iter().enumerate() {
                let (row, column) = (index / columns, index % columns);
                let sum: f64 =
                    (0..inner).map(|i| f64::from(a[row * inner + i]) * f64::from(b[i * columns + column])).sum();
                assert!((f64::from(value) - sum / 2.0).abs() < 1e-5, "row {row}, column {column}");
            }
        }
    }
}

#[test]
fn norms_have_the_same_bits_for_any_number_of_threads() {
    let (rows, width) = (1_001, 48);
    let (x, weight, dy) = (random(rows * width, 6), random(width, 7), random(rows * width, 8));
    same_bits("rms_norm", || {
        let (y, inverse_rms) = rms_norm(&x, &weight, 1e-6);
        let (dx, dw) = rms_norm_backward(&x, &weight, &inverse_rms, &dy);
        vec![y, inverse_rms, dx, dw]
    });
    let (heads, dim) = (3, 16);
    let (cos, sin) = (random(1_001 * dim / 2, 9), random(1_001 * dim / 2, 10));
    let positions: Vec<u32> = (0..rows as u32).rev().collect();
    let rotary = Rotary { half: dim / 2, cos: &cos, sin: &sin, positions: &positions };
    let weight = random(dim, 11);
    same_bits("norm_rotary", || {
        let (y, inverse_rms) = norm_rotary(&x, &weight, rotary, heads, 1e-6);
        let (dx, dw) = norm_rotary_backward(&x, &weight, rotary, heads, &inverse_rms, &dy);
        vec![y, inverse_rms, dx, dw]
    });
    let part = Rotary { half: dim / 4, ..rotary };
    same_bits("rotary of a part of the head", || {
        vec![turn(&x, part, heads, dim), rotary_backward(part, heads, dim, &dy)]
    });
}

#[test]
fn swiglu_and_embedding_have_the_same_bits_for_any_number_of_threads() {
    let (gate, up, dy) = (random(100_001, 12), random(100_001, 13), random(100_001, 14));
    same_bits("swiglu", || {
        let (dgate, dup) = swiglu_backward(&gate, &up, &dy);
        vec![swiglu(&gate, &up), dgate, dup, vec![sum_of_squares(&gate) as f32]]
    });
    let tokens: Vec<u32> = (0..5_000).map(|i| i * i % 701).collect();
    let dy = random(5_000 * 20, 15);
    same_bits("embedding", || vec![embedding_backward(&tokens, &dy, 701, 20)]);
}

#[test]
fn attention_has_the_same_bits_for_any_number_of_threads() {
    let heads = Heads { batch: 3, seq: 333, query_heads: 6, kv_heads: 2, head_dim: 24 };
    let tokens = heads.batch * heads.seq;
    let (q, dout) = (random(tokens * 144, 16), random(tokens * 144, 17));
    let (k, v) = (random(tokens * 48, 18), random(tokens * 48, 19));
    // Documents of 50, and in the middle two branches of the one before.
    let sight = |at: u32| match at {
        100..125 => [50, 100, 100],
        125..150 => [50, 100, 125],
        _ => [at / 50 * 50; 3],
    };
    let visible: Vec<u32> = (0..tokens as u32).flat_map(|at| sight(at % 333)).collect();
    same_bits("attention", || {
        let (out, log_sums) = attention(&q, &k, &v, &visible, heads);
        let attended = Attended { inputs: [&q, &k, &v], visible: &visible, out: &out, log_sums: &log_sums };
        let [dq, dk, dv] = attention_backward(attended, &dout, heads);
        vec![out, log_sums, dq, dk, dv]
    });
}

#[test]
fn cross_entropy_has_the_same_bits_for_any_number_of_threads() {
    let (rows, width, vocabulary) = (1_500, 40, 2_011);
    let (hidden, weight) = (random(rows * width, 20), random(vocabulary * width, 21));
    let tokens: Vec<u32> = (0..rows as u32).map(|row| row * 31 % 2_011).collect();
    let weights: Vec<f32> = (0..rows).map(|row| if row % 4 == 0 { 0.0 } else { 0.01 }).collect();
    for precision in precisions() {
        let projection = Weight { values: &weight, inputs: width, precision };
        same_bits(&format!("cross entropy {precision:?}"), || {
            let targets = Targets { tokens: &tokens, weights: &weights, temperature: 1.0 };
            let (loss, gradients) = linear_cross_entropy_with_gradients(&hidden, projection, targets);
            let alone = linear_cross_entropy_with_hidden_gradient(&hidden, projection, targets);
            assert!(alone == (loss.clone(), gradients.hidden.clone()), "a frozen projection changes nothing");
            vec![vec![loss.total], loss.nll, gradients.hidden, gradients.weight]
        });
    }
}

#[test]
fn no_selected_row_means_no_loss_and_no_gradient() {
    let (hidden, weight) = (random(5 * 4, 22), random(7 * 4, 23));
    let targets = Targets { tokens: &[0; 5], weights: &[0.0; 5], temperature: 1.0 };
    let (loss, gradients) = linear_cross_entropy_with_gradients(&hidden, Weight::single(&weight, 4), targets);
    assert_eq!(loss.total, 0.0);
    assert!(gradients.hidden.iter().chain(&gradients.weight).all(|&value| value == 0.0));
}

#[test]
fn adamw_follows_the_published_rule_in_double_precision() {
    let hyper = |step| AdamWStep {
        learning_rate: 0.01,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        step,
        gradient_scale: 0.5,
    };
    let len = 40_000;
    let mut parameter = random(len, 24);
    let (mut m, mut v) = (vec![0f32; len], vec![0f32; len]);
    let mut expected: Vec<[f64; 3]> = parameter.iter().map(|&p| [f64::from(p), 0.0, 0.0]).collect();
    for step in 1..=5u64 {
        let gradient = random(len, 30 + step);
        adamw(&mut parameter, &gradient, &mut m, &mut v, &hyper(step));
        for ([p, m, v], &g) in expected.iter_mut().zip(&gradient) {
            let g = f64::from(g) * 0.5;
            *m = 0.9 * *m + 0.1 * g;
            *v = 0.95 * *v + 0.05 * g * g;
            let corrected = (*m / (1.0 - 0.9f64.powi(step as i32)), *v / (1.0 - 0.95f64.powi(step as i32)));
            *p = *p * (1.0 - 0.01 * 0.1) - 0.01 * corrected.0 / (corrected.1.sqrt() + 1e-8);
        }
    }
    for (found, expected) in parameter.iter().zip(&expected) {
        assert!((f64::from(*found) - expected[0]).abs() < 2e-6, "{found}, expected {}", expected[0]);
    }
}
