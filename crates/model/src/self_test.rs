//! What a device computes, before it is trusted: burn's own operations against float64 on the host, the fused ones against
//! their plain bodies, forward and every gradient.

use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData, activation};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::layout::visible_keys;
use crate::ops::{self, DeltaInputs, RotaryTables, RowTargets, plain};

/// Largest error that passes, in units of the largest number of the reference, or of 1.
const BOUND: f32 = 2e-5;

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct SelfCheck {
    /// What was computed.
    pub name: &'static str,
    /// The largest error of its output and its gradients, in units of the largest number of the reference, or of 1.
    pub error: f32,
}

impl SelfCheck {
    /// Whether the device computes this rightly; a result that is no number does not pass.
    pub fn passes(&self) -> bool {
        self.error <= BOUND
    }
}

/// Computes small cases of everything that training and evaluation rest on. Takes less than a second on a CPU.
pub fn self_test(device: &Device) -> Vec<SelfCheck> {
    let on = On { device: device.clone().autodiff() };
    vec![
        on.matmul(),
        on.softmax(),
        on.gather(),
        on.scatter(),
        on.sum(),
        on.norms(),
        on.rotary(),
        on.swiglu(),
        on.attention(),
        on.convolution(),
        on.delta_rule(),
        on.experts(),
        on.cross_entropy(),
    ]
}

/// Seeded numbers between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0..1.0)).collect()
}

fn error_of<const D: usize>(found: Tensor<D>, expected: &[f32]) -> f32 {
    let found: Vec<f32> = found.into_data().iter::<f32>().collect();
    assert_eq!(found.len(), expected.len(), "the reference has the shape of the result");
    let scale = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / scale).fold(0.0, worse)
}

/// The larger of two errors; what is no number is the largest, where `max` would pass over it.
fn worse(a: f32, b: f32) -> f32 {
    if a.is_nan() || a >= b { a } else { b }
}

fn difference<const D: usize>(fused: Tensor<D>, plain: Tensor<D>) -> f32 {
    let plain: Vec<f32> = plain.into_data().iter::<f32>().collect();
    error_of(fused, &plain)
}

/// The worst error of the outputs and, through a random projection of them, of the gradients of the leaves.
macro_rules! compare {
    ($on:expr, $name:literal, $fused:expr, $plain:expr, $($leaf:ident),+) => {{
        let (fused, plain) = ($fused, $plain);
        let mut error = difference(fused.clone().inner(), plain.clone().inner());
        let upstream = $on.constant(fused.dims(), 999);
        let fused = (fused * upstream.clone()).sum().backward();
        let plain = (plain * upstream).sum().backward();
        $(
            let of_leaf = match ($leaf.grad(&fused), $leaf.grad(&plain)) {
                (Some(fused), Some(plain)) => difference(fused, plain),
                _ => f32::NAN,
            };
            error = worse(error, of_leaf);
        )+
        SelfCheck { name: $name, error }
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
        Tensor::from_data(TensorData::new(values, shape), &self.device)
    }

    fn integers<const D: usize>(&self, values: Vec<i32>, shape: [usize; D]) -> Tensor<D, Int> {
        Tensor::from_data(TensorData::new(values, shape), &self.device.clone().inner())
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
        let (zeros, picks) = (Tensor::<2>::zeros([rows, width], &self.device), self.integers(picks, [count]));
        let found = zeros.select_assign(0, picks, self.of(values, [count, width]), IndexingUpdateOp::Add);
        SelfCheck { name: "scatter", error: error_of(found, &expected) }
    }

    fn sum(&self) -> SelfCheck {
        let values = numbers(100_000, 6);
        let expected = values.iter().map(|&value| f64::from(value)).sum::<f64>() as f32;
        let count = values.len();
        SelfCheck { name: "long sum", error: error_of(self.of(values, [count]).sum(), &[expected]) }
    }

    fn norms(&self) -> SelfCheck {
        let (x, weight) = (self.leaf([3, 67, 96], 7), self.leaf([96], 8));
        let fused = ops::rms_norm(x.clone(), weight.clone(), 1e-6);
        compare!(self, "norm", fused, plain::rms_norm(x.clone(), weight.clone(), 1e-6), x, weight)
    }

    fn rotary(&self) -> SelfCheck {
        let (x, weight) = (self.leaf([2, 45, 3, 32], 9), self.leaf([32], 10));
        let rotary = RotaryTables {
            cos: self.constant([50, 16], 11).inner(),
            sin: self.constant([50, 16], 12).inner(),
            positions: self.integers((0..90).map(|at| at * 7 % 50).collect(), [2, 45]),
        };
        let fused = ops::norm_rotary(x.clone(), weight.clone(), &rotary, 1e-5);
        let plain = plain::norm_rotary(x.clone(), weight.clone(), &rotary, 1e-5);
        compare!(self, "norm and rotary turn", fused, plain, x, weight)
    }

    fn swiglu(&self) -> SelfCheck {
        let (gate, up) = (self.leaf([2, 33, 51], 13), self.leaf([2, 33, 51], 14));
        let fused = ops::swiglu(gate.clone(), up.clone());
        compare!(self, "gated unit", fused, plain::swiglu(gate.clone(), up.clone()), gate, up)
    }

    fn attention(&self) -> SelfCheck {
        let (q, k) = (self.leaf([1, 97, 6, 32], 15), self.leaf([1, 97, 2, 32], 16));
        let (v, visible) = (self.leaf([1, 97, 2, 32], 17), self.sight(97));
        let fused = ops::attention(q.clone(), k.clone(), v.clone(), visible.clone());
        let plain = plain::attention(q.clone(), k.clone(), v.clone(), visible);
        compare!(self, "attention", fused, plain, q, k, v)
    }

    fn convolution(&self) -> SelfCheck {
        let (x, weight, visible) = (self.leaf([1, 70, 24], 18), self.leaf([24, 1, 4], 19), self.sight(70));
        let fused = ops::causal_convolution(x.clone(), weight.clone(), visible.clone());
        compare!(self, "convolution", fused, plain::causal_convolution(x.clone(), weight.clone(), visible), x, weight)
    }

    fn delta_rule(&self) -> SelfCheck {
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
        let fused = ops::delta_rule(inputs.clone());
        compare!(self, "delta rule", fused, plain::delta_rule(inputs), q, k, v, log_decay, beta)
    }

    fn experts(&self) -> SelfCheck {
        let (x, weights) = (self.leaf([1, 75, 20], 25), self.leaf([1, 75, 2], 26));
        let (gate_up, down) = (self.leaf([6, 24, 20], 27), self.leaf([6, 20, 12], 28));
        let choices: Tensor<3, Int> = self.integers((0..150).map(|at| (at / 2 * 5 + at % 2) % 6).collect(), [1, 75, 2]);
        let fused = ops::experts(x.clone(), gate_up.clone(), down.clone(), weights.clone(), choices.clone());
        let plain = plain::experts(x.clone(), gate_up.clone(), down.clone(), weights.clone(), choices);
        compare!(self, "experts", fused, plain, x, gate_up, down, weights)
    }

    fn cross_entropy(&self) -> SelfCheck {
        let (rows, vocabulary) = (300, 403);
        let (hidden, weight) = (self.leaf([rows, 48], 29), self.leaf([vocabulary, 48], 30));
        let row_weight = |row: usize| if row.is_multiple_of(3) { 0.0 } else { 0.01 };
        let targets = RowTargets {
            tokens: self.integers((0..rows as i32).map(|row| row * 7_919 % vocabulary as i32).collect(), [rows]),
            weights: self.of((0..rows).map(row_weight).collect(), [rows]).inner(),
            temperature: 0.7,
        };
        let fused = ops::linear_cross_entropy(hidden.clone(), weight.clone(), targets.clone()).total;
        let plain = plain::linear_cross_entropy(hidden.clone(), weight.clone(), targets).total;
        compare!(self, "projection and cross entropy", fused, plain, hidden, weight)
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Tensor, TensorData};

    use super::{SelfCheck, error_of, self_test};

    #[test]
    fn the_cpu_passes_its_self_test() {
        for check in self_test(&Device::flex()) {
            assert!(check.passes(), "{check:?}");
        }
    }

    #[test]
    fn a_wrong_number_and_none_at_all_do_not_pass() {
        let found = |values: [f32; 2]| Tensor::<1>::from_data(TensorData::new(values.to_vec(), [2]), &Device::flex());
        let passes = |values| SelfCheck { name: "", error: error_of(found(values), &[1.0, 200.0]) }.passes();
        assert!(passes([1.0, 200.0]) && passes([1.001, 200.0]));
        assert!(!passes([1.0, 200.1]) && !passes([f32::NAN, 200.0]) && !passes([1.0, f32::INFINITY]));
    }
}
