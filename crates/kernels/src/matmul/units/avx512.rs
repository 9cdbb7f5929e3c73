//! AVX512-BF16: pairs are multiplied and added in registers of 16 numbers. AMX tiles are packed by it too.

use super::super::tiles::{PANEL, Piece, SIDE, STEP_WORDS, Side, TILE};
use super::{Ready, Unit, checked_steps};
use std::arch::x86_64::{
    __m256bh, __m256i, __m512, __m512bh, __m512i, _mm512_castsi256_si512, _mm512_cvtepu16_epi32, _mm512_cvtneps_pbh,
    _mm512_dpbf16_ps, _mm512_inserti64x4, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_or_si512, _mm512_set1_epi32,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_slli_epi32, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_unpackhi_epi32, _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};
use std::mem::transmute;

/// A processor with AVX512-BF16.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Avx512(());

impl Avx512 {
    /// The unit, where this processor has it.
    pub(in super::super) fn find() -> Option<Avx512> {
        let has_it = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512bf16");
        has_it.then_some(Avx512(()))
    }
}

impl Unit for Avx512 {
    type Ready = Avx512;

    fn pack(self, piece: Piece<'_>, side: Side, tile: &mut [u32]) {
        // SAFETY: an `Avx512` is only made by `find`, where the processor has the instructions.
        unsafe { pack(piece, side, tile) }
    }

    fn ready(self) -> Avx512 {
        self
    }
}

impl Ready for Avx512 {
    fn multiply(&self, a: &[u32], b: &[u32], out: &mut [f32], row_stride: usize, accumulate: bool) {
        checked_steps(a, b, out, row_stride);
        // SAFETY: the processor has the instructions (`find`), and the sizes were checked.
        unsafe { multiply(a, b, out, row_stride, accumulate) }
    }
}

/// Rows whose sums are in registers together, two registers each.
const ROWS_AT_ONCE: usize = 8;

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn multiply(a: &[u32], b: &[u32], out: &mut [f32], row_stride: usize, accumulate: bool) {
    for row in (0..PANEL).step_by(ROWS_AT_ONCE) {
        let mut sums = [[_mm512_setzero_ps(); 2]; ROWS_AT_ONCE];
        if accumulate {
            for (at, sums) in sums.iter_mut().enumerate() {
                *sums = [0, SIDE].map(|column| load(&out[(row + at) * row_stride + column..]));
            }
        }
        for (a, b) in a.chunks_exact(STEP_WORDS).zip(b.chunks_exact(STEP_WORDS)) {
            let a = &a[row / SIDE * TILE + row % SIDE * SIDE..][..ROWS_AT_ONCE * SIDE];
            for pair in 0..SIDE {
                let b = [0, TILE].map(|tile| numbers(load_words(&b[tile + pair * SIDE..])));
                for (at, sums) in sums.iter_mut().enumerate() {
                    let a = numbers(_mm512_set1_epi32(a[at * SIDE + pair].cast_signed()));
                    *sums = [_mm512_dpbf16_ps(sums[0], a, b[0]), _mm512_dpbf16_ps(sums[1], a, b[1])];
                }
            }
        }
        for (at, sums) in sums.into_iter().enumerate() {
            for (column, sum) in [0, SIDE].into_iter().zip(sums) {
                let place = &mut out[(row + at) * row_stride + column..][..SIDE];
                // SAFETY: 16 numbers.
                unsafe { _mm512_storeu_ps(place.as_mut_ptr(), sum) };
            }
        }
    }
}

/// Fills a tile: 16 lines of 32 numbers that lie one after another in either direction are rounded by registers and, where
/// the tile wants the other order, transposed in them.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pack(piece: Piece<'_>, side: Side, tile: &mut [u32]) {
    let Piece { values, line_stride, depth_stride, .. } = piece;
    let (rows, found) = if !piece.is_whole() {
        return piece.pack(side, tile);
    } else if depth_stride == 1 {
        let of_line = |line: usize| {
            let line = &values[line * line_stride..][..2 * SIDE];
            let [first, second] = [line, &line[SIDE..]].map(|numbers| rounded(numbers));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
        };
        (registers(of_line), Side::Left)
    } else if line_stride == 1 {
        let of_depth = |depth: usize| _mm512_cvtepu16_epi32(rounded(&values[depth * depth_stride..]));
        let of_pair =
            |pair: usize| _mm512_or_si512(of_depth(2 * pair), _mm512_slli_epi32::<16>(of_depth(2 * pair + 1)));
        (registers(of_pair), Side::Right)
    } else {
        return piece.pack(side, tile);
    };
    let rows = if found == side { rows } else { transposed(rows) };
    assert_eq!(tile.len(), TILE, "a tile is {TILE} words");
    for (row, words) in rows.into_iter().zip(tile.chunks_exact_mut(SIDE)) {
        // SAFETY: 16 words.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), row) };
    }
}

#[target_feature(enable = "avx512f")]
fn registers(of: impl Fn(usize) -> __m512i) -> [__m512i; SIDE] {
    let mut registers = [_mm512_setzero_si512(); SIDE];
    registers.iter_mut().enumerate().for_each(|(at, register)| *register = of(at));
    registers
}

/// 16 by 16 words, rows to columns.
#[target_feature(enable = "avx512f")]
fn transposed(mut rows: [__m512i; SIDE]) -> [__m512i; SIDE] {
    let mut found = rows;
    for i in 0..8 {
        found[2 * i] = _mm512_unpacklo_epi32(rows[2 * i], rows[2 * i + 1]);
        found[2 * i + 1] = _mm512_unpackhi_epi32(rows[2 * i], rows[2 * i + 1]);
    }
    for i in 0..4 {
        for j in 0..2 {
            rows[4 * i + 2 * j] = _mm512_unpacklo_epi64(found[4 * i + j], found[4 * i + j + 2]);
            rows[4 * i + 2 * j + 1] = _mm512_unpackhi_epi64(found[4 * i + j], found[4 * i + j + 2]);
        }
    }
    for half in [0, 8] {
        for i in 0..4 {
            let (a, b) = (rows[half + i], rows[half + i + 4]);
            found[half + i] = _mm512_shuffle_i32x4::<0x88>(a, b);
            found[half + i + 4] = _mm512_shuffle_i32x4::<0xdd>(a, b);
        }
    }
    for i in 0..8 {
        rows[i] = _mm512_shuffle_i32x4::<0x88>(found[i], found[i + 8]);
        rows[i + 8] = _mm512_shuffle_i32x4::<0xdd>(found[i], found[i + 8]);
    }
    rows
}

/// 16 numbers in bfloat16, one after another.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn rounded(numbers: &[f32]) -> __m256i {
    // SAFETY: both are 256 bits, and any bits are words.
    unsafe { transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(load(numbers))) }
}

#[target_feature(enable = "avx512f")]
fn load(values: &[f32]) -> __m512 {
    assert!(values.len() >= SIDE, "a register is {SIDE} numbers");
    // SAFETY: 16 numbers.
    unsafe { _mm512_loadu_ps(values.as_ptr()) }
}

#[target_feature(enable = "avx512f")]
fn load_words(words: &[u32]) -> __m512i {
    assert!(words.len() >= SIDE, "a register is {SIDE} words");
    // SAFETY: 16 words.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

fn numbers(words: __m512i) -> __m512bh {
    // SAFETY: both are 512 bits, and any bits are numbers.
    unsafe { transmute(words) }
}
