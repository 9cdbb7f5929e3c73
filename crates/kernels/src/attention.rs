//! Causal attention over packed rows, with grouped heads and exact softmax; no `[seq, seq]` matrix is kept.
//!
//! A *row* of the batch may hold several documents one after another. `first_keys` says for each position which
//! position of its row is the first it may see: its document's start. Earlier documents are skipped, not masked.
//! A *block* is a run of query positions; the query heads that share a key head are stacked, so that one product
//! serves them all.

use crate::buffer::{filled, uninitialised};
use crate::math::{dot, exp, exp_and_sum, maximum};
use crate::matmul::{Matrix, Threads, multiply, multiply_accumulate};
use rayon::prelude::*;

/// Rows of a stacked block, about: positions times the query heads of a group.
const STACKED_ROWS: usize = 96;

/// Sizes of an attention call. Queries are `[batch, seq, query_heads, head_dim]`, keys and values
/// `[batch, seq, kv_heads, head_dim]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Rows.
    pub batch: usize,
    /// Positions of a row.
    pub seq: usize,
    /// Query heads.
    pub query_heads: usize,
    /// Key and value heads; query head `h` uses key head `h * kv_heads / query_heads`.
    pub kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
}

impl Heads {
    fn group(&self) -> usize {
        self.query_heads / self.kv_heads
    }

    fn positions_per_block(&self) -> usize {
        (STACKED_ROWS / self.group()).max(8)
    }

    fn check(&self, q: &[f32], k: &[f32], v: &[f32], first_keys: &[u32]) {
        let tokens = self.batch * self.seq;
        assert!(self.query_heads.is_multiple_of(self.kv_heads), "attention: uneven groups of heads");
        assert_eq!(q.len(), tokens * self.query_heads * self.head_dim, "attention: queries do not fit {self:?}");
        assert_eq!(k.len(), tokens * self.kv_heads * self.head_dim, "attention: keys do not fit {self:?}");
        assert_eq!(v.len(), k.len(), "attention: keys and values differ in length");
        assert_eq!(first_keys.len(), tokens, "attention: one first key per position");
        for row in first_keys.chunks_exact(self.seq.max(1)) {
            let visible = row.iter().enumerate().all(|(position, &first)| first as usize <= position);
            assert!(visible && row.is_sorted(), "attention: documents are not runs of positions");
        }
    }
}

/// A run of query positions of one row, and the keys they may see together.
#[derive(Clone, Copy)]
struct Block<'a> {
    heads: Heads,
    batch: usize,
    start: usize,
    end: usize,
    first_keys: &'a [u32],
}

impl<'a> Block<'a> {
    /// `first_keys` is the whole row's.
    fn new(heads: Heads, batch: usize, start: usize, first_keys: &'a [u32]) -> Block<'a> {
        let end = (start + heads.positions_per_block()).min(heads.seq);
        Block { heads, batch, start, end, first_keys }
    }

    fn first_key(&self) -> usize {
        self.first_keys[self.start] as usize
    }

    fn num_keys(&self) -> usize {
        self.end - self.first_key()
    }

    fn stacked_rows(&self) -> usize {
        (self.end - self.start) * self.heads.group()
    }

    /// Keys (counted from the block's first) that the stacked row sees.
    fn visible(&self, stacked_row: usize) -> std::ops::Range<usize> {
        let position = self.start + stacked_row / self.heads.group();
        self.first_keys[position] as usize - self.first_key()..position + 1 - self.first_key()
    }

    /// Where the values of the group of `kv_head` at a query position begin.
    fn query_offset(&self, position: usize, kv_head: usize) -> usize {
        let Heads { seq, query_heads, head_dim, .. } = self.heads;
        ((self.batch * seq + position) * query_heads + kv_head * self.heads.group()) * head_dim
    }

    /// Copies the block's query heads of one group together, `[stacked rows, head_dim]`.
    fn stack(&self, values: &[f32], kv_head: usize, stacked: &mut [f32]) {
        let width = self.heads.group() * self.heads.head_dim;
        for (stacked, position) in stacked.chunks_exact_mut(width).zip(self.start..self.end) {
            stacked.copy_from_slice(&values[self.query_offset(position, kv_head)..][..width]);
        }
    }

    /// The visible keys (or values) of one head, `[keys, head_dim]`, where they lie.
    fn keys<'k>(&self, keys: &'k [f32], kv_head: usize) -> Matrix<'k> {
        let Heads { seq, kv_heads, head_dim, .. } = self.heads;
        let offset = ((self.batch * seq + self.first_key()) * kv_heads + kv_head) * head_dim;
        Matrix::strided(&keys[offset..], self.num_keys(), head_dim, kv_heads * head_dim)
    }
}

/// Space that one thread works in.
struct Scratch {
    queries: Vec<f32>,
    outputs: Vec<f32>,
    scores: Vec<f32>,
    gradients: Vec<f32>,
}

impl Scratch {
    fn new(heads: Heads) -> Scratch {
        let rows = heads.positions_per_block() * heads.group();
        Scratch {
            queries: uninitialised(rows * heads.head_dim),
            outputs: uninitialised(rows * heads.head_dim),
            scores: uninitialised(rows * heads.seq),
            gradients: uninitialised(rows * heads.seq),
        }
    }
}

/// `softmax(q kᵀ / sqrt(head_dim)) v` over the visible keys.
///
/// Returns the output, shaped as `q`, and the log of the softmax's denominator, `[batch, seq, query_heads]`, which the
/// backward pass needs.
pub fn attention(q: &[f32], k: &[f32], v: &[f32], first_keys: &[u32], heads: Heads) -> (Vec<f32>, Vec<f32>) {
    heads.check(q, k, v, first_keys);
    let Heads { batch, seq, query_heads, head_dim, .. } = heads;
    let mut log_sums = uninitialised(batch * seq * query_heads);
    let width = query_heads * head_dim;
    let positions = heads.positions_per_block();
    let out = filled(q.len(), |out| {
        let rows = out.par_chunks_mut(seq * width).zip(log_sums.par_chunks_mut(seq * query_heads)).enumerate();
        rows.for_each(|(batch, (out, log_sums))| {
            let first_keys = &first_keys[batch * seq..][..seq];
            out.par_chunks_mut(positions * width)
                .zip(log_sums.par_chunks_mut(positions * query_heads))
                .enumerate()
                .for_each_init(
                    || Scratch::new(heads),
                    |scratch, (index, (out, log_sums))| {
                        let block = Block::new(heads, batch, index * positions, first_keys);
                        for kv_head in 0..heads.kv_heads {
                            attend(block, kv_head, [q, k, v], scratch, out, log_sums);
                        }
                    },
                );
        });
    });
    (out, log_sums)
}

/// One group of heads of one block; writes the group's part of the block's output.
fn attend(
    block: Block<'_>,
    kv_head: usize,
    [q, k, v]: [&[f32]; 3],
    scratch: &mut Scratch,
    out: &mut [f32],
    log_sums: &mut [f32],
) {
    let Heads { query_heads, head_dim, .. } = block.heads;
    let (rows, keys, group) = (block.stacked_rows(), block.num_keys(), block.heads.group());
    let queries = &mut scratch.queries[..rows * head_dim];
    let scores = &mut scratch.scores[..rows * keys];
    let outputs = &mut scratch.outputs[..rows * head_dim];
    block.stack(q, kv_head, queries);
    let scale = 1.0 / (head_dim as f32).sqrt();
    let queries = Matrix::new(queries, rows, head_dim);
    multiply(scores, queries, block.keys(k, kv_head).transposed(), scale, Threads::One);
    let mut inverse_sums = vec![0f32; rows];
    for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
        let visible = block.visible(row);
        let max = maximum(&scores[visible.clone()]);
        let sum = exp_and_sum(&mut scores[visible.clone()], max);
        clear_outside(scores, visible);
        inverse_sums[row] = 1.0 / sum;
        log_sums[row / group * query_heads + kv_head * group + row % group] = max + sum.ln();
    }
    multiply(outputs, Matrix::new(scores, rows, keys), block.keys(v, kv_head), 1.0, Threads::One);
    for (row, (outputs, inverse_sum)) in outputs.chunks_exact(head_dim).zip(&inverse_sums).enumerate() {
        let head = row / group * query_heads + kv_head * group + row % group;
        for (out, value) in out[head * head_dim..][..head_dim].iter_mut().zip(outputs) {
            *out = value * inverse_sum;
        }
    }
}

/// What the backward pass of [`attention`] reads.
#[derive(Clone, Copy, Debug)]
pub struct Attended<'a> {
    /// Queries, keys and values of the forward pass.
    pub inputs: [&'a [f32]; 3],
    /// See [`attention`].
    pub first_keys: &'a [u32],
    /// Output of the forward pass.
    pub out: &'a [f32],
    /// Log denominators of the forward pass.
    pub log_sums: &'a [f32],
}

/// Gradients of [`attention`] to queries, keys and values; recomputes the weights block by block.
///
/// With `P` the softmax, `dV = Pᵀ dO`, `dS = P ∘ (dO Vᵀ − rowsum(dO ∘ O))`, `dQ = dS K / √d`, `dK = dSᵀ Q / √d`.
pub fn attention_backward(attended: Attended<'_>, dout: &[f32], heads: Heads) -> [Vec<f32>; 3] {
    let [q, k, v] = attended.inputs;
    heads.check(q, k, v, attended.first_keys);
    let Heads { batch, seq, query_heads, kv_heads, head_dim } = heads;
    assert_eq!(attended.out.len(), q.len(), "attention_backward: output and queries differ in length");
    assert_eq!(dout.len(), q.len(), "attention_backward: gradient and queries differ in length");
    assert_eq!(attended.log_sums.len(), batch * seq * query_heads, "attention_backward: one log sum per query head");
    let parts: Vec<[Vec<f32>; 3]> = (0..batch * kv_heads)
        .into_par_iter()
        .map_init(
            || Scratch::new(heads),
            |scratch, task| backward_of_group(attended, dout, heads, task / kv_heads, task % kv_heads, scratch),
        )
        .collect();
    let group = query_heads / kv_heads;
    let join = |part: usize, width: usize| {
        filled(batch * seq * kv_heads * width, |joined| {
            joined.par_chunks_mut(seq * kv_heads * width).zip(parts.par_chunks(kv_heads)).for_each(
                |(joined, parts)| {
                    for (position, joined) in joined.chunks_exact_mut(kv_heads * width).enumerate() {
                        for (joined, parts) in joined.chunks_exact_mut(width).zip(parts) {
                            joined.copy_from_slice(&parts[part][position * width..][..width]);
                        }
                    }
                },
            );
        })
    };
    [join(0, group * head_dim), join(1, head_dim), join(2, head_dim)]
}

/// Gradients of one key head and its query heads over one row of the batch: `[seq, group, head_dim]` and twice
/// `[seq, head_dim]`.
fn backward_of_group(
    attended: Attended<'_>,
    dout: &[f32],
    heads: Heads,
    batch: usize,
    kv_head: usize,
    scratch: &mut Scratch,
) -> [Vec<f32>; 3] {
    let Heads { seq, query_heads, head_dim, .. } = heads;
    let group = heads.group();
    let [q, k, v] = attended.inputs;
    let scale = 1.0 / (head_dim as f32).sqrt();
    let first_keys = &attended.first_keys[batch * seq..][..seq];
    let mut dq = uninitialised(seq * group * head_dim);
    let (mut dk, mut dv) = (vec![0f32; seq * head_dim], vec![0f32; seq * head_dim]);
    for start in (0..seq).step_by(heads.positions_per_block()) {
        let block = Block::new(heads, batch, start, first_keys);
        let (rows, keys) = (block.stacked_rows(), block.num_keys());
        let queries = &mut scratch.queries[..rows * head_dim];
        let douts = &mut scratch.outputs[..rows * head_dim];
        let weights = &mut scratch.scores[..rows * keys];
        let gradients = &mut scratch.gradients[..rows * keys];
        block.stack(q, kv_head, queries);
        block.stack(dout, kv_head, douts);
        let (queries, dout_rows) = (Matrix::new(queries, rows, head_dim), Matrix::new(douts, rows, head_dim));
        multiply(weights, queries, block.keys(k, kv_head).transposed(), scale, Threads::One);
        multiply(gradients, dout_rows, block.keys(v, kv_head).transposed(), 1.0, Threads::One);
        for (row, (weights, gradients)) in
            weights.chunks_exact_mut(keys).zip(gradients.chunks_exact_mut(keys)).enumerate()
        {
            let (position, head) = (start + row / group, kv_head * group + row % group);
            let query = (batch * seq + position) * query_heads + head;
            let own = dot(&attended.out[query * head_dim..][..head_dim], &douts[row * head_dim..][..head_dim]);
            let visible = block.visible(row);
            let log_sum = attended.log_sums[query];
            for (weight, gradient) in weights[visible.clone()].iter_mut().zip(&mut gradients[visible.clone()]) {
                *weight = exp(*weight - log_sum);
                *gradient = *weight * (*gradient - own) * scale;
            }
            clear_outside(weights, visible.clone());
            clear_outside(gradients, visible);
        }
        let (weights, gradients) = (Matrix::new(weights, rows, keys), Matrix::new(gradients, rows, keys));
        let seen = block.first_key() * head_dim..block.end * head_dim;
        let dq = &mut dq[start * group * head_dim..block.end * group * head_dim];
        multiply(dq, gradients, block.keys(k, kv_head), 1.0, Threads::One);
        multiply_accumulate(&mut dk[seen.clone()], gradients.transposed(), queries, 1.0, Threads::One);
        multiply_accumulate(&mut dv[seen], weights.transposed(), dout_rows, 1.0, Threads::One);
    }
    [dq, dk, dv]
}

fn clear_outside(row: &mut [f32], visible: std::ops::Range<usize>) {
    row[..visible.start].fill(0.0);
    row[visible.end..].fill(0.0);
}
