//! Per-head root-mean-square norm followed by the rotary turn of halves, in one pass.

use crate::buffer::{filled, uninitialised};
use crate::math::sum_in_order;
use crate::norm::{backward_row, inverse_root_mean_square};
use rayon::prelude::*;

/// Tokens of one task; fixes the order of additions of the weight's gradient.
const TOKENS_PER_BLOCK: usize = 32;

/// Cosine and sine of every position's angles, `[positions, head_dim / 2]`, and the position of each token.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// `cos(position · theta^(−2i / head_dim))`.
    pub cos: &'a [f32],
    /// The sine of the same angles.
    pub sin: &'a [f32],
    /// Row of the tables for each token.
    pub positions: &'a [u32],
}

impl<'a> Rotary<'a> {
    fn check(&self, tokens: usize, half: usize) {
        assert_eq!(self.cos.len(), self.sin.len(), "rotary: tables differ in length");
        assert_eq!(self.positions.len(), tokens, "rotary: one position per token");
        let rows = self.cos.len() / half;
        let last = self.positions.iter().copied().max().unwrap_or(0) as usize;
        assert!(tokens == 0 || last < rows, "rotary: position {last} in a table of {rows}");
    }

    #[inline(always)]
    fn at(&self, position: u32, half: usize) -> (&'a [f32], &'a [f32]) {
        let start = position as usize * half;
        (&self.cos[start..start + half], &self.sin[start..start + half])
    }
}

/// Norm over each head of `x` (`[tokens, heads, head_dim]`), then the turn; returns `y` and the inverse rms per head.
///
/// With `a, b` the halves of the normed head: `y = (a cos − b sin, b cos + a sin)`.
pub fn norm_rotary(x: &[f32], weight: &[f32], rotary: Rotary<'_>, heads: usize, eps: f32) -> (Vec<f32>, Vec<f32>) {
    let (dim, half) = (weight.len(), weight.len() / 2);
    let (token, tokens) = (heads * dim, x.len() / (heads * dim));
    check_heads(x.len(), tokens, heads, dim);
    rotary.check(tokens, half);
    let mut inverse_rms = uninitialised(tokens * heads);
    let y = filled(x.len(), |y| {
        y.par_chunks_mut(token * TOKENS_PER_BLOCK)
            .zip(inverse_rms.par_chunks_mut(heads * TOKENS_PER_BLOCK))
            .zip(x.par_chunks(token * TOKENS_PER_BLOCK))
            .zip(rotary.positions.par_chunks(TOKENS_PER_BLOCK))
            .for_each(|(((y, r), x), positions)| {
                let tokens = y.chunks_exact_mut(token).zip(r.chunks_exact_mut(heads)).zip(x.chunks_exact(token));
                for (((y, r), x), &position) in tokens.zip(positions) {
                    let (cos, sin) = rotary.at(position, half);
                    for ((y, r), x) in y.chunks_exact_mut(dim).zip(r).zip(x.chunks_exact(dim)) {
                        *r = inverse_root_mean_square(x, eps);
                        turn_normed(y, x, weight, *r, cos, sin);
                    }
                }
            });
    });
    (y, inverse_rms)
}

/// Gradients of [`norm_rotary`] to `x` and `weight`: turned back, then as in [`crate::norm::rms_norm_backward`].
pub fn norm_rotary_backward(
    x: &[f32],
    weight: &[f32],
    rotary: Rotary<'_>,
    heads: usize,
    inverse_rms: &[f32],
    dy: &[f32],
) -> (Vec<f32>, Vec<f32>) {
    let (dim, half) = (weight.len(), weight.len() / 2);
    let (token, tokens) = (heads * dim, x.len() / (heads * dim));
    check_heads(x.len(), tokens, heads, dim);
    rotary.check(tokens, half);
    assert_eq!(inverse_rms.len(), tokens * heads, "norm_rotary_backward: one inverse rms per head");
    assert_eq!(dy.len(), x.len(), "norm_rotary_backward: gradient and input differ in length");
    let mut dx = uninitialised(x.len());
    let partials: Vec<Vec<f32>> = dx
        .par_chunks_mut(token * TOKENS_PER_BLOCK)
        .zip(inverse_rms.par_chunks(heads * TOKENS_PER_BLOCK))
        .zip(x.par_chunks(token * TOKENS_PER_BLOCK))
        .zip(dy.par_chunks(token * TOKENS_PER_BLOCK))
        .zip(rotary.positions.par_chunks(TOKENS_PER_BLOCK))
        .map(|((((dx, r), x), dy), positions)| {
            let mut dw = vec![0f32; dim];
            let tokens = dx.chunks_exact_mut(token).zip(r.chunks_exact(heads)).zip(x.chunks_exact(token));
            for ((((dx, r), x), dy), &position) in tokens.zip(dy.chunks_exact(token)).zip(positions) {
                let (cos, sin) = rotary.at(position, half);
                let heads = dx.chunks_exact_mut(dim).zip(r).zip(x.chunks_exact(dim)).zip(dy.chunks_exact(dim));
                for (((dx, &r), x), dy) in heads {
                    turn_back(dx, dy, cos, sin);
                    backward_row(dx, x, weight, r, &mut dw);
                }
            }
            dw
        })
        .collect();
    (dx, sum_in_order(&partials, dim))
}

fn check_heads(len: usize, tokens: usize, heads: usize, dim: usize) {
    assert!(dim.is_multiple_of(2), "rotary: head dimension {dim} is odd");
    assert_eq!(len, tokens * heads * dim, "rotary: tokens of {heads} heads of {dim}");
}

#[inline(always)]
fn turn_normed(y: &mut [f32], x: &[f32], weight: &[f32], r: f32, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let (y0, y1) = y.split_at_mut(half);
    let (x0, x1) = x.split_at(half);
    let (w0, w1) = weight.split_at(half);
    let (y1, x1, w1, sin) = (&mut y1[..half], &x1[..half], &w1[..half], &sin[..half]);
    for i in 0..half {
        let (a, b) = (x0[i] * r * w0[i], x1[i] * r * w1[i]);
        y0[i] = a * cos[i] - b * sin[i];
        y1[i] = b * cos[i] + a * sin[i];
    }
}

#[inline(always)]
fn turn_back(dx: &mut [f32], dy: &[f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let (dx0, dx1) = dx.split_at_mut(half);
    let (dy0, dy1) = dy.split_at(half);
    let (dx1, dy1, sin) = (&mut dx1[..half], &dy1[..half], &sin[..half]);
    for i in 0..half {
        dx0[i] = dy0[i] * cos[i] + dy1[i] * sin[i];
        dx1[i] = dy1[i] * cos[i] - dy0[i] * sin[i];
    }
}
