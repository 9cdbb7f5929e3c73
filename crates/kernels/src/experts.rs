//! A mixture of experts: each token passes the gated feed-forward parts that were chosen for it.
//!
//! A *choice* is one token at one of its experts; choices are numbered token after token, `choices_per_token` each. The
//! choices of an expert are gathered, so that each of its matrices is one product. What a token gets is added in the
//! order of its choices, and what an expert learns in the order of its tokens.

use crate::buffer::{filled, uninitialised};
use crate::math::{dot, exp};
use crate::matmul::{MatmulPrecision, Matrix, Threads, fewest_rows_of_the_same_bits};
use rayon::prelude::*;

/// Rows of one task where rows are gathered or added up.
const ROWS_PER_BLOCK: usize = 64;

/// The weights of all experts of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Experts<'a> {
    /// `[experts, 2 · inner, hidden]`, per expert first the gate's rows.
    pub gate_up: &'a [f32],
    /// `[experts, hidden, inner]`.
    pub down: &'a [f32],
    /// Number of experts.
    pub num_experts: usize,
    /// Width of the stream.
    pub hidden: usize,
    /// Width inside an expert.
    pub inner: usize,
    /// Of the products with the weights and of their gradients'.
    pub precision: MatmulPrecision,
}

/// Which experts each token passes, and with what weight.
#[derive(Clone, Copy, Debug)]
pub struct Choices<'a> {
    /// `[tokens, choices_per_token]`; no expert twice in a row.
    pub experts: &'a [u32],
    /// Factor of each choice's output, as `experts`.
    pub weights: &'a [f32],
    /// How many experts a token passes.
    pub per_token: usize,
}

/// Gradients of [`experts`].
#[derive(Clone, Debug)]
pub struct ExpertGradients {
    /// As the input.
    pub x: Vec<f32>,
    /// As [`Experts::gate_up`].
    pub gate_up: Vec<f32>,
    /// As [`Experts::down`].
    pub down: Vec<f32>,
    /// As [`Choices::weights`].
    pub weights: Vec<f32>,
}

impl<'a> Experts<'a> {
    fn check(&self, x: &[f32], choices: Choices<'_>) {
        let Experts { num_experts, hidden, inner, .. } = *self;
        assert_eq!(self.gate_up.len(), num_experts * 2 * inner * hidden, "experts: gate and up do not fit");
        assert_eq!(self.down.len(), num_experts * hidden * inner, "experts: down does not fit");
        assert_eq!(choices.experts.len(), choices.weights.len(), "experts: one weight per choice");
        assert_eq!(x.len() * choices.per_token, choices.experts.len() * hidden, "experts: choices for every token");
        let known = choices.experts.iter().all(|&expert| (expert as usize) < num_experts);
        assert!(known, "experts: a choice is none of {num_experts} experts");
    }

    fn gate_up(&self, expert: usize) -> Matrix<'a> {
        let size = 2 * self.inner * self.hidden;
        Matrix::new(&self.gate_up[expert * size..][..size], 2 * self.inner, self.hidden)
    }

    fn down(&self, expert: usize) -> Matrix<'a> {
        let size = self.hidden * self.inner;
        Matrix::new(&self.down[expert * size..][..size], self.hidden, self.inner)
    }

    fn product(&self, a: Matrix<'_>, b: Matrix<'_>, rows: usize, columns: usize) -> Vec<f32> {
        filled(rows * columns, |out| self.precision.multiply(out, a, b, 1.0, Threads::One))
    }
}

impl Choices<'_> {
    /// The choices of each expert, in order.
    fn by_expert(&self, num_experts: usize) -> Vec<Vec<usize>> {
        let mut choices = vec![Vec::new(); num_experts];
        self.experts.iter().enumerate().for_each(|(choice, &expert)| choices[expert as usize].push(choice));
        choices
    }
}

/// `Σ_choice weight · down_e(silu(gate_e x) · up_e x)` for each token, `[tokens, hidden]`.
pub fn experts(x: &[f32], experts: Experts<'_>, choices: Choices<'_>) -> Vec<f32> {
    experts.check(x, choices);
    let (hidden, inner) = (experts.hidden, experts.inner);
    let fewest = fewest_rows_of_the_same_bits(hidden, 2 * inner).max(fewest_rows_of_the_same_bits(inner, hidden));
    let of_expert = |(expert, chosen): (usize, &Vec<usize>)| {
        if chosen.is_empty() {
            return Vec::new();
        }
        // How many tokens choose an expert must not show in what one of them gets: it may be another document's.
        let rows = chosen.len().max(fewest);
        let mut tokens = gather(x, hidden, chosen, choices.per_token);
        tokens.resize(rows * hidden, 0.0);
        let gate_up =
            experts.product(Matrix::new(&tokens, rows, hidden), experts.gate_up(expert).transposed(), rows, 2 * inner);
        let mut activated = uninitialised(rows * inner);
        for (activated, gate_up) in activated.chunks_exact_mut(inner).zip(gate_up.chunks_exact(2 * inner)) {
            let (gate, up) = gate_up.split_at(inner);
            for ((y, gate), up) in activated.iter_mut().zip(gate).zip(up) {
                *y = gate / (1.0 + exp(-gate)) * up;
            }
        }
        let mut out =
            experts.product(Matrix::new(&activated, rows, inner), experts.down(expert).transposed(), rows, hidden);
        for (out, &choice) in out.chunks_exact_mut(hidden).zip(chosen) {
            out.iter_mut().for_each(|value| *value *= choices.weights[choice]);
        }
        out
    };
    let by_expert = choices.by_expert(experts.num_experts);
    let parts: Vec<Vec<f32>> = by_expert.par_iter().enumerate().map(of_expert).collect();
    add_up(x.len(), hidden, &parts, &by_expert, choices)
}

/// Gradients of [`experts`]; what lies between is computed again.
///
/// With `a = silu(gate) · up` and `y = down a`: `dweight = dyᵀ y = (downᵀ dy)ᵀ a`, and the rest as in the dense part
/// with `weight · dy` for `dy`.
pub fn experts_backward(x: &[f32], experts: Experts<'_>, choices: Choices<'_>, dy: &[f32]) -> ExpertGradients {
    experts.check(x, choices);
    assert_eq!(x.len(), dy.len(), "experts_backward: gradient and input differ in length");
    let (hidden, inner) = (experts.hidden, experts.inner);
    let by_expert = choices.by_expert(experts.num_experts);
    let mut gate_up_gradient = uninitialised(experts.gate_up.len());
    let mut down_gradient = uninitialised(experts.down.len());
    let parts: Vec<(Vec<f32>, Vec<f32>)> = by_expert
        .par_iter()
        .zip(gate_up_gradient.par_chunks_exact_mut(2 * inner * hidden))
        .zip(down_gradient.par_chunks_exact_mut(hidden * inner))
        .enumerate()
        .map(|(expert, ((chosen, d_gate_up), d_down))| {
            let rows = chosen.len();
            let tokens = gather(x, hidden, chosen, choices.per_token);
            let mut dy = gather(dy, hidden, chosen, choices.per_token);
            let tokens = Matrix::new(&tokens, rows, hidden);
            let mut gate_up = experts.product(tokens, experts.gate_up(expert).transposed(), rows, 2 * inner);
            let d_activated = experts.product(Matrix::new(&dy, rows, hidden), experts.down(expert), rows, inner);
            let mut activated = uninitialised(rows * inner);
            let mut weight_gradients = Vec::with_capacity(rows);
            for (row, &choice) in chosen.iter().enumerate() {
                let (activated, d_activated) =
                    (&mut activated[row * inner..][..inner], &d_activated[row * inner..][..inner]);
                let (gate, up) = gate_up[row * 2 * inner..][..2 * inner].split_at_mut(inner);
                let weight = choices.weights[choice];
                for i in 0..inner {
                    let sigmoid = 1.0 / (1.0 + exp(-gate[i]));
                    let (silu, slope) = (gate[i] * sigmoid, sigmoid * (1.0 + gate[i] * (1.0 - sigmoid)));
                    activated[i] = silu * up[i];
                    let d = weight * d_activated[i];
                    (gate[i], up[i]) = (d * up[i] * slope, d * silu);
                }
                weight_gradients.push(dot(activated, d_activated));
                dy[row * hidden..][..hidden].iter_mut().for_each(|value| *value *= weight);
            }
            let (dy, gate_up) = (Matrix::new(&dy, rows, hidden), Matrix::new(&gate_up, rows, 2 * inner));
            if rows == 0 {
                d_down.fill(0.0);
                d_gate_up.fill(0.0);
            } else {
                let activated = Matrix::new(&activated, rows, inner);
                experts.precision.multiply(d_down, dy.transposed(), activated, 1.0, Threads::One);
                experts.precision.multiply(d_gate_up, gate_up.transposed(), tokens, 1.0, Threads::One);
            }
            (experts.product(gate_up, experts.gate_up(expert), rows, hidden), weight_gradients)
        })
        .collect();
    let (x_parts, weight_parts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
    let mut weight_gradient = vec![0f32; choices.weights.len()];
    for (chosen, gradients) in by_expert.iter().zip(&weight_parts) {
        chosen.iter().zip(gradients).for_each(|(&choice, &gradient)| weight_gradient[choice] = gradient);
    }
    ExpertGradients {
        x: add_up(x.len(), hidden, &x_parts, &by_expert, choices),
        gate_up: gate_up_gradient,
        down: down_gradient,
        weights: weight_gradient,
    }
}

/// The rows of the chosen tokens, one after another.
fn gather(values: &[f32], hidden: usize, chosen: &[usize], per_token: usize) -> Vec<f32> {
    chosen.iter().flat_map(|choice| &values[choice / per_token * hidden..][..hidden]).copied().collect()
}

/// The sum over each token's choices, in their order; `parts` holds the rows of each expert's choices.
fn add_up(len: usize, hidden: usize, parts: &[Vec<f32>], by_expert: &[Vec<usize>], choices: Choices<'_>) -> Vec<f32> {
    let mut places = vec![0; choices.experts.len()];
    for chosen in by_expert {
        chosen.iter().enumerate().for_each(|(place, &choice)| places[choice] = place);
    }
    filled(len, |sums| {
        sums.par_chunks_mut(ROWS_PER_BLOCK * hidden).enumerate().for_each(|(block, sums)| {
            for (row, sum) in sums.chunks_exact_mut(hidden).enumerate() {
                sum.fill(0.0);
                let token = block * ROWS_PER_BLOCK + row;
                for choice in token * choices.per_token..(token + 1) * choices.per_token {
                    let part = &parts[choices.experts[choice] as usize][places[choice] * hidden..][..hidden];
                    sum.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
                }
            }
        });
    })
}
