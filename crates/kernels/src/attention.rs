//! Causal attention over packed rows, with grouped heads and exact softmax; no `[seq, seq]` matrix is kept.
//!
//! A *row* of the batch may hold several documents one after another, and branches that go on from an earlier part of
//! the row. `visible` says for each position which keys of its row it sees, in three numbers: the *prefix* it branches
//! from (start and end, equal where there is none) and the first key of its *own* run, which reaches to itself.
//! Everything else is skipped, not masked. A *block* is a run of query positions with one prefix, none of which
//! sees an own key before its first's; the query heads that share a key head are stacked, so that one product serves them all.
//!
//! ```text
//! row       p p p p a a a b b b c c        a prompt, two branches of it, another document
//! prefix    0-0 ... 0-4 ... 0-4 ... 10-10
//! own       0       4       7       10
//! ```

use crate::buffer::{filled, uninitialised};
use crate::math::{dot, exp, exp_and_sum, maximum};
use crate::matmul::{Matrix, Threads, multiply, multiply_accumulate, multiply_strided};
use crate::sight::Sight;
use rayon::prelude::*;
use std::ops::Range;

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

    fn check(&self, q: &[f32], k: &[f32], v: &[f32], visible: &[u32]) {
        let tokens = self.batch * self.seq;
        assert!(self.query_heads.is_multiple_of(self.kv_heads), "attention: uneven groups of heads");
        assert_eq!(q.len(), tokens * self.query_heads * self.head_dim, "attention: queries do not fit {self:?}");
        assert_eq!(k.len(), tokens * self.kv_heads * self.head_dim, "attention: keys do not fit {self:?}");
        assert_eq!(v.len(), k.len(), "attention: keys and values differ in length");
        Sight::check(visible, tokens, self.seq);
    }

    /// The blocks of one row of the batch; `visible` is that row's.
    fn blocks<'a>(&self, batch: usize, visible: &'a [u32]) -> Vec<Block<'a>> {
        let mut blocks = Vec::new();
        let mut start = 0;
        while start < self.seq {
            let first = Sight::new(&visible[start * 3..][..3]);
            let longest = (start + self.positions_per_block()).min(self.seq);
            let sights = visible[start * 3..longest * 3].chunks_exact(3).map(Sight::new);
            let len = sights.take_while(|sight| sight.branches_like(&first) && sight.own >= first.own).count();
            blocks.push(Block { heads: *self, batch, start, end: start + len, first, visible });
            start += len;
        }
        blocks
    }
}

/// A run of query positions of one row, and the keys they may see together: the prefix, then their own runs.
#[derive(Clone)]
struct Block<'a> {
    heads: Heads,
    batch: usize,
    start: usize,
    end: usize,
    /// Of its first position.
    first: Sight,
    /// The whole row's.
    visible: &'a [u32],
}

impl Block<'_> {
    /// The keys in order, as up to two runs of the row.
    fn runs(&self) -> [Range<usize>; 2] {
        [self.first.prefix.clone(), self.first.own..self.end]
    }

    /// The runs that are not empty, and where each begins among the block's keys.
    fn placed_runs(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let [prefix, own] = self.runs();
        let at = prefix.len();
        [(0, prefix), (at, own)].into_iter().filter(|(_, run)| !run.is_empty())
    }

    fn num_keys(&self) -> usize {
        self.runs().iter().map(Range::len).sum()
    }

    fn stacked_rows(&self) -> usize {
        (self.end - self.start) * self.heads.group()
    }

    /// Keys (counted in the block) that the stacked row sees: the prefix, and a run of its own.
    fn visible(&self, stacked_row: usize) -> [Range<usize>; 2] {
        let position = self.start + stacked_row / self.heads.group();
        let sight = Sight::new(&self.visible[position * 3..][..3]);
        let prefix = self.first.prefix.len();
        let own = |key: usize| prefix + key - self.first.own;
        [0..prefix, own(sight.own)..own(position + 1)]
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

    /// A run of keys (or values) of one head, `[keys, head_dim]`, where they lie.
    fn keys<'k>(&self, keys: &'k [f32], kv_head: usize, run: &Range<usize>) -> Matrix<'k> {
        let Heads { seq, kv_heads, head_dim, .. } = self.heads;
        let offset = ((self.batch * seq + run.start) * kv_heads + kv_head) * head_dim;
        Matrix::strided(&keys[offset..], run.len(), head_dim, kv_heads * head_dim)
    }

    /// `scores = scale · queries keysᵀ` over all keys of the block, `[stacked rows, keys]`.
    fn products(&self, scores: &mut [f32], queries: Matrix<'_>, keys: &[f32], kv_head: usize, scale: f32) {
        let width = self.num_keys();
        for (at, run) in self.placed_runs() {
            let keys = self.keys(keys, kv_head, &run).transposed();
            multiply_strided(&mut scores[at..], width, queries, keys, scale, Threads::One);
        }
    }

    /// `out = weights values` over all keys of the block, `[stacked rows, head_dim]`.
    fn weighted(&self, out: &mut [f32], weights: &[f32], values: &[f32], kv_head: usize) {
        let (rows, width) = (self.stacked_rows(), self.num_keys());
        for (number, (at, run)) in self.placed_runs().enumerate() {
            let weights = Matrix::strided(&weights[at..], rows, run.len(), width);
            let values = self.keys(values, kv_head, &run);
            match number {
                0 => multiply(out, weights, values, 1.0, Threads::One),
                _ => multiply_accumulate(out, weights, values, 1.0, Threads::One),
            }
        }
    }

    /// `sums += weightsᵀ queries` at the keys' places in the row; `sums` is `[seq, head_dim]`.
    fn add_to_keys(&self, sums: &mut [f32], weights: &[f32], queries: Matrix<'_>) {
        let (rows, width, head_dim) = (self.stacked_rows(), self.num_keys(), self.heads.head_dim);
        for (at, run) in self.placed_runs() {
            let weights = Matrix::strided(&weights[at..], rows, run.len(), width).transposed();
            let sums = &mut sums[run.start * head_dim..run.end * head_dim];
            multiply_accumulate(sums, weights, queries, 1.0, Threads::One);
        }
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

/// `softmax(q kᵀ / sqrt(head_dim)) v` over the visible keys; `visible` is `[batch, seq, 3]`.
///
/// Returns the output, shaped as `q`, and the log of the softmax's denominator, `[batch, seq, query_heads]`, which the
/// backward pass needs.
pub fn attention(q: &[f32], k: &[f32], v: &[f32], visible: &[u32], heads: Heads) -> (Vec<f32>, Vec<f32>) {
    heads.check(q, k, v, visible);
    let Heads { batch, seq, query_heads, head_dim, .. } = heads;
    let mut log_sums = uninitialised(batch * seq * query_heads);
    let width = query_heads * head_dim;
    let blocks: Vec<Block<'_>> =
        (0..batch).flat_map(|batch| heads.blocks(batch, &visible[batch * seq * 3..][..seq * 3])).collect();
    let out = filled(q.len(), |mut out| {
        let mut log_sums = log_sums.as_mut_slice();
        let mut tasks = Vec::with_capacity(blocks.len());
        for block in blocks {
            let positions = block.end - block.start;
            let (of_block, rest) = out.split_at_mut(positions * width);
            let (sums_of_block, sums_rest) = log_sums.split_at_mut(positions * query_heads);
            tasks.push((block, of_block, sums_of_block));
            (out, log_sums) = (rest, sums_rest);
        }
        tasks.into_par_iter().for_each_init(
            || Scratch::new(heads),
            |scratch, (block, out, log_sums)| {
                for kv_head in 0..heads.kv_heads {
                    attend(&block, kv_head, [q, k, v], scratch, out, log_sums);
                }
            },
        );
    });
    (out, log_sums)
}

/// One group of heads of one block; writes the group's part of the block's output.
fn attend(
    block: &Block<'_>,
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
    block.products(scores, Matrix::new(queries, rows, head_dim), k, kv_head, scale);
    let mut inverse_sums = vec![0f32; rows];
    for (row, scores) in scores.chunks_exact_mut(keys).enumerate() {
        let [prefix, own] = block.visible(row);
        let max = maximum(&scores[prefix.clone()]).max(maximum(&scores[own.clone()]));
        let sum = match prefix.is_empty() {
            true => exp_and_sum(&mut scores[own.clone()], max),
            false => exp_and_sum(&mut scores[prefix.clone()], max) + exp_and_sum(&mut scores[own.clone()], max),
        };
        clear_outside(scores, prefix, own);
        inverse_sums[row] = 1.0 / sum;
        log_sums[row / group * query_heads + kv_head * group + row % group] = max + sum.ln();
    }
    block.weighted(outputs, scores, v, kv_head);
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
    pub visible: &'a [u32],
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
    heads.check(q, k, v, attended.visible);
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
    let visible = &attended.visible[batch * seq * 3..][..seq * 3];
    let mut dq = uninitialised(seq * group * head_dim);
    let (mut dk, mut dv) = (vec![0f32; seq * head_dim], vec![0f32; seq * head_dim]);
    for block in heads.blocks(batch, visible) {
        let start = block.start;
        let (rows, keys) = (block.stacked_rows(), block.num_keys());
        let queries = &mut scratch.queries[..rows * head_dim];
        let douts = &mut scratch.outputs[..rows * head_dim];
        let weights = &mut scratch.scores[..rows * keys];
        let gradients = &mut scratch.gradients[..rows * keys];
        block.stack(q, kv_head, queries);
        block.stack(dout, kv_head, douts);
        let (queries, dout_rows) = (Matrix::new(queries, rows, head_dim), Matrix::new(douts, rows, head_dim));
        block.products(weights, queries, k, kv_head, scale);
        block.products(gradients, dout_rows, v, kv_head, 1.0);
        for (row, (weights, gradients)) in
            weights.chunks_exact_mut(keys).zip(gradients.chunks_exact_mut(keys)).enumerate()
        {
            let (position, head) = (start + row / group, kv_head * group + row % group);
            let query = (batch * seq + position) * query_heads + head;
            let own = dot(&attended.out[query * head_dim..][..head_dim], &douts[row * head_dim..][..head_dim]);
            let [prefix, own_run] = block.visible(row);
            let log_sum = attended.log_sums[query];
            for run in [prefix.clone(), own_run.clone()] {
                for (weight, gradient) in weights[run.clone()].iter_mut().zip(&mut gradients[run]) {
                    *weight = exp(*weight - log_sum);
                    *gradient = *weight * (*gradient - own) * scale;
                }
            }
            clear_outside(weights, prefix.clone(), own_run.clone());
            clear_outside(gradients, prefix, own_run);
        }
        let dq = &mut dq[start * group * head_dim..block.end * group * head_dim];
        block.weighted(dq, gradients, k, kv_head);
        block.add_to_keys(&mut dk, gradients, queries);
        block.add_to_keys(&mut dv, weights, dout_rows);
    }
    [dq, dk, dv]
}

fn clear_outside(row: &mut [f32], prefix: Range<usize>, own: Range<usize>) {
    row[prefix.end..own.start].fill(0.0);
    row[own.end..].fill(0.0);
}
