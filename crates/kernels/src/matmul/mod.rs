//! Matrix products: in single precision, through the `gemm` crate, and of operands rounded to bfloat16 (`tiles`).
//!
//! `gemm` cuts the output into tiles for its threads and never the sum over the inner dimension, whose blocks
//! depend on the shape alone; so the bits do not depend on the number of threads (there is a test).

mod tiles;
mod units;

use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use tiles::Write;

/// What the operands of a matrix product are rounded to before they are multiplied; they are given and summed in single
/// precision in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatmulPrecision {
    /// Nothing: single precision.
    #[default]
    F32,
    /// Bfloat16, on the processor's matrix unit: AMX tiles or AVX512-BF16. A processor with neither is refused.
    Bf16,
    /// Bfloat16, computed in single precision on any processor: the numbers of [`MatmulPrecision::Bf16`] but for the order
    /// of sums, slower than [`MatmulPrecision::F32`]. For comparing a run's curve before such a processor is at hand.
    Bf16Emulated,
}

impl MatmulPrecision {
    /// Whether it is single precision.
    pub fn is_single(&self) -> bool {
        *self == MatmulPrecision::F32
    }

    /// Whether this processor can compute it.
    pub fn is_available(self) -> bool {
        self != MatmulPrecision::Bf16 || bf16_unit().is_some()
    }
}

/// What multiplies bfloat16 on this processor, by name; none where nothing does.
pub fn bf16_unit() -> Option<&'static str> {
    match found_unit() {
        #[cfg(target_arch = "x86_64")]
        Found::Amx(_) => Some("AMX tiles"),
        #[cfg(target_arch = "x86_64")]
        Found::Avx512(_) => Some("AVX512-BF16"),
        Found::Nothing => None,
    }
}

/// The fastest unit of this processor.
#[derive(Clone, Copy)]
enum Found {
    #[cfg(target_arch = "x86_64")]
    Amx(units::Amx),
    #[cfg(target_arch = "x86_64")]
    Avx512(units::Avx512),
    Nothing,
}

fn found_unit() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    *FOUND.get_or_init(|| {
        #[cfg(target_arch = "x86_64")]
        return match (units::Amx::find(), units::Avx512::find()) {
            (Some(unit), _) => Found::Amx(unit),
            (None, Some(unit)) => Found::Avx512(unit),
            (None, None) => Found::Nothing,
        };
        #[cfg(not(target_arch = "x86_64"))]
        Found::Nothing
    })
}

/// A matrix in memory that a product reads.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` rows of `columns` values that lie one after another.
    pub fn new(values: &'a [f32], rows: usize, columns: usize) -> Matrix<'a> {
        assert_eq!(values.len(), rows * columns, "matrix: {rows} rows of {columns}");
        Matrix { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// A row whose values lie one after another.
    pub(crate) fn row(&self, index: usize) -> &'a [f32] {
        assert_eq!(self.column_stride, 1, "matrix: a row of a transposed matrix is not a slice");
        &self.values[index * self.row_stride..][..self.columns]
    }

    /// The same values read as columns: no copy.
    pub fn transposed(self) -> Matrix<'a> {
        Matrix {
            values: self.values,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// `rows` rows of `columns` values whose starts are `row_stride` apart.
    pub fn strided(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Matrix<'a> {
        assert!(columns <= row_stride || rows <= 1, "matrix: rows of {columns} overlap at stride {row_stride}");
        let needed = if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns };
        assert!(values.len() >= needed, "matrix: {} values, {needed} needed", values.len());
        Matrix { values, rows, columns, row_stride, column_stride: 1 }
    }
}

/// Where a product may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// On the calling thread: the caller is one of many tasks.
    One,
    /// Over the current rayon pool.
    Pool,
}

impl MatmulPrecision {
    /// `out = scale · a b`.
    pub fn multiply(self, out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
        self.product(out, a, b, Write { scale, accumulate: false }, threads);
    }

    /// `out += scale · a b`.
    pub fn multiply_accumulate(self, out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
        self.product(out, a, b, Write { scale, accumulate: true }, threads);
    }

    fn product(self, out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, write: Write, threads: Threads) {
        assert_eq!(a.columns, b.rows, "product: {} columns times {} rows", a.columns, b.rows);
        match (self, found_unit()) {
            (MatmulPrecision::F32, _) => product(out, b.columns, a, b, write, threads),
            (MatmulPrecision::Bf16Emulated, _) => tiles::product(units::Emulated, out, a, b, write, threads),
            #[cfg(target_arch = "x86_64")]
            (MatmulPrecision::Bf16, Found::Amx(unit)) => tiles::product(unit, out, a, b, write, threads),
            #[cfg(target_arch = "x86_64")]
            (MatmulPrecision::Bf16, Found::Avx512(unit)) => tiles::product(unit, out, a, b, write, threads),
            (MatmulPrecision::Bf16, Found::Nothing) => {
                panic!("product: this processor multiplies no bfloat16; ask `is_available` before")
            }
        }
    }
}

/// `out = scale · a b`.
pub fn multiply(out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
    product(out, b.columns, a, b, Write { scale, accumulate: false }, threads);
}

/// As [`multiply`], into rows whose starts are `row_stride` apart; what lies between them is left alone.
pub fn multiply_strided(
    out: &mut [f32],
    row_stride: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    scale: f32,
    threads: Threads,
) {
    product(out, row_stride, a, b, Write { scale, accumulate: false }, threads);
}

/// `out += scale · a b`.
pub fn multiply_accumulate(out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
    product(out, b.columns, a, b, Write { scale, accumulate: true }, threads);
}

fn product(out: &mut [f32], row_stride: usize, a: Matrix<'_>, b: Matrix<'_>, write: Write, threads: Threads) {
    let (rows, inner, columns) = (a.rows, a.columns, b.columns);
    assert_eq!(inner, b.rows, "product: {inner} columns times {} rows", b.rows);
    if rows == 0 || columns == 0 {
        return;
    }
    let needed = (rows - 1) * row_stride + columns;
    let is_whole = row_stride > columns || out.len() == needed;
    assert!(columns <= row_stride && out.len() >= needed && is_whole, "product: output is {rows} rows of {columns}");
    let parallelism = match threads {
        Threads::One => gemm::Parallelism::None,
        Threads::Pool => gemm::Parallelism::Rayon(0),
    };
    // `gemm` computes alpha * out + beta * a b: the names are the other way round from BLAS.
    let alpha = if write.accumulate { 1.0 } else { 0.0 };
    // SAFETY: `Matrix` holds only slices whose length covers rows, columns and strides (checked by its constructors),
    // and the output's length was checked above; the output is borrowed mutably, so nothing aliases it.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            inner,
            out.as_mut_ptr(),
            1,
            row_stride as isize,
            write.accumulate,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            alpha,
            write.scale,
            false,
            false,
            false,
            parallelism,
        );
    }
}

/// The fewest rows from which on the bits of a row of `x wᵀ` no longer depend on how many rows `x` has: below, `gemm` has
/// other kernels for very small products, and other blocks of the sum for small ones with a long sum.
pub(crate) fn fewest_rows_of_the_same_bits(inputs: usize, outputs: usize) -> usize {
    let beyond_blocks = if outputs <= 64 && inputs > 512 { 65 } else { 2 };
    beyond_blocks.max(256 / outputs.max(1) + 1)
}

/// A weight as published, `[outputs, inputs]`, and how it is multiplied.
#[derive(Clone, Copy, Debug)]
pub struct Weight<'a> {
    /// Row after row.
    pub values: &'a [f32],
    /// Numbers of a row.
    pub inputs: usize,
    /// Of the products with it and of its gradient's.
    pub precision: MatmulPrecision,
}

impl<'a> Weight<'a> {
    /// A weight whose products are in single precision.
    pub fn single(values: &'a [f32], inputs: usize) -> Weight<'a> {
        Weight { values, inputs, precision: MatmulPrecision::F32 }
    }

    /// Number of rows.
    pub fn outputs(&self) -> usize {
        self.values.len() / self.inputs
    }

    pub(crate) fn matrix(&self) -> Matrix<'a> {
        Matrix::new(self.values, self.outputs(), self.inputs)
    }
}

/// `y = x wᵀ`: `x` is `[rows, inputs]`.
pub fn linear(x: &[f32], weight: Weight<'_>) -> Vec<f32> {
    let rows = x.len() / weight.inputs;
    crate::buffer::filled(rows * weight.outputs(), |y| {
        let x = Matrix::new(x, rows, weight.inputs);
        weight.precision.multiply(y, x, weight.matrix().transposed(), 1.0, Threads::Pool);
    })
}

/// `dx = dy w`, the gradient of [`linear`] to its input.
pub fn linear_backward_input(weight: Weight<'_>, dy: &[f32]) -> Vec<f32> {
    let rows = dy.len() / weight.outputs();
    crate::buffer::filled(rows * weight.inputs, |dx| {
        let dy = Matrix::new(dy, rows, weight.outputs());
        weight.precision.multiply(dx, dy, weight.matrix(), 1.0, Threads::Pool);
    })
}

/// `dw = dyᵀ x`, the gradient of [`linear`] to its weight.
pub fn linear_backward_weight(x: &[f32], dy: &[f32], inputs: usize, precision: MatmulPrecision) -> Vec<f32> {
    let rows = x.len() / inputs;
    let outputs = dy.len() / rows;
    crate::buffer::filled(outputs * inputs, |dw| {
        let dy = Matrix::new(dy, rows, outputs).transposed();
        precision.multiply(dw, dy, Matrix::new(x, rows, inputs), 1.0, Threads::Pool);
    })
}
