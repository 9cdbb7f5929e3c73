//! One chunk of one head of the gated delta rule, forward and backward. The formulas and their letters are the parent's.

use super::{DeltaHeads, DeltaInputs, Head, HeadGradients};
use crate::buffer::filled;
use crate::math::{dot, exp, multiply_add};
use crate::matmul::{Matrix, Threads, multiply, multiply_accumulate};
use std::ops::Range;

/// A chunk of one head, with what both passes need of it. Matrices of tokens by tokens are lower triangles.
pub(super) struct Chunk<'a> {
    head: Head,
    range: Range<usize>,
    q: Matrix<'a>,
    k: Matrix<'a>,
    beta: Vec<f32>,
    /// `γ`
    decay: Vec<f32>,
    /// `w`
    rest: Vec<f32>,
    /// `M`, zero above the diagonal.
    between: Vec<f32>,
    /// `M ∘ K Kᵀ` below the diagonal: `A` without its `β`.
    keys: Vec<f32>,
    /// `P`
    scores: Vec<f32>,
    /// `K S`
    keys_state: Vec<f32>,
    /// `V − γ ∘ K S`
    errors: Vec<f32>,
    /// `D`
    updates: Vec<f32>,
}

impl<'a> Chunk<'a> {
    pub(super) fn new(head: Head, inputs: DeltaInputs<'a>, range: Range<usize>, state: &[f32]) -> Chunk<'a> {
        let DeltaHeads { key_heads, value_heads, key_dim, value_dim, .. } = head.heads;
        let (len, key_head) = (range.len(), head.value_head / head.heads.group());
        let q = head.rows(inputs.q, key_head, key_heads, key_dim, &range);
        let k = head.rows(inputs.k, key_head, key_heads, key_dim, &range);
        let v = head.rows(inputs.v, head.value_head, value_heads, value_dim, &range);
        let beta = head.numbers(inputs.beta, &range);
        let mut sums = head.numbers(inputs.log_decay, &range);
        (1..len).for_each(|i| sums[i] += sums[i - 1]);
        let mut between = vec![0f32; len * len];
        for i in 0..len {
            (0..=i).for_each(|j| between[i * len + j] = exp(sums[i] - sums[j]));
        }
        let decay: Vec<f32> = sums.iter().map(|&sum| exp(sum)).collect();
        let rest = between[(len - 1) * len..].to_vec();
        let mut keys = product(k, k.transposed(), len, len);
        let mut scores = product(q, k.transposed(), len, len);
        for i in 0..len {
            for j in 0..len {
                keys[i * len + j] *= if j < i { between[i * len + j] } else { 0.0 };
                scores[i * len + j] *= between[i * len + j];
            }
        }
        let state = Matrix::new(state, key_dim, value_dim);
        let keys_state = product(k, state, len, value_dim);
        let mut errors = keys_state.clone();
        for (i, error) in errors.chunks_exact_mut(value_dim).enumerate() {
            error.iter_mut().zip(v.row(i)).for_each(|(e, v)| *e = v - decay[i] * *e);
        }
        let mut updates = errors.clone();
        for i in 0..len {
            let (before, rest) = updates.split_at_mut(i * value_dim);
            let update = &mut rest[..value_dim];
            update.iter_mut().for_each(|value| *value *= beta[i]);
            for (j, other) in before.chunks_exact(value_dim).enumerate() {
                add_scaled(update, -(beta[i] * keys[i * len + j]), other);
            }
        }
        Chunk { head, range, q, k, beta, decay, rest, between, keys, scores, keys_state, errors, updates }
    }

    /// The positions of its tokens in the row.
    pub(super) fn range(&self) -> Range<usize> {
        self.range.clone()
    }

    /// `O = γ ∘ Q S + P D`
    pub(super) fn outputs(&self, state: &[f32], out: &mut [f32]) {
        let (len, DeltaHeads { key_dim, value_dim, .. }) = (self.range.len(), self.head.heads);
        multiply(out, self.q, Matrix::new(state, key_dim, value_dim), 1.0, Threads::One);
        scale_rows(out, &self.decay, value_dim);
        let (scores, updates) = (Matrix::new(&self.scores, len, len), Matrix::new(&self.updates, len, value_dim));
        multiply_accumulate(out, scores, updates, 1.0, Threads::One);
    }

    /// `S ← γ_end S + (w ∘ K)ᵀ D`
    pub(super) fn advance(&self, state: &mut [f32]) {
        let (len, value_dim) = (self.range.len(), self.head.heads.value_dim);
        let last = self.decay[len - 1];
        state.iter_mut().for_each(|value| *value *= last);
        let mut updates = self.updates.clone();
        scale_rows(&mut updates, &self.rest, value_dim);
        multiply_accumulate(state, self.k.transposed(), Matrix::new(&updates, len, value_dim), 1.0, Threads::One);
    }

    /// Adds the gradients of this chunk, and turns the gradient to the state after it into that to the state before it.
    pub(super) fn backward(&self, state: &[f32], dout: &[f32], d_state: &mut [f32], gradients: &mut HeadGradients) {
        let DeltaHeads { value_heads, key_dim, value_dim, .. } = self.head.heads;
        let dout = self.head.rows(dout, self.head.value_head, value_heads, value_dim, &self.range);
        let Range { start, end } = self.range;
        let mut d = self.pull_the_state_after(state, d_state);
        self.pull_the_outputs(state, dout, &mut d);
        gradients.beta[start..end].copy_from_slice(&self.pull_the_system(&mut d));
        scale_rows(&mut d.updates, &self.beta, value_dim);
        gradients.v[start * value_dim..end * value_dim].copy_from_slice(&d.updates);
        self.push_to_the_state_before(state, dout, &mut d, d_state);
        gradients.q[start * key_dim..end * key_dim].copy_from_slice(&d.q);
        gradients.k[start * key_dim..end * key_dim].copy_from_slice(&d.k);
        for i in (0..d.sums.len() - 1).rev() {
            d.sums[i] += d.sums[i + 1];
        }
        gradients.log_decay[start..end].copy_from_slice(&d.sums);
    }

    fn pull_the_state_after(&self, state: &[f32], d_state: &[f32]) -> Pulled {
        let (len, DeltaHeads { key_dim, value_dim, .. }) = (self.range.len(), self.head.heads);
        let d_state_matrix = Matrix::new(d_state, key_dim, value_dim);
        let mut updates = product(self.k, d_state_matrix, len, value_dim);
        scale_rows(&mut updates, &self.rest, value_dim);
        let mut k = product(Matrix::new(&self.updates, len, value_dim), d_state_matrix.transposed(), len, key_dim);
        scale_rows(&mut k, &self.rest, key_dim);
        let mut sums = vec![0f32; len];
        for i in 0..len {
            let moved = dot(row(&updates, i, value_dim), row(&self.updates, i, value_dim));
            sums[i] -= moved;
            sums[len - 1] += moved;
        }
        sums[len - 1] += self.decay[len - 1] * dot(d_state, state);
        Pulled { q: Vec::new(), k, updates, sums }
    }

    fn pull_the_outputs(&self, state: &[f32], dout: Matrix<'_>, d: &mut Pulled) {
        let (len, DeltaHeads { key_dim, value_dim, .. }) = (self.range.len(), self.head.heads);
        let state = Matrix::new(state, key_dim, value_dim);
        let scores = Matrix::new(&self.scores, len, len);
        multiply_accumulate(&mut d.updates, scores.transposed(), dout, 1.0, Threads::One);
        let queries_state = product(self.q, state, len, value_dim);
        for (i, sum) in d.sums.iter_mut().enumerate() {
            *sum += self.decay[i] * dot(dout.row(i), row(&queries_state, i, value_dim));
        }
        d.q = product(dout, state.transposed(), len, key_dim);
        scale_rows(&mut d.q, &self.decay, key_dim);
        let mut d_scores = product(dout, Matrix::new(&self.updates, len, value_dim).transposed(), len, len);
        for i in 0..len {
            for j in 0..len {
                let at = i * len + j;
                if j <= i {
                    let through = d_scores[at] * self.scores[at];
                    d.sums[i] += through;
                    d.sums[j] -= through;
                }
                d_scores[at] *= self.between[at];
            }
        }
        let d_scores = Matrix::new(&d_scores, len, len);
        multiply_accumulate(&mut d.q, d_scores, self.k, 1.0, Threads::One);
        multiply_accumulate(&mut d.k, d_scores.transposed(), self.q, 1.0, Threads::One);
    }

    /// Solves the transposed system, from its last row up: the gradient to the updates becomes that to the right side.
    /// Returns the gradient to the steps.
    fn pull_the_system(&self, d: &mut Pulled) -> Vec<f32> {
        let (len, value_dim) = (self.range.len(), self.head.heads.value_dim);
        for i in (0..len).rev() {
            let (before, rest) = d.updates.split_at_mut(i * value_dim);
            for (j, other) in before.chunks_exact_mut(value_dim).enumerate() {
                add_scaled(other, -(self.beta[i] * self.keys[i * len + j]), &rest[..value_dim]);
            }
        }
        let updates = Matrix::new(&self.updates, len, value_dim);
        let mut d_keys = product(Matrix::new(&d.updates, len, value_dim), updates.transposed(), len, len);
        let mut d_beta = vec![0f32; len];
        for i in 0..len {
            d_beta[i] = dot(row(&d.updates, i, value_dim), row(&self.errors, i, value_dim));
            for j in 0..i {
                let at = i * len + j;
                d_beta[i] -= d_keys[at] * self.keys[at];
                let through = -d_keys[at] * self.beta[i] * self.keys[at];
                d.sums[i] += through;
                d.sums[j] -= through;
                d_keys[at] *= -self.beta[i] * self.between[at];
            }
            d_keys[i * len + i..(i + 1) * len].fill(0.0);
        }
        let d_keys = Matrix::new(&d_keys, len, len);
        multiply_accumulate(&mut d.k, d_keys, self.k, 1.0, Threads::One);
        multiply_accumulate(&mut d.k, d_keys.transposed(), self.k, 1.0, Threads::One);
        d_beta
    }

    /// `d.updates` is the gradient to the errors here.
    fn push_to_the_state_before(&self, state: &[f32], dout: Matrix<'_>, d: &mut Pulled, d_state: &mut [f32]) {
        let (len, DeltaHeads { key_dim, value_dim, .. }) = (self.range.len(), self.head.heads);
        scale_rows(&mut d.updates, &self.decay, value_dim);
        for (i, sum) in d.sums.iter_mut().enumerate() {
            *sum -= dot(row(&d.updates, i, value_dim), row(&self.keys_state, i, value_dim));
        }
        let d_errors = Matrix::new(&d.updates, len, value_dim);
        let state = Matrix::new(state, key_dim, value_dim);
        multiply_accumulate(&mut d.k, d_errors, state.transposed(), -1.0, Threads::One);
        let mut decayed: Vec<f32> = (0..len).flat_map(|i| dout.row(i)).copied().collect();
        scale_rows(&mut decayed, &self.decay, value_dim);
        let last = self.decay[len - 1];
        d_state.iter_mut().for_each(|value| *value *= last);
        let decayed = Matrix::new(&decayed, len, value_dim);
        multiply_accumulate(d_state, self.q.transposed(), decayed, 1.0, Threads::One);
        multiply_accumulate(d_state, self.k.transposed(), d_errors, -1.0, Threads::One);
    }
}

/// Gradients of a chunk on their way from its outputs to its inputs.
struct Pulled {
    q: Vec<f32>,
    k: Vec<f32>,
    /// To `D`, then to what `D` is made of.
    updates: Vec<f32>,
    /// To the running sums `b`.
    sums: Vec<f32>,
}

fn product(a: Matrix<'_>, b: Matrix<'_>, rows: usize, columns: usize) -> Vec<f32> {
    filled(rows * columns, |out| multiply(out, a, b, 1.0, Threads::One))
}

fn row(values: &[f32], index: usize, width: usize) -> &[f32] {
    &values[index * width..][..width]
}

fn scale_rows(values: &mut [f32], factors: &[f32], width: usize) {
    for (row, factor) in values.chunks_exact_mut(width).zip(factors) {
        row.iter_mut().for_each(|value| *value *= factor);
    }
}

fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = multiply_add(factor, *value, *sum));
}
