//! The gated delta rule (Gated DeltaNet, arXiv 2412.06464) over packed rows, chunk by chunk, forward and backward.
//!
//! Every value head has a *state* of `[key_dim, value_dim]`, zero at a document's start, and for each token
//!
//! ```text
//! S ← exp(g) S;   d = β (v − Sᵀ k);   S ← S + k dᵀ;   o = Sᵀ q
//! ```
//!
//! A *chunk* is a run of tokens of one document, counted from the document's start, so that a document has the same bits
//! wherever it lies in a row. Within a chunk, with `b` the running sum of `g`, `γ = exp(b)`, `M_ij = exp(b_i − b_j)`
//! for `j ≤ i` and `S` the state before it, all tokens are computed at once:
//!
//! ```text
//! (1 + A) D = β ∘ (V − γ ∘ K S)       A_ij = β_i M_ij (k_i · k_j),  j < i
//! O = γ ∘ Q S + P D                   P_ij = M_ij (q_i · k_j),      j ≤ i
//! S ← γ_end S + (w ∘ K)ᵀ D            w_j = exp(b_end − b_j)
//! ```
//!
//! Decays are at most 1, so no exponent is positive. The backward pass computes the states again, from the first chunk
//! on, and then goes through the chunks in reverse.

use crate::buffer::filled;
use crate::math::{dot, exp, multiply_add};
use crate::matmul::{Matrix, Threads, multiply, multiply_accumulate};
use rayon::prelude::*;
use std::ops::Range;

/// The most tokens of a chunk.
const CHUNK: usize = 64;

/// Sizes of a call. Queries and keys are `[batch, seq, key_heads, key_dim]`, values `[batch, seq, value_heads,
/// value_dim]`; value head `h` uses key head `h * key_heads / value_heads`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Rows.
    pub batch: usize,
    /// Positions of a row.
    pub seq: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values and states.
    pub value_heads: usize,
    /// Width of a query or key head.
    pub key_dim: usize,
    /// Width of a value head.
    pub value_dim: usize,
}

/// What the rule reads.
#[derive(Clone, Copy, Debug)]
pub struct DeltaInputs<'a> {
    /// Queries, scaled already.
    pub q: &'a [f32],
    /// Keys of length at most 1.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
    /// Logarithm of each token's decay, at most 0, `[batch, seq, value_heads]`.
    pub log_decay: &'a [f32],
    /// How far each token moves the state, 0 to 1, `[batch, seq, value_heads]`.
    pub beta: &'a [f32],
    /// First position of the row that each token may see, `[batch, seq]`.
    pub first_keys: &'a [u32],
}

/// Gradients of [`delta_rule`], each as its input.
#[derive(Clone, Debug)]
pub struct DeltaGradients {
    /// To the queries.
    pub q: Vec<f32>,
    /// To the keys.
    pub k: Vec<f32>,
    /// To the values.
    pub v: Vec<f32>,
    /// To the logarithms of the decays.
    pub log_decay: Vec<f32>,
    /// To the steps.
    pub beta: Vec<f32>,
}

/// The outputs `o`, `[batch, seq, value_heads, value_dim]`.
pub fn delta_rule(inputs: DeltaInputs<'_>, heads: DeltaHeads) -> Vec<f32> {
    heads.check(inputs);
    let parts: Vec<Vec<f32>> = heads.tasks().map(|head| head.forward(inputs)).collect();
    heads.join(&parts, heads.value_dim)
}

/// Gradients of [`delta_rule`].
pub fn delta_rule_backward(inputs: DeltaInputs<'_>, heads: DeltaHeads, dout: &[f32]) -> DeltaGradients {
    heads.check(inputs);
    assert_eq!(dout.len(), inputs.v.len(), "delta_rule_backward: gradient and values differ in length");
    let parts: Vec<HeadGradients> = heads.tasks().map(|head| head.backward(inputs, dout)).collect();
    let part =
        |of: fn(&HeadGradients) -> &Vec<f32>| -> Vec<&[f32]> { parts.iter().map(|p| of(p).as_slice()).collect() };
    DeltaGradients {
        q: heads.sum_of_groups(&part(|p| &p.q)),
        k: heads.sum_of_groups(&part(|p| &p.k)),
        v: heads.join(&part(|p| &p.v), heads.value_dim),
        log_decay: heads.join(&part(|p| &p.log_decay), 1),
        beta: heads.join(&part(|p| &p.beta), 1),
    }
}

impl DeltaHeads {
    fn check(&self, inputs: DeltaInputs<'_>) {
        let tokens = self.batch * self.seq;
        assert!(self.value_heads.is_multiple_of(self.key_heads), "delta_rule: uneven groups of heads");
        assert_eq!(inputs.q.len(), tokens * self.key_heads * self.key_dim, "delta_rule: queries do not fit {self:?}");
        assert_eq!(inputs.k.len(), inputs.q.len(), "delta_rule: queries and keys differ in length");
        assert_eq!(
            inputs.v.len(),
            tokens * self.value_heads * self.value_dim,
            "delta_rule: values do not fit {self:?}"
        );
        assert_eq!(inputs.log_decay.len(), tokens * self.value_heads, "delta_rule: one decay per value head");
        assert_eq!(inputs.beta.len(), tokens * self.value_heads, "delta_rule: one step per value head");
        assert_eq!(inputs.first_keys.len(), tokens, "delta_rule: one first key per position");
        for row in inputs.first_keys.chunks_exact(self.seq.max(1)) {
            let visible = row.iter().enumerate().all(|(position, &first)| first as usize <= position);
            assert!(visible && row.is_sorted(), "delta_rule: documents are not runs of positions");
        }
    }

    fn group(&self) -> usize {
        self.value_heads / self.key_heads
    }

    fn tasks(self) -> impl IndexedParallelIterator<Item = Head> {
        let heads = self;
        (0..self.batch * self.value_heads).into_par_iter().map(move |task| Head {
            heads,
            row: task / heads.value_heads,
            value_head: task % heads.value_heads,
        })
    }

    /// Heads side by side again: `parts` are `[seq, width]`, one for each row and value head.
    fn join(&self, parts: &[impl AsRef<[f32]> + Sync], width: usize) -> Vec<f32> {
        let token = self.value_heads * width;
        filled(self.batch * self.seq * token, |joined| {
            joined.par_chunks_mut((self.seq * token).max(1)).zip(parts.par_chunks(self.value_heads)).for_each(
                |(joined, parts)| {
                    for (position, joined) in joined.chunks_exact_mut(token).enumerate() {
                        for (joined, part) in joined.chunks_exact_mut(width).zip(parts) {
                            joined.copy_from_slice(&part.as_ref()[position * width..][..width]);
                        }
                    }
                },
            );
        })
    }

    /// Adds what the value heads of a group say of their key head, in order.
    fn sum_of_groups(&self, parts: &[&[f32]]) -> Vec<f32> {
        let (group, width) = (self.group(), self.key_dim);
        let token = self.key_heads * width;
        filled(self.batch * self.seq * token, |joined| {
            joined.par_chunks_mut((self.seq * token).max(1)).zip(parts.par_chunks(self.value_heads)).for_each(
                |(joined, parts)| {
                    for (position, joined) in joined.chunks_exact_mut(token).enumerate() {
                        for (joined, parts) in joined.chunks_exact_mut(width).zip(parts.chunks_exact(group)) {
                            joined.fill(0.0);
                            for part in parts {
                                add(joined, &part[position * width..][..width]);
                            }
                        }
                    }
                },
            );
        })
    }
}

/// One value head of one row of the batch.
#[derive(Clone, Copy)]
struct Head {
    heads: DeltaHeads,
    row: usize,
    value_head: usize,
}

/// Gradients of one head, `[seq, width]` each.
struct HeadGradients {
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    log_decay: Vec<f32>,
    beta: Vec<f32>,
}

impl Head {
    /// The chunks of the row, and whether a document starts with it.
    fn chunks(self, first_keys: &[u32]) -> Vec<(Range<usize>, bool)> {
        let first_keys = &first_keys[self.row * self.heads.seq..][..self.heads.seq];
        let mut chunks: Vec<(Range<usize>, bool)> = Vec::new();
        for (position, &first) in first_keys.iter().enumerate() {
            let starts = first as usize == position;
            match chunks.last_mut() {
                Some((chunk, _)) if !starts && chunk.len() < CHUNK => chunk.end = position + 1,
                _ => chunks.push((position..position + 1, starts)),
            }
        }
        chunks
    }

    fn forward(self, inputs: DeltaInputs<'_>) -> Vec<f32> {
        let (key_dim, value_dim) = (self.heads.key_dim, self.heads.value_dim);
        let mut out = vec![0f32; self.heads.seq * value_dim];
        let mut state = vec![0f32; key_dim * value_dim];
        for (range, starts) in self.chunks(inputs.first_keys) {
            if starts {
                state.fill(0.0);
            }
            let chunk = Chunk::new(self, inputs, range.clone(), &state);
            chunk.outputs(&state, &mut out[range.start * value_dim..range.end * value_dim]);
            chunk.advance(&mut state);
        }
        out
    }

    fn backward(self, inputs: DeltaInputs<'_>, dout: &[f32]) -> HeadGradients {
        let DeltaHeads { seq, key_dim, value_dim, .. } = self.heads;
        let chunks = self.chunks(inputs.first_keys);
        let mut states = Vec::with_capacity(chunks.len());
        let mut state = vec![0f32; key_dim * value_dim];
        for (range, starts) in &chunks {
            if *starts {
                state.fill(0.0);
            }
            states.push(state.clone());
            Chunk::new(self, inputs, range.clone(), &state).advance(&mut state);
        }
        let mut gradients = HeadGradients {
            q: vec![0f32; seq * key_dim],
            k: vec![0f32; seq * key_dim],
            v: vec![0f32; seq * value_dim],
            log_decay: vec![0f32; seq],
            beta: vec![0f32; seq],
        };
        let mut d_state = vec![0f32; key_dim * value_dim];
        for ((range, starts), state) in chunks.into_iter().zip(states).rev() {
            let chunk = Chunk::new(self, inputs, range, &state);
            chunk.backward(&state, dout, &mut d_state, &mut gradients);
            if starts {
                d_state.fill(0.0);
            }
        }
        gradients
    }

    /// Rows of this head in a tensor of `[batch, seq, heads, width]`.
    fn rows<'a>(self, values: &'a [f32], head: usize, heads: usize, width: usize, range: &Range<usize>) -> Matrix<'a> {
        let start = ((self.row * self.heads.seq + range.start) * heads + head) * width;
        Matrix::strided(&values[start..], range.len(), width, heads * width)
    }

    /// Numbers of this head in a tensor of `[batch, seq, value_heads]`.
    fn numbers(self, values: &[f32], range: &Range<usize>) -> Vec<f32> {
        let first = self.row * self.heads.seq;
        range.clone().map(|position| values[(first + position) * self.heads.value_heads + self.value_head]).collect()
    }
}

/// A chunk of one head, with what both passes need of it. Matrices of tokens by tokens are lower triangles.
struct Chunk<'a> {
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
    fn new(head: Head, inputs: DeltaInputs<'a>, range: Range<usize>, state: &[f32]) -> Chunk<'a> {
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

    /// `O = γ ∘ Q S + P D`
    fn outputs(&self, state: &[f32], out: &mut [f32]) {
        let (len, DeltaHeads { key_dim, value_dim, .. }) = (self.range.len(), self.head.heads);
        multiply(out, self.q, Matrix::new(state, key_dim, value_dim), 1.0, Threads::One);
        scale_rows(out, &self.decay, value_dim);
        let (scores, updates) = (Matrix::new(&self.scores, len, len), Matrix::new(&self.updates, len, value_dim));
        multiply_accumulate(out, scores, updates, 1.0, Threads::One);
    }

    /// `S ← γ_end S + (w ∘ K)ᵀ D`
    fn advance(&self, state: &mut [f32]) {
        let (len, value_dim) = (self.range.len(), self.head.heads.value_dim);
        let last = self.decay[len - 1];
        state.iter_mut().for_each(|value| *value *= last);
        let mut updates = self.updates.clone();
        scale_rows(&mut updates, &self.rest, value_dim);
        multiply_accumulate(state, self.k.transposed(), Matrix::new(&updates, len, value_dim), 1.0, Threads::One);
    }

    /// Adds the gradients of this chunk, and turns the gradient to the state after it into that to the state before it.
    fn backward(&self, state: &[f32], dout: &[f32], d_state: &mut [f32], gradients: &mut HeadGradients) {
        let (head, len) = (self.head, self.range.len());
        let DeltaHeads { value_heads, key_dim, value_dim, .. } = head.heads;
        let (q, k) = (self.q, self.k);
        let dout = head.rows(dout, head.value_head, value_heads, value_dim, &self.range);
        let updates = Matrix::new(&self.updates, len, value_dim);
        let state_matrix = Matrix::new(state, key_dim, value_dim);
        let last = self.decay[len - 1];
        // What the running sums of the logarithms of the decays get.
        let mut d_sums = vec![0f32; len];

        // The state after the chunk, and the outputs.
        let keys_d_state = product(k, Matrix::new(d_state, key_dim, value_dim), len, value_dim);
        let mut d_updates = keys_d_state.clone();
        scale_rows(&mut d_updates, &self.rest, value_dim);
        for i in 0..len {
            let moved = dot(row(&d_updates, i, value_dim), row(&self.updates, i, value_dim));
            d_sums[i] -= moved;
            d_sums[len - 1] += moved;
        }
        d_sums[len - 1] += last * dot(d_state, state);
        let scores = Matrix::new(&self.scores, len, len);
        multiply_accumulate(&mut d_updates, scores.transposed(), dout, 1.0, Threads::One);
        let mut dk = product(updates, Matrix::new(d_state, key_dim, value_dim).transposed(), len, key_dim);
        scale_rows(&mut dk, &self.rest, key_dim);
        let queries_state = product(q, state_matrix, len, value_dim);
        for (i, d_sum) in d_sums.iter_mut().enumerate() {
            *d_sum += self.decay[i] * dot(dout.row(i), row(&queries_state, i, value_dim));
        }
        let mut dq = product(dout, state_matrix.transposed(), len, key_dim);
        scale_rows(&mut dq, &self.decay, key_dim);
        let mut d_scores = product(dout, updates.transposed(), len, len);
        for i in 0..len {
            for j in 0..len {
                let at = i * len + j;
                if j <= i {
                    let through = d_scores[at] * self.scores[at];
                    d_sums[i] += through;
                    d_sums[j] -= through;
                }
                d_scores[at] *= self.between[at];
            }
        }
        let d_scores = Matrix::new(&d_scores, len, len);
        multiply_accumulate(&mut dq, d_scores, k, 1.0, Threads::One);
        multiply_accumulate(&mut dk, d_scores.transposed(), q, 1.0, Threads::One);

        // The triangular system, from its last row up; `d_updates` becomes the gradient to its right side.
        for i in (0..len).rev() {
            let (before, rest) = d_updates.split_at_mut(i * value_dim);
            for (j, other) in before.chunks_exact_mut(value_dim).enumerate() {
                add_scaled(other, -(self.beta[i] * self.keys[i * len + j]), &rest[..value_dim]);
            }
        }
        let mut d_keys = product(Matrix::new(&d_updates, len, value_dim), updates.transposed(), len, len);
        for i in 0..len {
            let mut d_beta = dot(row(&d_updates, i, value_dim), row(&self.errors, i, value_dim));
            for j in 0..len {
                let at = i * len + j;
                if j < i {
                    d_beta -= d_keys[at] * self.keys[at];
                    let through = -d_keys[at] * self.beta[i] * self.keys[at];
                    d_sums[i] += through;
                    d_sums[j] -= through;
                    d_keys[at] *= -self.beta[i] * self.between[at];
                } else {
                    d_keys[at] = 0.0;
                }
            }
            gradients.beta[self.range.start + i] = d_beta;
        }
        let d_keys = Matrix::new(&d_keys, len, len);
        multiply_accumulate(&mut dk, d_keys, k, 1.0, Threads::One);
        multiply_accumulate(&mut dk, d_keys.transposed(), k, 1.0, Threads::One);

        // The values and the state before the chunk.
        let mut d_errors = d_updates;
        scale_rows(&mut d_errors, &self.beta, value_dim);
        gradients.v[self.range.start * value_dim..self.range.end * value_dim].copy_from_slice(&d_errors);
        scale_rows(&mut d_errors, &self.decay, value_dim);
        for (i, d_sum) in d_sums.iter_mut().enumerate() {
            *d_sum -= dot(row(&d_errors, i, value_dim), row(&self.keys_state, i, value_dim));
        }
        let d_errors = Matrix::new(&d_errors, len, value_dim);
        multiply_accumulate(&mut dk, d_errors, state_matrix.transposed(), -1.0, Threads::One);
        let mut decayed: Vec<f32> = (0..len).flat_map(|i| dout.row(i)).copied().collect();
        scale_rows(&mut decayed, &self.decay, value_dim);
        d_state.iter_mut().for_each(|value| *value *= last);
        multiply_accumulate(d_state, q.transposed(), Matrix::new(&decayed, len, value_dim), 1.0, Threads::One);
        multiply_accumulate(d_state, k.transposed(), d_errors, -1.0, Threads::One);

        gradients.q[self.range.start * key_dim..self.range.end * key_dim].copy_from_slice(&dq);
        gradients.k[self.range.start * key_dim..self.range.end * key_dim].copy_from_slice(&dk);
        (0..len - 1).rev().for_each(|i| d_sums[i] += d_sums[i + 1]);
        gradients.log_decay[self.range.clone()].copy_from_slice(&d_sums);
    }
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

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}

fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum = multiply_add(factor, *value, *sum));
}
