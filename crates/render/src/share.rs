//! Sharing: the targets of one trajectory repeat its history, so one document holds the history once and the others
//! branch off where they part from it.
//!
//! ```text
//! target 2   s s 1 1 2 2 T          the longest is the trunk, cut where others leave it
//! target 1   s s 1 x T              leaves after three tokens: a branch
//! shared     s s 1 | 1 2 2 T | x T
//! continues     -1 |       0 |   0
//! ```
//!
//! A branch sees what it would have seen alone, at the same positions, so its loss and gradients are the same. Where
//! the history is trained too (`history_weight`), it is trained once for all that share it.

use crate::fit::{Fitted, Piece};

/// The same targets in fewer tokens, each document at most `row_tokens` long; and the tokens that need not be written.
pub(crate) fn share(mut documents: Vec<Fitted>, row_tokens: usize) -> (Vec<Fitted>, usize) {
    let (mut shared, mut saved) = (Vec::new(), 0);
    // The longest last: it is the trunk. The order among equals is that of the turns.
    documents.sort_by_key(|document| document.tokens.len());
    while let Some(trunk) = documents.pop() {
        let mut length = trunk.tokens.len();
        let mut branches = Vec::new();
        let mut rest = Vec::new();
        // The longest branches first: they have most in common with the trunk.
        for document in documents.into_iter().rev() {
            let at = parting(&trunk, &document);
            let own = document.tokens.len() - at;
            if at == 0 || length + own > row_tokens {
                rest.push(document);
                continue;
            }
            length += own;
            saved += at;
            branches.push((at, document));
        }
        rest.reverse();
        documents = rest;
        shared.push(joined(trunk, branches));
    }
    (shared, saved)
}

/// Tokens the two have in common before the target of either, where neither goes on with a trained token: the first
/// token of a piece is never trained.
pub(crate) fn parting(trunk: &Fitted, document: &Fitted) -> usize {
    let common = trunk.tokens.iter().zip(&document.tokens).take_while(|(a, b)| a == b).count();
    let target = |document: &Fitted| document.reasons.iter().position(|reason| reason.is_trained()).unwrap_or(0);
    let shared = common.min(target(trunk)).min(target(document));
    let is_context = |at: usize| [trunk, document].iter().all(|document| document.weights[at] == 0.0);
    (0..=shared).rev().find(|&at| is_context(at)).unwrap_or(0)
}

/// One document of the trunk, cut where branches leave it, and the branches after it.
fn joined(trunk: Fitted, mut branches: Vec<(usize, Fitted)>) -> Fitted {
    branches.sort_by_key(|&(at, _)| at);
    let mut cuts: Vec<usize> = branches.iter().map(|&(at, _)| at).collect();
    cuts.dedup();
    let ends = cuts.iter().copied().chain([trunk.tokens.len()]);
    let starts = std::iter::once(0).chain(cuts.iter().copied());
    let mut pieces: Vec<Piece> = starts
        .zip(ends)
        .enumerate()
        .map(|(number, (start, end))| Piece { length: end - start, continues: number.checked_sub(1) })
        .collect();
    let (mut tokens, mut weights, mut reasons) = (trunk.tokens, trunk.weights, trunk.reasons);
    for (at, branch) in branches {
        let parent = cuts.partition_point(|&cut| cut < at);
        pieces.push(Piece { length: branch.tokens.len() - at, continues: Some(parent) });
        tokens.extend_from_slice(&branch.tokens[at..]);
        weights.extend_from_slice(&branch.weights[at..]);
        reasons.extend_from_slice(&branch.reasons[at..]);
    }
    Fitted { tokens, weights, reasons, pieces }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::share;
    use crate::fit::Fitted;
    use crate::pack::row_of;

    /// Tokens and weights of every target as a decoder sees them: its prefix and itself, at their positions.
    fn seen(document: &Fitted) -> Vec<(Vec<u32>, Vec<f32>)> {
        let row = row_of([(document, "t")]);
        assert_eq!(row.check(), Ok(()));
        let of_segment = |segment: usize| -> Vec<usize> {
            (0..row.tokens.len()).filter(|&at| row.segments[at] as usize == segment).collect()
        };
        let parents = |mut segment: i32| {
            let mut chain = Vec::new();
            while segment >= 0 {
                chain.push(segment as usize);
                segment = row.continues[segment as usize];
            }
            chain
        };
        let has_child = |segment: usize| row.continues.contains(&(segment as i32));
        let leaves = (0..row.continues.len()).filter(|&segment| !has_child(segment));
        let path =
            |leaf: usize| -> Vec<usize> { parents(leaf as i32).into_iter().rev().flat_map(of_segment).collect() };
        leaves
            .map(|leaf| {
                let places = path(leaf);
                let positions: Vec<u32> = places.iter().map(|&at| row.positions[at]).collect();
                assert_eq!(positions, (0..places.len() as u32).collect::<Vec<_>>());
                (places.iter().map(|&at| row.tokens[at]).collect(), places.iter().map(|&at| row.weights[at]).collect())
            })
            .collect()
    }

    proptest! {
        #[test]
        fn every_target_sees_what_it_saw_alone_and_every_token_is_accounted_for(
            history in prop::collection::vec(0u32..9, 3..60), cuts in prop::collection::vec((2usize..60, 1usize..8), 1..6),
            row_tokens in 70usize..200,
        ) {
            let documents: Vec<Fitted> = cuts
                .iter()
                .enumerate()
                .map(|(number, &(cut, answer))| {
                    let mut tokens = history[..cut.min(history.len())].to_vec();
                    let mut weights = vec![0.0; tokens.len()];
                    // A token of its own, so that no document is the beginning of another.
                    tokens.push(100 + number as u32);
                    weights.push(0.0);
                    tokens.extend(std::iter::repeat_n(50, answer));
                    weights.extend(std::iter::repeat_n(1.0, answer));
                    Fitted::plain(tokens, weights)
                })
                .collect();
            let before: usize = documents.iter().map(|document| document.tokens.len()).sum();
            let mut expected: Vec<_> = documents.iter().map(|d| (d.tokens.clone(), d.weights.clone())).collect();
            let (shared, saved) = share(documents, row_tokens);
            let after: usize = shared.iter().map(|document| document.tokens.len()).sum();
            prop_assert_eq!(before, after + saved);
            prop_assert!(shared.iter().all(|document| document.tokens.len() <= row_tokens));
            let mut found: Vec<_> = shared.iter().flat_map(seen).collect();
            let order = |a: &(Vec<u32>, Vec<f32>), b: &(Vec<u32>, Vec<f32>)| a.0.cmp(&b.0);
            found.sort_by(order);
            expected.sort_by(order);
            prop_assert_eq!(found, expected);
        }
    }
}
