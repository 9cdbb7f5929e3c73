//! What multiplies tiles: AMX tiles, AVX512-BF16, or single precision on any processor.
//!
//! All three round alike and differ in the order of the two products of a pair; the first two take the smallest numbers
//! (below 1.2e-38) for zero.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;

#[cfg(target_arch = "x86_64")]
pub(super) use self::{amx::Amx, avx512::Avx512};

use super::tiles::{PANEL, Piece, SIDE, STEP_WORDS, Side, TILE};
use crate::math::multiply_add;

/// A kind of unit that this processor has: whoever holds one may use it.
pub(super) trait Unit: Copy + Send + Sync {
    /// What a thread holds while it multiplies.
    type Ready: Ready;

    /// Fills a tile of an operand.
    fn pack(self, piece: Piece<'_>, side: Side, tile: &mut [u32]);

    /// Prepares the calling thread.
    fn ready(self) -> Self::Ready;
}

/// A unit that is prepared on this thread.
pub(super) trait Ready {
    /// `out = a b` or `out += a b`: panels of as many steps, and 32 rows of 32 numbers whose starts are `row_stride` apart.
    fn multiply(&self, a: &[u32], b: &[u32], out: &mut [f32], row_stride: usize, accumulate: bool);
}

/// The border of every unit's [`Ready::multiply`]: how many steps, once all sizes are right.
fn checked_steps(a: &[u32], b: &[u32], out: &[f32], row_stride: usize) -> usize {
    assert!(a.len() == b.len() && a.len().is_multiple_of(STEP_WORDS), "panels of {} and {} words", a.len(), b.len());
    let needed = (PANEL - 1) * row_stride + PANEL;
    assert!(row_stride >= PANEL && out.len() >= needed, "output of {}, {needed} needed", out.len());
    a.len() / STEP_WORDS
}

/// The same numbers on any processor, in single precision. It is for tests and for comparing a run's curve, not for speed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Emulated;

impl Unit for Emulated {
    type Ready = Emulated;

    fn pack(self, piece: Piece<'_>, side: Side, tile: &mut [u32]) {
        piece.pack(side, tile);
    }

    fn ready(self) -> Emulated {
        self
    }
}

/// Rows whose sums are in registers together.
const ROWS_AT_ONCE: usize = 4;

impl Ready for Emulated {
    fn multiply(&self, a: &[u32], b: &[u32], out: &mut [f32], row_stride: usize, accumulate: bool) {
        checked_steps(a, b, out, row_stride);
        for (row, column) in (0..PANEL).step_by(ROWS_AT_ONCE).flat_map(|row| [(row, 0), (row, SIDE)]) {
            let mut sums = [[0f32; SIDE]; ROWS_AT_ONCE];
            let place = |at: usize| (row + at) * row_stride + column;
            if accumulate {
                sums.iter_mut().enumerate().for_each(|(at, sum)| sum.copy_from_slice(&out[place(at)..][..SIDE]));
            }
            for (a, b) in a.chunks_exact(STEP_WORDS).zip(b.chunks_exact(STEP_WORDS)) {
                let a = &a[row / SIDE * TILE + row % SIDE * SIDE..][..ROWS_AT_ONCE * SIDE];
                let b = &b[column / SIDE * TILE..][..TILE];
                for (pair, b) in b.chunks_exact(SIDE).enumerate() {
                    for (at, sums) in sums.iter_mut().enumerate() {
                        let [first, second] = halves(a[at * SIDE + pair]);
                        for (sum, &b) in sums.iter_mut().zip(b) {
                            let [b_first, b_second] = halves(b);
                            *sum = multiply_add(second, b_second, multiply_add(first, b_first, *sum));
                        }
                    }
                }
            }
            sums.iter().enumerate().for_each(|(at, sum)| out[place(at)..][..SIDE].copy_from_slice(sum));
        }
    }
}

/// The two numbers of a word.
#[inline(always)]
fn halves(word: u32) -> [f32; 2] {
    [f32::from_bits(word << 16), f32::from_bits(word & 0xffff_0000)]
}
