//! Products of operands rounded to bfloat16: the numbers of the definition, in every order of memory and at every edge of a
//! tile, on whatever multiplies them here.

use half::bf16;
use proptest::prelude::*;
use worldloom_kernels::matmul::{MatmulPrecision, Matrix, Threads, Weight, bf16_unit, linear};

/// What computes them on this processor; the matrix unit where there is one.
fn units() -> Vec<MatmulPrecision> {
    let all = [MatmulPrecision::Bf16Emulated, MatmulPrecision::Bf16];
    all.into_iter().filter(|precision| precision.is_available()).collect()
}

/// Numbers in −1..1 that need more bits than bfloat16 has.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|at| ((at * 7_919 + seed * 104_729) % 20_011) as f32 / 10_005.5 - 1.0).collect()
}

fn rounded(value: f32) -> f64 {
    f64::from(bf16::from_f32(value).to_f32())
}

/// Operands `[rows, inner]` and `[inner, columns]`, each also stored column after column.
struct Operands {
    shape: [usize; 3],
    a: [Vec<f32>; 2],
    b: [Vec<f32>; 2],
}

impl Operands {
    fn new(shape: [usize; 3]) -> Operands {
        let [rows, inner, columns] = shape;
        let transposed = |values: &[f32], rows: usize, columns: usize| -> Vec<f32> {
            (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect()
        };
        let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let (a_columns, b_columns) = (transposed(&a, rows, inner), transposed(&b, inner, columns));
        Operands { shape, a: [a, a_columns], b: [b, b_columns] }
    }

    /// All four orders of memory.
    fn orders(&self) -> impl Iterator<Item = (Matrix<'_>, Matrix<'_>)> {
        let [rows, inner, columns] = self.shape;
        let lefts = [Matrix::new(&self.a[0], rows, inner), Matrix::new(&self.a[1], inner, rows).transposed()];
        let rights = [Matrix::new(&self.b[0], inner, columns), Matrix::new(&self.b[1], columns, inner).transposed()];
        lefts.into_iter().flat_map(move |left| rights.map(|right| (left, right)))
    }

    /// The sum of the definition, and of the sizes of what is added.
    fn expected(&self, row: usize, column: usize) -> [f64; 2] {
        let [_, inner, columns] = self.shape;
        let products = |at: usize| rounded(self.a[0][row * inner + at]) * rounded(self.b[0][at * columns + column]);
        [(0..inner).map(products).sum(), (0..inner).map(|at| products(at).abs()).sum()]
    }

    fn check(&self) {
        let [rows, inner, columns] = self.shape;
        for precision in units() {
            for (a, b) in self.orders() {
                for threads in [Threads::One, Threads::Pool] {
                    let mut out = vec![f32::NAN; rows * columns];
                    precision.multiply(&mut out, a, b, 1.0, threads);
                    let mut scaled = vec![3.0; rows * columns];
                    precision.multiply_accumulate(&mut scaled, a, b, 0.5, threads);
                    for (at, (&value, &scaled)) in out.iter().zip(&scaled).enumerate() {
                        let [sum, size] = self.expected(at / columns, at % columns);
                        let bound = 1e-6 * (size + 1.0);
                        let place = format!("{precision:?} {rows}x{inner}x{columns} at {at}");
                        assert!((f64::from(value) - sum).abs() < bound, "{place}: {value}, expected {sum}");
                        let expected = 3.0 + 0.5 * sum;
                        assert!((f64::from(scaled) - expected).abs() < bound, "{place}: {scaled}, expected {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn products_are_the_sums_of_the_rounded_numbers() {
    println!("bfloat16 is multiplied by: {}", bf16_unit().unwrap_or("nothing here; the emulation alone is tested"));
    let shapes = [[1, 1, 1], [32, 32, 32], [33, 31, 65], [16, 1030, 48], [70, 33, 1], [1, 64, 100], [300, 96, 40]];
    for shape in shapes {
        Operands::new(shape).check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn products_are_right_at_any_size(rows in 1usize..80, inner in 1usize..100, columns in 1usize..80) {
        Operands::new([rows, inner, columns]).check();
    }
}

#[test]
fn a_row_has_the_same_bits_beside_any_others() {
    let (inputs, outputs) = (90, 70);
    let (x, values) = (numbers(100 * inputs, 3), numbers(outputs * inputs, 4));
    for precision in units() {
        let weight = Weight { values: &values, inputs, precision };
        let all = linear(&x, weight);
        for rows in [1, 2, 31, 32, 33] {
            assert!(linear(&x[..rows * inputs], weight) == all[..rows * outputs], "{precision:?}, {rows} rows");
        }
    }
}

#[test]
fn a_half_way_number_goes_to_the_even_one_and_what_is_not_finite_stays_so() {
    let ulp = 1.0 / 128.0;
    let quiet = f32::from_bits(0x7fff_ffff);
    let cases = [
        (1.0 + 0.5 * ulp, 1.0),
        (1.0 + 1.5 * ulp, 1.0 + 2.0 * ulp),
        (-1.0 - 0.4 * ulp, -1.0),
        (f32::MAX, f32::INFINITY),
        (f32::NEG_INFINITY, f32::NEG_INFINITY),
        (f32::NAN, f32::NAN),
        (quiet, f32::NAN),
        (-quiet, f32::NAN),
    ];
    for precision in units() {
        for size in [1, 32] {
            for (value, expected) in cases {
                // The identity times the number, so that it alone is added up.
                let one: Vec<f32> = (0..size * size).map(|at| f32::from(u8::from(at % (size + 1) == 0))).collect();
                let (mut left, mut out) = (vec![0.0; size * size], vec![0.0; size * size]);
                left[0] = value;
                let (left, one) = (Matrix::new(&left, size, size), Matrix::new(&one, size, size));
                for (a, b) in [(left, one), (one, left), (left.transposed(), one), (one, left.transposed())] {
                    precision.multiply(&mut out, a, b, 1.0, Threads::One);
                    let is_right = out[0] == expected || out[0].is_nan() && !value.is_finite();
                    assert!(is_right, "{precision:?}: {value} became {}, expected {expected}", out[0]);
                    assert!(!value.is_nan() || out[0].is_nan(), "{precision:?}: a NaN became {}", out[0]);
                }
            }
        }
    }
}

#[test]
fn a_sum_of_nothing_is_zero_or_what_was_there() {
    for precision in units() {
        let (a, b) = (Matrix::new(&[], 2, 0), Matrix::new(&[], 0, 3));
        let mut out = [7.0; 6];
        precision.multiply_accumulate(&mut out, a, b, 1.0, Threads::One);
        assert_eq!(out, [7.0; 6]);
        precision.multiply(&mut out, a, b, 1.0, Threads::Pool);
        assert_eq!(out, [0.0; 6]);
    }
}
