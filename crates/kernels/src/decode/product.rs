//! `output[r][o] = Σ_i input[r][i] · weight[o][i]` with the weights packed once into panels of 16 outputs.
//!
//! A *panel* is `[depth][PANEL]`: the 16 columns that one tile reads for each step of the sum. The cache of keys has the
//! same layout and the cache of values is read as panels too, so attention uses these tiles as well. Weights are held in
//! single precision or in bfloat16, which every tile widens as it reads; sums are in single precision either way.
#![expect(unsafe_code, reason = "tiles write strided, disjoint parts of one output from several threads")]

use std::ops::Range;

use half::bf16;
use rayon::prelude::*;

use crate::precision::Number;

/// Outputs per panel: two vector registers of eight.
pub(super) const PANEL: usize = 16;
/// The most rows of one tile; six rows fill twelve vector registers.
const MAX_TILE_ROWS: usize = 6;
/// Multiply-adds below which a task is not worth handing to another thread.
pub(super) const MIN_TASK_WORK: usize = 1 << 15;

/// Whether a product replaces what the output holds or adds to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The sum starts at zero.
    Replace,
    /// The sum starts at the value that stands in the output (a residual connection).
    Add,
}

/// A weight `[outputs, inputs]`, packed for products with few rows.
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    outputs: usize,
    inputs: usize,
    panels: Held,
}

/// The panels' numbers.
#[derive(Clone, Debug)]
enum Held {
    F32(Vec<f32>),
    BF16(Vec<bf16>),
}

impl PackedMatrix {
    /// A matrix of zeros in single precision, to be filled by [`Self::set_rows`].
    pub fn zeros(outputs: usize, inputs: usize) -> PackedMatrix {
        PackedMatrix { outputs, inputs, panels: Held::F32(vec![0.0; outputs.div_ceil(PANEL) * inputs * PANEL]) }
    }

    /// A matrix of zeros in bfloat16; rows that are set are rounded to the nearest.
    pub fn zeros_in_bf16(outputs: usize, inputs: usize) -> PackedMatrix {
        let zeros = vec![bf16::ZERO; outputs.div_ceil(PANEL) * inputs * PANEL];
        PackedMatrix { outputs, inputs, panels: Held::BF16(zeros) }
    }

    /// Packs `rows` (`[n, inputs]`, as published) as the outputs from `first` on.
    pub fn set_rows(&mut self, first: usize, rows: &[f32]) {
        assert_eq!(rows.len() % self.inputs, 0, "whole rows of {} values", self.inputs);
        let num_rows = rows.len() / self.inputs;
        assert!(first + num_rows <= self.outputs, "{num_rows} rows from {first} on, of {}", self.outputs);
        for (row, output) in rows.chunks_exact(self.inputs).zip(first..) {
            let panel = self.panel_start(output);
            match &mut self.panels {
                Held::F32(panels) => set_column(&mut panels[panel..], row),
                Held::BF16(panels) => set_column(&mut panels[panel..], row),
            }
        }
    }

    /// Writes the weights of one output (for the embedding: of one token) to `row`.
    pub fn copy_row(&self, output: usize, row: &mut [f32]) {
        assert!(output < self.outputs, "output {output} of {}", self.outputs);
        assert_eq!(row.len(), self.inputs);
        let panel = self.panel_start(output);
        match &self.panels {
            Held::F32(panels) => copy_column(&panels[panel..], row),
            Held::BF16(panels) => copy_column(&panels[panel..], row),
        }
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Products of all rows of `input` (`[rows, inputs]`) into `output` (`[rows, outputs]`).
    pub fn multiply(&self, input: &[f32], output: &mut [f32], store: Store) {
        match &self.panels {
            Held::F32(panels) => self.multiply_in(panels, input, output, store),
            Held::BF16(panels) => self.multiply_in(panels, input, output, store),
        }
    }

    fn multiply_in<N: Number>(&self, panels: &[N], input: &[f32], output: &mut [f32], store: Store) {
        let num_rows = input.len() / self.inputs;
        assert_eq!(input.len(), num_rows * self.inputs, "whole rows of {} inputs", self.inputs);
        assert_eq!(output.len(), num_rows * self.outputs, "{num_rows} rows of {} outputs", self.outputs);
        let rows = Rows { values: input, stride: self.inputs, count: num_rows };
        let panels = Panels {
            values: panels,
            panel_stride: self.inputs * PANEL,
            step: PANEL,
            depth: self.inputs,
            columns: self.outputs,
        };
        let target = Target { start: output.as_mut_ptr(), len: output.len(), stride: self.outputs };
        let num_panels = self.outputs.div_ceil(PANEL);
        let work = num_rows * self.inputs * self.outputs;
        let num_tasks = (work / MIN_TASK_WORK).min(rayon::current_num_threads()).min(num_panels);
        if num_tasks < 2 {
            // SAFETY: `target` is the whole of `output`, which nothing else touches meanwhile.
            return unsafe { multiply_panels(rows, panels, 0..num_panels, target, store) };
        }
        (0..num_tasks).into_par_iter().with_max_len(1).for_each(|task| {
            let part = num_panels * task / num_tasks..num_panels * (task + 1) / num_tasks;
            // SAFETY: tasks have disjoint panels, so they write disjoint columns of `output`.
            unsafe { multiply_panels(rows, panels, part, target, store) }
        });
    }

    fn panel_start(&self, output: usize) -> usize {
        output / PANEL * self.inputs * PANEL + output % PANEL
    }
}

/// Writes a row down a column of panels.
fn set_column<N: Number>(panels: &mut [N], row: &[f32]) {
    row.iter().zip(panels.iter_mut().step_by(PANEL)).for_each(|(value, slot)| *slot = N::nearest(*value));
}

/// Reads a row back from a column of panels.
fn copy_column<N: Number>(panels: &[N], row: &mut [f32]) {
    row.iter_mut().zip(panels.iter().step_by(PANEL)).for_each(|(value, slot)| *value = slot.widen());
}

/// The left factor: `count` rows, `stride` apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) values: &'a [f32],
    pub(super) stride: usize,
    pub(super) count: usize,
}

/// The right factor: column `c` at depth `k` is `values[c / PANEL * panel_stride + k * step + c % PANEL]`.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a, N = f32> {
    pub(super) values: &'a [N],
    pub(super) panel_stride: usize,
    pub(super) step: usize,
    pub(super) depth: usize,
    pub(super) columns: usize,
}

/// Where a product goes: row `r`, column `c` is `start[r * stride + c]`. Tasks share it and write disjoint places.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub(super) start: *mut f32,
    pub(super) len: usize,
    pub(super) stride: usize,
}

// SAFETY: the pointer is only written through by the unsafe functions below, whose callers keep the places disjoint.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// Multiplies all rows with the panels of `part`.
///
/// # Safety
/// The columns of `part` in the rows of `target` lie in one live allocation that nobody else reads or writes meanwhile.
pub(super) unsafe fn multiply_panels<N: Number>(
    rows: Rows,
    panels: Panels<N>,
    part: Range<usize>,
    target: Target,
    store: Store,
) {
    let columns_end = (part.end * PANEL).min(panels.columns);
    if rows.count == 0 || part.is_empty() {
        return;
    }
    assert!(rows.values.len() >= (rows.count - 1) * rows.stride + panels.depth, "the rows lie in their slice");
    let last_read = (part.end - 1) * panels.panel_stride + panels.depth.saturating_sub(1) * panels.step + PANEL;
    assert!(panels.depth == 0 || panels.values.len() >= last_read, "the panels lie in their slice");
    assert!(target.len >= (rows.count - 1) * target.stride + columns_end, "the product lies in its slice");
    let num_blocks = rows.count.div_ceil(MAX_TILE_ROWS);
    let strip = panels_per_tile(rows.count / num_blocks);
    for first_panel in part.clone().step_by(strip) {
        let strip_end = (first_panel + strip).min(part.end);
        for block in 0..num_blocks {
            let block_rows = rows.count * block / num_blocks..rows.count * (block + 1) / num_blocks;
            // SAFETY: the asserts above bound every row, panel and column that a tile of this strip touches.
            unsafe { multiply_strip(rows, panels, block_rows, first_panel..strip_end, target, store) };
        }
    }
}

/// Enough panels that a tile has at least eight independent sums: a multiply-add takes four cycles and two start in one.
fn panels_per_tile(rows: usize) -> usize {
    match rows {
        1 => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

/// # Safety
/// Rows, panels and columns lie in their slices.
unsafe fn multiply_strip<N: Number>(
    rows: Rows,
    panels: Panels<N>,
    block: Range<usize>,
    strip: Range<usize>,
    target: Target,
    store: Store,
) {
    let mut panel = strip.start;
    while panel < strip.end {
        let wide = strip.end - panel >= panels_per_tile(block.len());
        let place = Place { row: block.start, panel };
        // SAFETY: the caller's; a tile covers `block` and at most the panels up to `strip.end`.
        unsafe {
            match (block.len(), wide) {
                (1, true) => tile::<N, 1, 4>(rows, panels, place, target, store),
                (1, false) => tile::<N, 1, 1>(rows, panels, place, target, store),
                (2, true) => tile::<N, 2, 2>(rows, panels, place, target, store),
                (2, false) => tile::<N, 2, 1>(rows, panels, place, target, store),
                (3, true) => tile::<N, 3, 2>(rows, panels, place, target, store),
                (3, false) => tile::<N, 3, 1>(rows, panels, place, target, store),
                (4, _) => tile::<N, 4, 1>(rows, panels, place, target, store),
                (5, _) => tile::<N, 5, 1>(rows, panels, place, target, store),
                (6, _) => tile::<N, 6, 1>(rows, panels, place, target, store),
                (rows, _) => unreachable!("blocks have 1 to {MAX_TILE_ROWS} rows, not {rows}"),
            }
        }
        panel += if wide { panels_per_tile(block.len()) } else { 1 };
    }
}

/// The upper left corner of a tile.
#[derive(Clone, Copy)]
struct Place {
    row: usize,
    panel: usize,
}

/// Steps of the sum that a tile of one panel asks for its right factor ahead. Weights come from memory for every token, and the
/// processor's own guess ends at each page; where a tile reads several panels at once, it guesses well enough.
const AHEAD: usize = 32;

/// Asks for a cache line that is wanted soon; any address will do.
#[inline(always)]
fn fetch_ahead<N>(place: *const N) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and faults at no address.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(place.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// One tile: `ROWS × (PANELS · 16)` sums that stay in registers.
///
/// # Safety
/// Rows, panels and columns lie in their slices.
#[inline(never)]
unsafe fn tile<N: Number, const ROWS: usize, const PANELS: usize>(
    rows: Rows,
    panels: Panels<N>,
    place: Place,
    target: Target,
    store: Store,
) {
    let width = (panels.columns - place.panel * PANEL).min(PANELS * PANEL);
    // SAFETY: the caller's.
    unsafe {
        let left = rows.values.as_ptr().add(place.row * rows.stride);
        let right = panels.values.as_ptr().add(place.panel * panels.panel_stride);
        let output = target.start.add(place.row * target.stride + place.panel * PANEL);
        let mut sums = [[[0.0f32; PANEL]; PANELS]; ROWS];
        if store == Store::Add {
            for (row, sums) in sums.iter_mut().enumerate() {
                for (column, sum) in sums.as_flattened_mut()[..width].iter_mut().enumerate() {
                    *sum = *output.add(row * target.stride + column);
                }
            }
        }
        for k in 0..panels.depth {
            let mut weights = [[0.0f32; PANEL]; PANELS];
            for (panel, weights) in weights.iter_mut().enumerate() {
                let from = right.add(panel * panels.panel_stride + k * panels.step);
                if PANELS == 1 {
                    fetch_ahead(from.wrapping_add(AHEAD * panels.step));
                }
                let held = &*from.cast::<[N; PANEL]>();
                weights.iter_mut().zip(held).for_each(|(weight, held)| *weight = held.widen());
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let value = *left.add(row * rows.stride + k);
                for (sums, weights) in sums.iter_mut().zip(&weights) {
                    for (sum, weight) in sums.iter_mut().zip(weights) {
                        *sum = value.mul_add(*weight, *sum);
                    }
                }
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            let sums = sums.as_flattened();
            std::ptr::copy_nonoverlapping(sums.as_ptr(), output.add(row * target.stride), width);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values without structure, the same on every machine.
    fn values(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    }

    fn packed(outputs: usize, inputs: usize) -> (Vec<f32>, PackedMatrix) {
        fill(values(outputs * inputs, 1), PackedMatrix::zeros(outputs, inputs))
    }

    /// The weights as the matrix has them: rounded.
    fn packed_in_bf16(outputs: usize, inputs: usize) -> (Vec<f32>, PackedMatrix) {
        let (weights, matrix) = fill(values(outputs * inputs, 1), PackedMatrix::zeros_in_bf16(outputs, inputs));
        (weights.into_iter().map(|weight| bf16::from_f32(weight).to_f32()).collect(), matrix)
    }

    fn fill(weights: Vec<f32>, mut matrix: PackedMatrix) -> (Vec<f32>, PackedMatrix) {
        let (outputs, inputs) = (matrix.outputs, matrix.inputs);
        let split = outputs / 3;
        matrix.set_rows(split, &weights[split * inputs..]);
        matrix.set_rows(0, &weights[..split * inputs]);
        (weights, matrix)
    }

    #[test]
    fn a_product_is_the_chain_of_fused_multiply_adds_at_every_size() {
        let sizes = [(1, 1), (7, 5), (16, 3), (40, 33), (65, 48), (130, 20)];
        let cases = sizes.into_iter().flat_map(|size| [(size, false), (size, true)]);
        for ((outputs, inputs), is_bf16) in cases {
            let (weights, matrix) = if is_bf16 { packed_in_bf16(outputs, inputs) } else { packed(outputs, inputs) };
            for rows in 0..=20 {
                let input = values(rows * inputs, 2);
                for store in [Store::Replace, Store::Add] {
                    let before = values(rows * outputs, 3);
                    let mut output = before.clone();
                    matrix.multiply(&input, &mut output, store);
                    for (index, value) in output.iter().enumerate() {
                        let (row, column) = (index / outputs, index % outputs);
                        let start = if store == Store::Add { before[index] } else { 0.0 };
                        let (left, right) = (&input[row * inputs..], &weights[column * inputs..]);
                        let expected = (0..inputs).fold(start, |sum, k| left[k].mul_add(right[k], sum));
                        assert_eq!(value.to_bits(), expected.to_bits(), "{rows} rows, [{outputs}, {inputs}]");
                    }
                }
            }
        }
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let (_, matrix) = packed(515, 190);
        let input = values(37 * 190, 4);
        let product = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut output = vec![0.0; 37 * 515];
            pool.install(|| matrix.multiply(&input, &mut output, Store::Replace));
            output
        };
        assert!(product(1) == product(2) && product(2) == product(5));
    }

    #[test]
    fn a_packed_row_reads_back() {
        for (weights, matrix) in [packed(21, 9), packed_in_bf16(21, 9)] {
            let mut row = vec![0.0; 9];
            for output in 0..21 {
                matrix.copy_row(output, &mut row);
                assert_eq!(row, weights[output * 9..][..9]);
            }
        }
    }
}
