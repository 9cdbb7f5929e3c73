//! Packing of trajectories whose targets share a history: whole where they fit; where a row has room left, some of the
//! targets of another trajectory fill it, with a copy of their history.
//!
//! A bundle's size is that of its shared document. Room is worth what it takes off the work that is left, so the subset
//! is taken that makes the rest of its bundle smallest.

use std::collections::BTreeSet;

use crate::fit::Fitted;
use crate::share::{parting, share};

/// Targets of a bundle that is weighed subset by subset; larger ones are cut into groups as they come.
const MAX_TARGETS: usize = 8;
/// Bundles looked at to fill a gap.
const MAX_CANDIDATES: usize = 256;
/// Gaps of less than one part in this many stay.
const SMALL_GAP: usize = 100;

/// The targets of one trajectory.
#[derive(Debug, Clone)]
pub(crate) struct Bundle<O> {
    pub(crate) targets: Vec<Fitted>,
    pub(crate) origin: O,
}

/// Rows of documents with their origins, and the tokens that need not be written.
pub(crate) fn pack_bundles<O: Clone>(bundles: Vec<Bundle<O>>, row_tokens: usize) -> (Vec<Vec<(Fitted, O)>>, usize) {
    let solo: usize = bundles.iter().flat_map(|bundle| &bundle.targets).map(|target| target.tokens.len()).sum();
    let mut open: Vec<Open<O>> = bundles.into_iter().flat_map(|bundle| opened(bundle, row_tokens)).collect();
    let mut sizes: BTreeSet<(usize, usize)> =
        open.iter().enumerate().map(|(number, open)| (open.size(open.rest), number)).collect();
    let (mut rows, mut written) = (Vec::new(), 0);
    while let Some(&(size, first)) = sizes.last() {
        let mut row = Vec::new();
        let mut room = row_tokens;
        let mut next = match size <= room {
            true => Some((first, open[first].rest)),
            false => open[first].best_subset(room).map(|(_, subset)| (first, subset)),
        };
        while let Some((number, subset)) = next {
            let bundle = &mut open[number];
            sizes.remove(&(bundle.size(bundle.rest), number));
            room -= bundle.size(subset);
            bundle.rest &= !subset;
            if bundle.rest != 0 {
                sizes.insert((bundle.size(bundle.rest), number));
            }
            row.extend(bundle.documents(subset, row_tokens));
            next = filler(&open, &sizes, room, row_tokens);
        }
        written += row.iter().map(|(document, _): &(Fitted, O)| document.tokens.len()).sum::<usize>();
        rows.push(row);
    }
    (rows, solo - written)
}

/// What fills the room best: the largest bundle that fits whole, else the subset that leaves the least.
fn filler<O>(
    open: &[Open<O>],
    sizes: &BTreeSet<(usize, usize)>,
    room: usize,
    row_tokens: usize,
) -> Option<(usize, u32)> {
    if let Some(&(_, number)) = sizes.range(..(room + 1, 0)).next_back() {
        return Some((number, open[number].rest));
    }
    if room < row_tokens / SMALL_GAP {
        return None;
    }
    let candidates = sizes.iter().rev().take(MAX_CANDIDATES);
    let subsets = candidates.filter_map(|&(_, number)| Some((open[number].best_subset(room)?, number)));
    let best = subsets.max_by_key(|&((gain, _), number)| (gain, std::cmp::Reverse(number)));
    best.map(|((_, subset), number)| (number, subset))
}

/// A bundle with the size of every subset of its targets; `rest` are those that are in no row yet.
struct Open<O> {
    targets: Vec<Fitted>,
    origin: O,
    sizes: Vec<usize>,
    rest: u32,
}

impl<O: Clone> Open<O> {
    fn documents(&self, subset: u32, row_tokens: usize) -> Vec<(Fitted, O)> {
        let chosen = self.targets.iter().enumerate().filter(|(at, _)| subset & (1 << at) != 0);
        let chosen = chosen.map(|(_, target)| target.clone()).collect();
        let (documents, _) = share(chosen, row_tokens);
        documents.into_iter().map(|document| (document, self.origin.clone())).collect()
    }
}

impl<O> Open<O> {
    fn size(&self, subset: u32) -> usize {
        self.sizes[subset as usize]
    }

    /// The subset within the room that takes most off the rest, and how much.
    fn best_subset(&self, room: usize) -> Option<(usize, u32)> {
        let subsets = (1..=self.rest).filter(|subset| subset & !self.rest == 0 && self.size(*subset) <= room);
        let gain = |subset: u32| self.size(self.rest) - self.size(self.rest & !subset);
        let best = subsets.map(|subset| (gain(subset), std::cmp::Reverse(self.size(subset)), subset)).max();
        best.filter(|&(gain, ..)| gain > 0).map(|(gain, _, subset)| (gain, subset))
    }
}

/// The bundle with its sizes; a large one in groups that are not cut further.
fn opened<O: Clone>(bundle: Bundle<O>, row_tokens: usize) -> Vec<Open<O>> {
    let Bundle { mut targets, origin } = bundle;
    if targets.len() > MAX_TARGETS {
        let (groups, _) = share(targets, row_tokens);
        let whole = |group: Fitted| Open {
            sizes: vec![0, group.tokens.len()],
            targets: vec![group],
            origin: origin.clone(),
            rest: 1,
        };
        return groups.into_iter().map(whole).collect();
    }
    // The longest last: it is the trunk of every subset that it is in.
    targets.sort_by_key(|target| target.tokens.len());
    let count = targets.len();
    let partings: Vec<Vec<usize>> =
        targets.iter().map(|trunk| targets.iter().map(|target| parting(trunk, target)).collect()).collect();
    let size = |subset: u32| match subset.checked_ilog2() {
        None => 0,
        Some(trunk) => {
            let trunk = trunk as usize;
            let branches = (0..trunk).filter(|branch| subset & (1 << branch) != 0);
            let own = branches.map(|branch| targets[branch].tokens.len() - partings[trunk][branch]);
            targets[trunk].tokens.len() + own.sum::<usize>()
        }
    };
    let all = (1u32 << count) - 1;
    let sizes = (0..=all).map(size).collect();
    if count == 0 { Vec::new() } else { vec![Open { targets, origin, sizes, rest: all }] }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Bundle, pack_bundles};
    use crate::fit::Fitted;
    use crate::pack::pack;
    use crate::share::share;

    /// A bundle of targets along one history of its own: what stands before a target, and how long it is.
    fn bundle(number: usize, cuts: &[(usize, usize)]) -> Bundle<usize> {
        let history: Vec<u32> = (0..60).map(|at| 1000 + number as u32 * 100 + at).collect();
        let target = |(at, &(cut, answer)): (usize, &(usize, usize))| {
            let mut tokens = history[..cut].to_vec();
            tokens.push(at as u32);
            tokens.extend(std::iter::repeat_n(50, answer));
            let weights = (0..tokens.len()).map(|at| f32::from(at > cut)).collect();
            Fitted::plain(tokens, weights)
        };
        Bundle { targets: cuts.iter().enumerate().map(target).collect(), origin: number }
    }

    fn weight(document: &Fitted) -> f32 {
        document.weights.iter().sum()
    }

    proptest! {
        #[test]
        fn every_target_is_in_one_row_and_every_token_accounted_for(
            bundles in prop::collection::vec(prop::collection::vec((2usize..60, 1usize..8), 1..9), 1..20),
            row_tokens in 70usize..200,
        ) {
            let bundles: Vec<_> = bundles.iter().enumerate().map(|(number, cuts)| bundle(number, cuts)).collect();
            let solo: usize = bundles.iter().flat_map(|b| &b.targets).map(|target| target.tokens.len()).sum();
            let mut expected = vec![0.0; bundles.len()];
            for bundle in &bundles {
                expected[bundle.origin] = bundle.targets.iter().map(weight).sum::<f32>();
            }
            let count = bundles.len();
            let (rows, saved) = pack_bundles(bundles, row_tokens);
            let written: usize = rows.iter().flatten().map(|(document, _)| document.tokens.len()).sum();
            prop_assert_eq!(solo, written + saved);
            let mut found = vec![0.0; count];
            for row in &rows {
                prop_assert!(!row.is_empty());
                prop_assert!(row.iter().map(|(document, _)| document.tokens.len()).sum::<usize>() <= row_tokens);
                for (document, origin) in row {
                    found[*origin] += weight(document);
                }
            }
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn gaps_are_filled_and_rows_are_fewer_than_with_whole_bundles() {
        let bundles: Vec<_> = (0..400)
            .map(|at| {
                let cuts = [10, 20 + at % 7, 30 + at % 11, 40 + at % 17].map(|cut| (cut, 5 + at % 3));
                bundle(at, &cuts)
            })
            .collect();
        let lengths: Vec<usize> = bundles.iter().map(|b| share(b.targets.clone(), 120).0[0].tokens.len()).collect();
        let whole = pack(&lengths, 120).len();
        let (rows, _) = pack_bundles(bundles, 120);
        assert!(rows.len() * 10 < whole * 9, "{} rows, {whole} with whole bundles", rows.len());
    }
}
