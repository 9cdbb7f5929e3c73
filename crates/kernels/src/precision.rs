//! Weights in bfloat16: half the memory, read exactly, with every product and sum in single precision.

use half::bf16;
use rayon::prelude::*;

use crate::buffer::filled;

/// Numbers that one task converts.
const CHUNK: usize = 1 << 16;

/// A kind of number that weights are held in.
pub trait Number: Copy + Send + Sync {
    /// The number in single precision, which holds it exactly.
    fn widen(self) -> f32;
    /// The nearest number of this kind, ties to even.
    fn nearest(value: f32) -> Self;
}

impl Number for f32 {
    #[inline]
    fn widen(self) -> f32 {
        self
    }

    #[inline]
    fn nearest(value: f32) -> f32 {
        value
    }
}

impl Number for bf16 {
    /// The upper half of the bits; without a look at special values, so that whole registers are widened at once.
    #[inline]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline]
    fn nearest(value: f32) -> bf16 {
        bf16::from_f32(value)
    }
}

/// All numbers in single precision.
pub fn widened(values: &[bf16]) -> Vec<f32> {
    filled(values.len(), |out| {
        out.par_chunks_mut(CHUNK).zip(values.par_chunks(CHUNK)).for_each(|(out, values)| {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value.widen());
        });
    })
}

/// All numbers rounded to the nearest bfloat16, ties to even.
pub fn narrowed(values: &[f32]) -> Vec<bf16> {
    values.par_iter().with_min_len(CHUNK).map(|&value| bf16::nearest(value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bfloat16_is_the_same_number_in_single_precision_and_back() {
        let all: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
        for (wide, value) in widened(&all).into_iter().zip(&all) {
            assert!(wide == value.to_f32() || value.is_nan() && wide.is_nan(), "{value:?}: {wide}");
            assert!(bf16::nearest(wide) == *value || value.is_nan());
        }
        assert_eq!(narrowed(&widened(&all)).len(), all.len());
    }

    #[test]
    fn a_number_between_two_goes_to_the_nearer_and_half_way_to_the_even_one() {
        let ulp = 1.0 / 128.0;
        let cases = [(1.0 + 0.4 * ulp, 1.0), (1.0 + 0.6 * ulp, 1.0 + ulp), (1.0 + 0.5 * ulp, 1.0)];
        for (value, expected) in cases.into_iter().chain([(1.0 + 1.5 * ulp, 1.0 + 2.0 * ulp)]) {
            assert_eq!(narrowed(&[value])[0].to_f32(), expected, "{value}");
        }
    }
}
