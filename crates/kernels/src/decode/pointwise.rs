//! Root-mean-square norm, rotary positions, the gated activation and exponentials, row by row and on one thread: the
//! rows of a decoding step are few.

use crate::math::{dot, exp, exp_and_sum, maximum};

/// Replaces every value of a row by `exp(value − largest)` and returns the largest value and the sum; a NaN or an
/// infinity in the row makes the sum NaN.
pub fn exponentials(row: &mut [f32]) -> (f32, f32) {
    let largest = maximum(row);
    (largest, exp_and_sum(row, largest))
}

/// `output = input / sqrt(mean(input²) + epsilon) · weight` for every row of `weight.len()` values.
pub fn rms_norm(input: &[f32], weight: &[f32], epsilon: f32, output: &mut [f32]) {
    assert_eq!(input.len(), output.len());
    assert_eq!(input.len() % weight.len(), 0, "whole rows of {} values", weight.len());
    for (input, output) in input.chunks_exact(weight.len()).zip(output.chunks_exact_mut(weight.len())) {
        let scale = inverse_root_mean_square(input, epsilon);
        for ((output, input), weight) in output.iter_mut().zip(input).zip(weight) {
            *output = input * scale * weight;
        }
    }
}

/// Cosines and sines of one position's angles, `position · frequency`.
pub fn rotary_angles(position: usize, frequencies: &[f32], cosines: &mut [f32], sines: &mut [f32]) {
    assert!(cosines.len() == frequencies.len() && sines.len() == frequencies.len(), "one angle per frequency");
    for ((frequency, cosine), sine) in frequencies.iter().zip(cosines).zip(sines) {
        (*sine, *cosine) = (position as f32 * frequency).sin_cos();
    }
}

/// Norm of every head of a row: `weight.len()` values each.
pub fn norm_heads(heads: &mut [f32], weight: &[f32], epsilon: f32) {
    assert_eq!(heads.len() % weight.len(), 0, "whole heads of {} values", weight.len());
    for head in heads.chunks_exact_mut(weight.len()) {
        let scale = inverse_root_mean_square(head, epsilon);
        head.iter_mut().zip(weight).for_each(|(value, weight)| *value = *value * scale * weight);
    }
}

/// The rotary position of every head of a row: `(a, b) → (a·cos − b·sin, b·cos + a·sin)` for the two halves of the first
/// `2 * cosines.len()` values of a head; the rest stays.
pub fn rotate_heads(heads: &mut [f32], head_dim: usize, cosines: &[f32], sines: &[f32]) {
    let half = cosines.len();
    assert_eq!(heads.len() % head_dim, 0, "whole heads of {head_dim} values");
    assert!(2 * half <= head_dim && sines.len() == half, "two halves of a head");
    for head in heads.chunks_exact_mut(head_dim) {
        let (first, rest) = head.split_at_mut(half);
        let second = &mut rest[..half];
        for i in 0..half {
            let (a, b) = (first[i], second[i]);
            first[i] = a.mul_add(cosines[i], -(b * sines[i]));
            second[i] = b.mul_add(cosines[i], a * sines[i]);
        }
    }
}

/// `output = gate / (1 + exp(−gate)) · up`, where every row of `gate_up` is the gate and then the factor `up`.
pub fn swiglu(gate_up: &[f32], width: usize, output: &mut [f32]) {
    assert_eq!(gate_up.len(), 2 * output.len());
    assert_eq!(output.len() % width, 0, "whole rows of {width} values");
    for (gate_up, output) in gate_up.chunks_exact(2 * width).zip(output.chunks_exact_mut(width)) {
        let (gates, ups) = gate_up.split_at(width);
        for ((output, gate), up) in output.iter_mut().zip(gates).zip(ups) {
            *output = gate / (1.0 + exp(-gate)) * up;
        }
    }
}

fn inverse_root_mean_square(row: &[f32], epsilon: f32) -> f32 {
    1.0 / (dot(row, row) / row.len() as f32 + epsilon).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_take_every_value_at_every_length() {
        for length in 1..70 {
            let row: Vec<f32> = (0..length).map(|i| (i as f32 * 0.7).sin()).collect();
            let mut shifted = row.clone();
            let (largest, sum) = exponentials(&mut shifted);
            assert_eq!(largest, row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            let exact: f64 = row.iter().map(|value| f64::from(value - largest).exp()).sum();
            assert!((f64::from(sum) - exact).abs() <= 1e-5 * exact, "{length}: {sum} {exact}");
        }
    }

    #[test]
    fn a_broken_row_shows_in_its_sum() {
        for broken in [f32::NAN, f32::INFINITY] {
            let mut row = vec![0.5; 20];
            row[3] = broken;
            assert!(exponentials(&mut row).1.is_nan());
        }
    }

    #[test]
    fn norm_and_rotation_keep_the_length_of_a_head() {
        let (mut cosines, mut sines) = ([0.0; 4], [0.0; 4]);
        rotary_angles(11, &[1.0, 0.1, 0.01, 0.001], &mut cosines, &mut sines);
        assert!((cosines[0] - 11f32.cos()).abs() < 1e-6 && (sines[0] - 11f32.sin()).abs() < 1e-6);
        let mut heads: Vec<f32> = (0..16).map(|i| i as f32 - 7.5).collect();
        norm_heads(&mut heads, &[1.0; 8], 0.0);
        rotate_heads(&mut heads, 8, &cosines, &sines);
        for head in heads.chunks(8) {
            let square: f32 = head.iter().map(|value| value * value).sum();
            assert!((square - 8.0).abs() < 1e-4, "{square}");
        }
    }

    #[test]
    fn what_lies_beyond_the_angles_does_not_turn() {
        let (cosines, sines) = ([0.6, 0.0], [0.8, 1.0]);
        let mut heads: Vec<f32> = (0..14).map(|i| i as f32).collect();
        rotate_heads(&mut heads, 7, &cosines, &sines);
        assert_eq!(heads[4..7], [4.0, 5.0, 6.0]);
        assert!((heads[0] - (0.0 * 0.6 - 2.0 * 0.8)).abs() < 1e-6 && (heads[2] - (2.0 * 0.6)).abs() < 1e-6);
        assert_eq!((heads[8], heads[10]), (-10.0, 8.0));
    }

    #[test]
    fn the_gate_is_silu_times_the_other_half() {
        let mut output = [0.0; 4];
        swiglu(&[1.0, -2.0, 3.0, 4.0, 0.0, 50.0, 5.0, 6.0], 2, &mut output);
        let silu = |x: f32| x / (1.0 + (-x).exp());
        let expected = [silu(1.0) * 3.0, silu(-2.0) * 4.0, 0.0, 300.0];
        for (value, expected) in output.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-5, "{value} {expected}");
        }
    }
}
