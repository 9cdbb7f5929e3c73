//! What this machine can do at most: products in single precision and reads from memory, by thread.
//!
//! `cargo run --release --example roofline`
//!
//! A product of square matrices of 1,024 counts `2 · 1024³` operations; the bandwidth is that of sums over a slice of 512
//! MiB, which no cache holds, and of a copy of it (bytes read and written). The fastest of several runs of each is told.

use rayon::prelude::*;
use std::io::Write;
use std::time::Instant;
use worldloom_kernels::matmul::{Matrix, Threads, multiply};

const SIZE: usize = 1024;
const VALUES: usize = 128 << 20;
const RUNS: usize = 8;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout();
    let (a, b) = (numbers(SIZE * SIZE), numbers(SIZE * SIZE));
    let slice = numbers(VALUES);
    let mut copy = vec![0.0; VALUES];
    for threads in 1..=rayon::current_num_threads() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool of a few threads");
        let mut product = vec![0.0; SIZE * SIZE];
        let [a, b] = [&a, &b].map(|values| Matrix::new(values, SIZE, SIZE));
        let seconds = fastest(4 * RUNS, || pool.install(|| multiply(&mut product, a, b, 1.0, Threads::Pool)));
        writeln!(out, "{threads} threads: product {:.1} GFLOP/s", 2.0 * (SIZE as f64).powi(3) / seconds / 1e9)?;
        let bytes = (VALUES * size_of::<f32>()) as f64;
        let mut sum = 0.0;
        let seconds = fastest(RUNS, || sum += pool.install(|| slice.par_chunks(1 << 20).map(sum_of).sum::<f32>()));
        writeln!(out, "{threads} threads: read {:.1} GB/s (sum {sum:.0})", bytes / seconds / 1e9)?;
        let seconds = fastest(RUNS, || {
            pool.install(|| {
                copy.par_chunks_mut(1 << 20)
                    .zip(slice.par_chunks(1 << 20))
                    .for_each(|(to, from)| to.copy_from_slice(from));
            });
        });
        writeln!(out, "{threads} threads: copy {:.1} GB/s", 2.0 * bytes / seconds / 1e9)?;
    }
    Ok(())
}

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at % 251) as f32 / 251.0 - 0.5).collect()
}

/// In lanes, so that additions do not wait for each other.
fn sum_of(values: &[f32]) -> f32 {
    let mut lanes = [0.0; 32];
    for chunk in values.chunks_exact(32) {
        lanes.iter_mut().zip(chunk).for_each(|(lane, value)| *lane += value);
    }
    lanes.iter().sum()
}

fn fastest(runs: usize, mut work: impl FnMut()) -> f64 {
    let seconds = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    };
    (0..runs).map(seconds).fold(f64::INFINITY, f64::min)
}
