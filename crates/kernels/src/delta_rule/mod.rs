//! The gated delta rule (Gated DeltaNet, arXiv 2412.06464) over packed rows, chunk by chunk, forward and backward.
//!
//! Every value head has a *state* of `[key_dim, value_dim]`, zero at a document's start and at a branch's start that of the
//! prefix it branches from, and for each token
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
//! on, and then goes through the chunks in reverse; the gradient to a state is the sum over all that went on from it.

mod chunk;

use crate::buffer::filled;
use crate::matmul::Matrix;
use crate::sight::Sight;
use chunk::Chunk;
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
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
    /// The keys that each token sees, `[batch, seq, 3]`, as attention has them.
    pub visible: &'a [u32],
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
        Sight::check(inputs.visible, tokens, self.seq);
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

/// A chunk before it is computed.
struct Planned {
    range: Range<usize>,
    origin: Origin,
}

/// The state that a chunk starts from.
#[derive(Clone, Copy)]
enum Origin {
    /// A document's start.
    Nothing,
    /// That after an earlier chunk of the row: the one before, or the end of a prefix.
    Chunk(usize),
}

impl Origin {
    fn chunk(self) -> Option<usize> {
        match self {
            Origin::Nothing => None,
            Origin::Chunk(index) => Some(index),
        }
    }
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
    /// The chunks of the row. They end where a branch goes off, too.
    fn plan(self, visible: &[u32]) -> Vec<Planned> {
        let visible = &visible[self.row * self.heads.seq * 3..][..self.heads.seq * 3];
        let sights: Vec<Sight> = visible.chunks_exact(3).map(Sight::new).collect();
        let branch_points: BTreeSet<usize> =
            sights.iter().filter(|sight| !sight.prefix.is_empty()).map(|sight| sight.prefix.end).collect();
        let mut chunks: Vec<Planned> = Vec::new();
        for (position, sight) in sights.iter().enumerate() {
            let goes_on = sight.own < position && !branch_points.contains(&position);
            match chunks.last_mut() {
                Some(chunk) if goes_on && chunk.range.len() < CHUNK => chunk.range.end = position + 1,
                _ => {
                    let origin = match (sight.own < position, sight.prefix.is_empty()) {
                        (true, _) => Origin::Chunk(chunks.len() - 1),
                        (false, true) => Origin::Nothing,
                        (false, false) => {
                            let end = sight.prefix.end;
                            Origin::Chunk(chunks.partition_point(|chunk| chunk.range.end < end))
                        }
                    };
                    chunks.push(Planned { range: position..position + 1, origin });
                }
            }
        }
        chunks
    }

    /// Goes through the chunks of the row in order and shows each with the state before it.
    fn scan<'a>(self, inputs: DeltaInputs<'a>, plan: &[Planned], mut show: impl FnMut(&Chunk<'a>, &[f32])) {
        let empty = vec![0f32; self.heads.key_dim * self.heads.value_dim];
        let is_branch = |index: usize| matches!(plan[index].origin, Origin::Chunk(before) if before + 1 != index);
        // States that are needed again, later in the row.
        let branch_points: BTreeSet<usize> =
            (0..plan.len()).filter(|&index| is_branch(index)).filter_map(|index| plan[index].origin.chunk()).collect();
        let mut kept: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        let mut state = empty.clone();
        for (index, planned) in plan.iter().enumerate() {
            match planned.origin {
                Origin::Nothing => state.fill(0.0),
                Origin::Chunk(before) if before + 1 == index => {}
                Origin::Chunk(before) => state.copy_from_slice(&kept[&before]),
            }
            let chunk = Chunk::new(self, inputs, planned.range.clone(), &state);
            show(&chunk, &state);
            chunk.advance(&mut state);
            if branch_points.contains(&index) {
                kept.insert(index, state.clone());
            }
        }
    }

    fn forward(self, inputs: DeltaInputs<'_>) -> Vec<f32> {
        let value_dim = self.heads.value_dim;
        let mut out = vec![0f32; self.heads.seq * value_dim];
        self.scan(inputs, &self.plan(inputs.visible), |chunk, state| {
            let Range { start, end } = chunk.range();
            chunk.outputs(state, &mut out[start * value_dim..end * value_dim]);
        });
        out
    }

    fn backward(self, inputs: DeltaInputs<'_>, dout: &[f32]) -> HeadGradients {
        let DeltaHeads { seq, key_dim, value_dim, .. } = self.heads;
        let plan = self.plan(inputs.visible);
        let mut states = Vec::with_capacity(plan.len());
        self.scan(inputs, &plan, |_, state| states.push(state.to_vec()));
        let mut gradients = HeadGradients {
            q: vec![0f32; seq * key_dim],
            k: vec![0f32; seq * key_dim],
            v: vec![0f32; seq * value_dim],
            log_decay: vec![0f32; seq],
            beta: vec![0f32; seq],
        };
        // To the states after chunks, from what went on from them.
        let mut d_states: BTreeMap<usize, Vec<f32>> = BTreeMap::new();
        for (index, (planned, state)) in plan.into_iter().zip(states).enumerate().rev() {
            let mut d_state = d_states.remove(&index).unwrap_or_else(|| vec![0f32; key_dim * value_dim]);
            let chunk = Chunk::new(self, inputs, planned.range, &state);
            chunk.backward(&state, dout, &mut d_state, &mut gradients);
            if let Origin::Chunk(before) = planned.origin {
                match d_states.get_mut(&before) {
                    Some(sum) => add(sum, &d_state),
                    None => drop(d_states.insert(before, d_state)),
                }
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

fn add(sum: &mut [f32], values: &[f32]) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
}
