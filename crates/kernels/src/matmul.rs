//! Matrix products in single precision, through the `gemm` crate.
//!
//! The crate cuts the output into tiles for its threads and never the sum over the inner dimension, whose blocks
//! depend on the shape alone; so the bits do not depend on the number of threads (there is a test).

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

/// `out = scale · a b`.
pub fn multiply(out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
    product(out, b.columns, a, b, scale, false, threads);
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
    product(out, row_stride, a, b, scale, false, threads);
}

/// `out += scale · a b`.
pub fn multiply_accumulate(out: &mut [f32], a: Matrix<'_>, b: Matrix<'_>, scale: f32, threads: Threads) {
    product(out, b.columns, a, b, scale, true, threads);
}

fn product(
    out: &mut [f32],
    row_stride: usize,
    a: Matrix<'_>,
    b: Matrix<'_>,
    scale: f32,
    accumulate: bool,
    threads: Threads,
) {
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
    let alpha = if accumulate { 1.0 } else { 0.0 };
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
            accumulate,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            alpha,
            scale,
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

/// `y = x wᵀ`: `x` is `[rows, inputs]`, `weight` is `[outputs, inputs]` as published.
pub fn linear(x: &[f32], weight: &[f32], inputs: usize) -> Vec<f32> {
    let (rows, outputs) = (x.len() / inputs, weight.len() / inputs);
    crate::buffer::filled(rows * outputs, |y| {
        let weight = Matrix::new(weight, outputs, inputs).transposed();
        multiply(y, Matrix::new(x, rows, inputs), weight, 1.0, Threads::Pool);
    })
}

/// `dx = dy w`, the gradient of [`linear`] to its input.
pub fn linear_backward_input(weight: &[f32], dy: &[f32], inputs: usize) -> Vec<f32> {
    let outputs = weight.len() / inputs;
    let rows = dy.len() / outputs;
    crate::buffer::filled(rows * inputs, |dx| {
        multiply(dx, Matrix::new(dy, rows, outputs), Matrix::new(weight, outputs, inputs), 1.0, Threads::Pool);
    })
}

/// `dw = dyᵀ x`, the gradient of [`linear`] to its weight.
pub fn linear_backward_weight(x: &[f32], dy: &[f32], inputs: usize) -> Vec<f32> {
    let rows = x.len() / inputs;
    let outputs = dy.len() / rows;
    crate::buffer::filled(outputs * inputs, |dw| {
        let dy = Matrix::new(dy, rows, outputs).transposed();
        multiply(dw, dy, Matrix::new(x, rows, inputs), 1.0, Threads::Pool);
    })
}
