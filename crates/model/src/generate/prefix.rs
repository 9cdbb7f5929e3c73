//! Computed prompts, kept so that a later prompt with the same beginning goes on from there.

use std::collections::VecDeque;
use std::sync::Arc;

use super::forward::{Prefilled, Workspace, prefill_from};
use super::schedule::positions_of;
use super::weights::Weights;

/// Shorter beginnings are not worth a copy.
const SHORTEST: usize = 16;

/// A prompt in work: what its sequences share.
pub(super) struct Prompt {
    tokens: Vec<u32>,
    pub(super) prefilled: Prefilled,
}

impl Prompt {
    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }
}

/// The last prompts, the latest first, up to a number of positions.
pub(super) struct Prompts {
    max_tokens: usize,
    kept: VecDeque<Arc<Prompt>>,
    pub(super) computed: u64,
    pub(super) reused: u64,
}

impl Prompts {
    pub(super) fn new(max_tokens: usize) -> Self {
        Prompts { max_tokens, kept: VecDeque::new(), computed: 0, reused: 0 }
    }

    /// Computes a prompt, and says how many of its positions were there already.
    ///
    /// Attention alone can go on from any position. A delta-net knows its state only after a whole prompt, so there a
    /// kept prompt must be the beginning of the new one.
    pub(super) fn make(&self, weights: &Weights, tokens: &[u32], workspace: &mut Workspace) -> (Arc<Prompt>, usize) {
        let is_recurrent = weights.config.design.delta_net.is_some();
        let common = |prompt: &Arc<Prompt>| {
            let same = prompt.tokens.iter().zip(tokens).take_while(|(kept, new)| kept == new).count();
            // At least one token is computed: its logits are wanted.
            let usable = same.min(tokens.len() - 1);
            if is_recurrent && usable < prompt.len() { 0 } else { usable }
        };
        let best = self.kept.iter().map(|prompt| (common(prompt), prompt)).max_by_key(|(len, _)| *len);
        let start = best.filter(|(len, _)| *len >= SHORTEST).map(|(len, prompt)| (&prompt.prefilled, len));
        let reused = start.map_or(0, |(_, len)| len);
        let prefilled = prefill_from(weights, start, tokens, workspace);
        (Arc::new(Prompt { tokens: tokens.to_vec(), prefilled }), reused)
    }

    /// Counts a prompt that was computed and keeps it, dropping the oldest as far as needed.
    pub(super) fn keep(&mut self, weights: &Weights, prompt: &Arc<Prompt>, reused: usize) {
        self.computed += (prompt.len() - reused) as u64;
        self.reused += reused as u64;
        let positions = |prompt: &Arc<Prompt>| positions_of(weights, prompt.len());
        if positions(prompt) > self.max_tokens {
            return;
        }
        self.kept.push_front(prompt.clone());
        let mut total = 0;
        self.kept.retain(|kept| {
            total += positions(kept);
            total <= self.max_tokens
        });
    }
}
