//! What the positions of packed rows see: the prefix that they branch from, and their own run up to themselves.

use std::ops::Range;

/// The keys that a position sees: the prefix, and its own run from `own` to itself. All count from its row's start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub(crate) prefix: Range<usize>,
    pub(crate) own: usize,
}

impl Sight {
    /// Of the three numbers of a position.
    pub(crate) fn new(numbers: &[u32]) -> Sight {
        let [start, end, own] = [0, 1, 2].map(|at| numbers[at] as usize);
        Sight { prefix: start..end, own }
    }

    /// One block of attention holds positions with the same prefix, and runs without any.
    pub(crate) fn branches_like(&self, other: &Sight) -> bool {
        self.prefix == other.prefix || (self.prefix.is_empty() && other.prefix.is_empty())
    }

    /// The position that stands `back` before `position` for one who follows what it sees, if there is one.
    pub(crate) fn before(&self, position: usize, back: usize) -> Option<usize> {
        let in_own_run = position - self.own;
        match back <= in_own_run {
            true => Some(position - back),
            false => (back - in_own_run <= self.prefix.len()).then(|| self.prefix.end - (back - in_own_run)),
        }
    }

    /// Panics unless there are three numbers for each of `tokens` positions in rows of `seq`, and nobody sees ahead.
    pub(crate) fn check(visible: &[u32], tokens: usize, seq: usize) {
        assert_eq!(visible.len(), tokens * 3, "visible keys: three numbers per position");
        for (token, sight) in visible.chunks_exact(3).map(Sight::new).enumerate() {
            let position = token % seq;
            let is_whole = sight.prefix.start <= sight.prefix.end && sight.prefix.end <= sight.own;
            assert!(is_whole && sight.own <= position, "visible keys: position {position} sees {sight:?}");
        }
    }
}
