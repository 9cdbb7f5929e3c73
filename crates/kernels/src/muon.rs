//! Muon's update of a matrix: momentum, made orthogonal by Newton–Schulz iterations.

use crate::buffer::uninitialised;
use crate::math::{add_assign, scale, sum_of_squares};
use crate::matmul::{Matrix, Threads, multiply, multiply_accumulate};

/// Coefficients of the odd polynomial of degree five, chosen for a steep start (Jordan et al. 2024; `torch.optim.Muon`).
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];

/// Numbers of a matrix below which its products run on one thread.
const SMALL_MATRIX: usize = 1 << 20;

/// What the direction of an update depends on besides the gradient and the momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MuonStep {
    /// Decay rate of the momentum.
    pub momentum: f64,
    /// Newton–Schulz iterations.
    pub iterations: usize,
    /// Factor on the gradient, from clipping by global norm.
    pub gradient_scale: f32,
}

/// Turns the gradient of a matrix of `columns` columns into the direction of its update, in place (Jordan et al. 2024,
/// with Nesterov's momentum): `m ← μ m + (1 − μ) g`, `g ← orthogonal(μ m + (1 − μ) g)`.
///
/// The parameter has no part in it, so that many matrices can be turned at the same time.
pub fn muon_direction(gradient: &mut [f32], momentum: &mut [f32], columns: usize, hyper: &MuonStep) {
    assert_eq!(gradient.len(), momentum.len(), "muon: gradient and momentum differ in length");
    assert!(columns > 0 && gradient.len().is_multiple_of(columns), "muon: rows of {columns}");
    let (keep, add) = (hyper.momentum as f32, (1.0 - hyper.momentum) as f32);
    for (gradient, momentum) in gradient.iter_mut().zip(momentum) {
        let clipped = *gradient * hyper.gradient_scale;
        *momentum = keep * *momentum + add * clipped;
        *gradient = keep * *momentum + add * clipped;
    }
    orthogonalise(gradient, columns, hyper.iterations);
}

/// Moves a matrix along its direction: `p ← p (1 − lr·wd) − lr · 0.2 √max(rows, columns) · u`. The factor gives an update
/// the size of AdamW's, so that both share one learning rate (Liu et al., arXiv 2502.16982).
pub fn muon(parameter: &mut [f32], direction: &[f32], columns: usize, learning_rate: f64, weight_decay: f64) {
    assert_eq!(parameter.len(), direction.len(), "muon: parameter and direction differ in length");
    assert!(columns > 0 && parameter.len().is_multiple_of(columns), "muon: rows of {columns}");
    let rows = parameter.len() / columns;
    let decay = (1.0 - learning_rate * weight_decay) as f32;
    let step = (learning_rate * 0.2 * (rows.max(columns) as f64).sqrt()) as f32;
    for (parameter, direction) in parameter.iter_mut().zip(direction) {
        *parameter = *parameter * decay - step * direction;
    }
}

/// The matrix with its singular values drawn near 1: `X ← a X + (b A + c A²) X` with `A = X Xᵀ`, from `X / ‖X‖`.
///
/// Five iterations leave them between about 0.7 and 1.2 (that is meant: the polynomial is steep, not exact). A matrix
/// of zeros stays zero.
pub fn orthogonalise(x: &mut [f32], columns: usize, iterations: usize) {
    let rows = x.len() / columns;
    let norm = sum_of_squares(x).sqrt() as f32;
    scale(x, 1.0 / (norm + 1e-7));
    // Small products gain nothing from threads of their own: the caller has other matrices for them.
    let threads = if x.len() < SMALL_MATRIX { Threads::One } else { Threads::Pool };
    // The smaller side's products: a tall matrix is read as its transpose.
    let small = rows.min(columns);
    let (mut gram, mut polynomial) = (uninitialised(small * small), uninitialised(small * small));
    let mut next = uninitialised(x.len());
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..iterations {
        let matrix = Matrix::new(x, rows, columns);
        let tall = rows > columns;
        let (left, right) = if tall { (matrix.transposed(), matrix) } else { (matrix, matrix.transposed()) };
        multiply(&mut gram, left, right, 1.0, threads);
        polynomial.copy_from_slice(&gram);
        scale(&mut polynomial, b);
        let square = Matrix::new(&gram, small, small);
        multiply_accumulate(&mut polynomial, square, square, c, threads);
        let polynomial = Matrix::new(&polynomial, small, small);
        match tall {
            true => multiply(&mut next, matrix, polynomial, 1.0, threads),
            false => multiply(&mut next, polynomial, matrix, 1.0, threads),
        }
        scale(x, a);
        add_assign(x, &next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(rows: usize, columns: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut number = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        (0..rows * columns).map(|_| number()).collect()
    }

    /// The same iteration in float64, written as the formula.
    fn reference(x: &[f32], rows: usize, columns: usize, iterations: usize) -> Vec<f64> {
        let norm = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>().sqrt();
        let mut x: Vec<f64> = x.iter().map(|&v| f64::from(v) / norm).collect();
        let [a, b, c] = COEFFICIENTS.map(f64::from);
        let product = |a: &[f64], b: &[f64], n: usize, k: usize, m: usize| -> Vec<f64> {
            (0..n * m).map(|at| (0..k).map(|i| a[at / m * k + i] * b[i * m + at % m]).sum()).collect()
        };
        for _ in 0..iterations {
            let transposed: Vec<f64> = (0..x.len()).map(|at| x[at % rows * columns + at / rows]).collect();
            let gram = product(&x, &transposed, rows, columns, rows);
            let square = product(&gram, &gram, rows, rows, rows);
            let polynomial: Vec<f64> = gram.iter().zip(&square).map(|(g, s)| b * g + c * s).collect();
            let moved = product(&polynomial, &x, rows, rows, columns);
            x.iter_mut().zip(moved).for_each(|(x, moved)| *x = a * *x + moved);
        }
        x
    }

    #[test]
    fn the_iteration_is_the_formula_for_wide_tall_and_square_matrices() {
        for (rows, columns) in [(5, 9), (9, 5), (7, 7), (1, 4), (4, 1)] {
            let x = matrix(rows, columns, 3);
            let expected = reference(&x, rows, columns, 5);
            let mut found = x;
            orthogonalise(&mut found, columns, 5);
            for (found, expected) in found.iter().zip(expected) {
                assert!((f64::from(*found) - expected).abs() < 2e-4, "{rows}x{columns}: {found}, expected {expected}");
            }
        }
    }

    #[test]
    fn rows_come_out_nearly_orthogonal_and_of_length_near_one() {
        let (rows, columns) = (8, 64);
        let mut x = matrix(rows, columns, 5);
        orthogonalise(&mut x, columns, 5);
        for i in 0..rows {
            for j in 0..rows {
                let dot: f32 = (0..columns).map(|k| x[i * columns + k] * x[j * columns + k]).sum();
                let is_near = if i == j { (0.4..1.6).contains(&dot) } else { dot.abs() < 0.35 };
                assert!(is_near, "rows {i} and {j}: {dot}");
            }
        }
    }

    #[test]
    fn an_update_moves_as_far_as_its_rate_says_and_zero_gradients_only_decay() {
        let (rows, columns) = (16, 32);
        let step = MuonStep { momentum: 0.95, iterations: 5, gradient_scale: 1.0 };
        let mut parameter = vec![1f32; rows * columns];
        let update = |parameter: &mut [f32], mut gradient: Vec<f32>| {
            muon_direction(&mut gradient, &mut vec![0.0; rows * columns], columns, &step);
            muon(parameter, &gradient, columns, 0.01, 0.1);
        };
        update(&mut parameter, vec![0.0; rows * columns]);
        assert!(parameter.iter().all(|&value| (value - 0.999).abs() < 1e-6));
        let mut parameter = vec![0f32; rows * columns];
        update(&mut parameter, matrix(rows, columns, 9));
        let root_mean_square = (sum_of_squares(&parameter) / (rows * columns) as f64).sqrt();
        // 0.2·lr·√(max/(columns))·(mean singular value), as AdamW moves about 0.2·lr in the mean.
        assert!((0.7..1.3).contains(&(root_mean_square / (0.2 * 0.01))), "{root_mean_square}");
    }
}
