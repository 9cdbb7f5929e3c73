//! The short causal convolution before a delta-net, channel by channel, and its activation.
//!
//! Documents lie one after another in a row; what stands before a document's start counts as zero.

use crate::buffer::{filled, uninitialised};
use crate::math::{exp, multiply_add, sum_in_order};
use rayon::prelude::*;

/// Tokens of one task; fixes the order of additions of the weight's gradient.
const TOKENS_PER_BLOCK: usize = 64;

/// Where the tokens of a convolution stand.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// Positions of a row.
    pub seq: usize,
    /// First position of the row that each token may see, row after row.
    pub first_keys: &'a [u32],
}

impl Tokens<'_> {
    /// How many of the `reach` tokens before `token` belong to its document.
    fn before(&self, token: usize, reach: usize) -> usize {
        (token % self.seq - self.first_keys[token] as usize).min(reach)
    }

    /// How many of the `reach` tokens after `token` belong to its document.
    fn after(&self, token: usize, reach: usize) -> usize {
        let position = token % self.seq;
        let last = reach.min(self.seq - 1 - position);
        (1..=last).take_while(|ahead| self.first_keys[token + ahead] as usize <= position).count()
    }

    fn check(&self, values: usize, channels: usize) {
        assert_eq!(values, self.first_keys.len() * channels, "convolution: tokens of {channels} channels");
        assert_eq!(self.first_keys.len() % self.seq.max(1), 0, "convolution: whole rows of {}", self.seq);
        let seen = self.first_keys.iter().enumerate().all(|(token, &first)| first as usize <= token % self.seq);
        assert!(seen, "convolution: a first key lies after its token");
    }
}

/// `y_t = silu(Σ_j w_j · x_(t − kernel + 1 + j))`, `x` as `[tokens, channels]`, `weight` as `[channels, kernel]`.
pub fn causal_convolution(x: &[f32], weight: &[f32], tokens: Tokens<'_>, kernel: usize) -> Vec<f32> {
    let channels = weight.len() / kernel;
    tokens.check(x.len(), channels);
    let by_offset = transposed(weight, kernel);
    filled(x.len(), |y| {
        y.par_chunks_mut(TOKENS_PER_BLOCK * channels).enumerate().for_each(|(block, y)| {
            for (row, y) in y.chunks_exact_mut(channels).enumerate() {
                convolve(y, x, &by_offset, tokens, kernel, block * TOKENS_PER_BLOCK + row);
                y.iter_mut().for_each(|value| *value /= 1.0 + exp(-*value));
            }
        });
    })
}

/// Gradients of [`causal_convolution`] to `x` and `weight`; the sums before the activation are computed again.
pub fn causal_convolution_backward(
    x: &[f32],
    weight: &[f32],
    tokens: Tokens<'_>,
    kernel: usize,
    dy: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let channels = weight.len() / kernel;
    tokens.check(x.len(), channels);
    assert_eq!(x.len(), dy.len(), "causal_convolution_backward: gradient and input differ in length");
    let by_offset = transposed(weight, kernel);
    let block_len = TOKENS_PER_BLOCK * channels;
    let mut d_sums = uninitialised(x.len());
    let partials: Vec<Vec<f32>> = d_sums
        .par_chunks_mut(block_len)
        .zip(dy.par_chunks(block_len))
        .enumerate()
        .map(|(block, (d_sums, dy))| {
            let mut partial = vec![0f32; weight.len()];
            for (row, (d_sum, dy)) in d_sums.chunks_exact_mut(channels).zip(dy.chunks_exact(channels)).enumerate() {
                let token = block * TOKENS_PER_BLOCK + row;
                convolve(d_sum, x, &by_offset, tokens, kernel, token);
                for (d_sum, dy) in d_sum.iter_mut().zip(dy) {
                    let sigmoid = 1.0 / (1.0 + exp(-*d_sum));
                    *d_sum = dy * sigmoid * (1.0 + *d_sum * (1.0 - sigmoid));
                }
                for back in 0..=tokens.before(token, kernel - 1) {
                    let of_offset = &mut partial[(kernel - 1 - back) * channels..][..channels];
                    let x = &x[(token - back) * channels..][..channels];
                    for ((sum, d), x) in of_offset.iter_mut().zip(d_sum.iter()).zip(x) {
                        *sum = multiply_add(*d, *x, *sum);
                    }
                }
            }
            partial
        })
        .collect();
    let dx = filled(x.len(), |dx| {
        dx.par_chunks_mut(block_len).enumerate().for_each(|(block, dx)| {
            for (row, dx) in dx.chunks_exact_mut(channels).enumerate() {
                dx.fill(0.0);
                let token = block * TOKENS_PER_BLOCK + row;
                for ahead in 0..=tokens.after(token, kernel - 1) {
                    let weights = &by_offset[(kernel - 1 - ahead) * channels..][..channels];
                    let d_sum = &d_sums[(token + ahead) * channels..][..channels];
                    for ((dx, w), d) in dx.iter_mut().zip(weights).zip(d_sum) {
                        *dx = multiply_add(*w, *d, *dx);
                    }
                }
            }
        });
    });
    (dx, transposed(&sum_in_order(&partials, weight.len()), channels))
}

/// The sum of one token before the activation, oldest first.
fn convolve(y: &mut [f32], x: &[f32], by_offset: &[f32], tokens: Tokens<'_>, kernel: usize, token: usize) {
    let channels = y.len();
    y.fill(0.0);
    for back in (0..=tokens.before(token, kernel - 1)).rev() {
        let weights = &by_offset[(kernel - 1 - back) * channels..][..channels];
        let x = &x[(token - back) * channels..][..channels];
        for ((y, w), x) in y.iter_mut().zip(weights).zip(x) {
            *y = multiply_add(*w, *x, *y);
        }
    }
}

/// Rows of `columns` values as columns.
fn transposed(values: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..values.len()).map(|i| values[i % rows * columns + i / rows]).collect()
}
