//! The gated activation `silu(gate) · up`.

use crate::buffer::{filled, uninitialised};
use crate::math::{ELEMENTS_PER_BLOCK, exp};
use rayon::prelude::*;

/// `y = gate · sigmoid(gate) · up`.
pub fn swiglu(gate: &[f32], up: &[f32]) -> Vec<f32> {
    assert_eq!(gate.len(), up.len(), "swiglu: gate and up differ in length");
    filled(gate.len(), |y| {
        y.par_chunks_mut(ELEMENTS_PER_BLOCK)
            .zip(gate.par_chunks(ELEMENTS_PER_BLOCK))
            .zip(up.par_chunks(ELEMENTS_PER_BLOCK))
            .for_each(|((y, gate), up)| {
                for ((y, gate), up) in y.iter_mut().zip(gate).zip(up) {
                    *y = gate / (1.0 + exp(-gate)) * up;
                }
            });
    })
}

/// Gradients of [`swiglu`] to `gate` and `up`, in one pass.
///
/// With `s = sigmoid(gate)`: `dgate = dy · up · s (1 + gate (1 − s))`, `dup = dy · gate · s`.
pub fn swiglu_backward(gate: &[f32], up: &[f32], dy: &[f32]) -> (Vec<f32>, Vec<f32>) {
    assert_eq!(gate.len(), up.len(), "swiglu_backward: gate and up differ in length");
    assert_eq!(gate.len(), dy.len(), "swiglu_backward: gradient and input differ in length");
    let mut dup = uninitialised(up.len());
    let dgate = filled(gate.len(), |dgate| {
        dgate
            .par_chunks_mut(ELEMENTS_PER_BLOCK)
            .zip(dup.par_chunks_mut(ELEMENTS_PER_BLOCK))
            .zip(gate.par_chunks(ELEMENTS_PER_BLOCK))
            .zip(up.par_chunks(ELEMENTS_PER_BLOCK))
            .zip(dy.par_chunks(ELEMENTS_PER_BLOCK))
            .for_each(|((((dgate, dup), gate), up), dy)| {
                for ((((dgate, dup), gate), up), dy) in dgate.iter_mut().zip(dup).zip(gate).zip(up).zip(dy) {
                    let sigmoid = 1.0 / (1.0 + exp(-gate));
                    *dup = dy * gate * sigmoid;
                    *dgate = dy * up * sigmoid * (1.0 + gate * (1.0 - sigmoid));
                }
            });
    });
    (dgate, dup)
}
