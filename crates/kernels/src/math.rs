//! Vectorisable pieces: exponential, dot product, row maximum. Sums run in sixteen lanes, which fixes their order.

use rayon::prelude::*;

const LANES: usize = 16;
/// Elements of one task in element-wise passes.
pub(crate) const ELEMENTS_PER_BLOCK: usize = 1 << 14;
/// Elements summed in single precision before the sum goes on in double.
const ELEMENTS_PER_PARTIAL: usize = 1 << 10;

/// Sum of squares, added in fixed order.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    let blocks: Vec<f64> = values.par_chunks(ELEMENTS_PER_BLOCK).map(block_sum_of_squares).collect();
    blocks.iter().sum()
}

fn block_sum_of_squares(block: &[f32]) -> f64 {
    block.chunks(ELEMENTS_PER_PARTIAL).map(|part| f64::from(dot(part, part))).sum()
}

/// `sum += values`, element by element.
pub fn add_assign(sum: &mut [f32], values: &[f32]) {
    assert_eq!(sum.len(), values.len(), "add_assign: lengths differ");
    sum.par_chunks_mut(ELEMENTS_PER_BLOCK).zip(values.par_chunks(ELEMENTS_PER_BLOCK)).for_each(|(sum, values)| {
        for (sum, value) in sum.iter_mut().zip(values) {
            *sum += value;
        }
    });
}

/// `values *= factor`, element by element.
pub fn scale(values: &mut [f32], factor: f32) {
    values.par_chunks_mut(ELEMENTS_PER_BLOCK).for_each(|values| {
        for value in values {
            *value *= factor;
        }
    });
}

/// `a b + c`, fused where the target has the instruction (elsewhere `mul_add` would be a library call).
#[inline(always)]
pub(crate) fn multiply_add(a: f32, b: f32, c: f32) -> f32 {
    if cfg!(target_feature = "fma") { a.mul_add(b, c) } else { a * b + c }
}

/// The exponential by a polynomial of degree 6, about 1e-7 relative, without branches so that loops over it vectorise.
///
/// Arguments are held within −87..88. NaN stays NaN: a broken row must show in the loss.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 * 2^23: adding it rounds to a whole number
    // ln 2 in two parts: a whole number times the first is exact.
    const LN_2: [f32; 2] = [355.0 / 512.0, -2.121_944_4e-4];
    let x = if x < -87.0 { -87.0 } else { x };
    let x = if x > 88.0 { 88.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let rest = multiply_add(whole, -LN_2[1], multiply_add(whole, -LN_2[0], x));
    let mut polynomial = 1.987_569_1e-4_f32;
    for coefficient in [1.398_2e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        polynomial = multiply_add(polynomial, rest, coefficient);
    }
    let fraction = multiply_add(polynomial, rest * rest, rest + 1.0);
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127);
    fraction * f32::from_bits(exponent << 23)
}

/// Dot product in sixteen lanes.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (a_chunks, b_chunks) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_rest, b_rest) = (a_chunks.remainder(), b_chunks.remainder());
    for (a, b) in a_chunks.zip(b_chunks) {
        for i in 0..LANES {
            lanes[i] = multiply_add(a[i], b[i], lanes[i]);
        }
    }
    let rest = a_rest.iter().zip(b_rest).fold(0.0, |sum, (&a, &b)| multiply_add(a, b, sum));
    rest + lanes.iter().sum::<f32>()
}

/// Largest value; NaN is passed over (the exponentials that follow bring it back).
#[inline(always)]
pub(crate) fn maximum(values: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = larger(lanes[i], chunk[i]);
        }
    }
    rest.iter().chain(&lanes).fold(f32::NEG_INFINITY, |max, &value| larger(max, value))
}

/// Replaces each value by `exp(value − shift)` and returns their sum.
#[inline(always)]
pub(crate) fn exp_and_sum(values: &mut [f32], shift: f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let mut chunks = values.chunks_exact_mut(LANES);
    for chunk in &mut chunks {
        for i in 0..LANES {
            chunk[i] = exp(chunk[i] - shift);
            lanes[i] += chunk[i];
        }
    }
    let mut rest = 0.0;
    for value in chunks.into_remainder() {
        *value = exp(*value - shift);
        rest += *value;
    }
    rest + lanes.iter().sum::<f32>()
}

/// Adds partial results of equal length in order.
pub(crate) fn sum_in_order(partials: &[Vec<f32>], len: usize) -> Vec<f32> {
    let mut sum = vec![0f32; len];
    for partial in partials {
        for (sum, value) in sum.iter_mut().zip(partial) {
            *sum += value;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_within_two_units_of_1e7_of_the_library() {
        for step in -8_700..=8_800 {
            let x = step as f32 / 100.0;
            let expected = f64::from(x).exp();
            let error = (f64::from(exp(x)) - expected).abs() / expected;
            assert!(error < 3e-7, "exp({x}): relative error {error}");
        }
    }

    #[test]
    fn exp_keeps_nan_and_saturates_at_infinity() {
        assert!(exp(f32::NAN).is_nan());
        assert!(exp(f32::INFINITY) > 1e38);
        assert!(exp(f32::NEG_INFINITY) < 1e-37);
    }

    #[test]
    fn sums_and_maxima_agree_with_the_obvious_loops_at_odd_lengths() {
        for len in [0, 1, 15, 16, 17, 100, 5_000] {
            let values: Vec<f32> = (0..len).map(|i| ((i * 37 % 101) as f32 - 50.0) / 17.0).collect();
            let expected: f64 = values.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
            assert!((sum_of_squares(&values) - expected).abs() <= 1e-5 * expected.max(1.0));
            assert_eq!(maximum(&values), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        }
    }
}
