//! What a device computes, before it is trusted: burn's own operations against float64 on the host, the decoder's against
//! their plain bodies on a device of reference, forward and every gradient.

use burn::tensor::{DType, Device, IndexingUpdateOp, Int, Tensor, TensorData, activation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::Products;
use crate::layout::visible_keys;
use crate::ops::{self, DeltaInputs, RotaryTables, RowLoss, RowTargets, plain};
use worldloom_kernels::matmul::MatmulPrecision;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfCheck {
    /// What was computed.
    pub name: &'static str,
    /// The largest error of its output and its gradients, in units of the largest number of the reference, or of 1.
    pub error: f32,
}

impl SelfCheck {
    /// Whether a device that multiplies like this computes it rightly; a result that is no number does not pass.
    pub fn passes(&self, products: Products) -> bool {
        self.error <= products.bound()
    }
}

/// Computes small cases of everything that training and evaluation rest on; `reference` is the CPU, which may be the device
/// itself. Takes less than a second on a CPU.
pub fn self_test(device: &Device, reference: &Device) -> Vec<SelfCheck> {
    let [on, reference] = [device, reference].map(|device| On { device: device.clone().autodiff() });
    let beside = |name, case: fn(&On, Body) -> Vec<Vec<f32>>| {
        let (found, expected) = (case(&on, Body::Used), case(&reference, Body::Plain));
        let errors = found.iter().zip(&expected).map(|(found, expected)| largest_error(found, expected));
        SelfCheck { name, error: errors.fold(0.0, worse) }
    };
    vec![
        on.matmul(),
        on.softmax(),
        on.gather(),
        on.scatter(),
        on.sum(),
        beside("norm", On::norms),
        beside("norm and rotary turn", On::rotary),
        beside("gated unit", On::swiglu),
        beside("attention", On::attention),
        beside("convolution", On::convolution),
        beside("delta rule", On::delta_rule),
        beside("experts", On::experts),
        beside("projection and cross entropy", On::cross_entropy),
    ]
}

/// Which body of an operation computes.
#[derive(Clone, Copy)]
enum Body {
    /// The one that the decoder uses on the device.
    Used,
    /// The one of burn's own operations.
    Plain,
}

/// Seeded numbers between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0..1.0)).collect()
}

fn on_host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn error_of<const D: usize>(found: Tensor<D>, expected: &[f32]) -> f32 {
    largest_error(&on_host(found), expected)
}

fn largest_error(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len(), "the reference has the shape of the result");
    let scale = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / scale).fold(0.0, worse)
}

/// The larger of two errors; what is no number is the largest, where `max` would pass over it.
fn worse(a: f32, b: f32) -> f32 {
    if a.is_nan() || a >= b { a } else { b }
}

/// The output and, through a random projection of it, the gradients of the leaves.
macro_rules! with_gradients {
    ($on:expr, $output:expr, $($leaf:ident),+) => {{
        let output = $output;
        let upstream = $on.constant(output.dims(), 999);
        let values = on_host(output.clone().inner());
        let gradients = (output * upstream).sum().backward();
        vec![values, $($leaf.grad(&gradients).map_or(vec![f32::NAN; $leaf.dims().iter().product()], on_host)),+]
    }};
}

/// A device with gradients.
struct On {
    device: Device,
}

impl On {
    fn constant<const D: usize>(&self, shape: [usize; D], seed: u64) -> Tensor<D> {
        self.of(numbers(shape.iter().product(), seed), shape)
    }

    fn leaf<const D: usize>(&self, shape: [usize; D], seed: u64) -> Tensor<D> {
        self.constant(shape, seed).require_grad()
    }

    fn of<const D: usize>(&self, values: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
        Tensor::from_data(TensorData::new(values, shape), (&self.device, DType::F32))
    }

    fn integers<const D: usize>(&self, values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
        Tensor::from_data(TensorData::new(values, shape), (&self.device.clone().inner(), DType::I32))
    }

    /// What the positions of a row see: a document, two branches of it, another document and its branch.
    fn sight(&self, seq: usize) -> Tensor<3, Int> {
        let segments: Vec<u32> = (0..seq).map(|at| (at * 5 / seq) as u32).collect();
        let visible = visible_keys(&segments, &[-1, 0, 0, -1, 3]).unwrap_or_default();
        self.integers(visible.into_iter().flatten().map(|at| at as i32).collect(), [1, seq, 3])
    }

    fn matmul(&self) -> SelfCheck {
        let [rows, inner, columns] = [37, 130, 65];
        let (a, b) = (numbers(rows * inner, 1), numbers(inner * columns, 2));
        let cell = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            let term = |k: usize| f64::from(a[row * inner + k]) * f64::from(b[k * columns + column]);
            (0..inner).map(term).sum::<f64>() as f32
        };
        let expected: Vec<f32> = (0..rows * columns).map(cell).collect();
        let found = self.of(a.clone(), [rows, inner]).matmul(self.of(b.clone(), [inner, columns]));
        SelfCheck { name: "matrix product", error: error_of(found, &expected) }
    }

    fn softmax(&self) -> SelfCheck {
        let [rows, columns] = [9, 129];
        // Large numbers: a softmax that does not take off the maximum overflows.
        let values: Vec<f32> = numbers(rows * columns, 3).into_iter().map(|value| value * 100.0).collect();
        let of_row = |row: &[f32]| -> Vec<f32> {
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            let powers: Vec<f64> = row.iter().map(|value| f64::from(value - largest).exp()).collect();
            let total: f64 = powers.iter().sum();
            powers.iter().map(|power| (power / total) as f32).collect()
        };
        let expected: Vec<f32> = values.chunks(columns).flat_map(of_row).collect();
        let found = activation::softmax(self.of(values, [rows, columns]), 1);
        SelfCheck { name: "softmax", error: error_of(found, &expected) }
    }

    fn gather(&self) -> SelfCheck {
        let (rows, width) = (50, 33);
        let (table, picks) = (numbers(rows * width, 4), (0..70).map(|at| at * 7 % 50).collect::<Vec<i32>>());
        let row = |&pick: &i32| table[pick as usize * width..][..width].to_vec();
        let expected: Vec<f32> = picks.iter().flat_map(row).collect();
        let count = picks.len();
        let found = self.of(table.clone(), [rows, width]).select(0, self.integers(picks, [count]));
        SelfCheck { name: "gather", error: error_of(found, &expected) }
    }

    fn scatter(&self) -> SelfCheck {
        let (rows, width, count) = (11, 17, 400);
        let (values, picks) =
            (numbers(count * width, 5), (0..count).map(|at| (at * at % rows) as i32).collect::<Vec<_>>());
        let mut sums = vec![0.0f64; rows * width];
        for (at, &pick) in picks.iter().enumerate() {
            for column in 0..width {
                sums[pick as usize * width + column] += f64::from(values[at * width + column]);
            }
        }
        let expected: Vec<f32> = sums.into_iter().map(|sum| sum as f32).collect();
        let (zeros, picks) =
            (Tensor::<2>::zeros([rows, width], (&self.device, DType::F32)), self.integers(picks, [count]));
        let found = zeros.select_assign(0, picks, self.of(values, [count, width]), IndexingUpdateOp::Add);
        SelfCheck { name: "scatter", error: error_of(found, &expected) }
    }

    fn sum(&self) -> SelfCheck {
        let values = numbers(100_000, 6);
        let expected = values.iter().map(|&value| f64::from(value)).sum::<f64>() as f32;
        let count = values.len();
        SelfCheck { name: "long sum", error: error_of(self.of(values, [count]).sum(), &[expected]) }
    }

    fn norms(&self, body: Body) -> Vec<Vec<f32>> {
        let (x, weight) = (self.leaf([3, 67, 96], 7), self.leaf([96], 8));
        let norm = match body {
            Body::Used => ops::rms_norm::<3>,
            Body::Plain => plain::rms_norm::<3>,
        };
        with_gradients!(self, norm(x.clone(), weight.clone(), 1e-6), x, weight)
    }

    fn rotary(&self, body: Body) -> Vec<Vec<f32>> {
        let (x, weight) = (self.leaf([2, 45, 3, 32], 9), self.leaf([32], 10));
        let tables = RotaryTables {
            cos: self.constant([50, 16], 11).inner(),
            sin: self.constant([50, 16], 12).inner(),
            positions: self.integers((0..90).map(|at| at * 7 % 50).collect(), [2, 45]),
        };
        let norm_and_turn = match body {
            Body::Used => ops::norm_rotary,
            Body::Plain => plain::norm_rotary,
        };
        with_gradients!(self, norm_and_turn(x.clone(), weight.clone(), &tables, 1e-5), x, weight)
    }

    fn swiglu(&self, body: Body) -> Vec<Vec<f32>> {
        let (gate, up) = (self.leaf([2, 33, 51], 13), self.leaf([2, 33, 51], 14));
        let unit = match body {
            Body::Used => ops::swiglu::<3>,
            Body::Plain => plain::swiglu::<3>,
        };
        with_gradients!(self, unit(gate.clone(), up.clone()), gate, up)
    }

    fn attention(&self, body: Body) -> Vec<Vec<f32>> {
        let (q, k) = (self.leaf([1, 97, 6, 32], 15), self.leaf([1, 97, 2, 32], 16));
        let (v, visible) = (self.leaf([1, 97, 2, 32], 17), self.sight(97));
        let attention = match body {
            Body::Used => ops::attention,
            Body::Plain => plain::attention,
        };
        with_gradients!(self, attention(q.clone(), k.clone(), v.clone(), visible), q, k, v)
    }

    fn convolution(&self, body: Body) -> Vec<Vec<f32>> {
        let (x, weight) = (self.leaf([1, 70, 24], 18), self.leaf([24, 1, 4], 19));
        let convolution = match body {
            Body::Used => ops::causal_convolution,
            Body::Plain => plain::causal_convolution,
        };
        with_gradients!(self, convolution(x.clone(), weight.clone(), self.sight(70)), x, weight)
    }

    fn delta_rule(&self, body: Body) -> Vec<Vec<f32>> {
        let unit = |seed| {
            let x = self.constant([1, 70, 2, 8], seed);
            (x.clone() / x.square().sum_dim(3).sqrt()).detach().require_grad()
        };
        let (q, k, v) = (unit(20), unit(21), self.leaf([1, 70, 4, 12], 22));
        let log_decay = (self.constant([1, 70, 4], 23).abs() * -0.3).detach().require_grad();
        let beta = self.constant([1, 70, 4], 24).abs().detach().require_grad();
        let inputs = DeltaInputs {
            q: q.clone(),
            k: k.clone(),
            v: v.clone(),
            log_decay: log_decay.clone(),
            beta: beta.clone(),
            visible: self.sight(70),
        };
        let rule = match body {
            Body::Used => ops::delta_rule,
            Body::Plain => plain::delta_rule,
        };
        with_gradients!(self, rule(inputs), q, k, v, log_decay, beta)
    }

    fn experts(&self, body: Body) -> Vec<Vec<f32>> {
        let (x, weights) = (self.leaf([1, 75, 20], 25), self.leaf([1, 75, 2], 26));
        let (gate_up, down) = (self.leaf([6, 24, 20], 27), self.leaf([6, 20, 12], 28));
        let choices: Tensor<3, Int> = self.integers((0..150).map(|at| (at / 2 * 5 + at % 2) % 6).collect(), [1, 75, 2]);
        let experts: ExpertsBody = match body {
            Body::Used => |x, gate_up, down, weights, choices| {
                ops::experts(x, gate_up, down, weights, choices, MatmulPrecision::F32)
            },
            Body::Plain => plain::experts,
        };
        let output = experts(x.clone(), gate_up.clone(), down.clone(), weights.clone(), choices);
        with_gradients!(self, output, x, gate_up, down, weights)
    }

    fn cross_entropy(&self, body: Body) -> Vec<Vec<f32>> {
        let (rows, vocabulary) = (300, 403);
        let (hidden, weight) = (self.leaf([rows, 48], 29), self.leaf([vocabulary, 48], 30));
        let row_weight = |row: usize| if row.is_multiple_of(3) { 0.0 } else { 0.01 };
        let targets = RowTargets {
            tokens: self.integers((0..rows as i32).map(|row| row * 7_919 % vocabulary as i32).collect(), [rows]),
            weights: self.of((0..rows).map(row_weight).collect(), [rows]).inner(),
            temperature: 0.7,
        };
        let (loss, statistics): (LossBody, StatisticsBody) = match body {
            Body::Used => (
                |hidden, weight, targets| ops::linear_cross_entropy(hidden, weight, targets, MatmulPrecision::F32),
                |hidden, weight, targets| ops::row_statistics(hidden, weight, targets, MatmulPrecision::F32),
            ),
            Body::Plain => (plain::linear_cross_entropy, plain::row_statistics),
        };
        let of_rows = statistics(hidden.clone(), weight.clone(), targets.clone());
        let loss = loss(hidden.clone(), weight.clone(), targets);
        let mut found = with_gradients!(self, loss.total, hidden, weight);
        found.extend([on_host(loss.nll), on_host(of_rows)]);
        found
    }
}

type ExpertsBody = fn(Tensor<3>, Tensor<3>, Tensor<3>, Tensor<3>, Tensor<3, Int>) -> Tensor<3>;
type LossBody = fn(Tensor<2>, Tensor<2>, RowTargets) -> RowLoss;
type StatisticsBody = fn(Tensor<2>, Tensor<2>, RowTargets) -> Tensor<2>;

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor, TensorData};

    use super::{SelfCheck, error_of, self_test};
    use crate::Products;

    #[test]
    fn the_cpu_passes_its_self_test() {
        let cpu = Device::flex();
        for check in self_test(&cpu, &cpu) {
            assert!(check.passes(Products::Single), "{check:?}");
        }
    }

    #[test]
    fn a_wrong_number_and_none_at_all_do_not_pass() {
        let found = |values: [f32; 2]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [2]), &Device::flex());
        let passes =
            |values| SelfCheck { name: "", error: error_of(found(values), &[1.0, 200.0]) }.passes(Products::Single);
        assert!(passes([1.0, 200.0]) && passes([1.001, 200.0]));
        assert!(!passes([1.0, 200.1]) && !passes([f32::NAN, 200.0]) && !passes([1.0, f32::INFINITY]));
    }
}
