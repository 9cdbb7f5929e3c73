//! Root-mean-square norm over the last axis.

use crate::buffer::{filled, uninitialised};
use crate::math::{dot, multiply_add, sum_in_order};
use rayon::prelude::*;

/// Rows of one task; the partial gradients of the weight are per block, so this fixes the order of additions.
const ROWS_PER_BLOCK: usize = 64;

/// `y = x · r · w` with `r = 1 / sqrt(mean(x²) + eps)` per row; returns `y` and `r`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len();
    let rows = x.len() / width;
    assert_eq!(x.len(), rows * width, "rms_norm: rows of {width}");
    let mut inverse_rms = uninitialised(rows);
    let y = filled(x.len(), |y| {
        let block = ROWS_PER_BLOCK * width;
        y.par_chunks_mut(block).zip(inverse_rms.par_chunks_mut(ROWS_PER_BLOCK)).zip(x.par_chunks(block)).for_each(
            |((y, r), x)| {
                for ((y, r), x) in y.chunks_exact_mut(width).zip(r).zip(x.chunks_exact(width)) {
                    *r = inverse_root_mean_square(x, eps);
                    for ((y, x), w) in y.iter_mut().zip(x).zip(weight) {
                        *y = x * *r * w;
                    }
                }
            },
        );
    });
    (y, inverse_rms)
}

/// Gradients of [`rms_norm`] to `x` and `weight`.
///
/// With `g = dy · w`: `dx = r (g − x r² mean(g x))`, `dw = Σ_rows dy · x · r`.
pub fn rms_norm_backward(x: &[f32], weight: &[f32], inverse_rms: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let width = weight.len();
    assert_eq!(x.len(), inverse_rms.len() * width, "rms_norm_backward: rows of {width}");
    assert_eq!(x.len(), dy.len(), "rms_norm_backward: gradient and input differ in length");
    let block = ROWS_PER_BLOCK * width;
    let mut dx = uninitialised(x.len());
    let partials: Vec<Vec<f32>> = dx
        .par_chunks_mut(block)
        .zip(x.par_chunks(block))
        .zip(dy.par_chunks(block))
        .zip(inverse_rms.par_chunks(ROWS_PER_BLOCK))
        .map(|(((dx, x), dy), r)| {
            let mut dw = vec![0f32; width];
            let rows = dx.chunks_exact_mut(width).zip(x.chunks_exact(width)).zip(dy.chunks_exact(width)).zip(r);
            for (((dx, x), dy), &r) in rows {
                dx.copy_from_slice(dy);
                backward_row(dx, x, weight, r, &mut dw);
            }
            dw
        })
        .collect();
    (dx, sum_in_order(&partials, width))
}

/// `1 / sqrt(mean(x²) + eps)`.
#[inline(always)]
pub(crate) fn inverse_root_mean_square(x: &[f32], eps: f32) -> f32 {
    1.0 / (dot(x, x) / x.len() as f32 + eps).sqrt()
}

/// One row of the backward pass, in place: `dx` holds `dy` on entry and the gradient on return.
#[inline(always)]
pub(crate) fn backward_row(dx: &mut [f32], x: &[f32], weight: &[f32], r: f32, dw: &mut [f32]) {
    let width = x.len();
    let (dx, weight, dw) = (&mut dx[..width], &weight[..width], &mut dw[..width]);
    for i in 0..width {
        dw[i] = multiply_add(dx[i] * x[i], r, dw[i]);
        dx[i] *= weight[i];
    }
    let shared = dot(dx, x) * r * r / width as f32;
    for i in 0..width {
        dx[i] = r * (dx[i] - x[i] * shared);
    }
}
