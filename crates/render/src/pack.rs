//! Packing: which documents share a row, and the row made of them.

use std::collections::BTreeMap;

use worldloom_schema::Row;

use crate::fit::Fitted;

/// Powers of a length that say what a document in a row is worth: 1 fills this row best, and a row of two documents as gladly
/// as one of five; a higher power keeps the short documents for later rows.
const POWERS: [fn(f64) -> f64; 4] = [
    |length| length,
    |length| length * length.sqrt(),
    |length| length * (length * length.sqrt()).sqrt(),
    |length| length * length,
];
/// Where this many of the longest document that is left fit, it is taken without a look at what goes beside it.
const ROOM_FOR_MANY: usize = 4;

/// Groups of document numbers, as few as any of the powers gives.
pub(crate) fn pack(lengths: &[usize], row_tokens: usize) -> Vec<Vec<usize>> {
    let packed = POWERS.map(|power| {
        let worth: Vec<f64> = (0..=row_tokens).map(|length| power(length as f64)).collect();
        pack_by(lengths, row_tokens, &worth)
    });
    packed.into_iter().min_by_key(Vec::len).unwrap_or_default()
}

/// Row after row: the longest document that is left, then again and again the longer one of the two that are worth most.
fn pack_by(lengths: &[usize], row_tokens: usize, worth: &[f64]) -> Vec<Vec<usize>> {
    let mut left = Left::of(lengths);
    let mut rows = Vec::new();
    while let Some(longest) = left.lengths.len().checked_sub(1) {
        let (mut row, mut room, mut next) = (Vec::new(), row_tokens, Some(longest));
        while let Some(at) = next {
            room = room.saturating_sub(left.lengths[at]);
            row.extend(left.take(at));
            next = left.best(room, worth);
        }
        rows.push(row);
    }
    rows
}

/// Documents that are in no row yet, by length.
struct Left {
    /// From the shortest to the longest.
    lengths: Vec<usize>,
    /// The documents of each length, the first one last.
    documents: Vec<Vec<usize>>,
}

impl Left {
    fn of(lengths: &[usize]) -> Self {
        let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (document, &length) in lengths.iter().enumerate().rev() {
            by_length.entry(length).or_default().push(document);
        }
        let (lengths, documents) = by_length.into_iter().unzip();
        Self { lengths, documents }
    }

    fn take(&mut self, at: usize) -> Option<usize> {
        let document = self.documents[at].pop();
        if self.documents[at].is_empty() {
            self.lengths.remove(at);
            self.documents.remove(at);
        }
        document
    }

    /// The length to go on with: of the one or two documents within `room` that are worth most, the longer one.
    fn best(&self, room: usize, worth: &[f64]) -> Option<usize> {
        let fitting = self.lengths.partition_point(|&length| length <= room);
        let longest = fitting.checked_sub(1)?;
        if room / ROOM_FOR_MANY > self.lengths[longest] {
            return Some(longest);
        }
        let (mut best, mut most) = (longest, 0.0);
        // As the longer one shrinks, more lengths fit beside it.
        let mut beside = 0;
        for at in (0..fitting).rev() {
            let of_longer = worth[self.lengths[at]];
            if 2.0 * of_longer <= most {
                break;
            }
            beside +=
                self.lengths[beside..fitting].iter().take_while(|&&other| other <= room - self.lengths[at]).count();
            // The shorter one is no longer than this, and another document.
            let shorter = if self.documents[at].len() > 1 { at + 1 } else { at };
            let of_shorter = beside.min(shorter).checked_sub(1).map_or(0.0, |other| worth[self.lengths[other]]);
            if of_longer + of_shorter > most {
                (best, most) = (at, of_longer + of_shorter);
            }
        }
        Some(best)
    }
}

/// One row of several documents: positions restart, segments count up; a document's pieces are segments of their own.
pub(crate) fn row_of<'a>(documents: impl IntoIterator<Item = (&'a Fitted, &'a str)>) -> Row {
    let mut row = Row::default();
    for (document, source) in documents {
        row.tokens.extend_from_slice(&document.tokens);
        row.weights.extend_from_slice(&document.weights);
        let first = row.continues.len();
        let mut ends: Vec<u32> = Vec::with_capacity(document.pieces.len());
        for piece in &document.pieces {
            let start = piece.continues.map_or(0, |parent| ends[parent]);
            let end = start + piece.length as u32;
            ends.push(end);
            row.positions.extend(start..end);
            row.segments.extend(std::iter::repeat_n(row.continues.len() as u32, piece.length));
            row.continues.push(piece.continues.map_or(-1, |parent| (first + parent) as i32));
            row.sources.push(source.into());
        }
    }
    row
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Fitted, pack, row_of};

    proptest! {
        #[test]
        fn packing_keeps_every_document_once_and_no_row_overflows(lengths in prop::collection::vec(1usize..=64, 0..200)) {
            let rows = pack(&lengths, 64);
            let mut seen: Vec<usize> = rows.concat();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for row in &rows {
                prop_assert!(!row.is_empty());
                prop_assert!(row.iter().map(|&document| lengths[document]).sum::<usize>() <= 64);
            }
            let total: usize = lengths.iter().sum();
            // Two rows that are both at most half full would have been one.
            prop_assert!(rows.len() <= 1 + 2 * total.div_ceil(64));
        }

        #[test]
        fn packing_isolates_documents(lengths in prop::collection::vec(1usize..=20, 1..10)) {
            let documents: Vec<Fitted> = lengths
                .iter()
                .enumerate()
                .map(|(at, &n)| Fitted::plain(vec![at as u32; n], (0..n).map(|i| f32::from(i > 0)).collect()))
                .collect();
            let row = row_of(documents.iter().map(|document| (document, "t")));
            prop_assert_eq!(row.check(), Ok(()));
            let mut at = 0;
            for (segment, document) in documents.iter().enumerate() {
                for position in 0..document.tokens.len() {
                    prop_assert_eq!(row.segments[at] as usize, segment);
                    prop_assert_eq!(row.positions[at] as usize, position);
                    prop_assert_eq!(row.tokens[at], document.tokens[position]);
                    prop_assert_eq!(row.weights[at], document.weights[position]);
                    at += 1;
                }
            }
            prop_assert_eq!(at, row.tokens.len());
        }
    }

    #[test]
    fn short_documents_leave_less_than_two_percent_waste() {
        let lengths: Vec<usize> = (0..5000).map(|i| 150 + (i * 7919) % 500).collect();
        let rows = pack(&lengths, 1024);
        let total: usize = lengths.iter().sum();
        let waste = 1.0 - total as f64 / (rows.len() * 1024) as f64;
        assert!(waste < 0.005, "waste {waste}");
    }

    #[test]
    fn documents_of_a_third_to_two_thirds_of_a_row_are_paired() {
        // Best fit decreasing leaves 6 %, the closest sums alone 2.2 %: both end with what does not go together.
        let lengths: Vec<usize> =
            (0..6000).map(|i| 230 + ((i * 7919) % 400) * ((i * 104_729) % 997) / 997 + i % 90).collect();
        let rows = pack(&lengths, 1024);
        let total: usize = lengths.iter().sum();
        let waste = 1.0 - total as f64 / (rows.len() * 1024) as f64;
        assert!(waste < 0.02, "waste {waste}");
    }

    #[test]
    fn two_that_fill_the_room_go_before_one_that_leaves_some() {
        // Beside the 50, the longest that fits is 40; 30 and 20 leave nothing.
        assert_eq!(pack(&[40, 50, 30, 20, 8, 52], 100), [vec![5, 0, 4], vec![1, 2, 3]]);
    }
}
