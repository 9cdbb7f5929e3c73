//! The short causal convolution before a delta-net, channel by channel, and its activation.
//!
//! Documents and branches lie one after another in a row; a branch goes on from the prefix that it sees, and what stands
//! before a document's start counts as zero.

use crate::buffer::{filled, uninitialised};
use crate::math::{exp, multiply_add, sum_in_order};
use crate::sight::Sight;
use rayon::prelude::*;

/// Tokens of one task; fixes the order of additions of the weight's gradient.
const TOKENS_PER_BLOCK: usize = 64;

/// Where the tokens of a convolution stand.
#[derive(Clone, Copy, Debug)]
pub struct Tokens<'a> {
    /// Positions of a row.
    pub seq: usize,
    /// The keys that each token sees, `[tokens, 3]`, as attention has them.
    pub visible: &'a [u32],
}

impl Tokens<'_> {
    /// The token that stands `back` before `token`, if there is one.
    fn before(&self, token: usize, back: usize) -> Option<usize> {
        let (row, position) = (token / self.seq * self.seq, token % self.seq);
        Sight::new(&self.visible[token * 3..][..3]).before(position, back).map(|at| row + at)
    }

    /// For each token, who has it before them, and how far: in the order of the tokens.
    fn followers(&self, kernel: usize) -> Vec<Vec<(usize, usize)>> {
        let num_tokens = self.visible.len() / 3;
        let mut followers = vec![Vec::new(); num_tokens];
        for token in 0..num_tokens {
            for back in 0..kernel {
                if let Some(before) = self.before(token, back) {
                    followers[before].push((token, back));
                }
            }
        }
        followers
    }

    fn check(&self, values: usize, channels: usize) {
        assert_eq!(values * 3, self.visible.len() * channels, "convolution: tokens of {channels} channels");
        Sight::check(self.visible, self.visible.len() / 3, self.seq.max(1));
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
                for back in 0..kernel {
                    let Some(before) = tokens.before(token, back) else { break };
                    let of_offset = &mut partial[(kernel - 1 - back) * channels..][..channels];
                    let x = &x[before * channels..][..channels];
                    for ((sum, d), x) in of_offset.iter_mut().zip(d_sum.iter()).zip(x) {
                        *sum = multiply_add(*d, *x, *sum);
                    }
                }
            }
            partial
        })
        .collect();
    let followers = tokens.followers(kernel);
    let dx = filled(x.len(), |dx| {
        dx.par_chunks_mut(block_len).enumerate().for_each(|(block, dx)| {
            for (row, dx) in dx.chunks_exact_mut(channels).enumerate() {
                dx.fill(0.0);
                for &(follower, back) in &followers[block * TOKENS_PER_BLOCK + row] {
                    let weights = &by_offset[(kernel - 1 - back) * channels..][..channels];
                    let d_sum = &d_sums[follower * channels..][..channels];
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
    for back in (0..kernel).rev() {
        let Some(before) = tokens.before(token, back) else { continue };
        let weights = &by_offset[(kernel - 1 - back) * channels..][..channels];
        let x = &x[before * channels..][..channels];
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
