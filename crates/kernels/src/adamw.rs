//! AdamW with decoupled decay, in place.

use crate::math::ELEMENTS_PER_BLOCK;
use rayon::prelude::*;

/// What one update of a parameter needs besides its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// Learning rate of this step.
    pub learning_rate: f64,
    /// Decay of this parameter; 0 for none.
    pub weight_decay: f64,
    /// Decay rate of the first moment.
    pub beta1: f64,
    /// Decay rate of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment, outside the root.
    pub epsilon: f64,
    /// Number of this update, from 1: corrects the moments' bias.
    pub step: u64,
    /// Factor on the gradient, from clipping by global norm.
    pub gradient_scale: f32,
}

/// One update (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2, as torch computes it).
///
/// `p ← p (1 − lr·wd)`, `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`,
/// `p ← p − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)`.
pub fn adamw(parameter: &mut [f32], gradient: &[f32], m: &mut [f32], v: &mut [f32], hyper: &AdamWStep) {
    assert_eq!(parameter.len(), gradient.len(), "adamw: parameter and gradient differ in length");
    assert_eq!(parameter.len(), m.len(), "adamw: parameter and first moment differ in length");
    assert_eq!(parameter.len(), v.len(), "adamw: parameter and second moment differ in length");
    assert!(hyper.step > 0, "adamw: steps count from 1");
    let keep = (1.0 - hyper.learning_rate * hyper.weight_decay) as f32;
    let step_size = (hyper.learning_rate / (1.0 - power(hyper.beta1, hyper.step))) as f32;
    let root_correction = (1.0 - power(hyper.beta2, hyper.step)).sqrt() as f32;
    let (beta1, rest1) = (hyper.beta1 as f32, (1.0 - hyper.beta1) as f32);
    let (beta2, rest2) = (hyper.beta2 as f32, (1.0 - hyper.beta2) as f32);
    let epsilon = hyper.epsilon as f32;
    parameter
        .par_chunks_mut(ELEMENTS_PER_BLOCK)
        .zip(gradient.par_chunks(ELEMENTS_PER_BLOCK))
        .zip(m.par_chunks_mut(ELEMENTS_PER_BLOCK))
        .zip(v.par_chunks_mut(ELEMENTS_PER_BLOCK))
        .for_each(|(((parameter, gradient), m), v)| {
            for (((p, g), m), v) in parameter.iter_mut().zip(gradient).zip(m).zip(v) {
                let g = g * hyper.gradient_scale;
                *m = beta1 * *m + rest1 * g;
                *v = beta2 * *v + rest2 * g * g;
                *p = *p * keep - step_size * *m / (v.sqrt() / root_correction + epsilon);
            }
        });
}

/// `base ^ exponent` by repeated squaring: the same bits on every platform.
fn power(base: f64, exponent: u64) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result *= square;
        }
        square *= square;
        rest >>= 1;
    }
    result
}
