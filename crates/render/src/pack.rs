//! Packing: which documents share a row, and the row made of them.

use std::collections::BTreeMap;

use worldloom_schema::Row;

use crate::fit::Fitted;

/// Best-fit decreasing: longest first, each into the fullest row that still holds it. Groups of document numbers.
pub(crate) fn pack(lengths: &[usize], row_tokens: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&document| (std::cmp::Reverse(lengths[document]), document));
    let mut rows: Vec<Vec<usize>> = Vec::new();
    // Rows by the room that is left in them.
    let mut open: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for document in order {
        let length = lengths[document];
        let found = open.range(length..).next().map(|(&room, _)| room);
        let (row, room) = match found.and_then(|room| Some((open.get_mut(&room)?.pop()?, room))) {
            Some((row, room)) => {
                if open.get(&room).is_some_and(Vec::is_empty) {
                    open.remove(&room);
                }
                (row, room)
            }
            None => {
                rows.push(Vec::new());
                (rows.len() - 1, row_tokens)
            }
        };
        rows[row].push(document);
        if room > length {
            open.entry(room - length).or_default().push(row);
        }
    }
    rows
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
        assert!(waste < 0.02, "waste {waste}");
    }
}
