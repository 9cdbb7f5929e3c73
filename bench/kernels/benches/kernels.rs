//! The kernels of a training step and of decoding at the sizes of the 12.6-million-parameter shape, 4 rows of 512 tokens.
//!
//! `just bench-kernels [FILTER]`; `RAYON_NUM_THREADS` says on how many threads.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use worldloom_kernels::attention::{Attended, Heads, attention, attention_backward};
use worldloom_kernels::cross_entropy::{Targets, linear_cross_entropy_with_gradients};
use worldloom_kernels::decode::{CacheShape, KeyValueCache, PackedMatrix, Store, View, attend};
use worldloom_kernels::matmul::{MatmulPrecision, Weight, linear, linear_backward_input, linear_backward_weight};
use worldloom_kernels::norm::{rms_norm, rms_norm_backward};
use worldloom_kernels::rotary::{Rotary, norm_rotary};
use worldloom_kernels::swiglu::{swiglu, swiglu_backward};
use worldloom_kernels::{AdamWStep, adamw};

const BATCH: usize = 4;
const SEQ: usize = 512;
const TOKENS: usize = BATCH * SEQ;
const HIDDEN: usize = 384;
const INNER: usize = 1024;
const VOCABULARY: usize = 4096;

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7919) % 2003) as f32 / 2003.0 - 0.5).collect()
}

/// Throughput is in floating-point operations.
fn products(criterion: &mut Criterion) {
    let (x, values, dy) = (numbers(TOKENS * HIDDEN), numbers(INNER * HIDDEN), numbers(TOKENS * INNER));
    for precision in [MatmulPrecision::F32, MatmulPrecision::Bf16, MatmulPrecision::Bf16Emulated] {
        if !precision.is_available() {
            continue;
        }
        let mut group = criterion.benchmark_group(format!("linear 2048x384x1024 {precision:?}"));
        group.throughput(Throughput::Elements(2 * (TOKENS * HIDDEN * INNER) as u64));
        let weight = Weight { values: &values, inputs: HIDDEN, precision };
        group.bench_function("forward", |bencher| bencher.iter(|| linear(black_box(&x), weight)));
        group.bench_function("to input", |bencher| bencher.iter(|| linear_backward_input(weight, black_box(&dy))));
        group.bench_function("to weight", |bencher| {
            bencher.iter(|| linear_backward_weight(&x, black_box(&dy), HIDDEN, precision));
        });
        group.finish();
    }
}

/// Throughput is in tokens.
fn attention_of_rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention 6 heads on 2");
    for (batch, seq) in [(BATCH, SEQ), (1, 4 * SEQ)] {
        let heads = Heads { batch, seq, query_heads: 6, kv_heads: 2, head_dim: 64 };
        let q = numbers(batch * seq * heads.query_heads * heads.head_dim);
        let k = numbers(batch * seq * heads.kv_heads * heads.head_dim);
        let visible = vec![0u32; batch * seq * 3];
        group.throughput(Throughput::Elements((batch * seq) as u64));
        group.bench_function(format!("forward {batch}x{seq}"), |bencher| {
            bencher.iter(|| attention(black_box(&q), &k, &k, &visible, heads));
        });
        let (out, log_sums) = attention(&q, &k, &k, &visible, heads);
        let attended = Attended { inputs: [&q, &k, &k], visible: &visible, out: &out, log_sums: &log_sums };
        group.bench_function(format!("backward {batch}x{seq}"), |bencher| {
            bencher.iter(|| attention_backward(attended, black_box(&q), heads));
        });
    }
    group.finish();
}

/// Throughput is in tokens.
fn rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("rows of 384, inner 1024");
    group.throughput(Throughput::Elements(TOKENS as u64));
    let (x, weight) = (numbers(TOKENS * HIDDEN), vec![1.0; HIDDEN]);
    group.bench_function("norm forward", |bencher| bencher.iter(|| rms_norm(black_box(&x), &weight, 1e-6)));
    let (_, inverse) = rms_norm(&x, &weight, 1e-6);
    group.bench_function("norm backward", |bencher| {
        bencher.iter(|| rms_norm_backward(&x, &weight, &inverse, black_box(&x)));
    });
    let (gate, up) = (numbers(TOKENS * INNER), numbers(TOKENS * INNER));
    group.bench_function("swiglu forward", |bencher| bencher.iter(|| swiglu(black_box(&gate), &up)));
    group.bench_function("swiglu backward", |bencher| bencher.iter(|| swiglu_backward(&gate, &up, black_box(&up))));
    let tables = numbers(SEQ * 32);
    let positions: Vec<u32> = (0..TOKENS as u32).map(|token| token % SEQ as u32).collect();
    let rotary = Rotary { half: 32, cos: &tables, sin: &tables, positions: &positions };
    let head = vec![1.0; 64];
    group.bench_function("norm and rotary forward, 6 heads of 64", |bencher| {
        bencher.iter(|| norm_rotary(black_box(&x), &head, rotary, 6, 1e-6));
    });
    group.finish();
}

/// Throughput is in tokens.
fn head(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("head of 4096");
    group.throughput(Throughput::Elements(TOKENS as u64)).sample_size(20);
    let (hidden, weight) = (numbers(TOKENS * HIDDEN), numbers(VOCABULARY * HIDDEN));
    let weight = Weight::single(&weight, HIDDEN);
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|token| token % VOCABULARY as u32).collect();
    let weights = vec![1.0; TOKENS];
    let targets = Targets { tokens: &tokens, weights: &weights, temperature: 1.0 };
    group.bench_function("cross entropy with gradients", |bencher| {
        bencher.iter(|| linear_cross_entropy_with_gradients(black_box(&hidden), weight, targets));
    });
    group.finish();
}

/// Throughput is in numbers of the parameter, of which four are read and three written.
fn update(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("update of 4 M numbers");
    let count = 4 << 20;
    let (mut parameter, gradient) = (numbers(count), numbers(count));
    let (mut m, mut v) = (vec![0.0; count], vec![0.0; count]);
    let hyper = AdamWStep {
        learning_rate: 1e-3,
        weight_decay: 0.1,
        beta1: 0.9,
        beta2: 0.95,
        epsilon: 1e-8,
        step: 1,
        gradient_scale: 1.0,
    };
    group.throughput(Throughput::Elements(count as u64));
    group.bench_function("adamw", |bencher| {
        bencher.iter(|| adamw(&mut parameter, black_box(&gradient), &mut m, &mut v, &hyper));
    });
    group.finish();
}

/// Throughput is in bytes of the weight: one row reads all of it for two operations a number.
fn decoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("packed 4096x1024");
    let (outputs, inputs) = (4096, 1024);
    let mut packed = PackedMatrix::zeros(outputs, inputs);
    packed.set_rows(0, &numbers(outputs * inputs));
    group.throughput(Throughput::Bytes((outputs * inputs * size_of::<f32>()) as u64));
    for rows in [1, 8] {
        let (input, mut output) = (numbers(rows * inputs), vec![0.0; rows * outputs]);
        group.bench_function(format!("{rows} rows"), |bencher| {
            bencher.iter(|| packed.multiply(black_box(&input), &mut output, Store::Replace));
        });
    }
    group.finish();
}

/// Throughput is in floating-point operations: a block of a prompt at its end, and a group of 8 on that prompt.
fn attention_over_cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache of 2048, 6 heads on 2");
    let shape = CacheShape { num_layers: 1, num_kv_heads: 2, head_dim: 64 };
    let (prompt, own_len, width) = (2048, 64, 6 * 64);
    let filled = |len: usize| {
        let mut cache = KeyValueCache::new(shape, len);
        (0..len).for_each(|position| cache.write(0, position, &numbers(128), &numbers(128)));
        cache
    };
    let (shared, owns): (_, Vec<KeyValueCache>) = (filled(prompt), (0..8).map(|_| filled(own_len)).collect());
    let of_prompt = |row: usize| View { shared: &shared, shared_len: prompt - 95 + row, own: None };
    let of_group = |own| View { shared: &shared, shared_len: prompt, own: Some((own, own_len)) };
    let cases: [(&str, Vec<View<'_>>); 2] =
        [("prompt, 96 rows", (0..96).map(of_prompt).collect()), ("group, 8 rows", owns.iter().map(of_group).collect())];
    for (name, views) in cases {
        let keys: usize = views.iter().map(|view| view.shared_len + view.own.map_or(0, |(_, len)| len)).sum();
        group.throughput(Throughput::Elements((4 * width * keys) as u64));
        let (queries, mut output) = (numbers(views.len() * width), vec![0.0; views.len() * width]);
        group.bench_function(name, |bencher| {
            bencher.iter(|| attend(0, 6, black_box(&queries), width, &views, &mut output));
        });
    }
    group.finish();
}

criterion_group!(kernels, products, attention_of_rows, rows, head, update, decoding, attention_over_cache);
criterion_main!(kernels);
