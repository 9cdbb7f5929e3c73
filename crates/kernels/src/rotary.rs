//! The rotary turn of a head's halves, alone and after a root-mean-square norm of the head in one pass.
//!
//! The tables say how many dimensions turn: `2 * half`, the first of each head. The rest of a head passes unturned.

use crate::buffer::{filled, uninitialised};
use crate::math::sum_in_order;
use crate::norm::{backward_row, inverse_root_mean_square};
use rayon::prelude::*;

/// Tokens of one task; fixes the order of additions of the weight's gradient.
const TOKENS_PER_BLOCK: usize = 32;

/// Cosine and sine of every position's angles, `[positions, half]`, and the position of each token.
#[derive(Clone, Copy, Debug)]
pub struct Rotary<'a> {
    /// Angles of a position; twice as many dimensions of a head turn.
    pub half: usize,
    /// `cos(position · frequency)`.
    pub cos: &'a [f32],
    /// The sine of the same angles.
    pub sin: &'a [f32],
    /// Row of the tables for each token.
    pub positions: &'a [u32],
}

impl<'a> Rotary<'a> {
    fn check(&self, tokens: usize, dim: usize) {
        let half = self.half;
        assert!(half > 0 && 2 * half <= dim, "rotary: {half} angles turn twice as many of {dim} dimensions");
        assert_eq!(self.cos.len(), self.sin.len(), "rotary: tables differ in length");
        assert_eq!(self.positions.len(), tokens, "rotary: one position per token");
        let rows = self.cos.len() / half;
        let last = self.positions.iter().copied().max().unwrap_or(0) as usize;
        assert!(tokens == 0 || last < rows, "rotary: position {last} in a table of {rows}");
    }

    #[inline(always)]
    fn at(&self, position: u32) -> (&'a [f32], &'a [f32]) {
        let start = position as usize * self.half;
        (&self.cos[start..start + self.half], &self.sin[start..start + self.half])
    }
}

/// Norm over each head of `x` (`[tokens, heads, head_dim]`), then the turn; returns `y` and the inverse rms per head.
///
/// With `a, b` the halves of the normed head: `y = (a cos − b sin, b cos + a sin)`.
pub fn norm_rotary(x: &[f32], weight: &[f32], rotary: Rotary<'_>, heads: usize, eps: f32) -> (Vec<f32>, Vec<f32>) {
    let dim = weight.len();
    let (token, tokens) = (heads * dim, x.len() / (heads * dim));
    check_heads(x.len(), tokens, heads, dim);
    rotary.check(tokens, dim);
    let mut inverse_rms = uninitialised(tokens * heads);
    let y = filled(x.len(), |y| {
        y.par_chunks_mut(token * TOKENS_PER_BLOCK)
            .zip(inverse_rms.par_chunks_mut(heads * TOKENS_PER_BLOCK))
            .zip(x.par_chunks(token * TOKENS_PER_BLOCK))
            .zip(rotary.positions.par_chunks(TOKENS_PER_BLOCK))
            .for_each(|(((y, r), x), positions)| {
                let tokens = y.chunks_exact_mut(token).zip(r.chunks_exact_mut(heads)).zip(x.chunks_exact(token));
                for (((y, r), x), &position) in tokens.zip(positions) {
                    let (cos, sin) = rotary.at(position);
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
    let dim = weight.len();
    let (token, tokens) = (heads * dim, x.len() / (heads * dim));
    check_heads(x.len(), tokens, heads, dim);
    rotary.check(tokens, dim);
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
                let (cos, sin) = rotary.at(position);
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

/// The turn alone: `x` is `[tokens, heads, dim]`.
pub fn rotary(x: &[f32], rotary: Rotary<'_>, heads: usize, dim: usize) -> Vec<f32> {
    turn_all(x, rotary, heads, dim, turn)
}

/// Gradient of [`rotary`]: turned back.
pub fn rotary_backward(rotary: Rotary<'_>, heads: usize, dim: usize, dy: &[f32]) -> Vec<f32> {
    turn_all(dy, rotary, heads, dim, turn_back)
}

fn turn_all(
    x: &[f32],
    rotary: Rotary<'_>,
    heads: usize,
    dim: usize,
    turn: impl Fn(&mut [f32], &[f32], &[f32], &[f32]) + Sync,
) -> Vec<f32> {
    let (token, tokens) = (heads * dim, x.len() / (heads * dim));
    check_heads(x.len(), tokens, heads, dim);
    rotary.check(tokens, dim);
    filled(x.len(), |y| {
        y.par_chunks_mut(token * TOKENS_PER_BLOCK)
            .zip(x.par_chunks(token * TOKENS_PER_BLOCK))
            .zip(rotary.positions.par_chunks(TOKENS_PER_BLOCK))
            .for_each(|((y, x), positions)| {
                for ((y, x), &position) in y.chunks_exact_mut(token).zip(x.chunks_exact(token)).zip(positions) {
                    let (cos, sin) = rotary.at(position);
                    y.chunks_exact_mut(dim).zip(x.chunks_exact(dim)).for_each(|(y, x)| turn(y, x, cos, sin));
                }
            });
    })
}

fn check_heads(len: usize, tokens: usize, heads: usize, dim: usize) {
    assert_eq!(len, tokens * heads * dim, "rotary: tokens of {heads} heads of {dim}");
}

#[inline(always)]
fn turn_normed(y: &mut [f32], x: &[f32], weight: &[f32], r: f32, cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let ((y0, y1, y2), (x0, x1, x2), (w0, w1, w2)) = (thirds_mut(y, half), thirds(x, half), thirds(weight, half));
    let sin = &sin[..half];
    for i in 0..half {
        let (a, b) = (x0[i] * r * w0[i], x1[i] * r * w1[i]);
        y0[i] = a * cos[i] - b * sin[i];
        y1[i] = b * cos[i] + a * sin[i];
    }
    for ((y, x), w) in y2.iter_mut().zip(x2).zip(w2) {
        *y = x * r * w;
    }
}

#[inline(always)]
fn turn(y: &mut [f32], x: &[f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let ((y0, y1, y2), (x0, x1, x2)) = (thirds_mut(y, half), thirds(x, half));
    let sin = &sin[..half];
    for i in 0..half {
        y0[i] = x0[i] * cos[i] - x1[i] * sin[i];
        y1[i] = x1[i] * cos[i] + x0[i] * sin[i];
    }
    y2.copy_from_slice(x2);
}

#[inline(always)]
fn turn_back(dx: &mut [f32], dy: &[f32], cos: &[f32], sin: &[f32]) {
    let half = cos.len();
    let ((dx0, dx1, dx2), (dy0, dy1, dy2)) = (thirds_mut(dx, half), thirds(dy, half));
    let sin = &sin[..half];
    for i in 0..half {
        dx0[i] = dy0[i] * cos[i] + dy1[i] * sin[i];
        dx1[i] = dy1[i] * cos[i] - dy0[i] * sin[i];
    }
    dx2.copy_from_slice(dy2);
}

/// The two halves that turn, and the rest of the head.
#[inline(always)]
fn thirds(head: &[f32], half: usize) -> (&[f32], &[f32], &[f32]) {
    let (turned, rest) = head.split_at(2 * half);
    let (first, second) = turned.split_at(half);
    (first, second, rest)
}

#[inline(always)]
fn thirds_mut(head: &mut [f32], half: usize) -> (&mut [f32], &mut [f32], &mut [f32]) {
    let (turned, rest) = head.split_at_mut(2 * half);
    let (first, second) = turned.split_at_mut(half);
    (first, second, rest)
}
