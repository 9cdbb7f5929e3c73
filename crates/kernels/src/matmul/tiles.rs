//! Products of operands that are rounded to bfloat16, with sums in single precision, as matrix units compute them.
//!
//! An operand is rounded to the nearest, ties to even, while it is packed. A *line* of it is what one number of the result
//! reads: a row of the left operand, a column of the right one. A *tile* is 16 lines by 32 numbers of the sum, in 256 words of
//! two neighbours along the sum each (the earlier one in the lower half): `[line][pair]` of the left operand, `[pair][line]` of
//! the right one. A *panel* is 32 lines, and lies `[step][2][256]`, a *step* being 32 numbers of the sum. A unit multiplies
//! a panel by a panel into 32 × 32 numbers of the result.
//!
//! Each number of the result is added up in one order that the length of the sum alone decides: it has the same bits in
//! any row, beside any others and for any number of threads.

use super::units::Unit;
use super::{Matrix, Threads};
use crate::buffer::uninitialised;
use rayon::prelude::*;
use std::ops::Range;

/// Lines of a tile, and words along its sum.
pub(super) const SIDE: usize = 16;
/// Words of a tile.
pub(super) const TILE: usize = SIDE * SIDE;
/// Numbers of the sum in a tile: two to a word.
pub(super) const STEP: usize = 2 * SIDE;
/// Lines of a panel: two tiles.
pub(super) const PANEL: usize = 2 * SIDE;
/// Words of a step of a panel.
pub(super) const STEP_WORDS: usize = 2 * TILE;
/// Steps that are summed in registers before they are added to the result: 64 KiB of each of the two panels.
const STEPS_PER_BLOCK: usize = 32;
/// The most panels of the left operand that stay in the second cache while the right one passes.
const PANELS_PER_BAND: usize = 8;

/// Which operand a tile belongs to, and so how its words lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// `[line][pair]`.
    Left,
    /// `[pair][line]`.
    Right,
}

/// An operand as lines along the sum.
#[derive(Clone, Copy)]
pub(super) struct Lines<'a> {
    values: &'a [f32],
    count: usize,
    depth: usize,
    line_stride: usize,
    depth_stride: usize,
}

impl<'a> Lines<'a> {
    fn of(matrix: Matrix<'a>, side: Side) -> Lines<'a> {
        let Matrix { values, rows, columns, row_stride, column_stride } = match side {
            Side::Left => matrix,
            Side::Right => matrix.transposed(),
        };
        Lines { values, count: rows, depth: columns, line_stride: row_stride, depth_stride: column_stride }
    }

    /// The 16 by 32 numbers from `line` and `depth` on.
    fn piece(&self, line: usize, depth: usize) -> Piece<'a> {
        let lines = self.count.saturating_sub(line).min(SIDE);
        let numbers = self.depth.saturating_sub(depth).min(STEP);
        let values = match lines {
            0 => &[][..],
            _ => &self.values[line * self.line_stride + depth * self.depth_stride..],
        };
        Piece { values, lines, numbers, line_stride: self.line_stride, depth_stride: self.depth_stride }
    }
}

/// What of an operand goes into one tile: up to 16 lines of up to 32 numbers.
#[derive(Clone, Copy)]
pub(super) struct Piece<'a> {
    pub(super) values: &'a [f32],
    pub(super) lines: usize,
    pub(super) numbers: usize,
    pub(super) line_stride: usize,
    pub(super) depth_stride: usize,
}

impl Piece<'_> {
    /// Whether nothing of the tile is beyond the operand's end.
    pub(super) fn is_whole(&self) -> bool {
        self.lines == SIDE && self.numbers == STEP
    }

    /// Fills a tile number by number; what is beyond the operand's end counts as zero.
    pub(super) fn pack(&self, side: Side, tile: &mut [u32]) {
        assert_eq!(tile.len(), TILE, "a tile is {TILE} words");
        tile.fill(0);
        for line in 0..self.lines {
            for number in 0..self.numbers {
                let place = match side {
                    Side::Left => line * SIDE + number / 2,
                    Side::Right => number / 2 * SIDE + line,
                };
                let value = self.values[line * self.line_stride + number * self.depth_stride];
                tile[place] |= u32::from(half::bf16::from_f32(value).to_bits()) << (16 * (number % 2));
            }
        }
    }
}

/// An operand in tiles.
struct Packed {
    words: Vec<u32>,
    panels: usize,
    steps: usize,
}

impl Packed {
    fn new<U: Unit>(unit: U, operand: Matrix<'_>, side: Side, threads: Threads) -> Packed {
        let lines = Lines::of(operand, side);
        let (panels, steps) = (lines.count.div_ceil(PANEL), lines.depth.div_ceil(STEP));
        let mut words = uninitialised(panels * steps * STEP_WORDS);
        let panel = |(panel, words): (usize, &mut [u32])| {
            for (step, words) in words.chunks_exact_mut(STEP_WORDS).enumerate() {
                for (half, tile) in words.chunks_exact_mut(TILE).enumerate() {
                    unit.pack(lines.piece(panel * PANEL + half * SIDE, step * STEP), side, tile);
                }
            }
        };
        let of_panel = steps * STEP_WORDS;
        match threads {
            Threads::One => words.chunks_exact_mut(of_panel).enumerate().for_each(panel),
            Threads::Pool => words.par_chunks_exact_mut(of_panel).enumerate().for_each(panel),
        }
        Packed { words, panels, steps }
    }

    fn panel(&self, panel: usize, steps: &Range<usize>) -> &[u32] {
        &self.words[(panel * self.steps + steps.start) * STEP_WORDS..][..steps.len() * STEP_WORDS]
    }
}

/// How the result of a product is written.
#[derive(Clone, Copy)]
pub(super) struct Write {
    /// Factor of the product.
    pub(super) scale: f32,
    /// Whether it is added to what is there.
    pub(super) accumulate: bool,
}

/// `out = scale · a b`, or `out += …`; `out` is `[a's rows, b's columns]`.
pub(super) fn product<U: Unit>(unit: U, out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, write: Write, threads: Threads) {
    let (rows, columns) = (a.rows, b.columns);
    assert_eq!(out.len(), rows * columns, "product: output is {rows} rows of {columns}");
    if rows == 0 || columns == 0 {
        return;
    }
    if a.columns == 0 {
        if !write.accumulate {
            out.fill(0.0);
        }
        return;
    }
    let (left, right) = (Packed::new(unit, a, Side::Left, threads), Packed::new(unit, b, Side::Right, threads));
    let band = |panels_per_band: usize, index: usize, out: &mut [f32]| {
        let first = index * panels_per_band;
        let panels = first..(first + panels_per_band).min(left.panels);
        multiply_band(&unit.ready(), out, (&left, panels), &right, columns, write);
    };
    match threads {
        Threads::One => {
            let bands = out.chunks_mut(PANELS_PER_BAND * PANEL * columns).enumerate();
            bands.for_each(|(index, out)| band(PANELS_PER_BAND, index, out));
        }
        Threads::Pool => {
            // A few bands for each thread, so that none waits long for the last one.
            let panels = left.panels.div_ceil(4 * rayon::current_num_threads()).clamp(1, PANELS_PER_BAND);
            let bands = out.par_chunks_mut(panels * PANEL * columns).enumerate();
            bands.with_max_len(1).for_each(|(index, out)| band(panels, index, out));
        }
    }
}

/// Some panels of the left operand times all of the right one: whole rows of the result.
fn multiply_band<R: super::units::Ready>(
    ready: &R,
    out: &mut [f32],
    (left, panels): (&Packed, Range<usize>),
    right: &Packed,
    columns: usize,
    write: Write,
) {
    let rows = out.len() / columns;
    for start in (0..left.steps).step_by(STEPS_PER_BLOCK) {
        let steps = start..(start + STEPS_PER_BLOCK).min(left.steps);
        let add = write.accumulate || start > 0;
        for right_panel in 0..right.panels {
            let b = right.panel(right_panel, &steps);
            let column = right_panel * PANEL;
            for (left_panel, row) in panels.clone().zip((0..).step_by(PANEL)) {
                let a = left.panel(left_panel, &steps);
                let out = &mut out[row * columns + column..];
                let (rows, columns_left) = ((rows - row).min(PANEL), (columns - column).min(PANEL));
                if rows == PANEL && columns_left == PANEL && write.scale == 1.0 {
                    ready.multiply(a, b, out, columns, add);
                    continue;
                }
                let mut block = [0f32; PANEL * PANEL];
                ready.multiply(a, b, &mut block, PANEL, false);
                for (out, block) in out.chunks_mut(columns).zip(block.chunks_exact(PANEL)).take(rows) {
                    for (out, &value) in out.iter_mut().zip(block).take(columns_left) {
                        *out = write.scale * value + if add { *out } else { 0.0 };
                    }
                }
            }
        }
    }
}
