//! Words: what the five dimensions count.
//!
//! A *phrase* is one of the fixed messages of the system (`No such file or directory`). It counts as one word, so that
//! an error with the wrong file name is not half right for its boilerplate. A *piece* is a part of a word: it ends
//! after `/`, `:`, `=` or `,`, so that a path with one wrong component is mostly right.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::bash::PHRASES;
use crate::text::{comparable, lines, pattern};

/// Joins the words of a phrase.
const JOINT: &str = "\u{1}";

/// A text prepared for comparison.
pub(crate) struct Prepared {
    /// Normalised and masked.
    pub(crate) text: String,
    /// The same with each phrase as one word.
    pub(crate) joined: String,
}

impl Prepared {
    pub(crate) fn new(text: &str) -> Self {
        let text = comparable(text);
        let joined = join_phrases(&text);
        Prepared { text, joined }
    }

    pub(crate) fn lines(&self) -> impl Iterator<Item = &str> {
        lines(&self.text)
    }

    pub(crate) fn num_lines(&self) -> usize {
        self.lines().count()
    }

    /// Words between blanks, a phrase as one.
    pub(crate) fn words(&self) -> impl Iterator<Item = &str> {
        self.joined.split_whitespace()
    }

    pub(crate) fn num_words(&self) -> usize {
        self.words().count()
    }

    /// Pieces in the order of the text, whatever the layout and the markup.
    pub(crate) fn pieces(&self) -> Vec<&str> {
        pieces_of(&self.joined).collect()
    }
}

/// Pieces of a text.
pub(crate) fn pieces_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split_whitespace().filter(|word| !is_markup(word));
    words.flat_map(|word| word.split_inclusive(['/', ':', '=', ',']))
}

/// Whether a word is a joined phrase.
pub(crate) fn is_phrase(word: &str) -> bool {
    word.contains(JOINT)
}

/// A fence or a chat token.
pub(crate) fn is_markup(word: &str) -> bool {
    word.starts_with("```") || word.starts_with("<|") && word.ends_with("|>")
}

/// A word without the punctuation around it.
pub(crate) fn bare(word: &str) -> &str {
    const AROUND: [char; 20] =
        [',', ':', ';', '(', ')', '[', ']', '{', '}', '"', '\'', '`', '‘', '’', '<', '>', '!', '?', '*', '|'];
    let word = word.trim_matches(AROUND);
    if word.len() > 1 { word.trim_end_matches('/') } else { word }
}

/// Smaller by larger: 1 for equal counts, 0 where only one is 0.
pub(crate) fn ratio(left: usize, right: usize) -> f64 {
    if left == right { 1.0 } else { left.min(right) as f64 / left.max(right) as f64 }
}

/// Length of the longest common subsequence, by bit-parallel rows (Hyyrö 2004): exact, in time
/// `left · right / 64`, so that a long observation costs no more than a moment.
pub(crate) fn common_in_order(left: &[&str], right: &[&str]) -> usize {
    let num_blocks = left.len().div_ceil(64);
    let mut places: HashMap<&str, Vec<u64>> = HashMap::new();
    for (place, word) in left.iter().enumerate() {
        places.entry(word).or_insert_with(|| vec![0; num_blocks])[place / 64] |= 1 << (place % 64);
    }
    let mut row = vec![u64::MAX; num_blocks];
    for word in right {
        let Some(places) = places.get(word) else { continue };
        let mut carry = false;
        for (block, places) in row.iter_mut().zip(places) {
            let hits = *block & places;
            let (sum, over) = block.overflowing_add(hits);
            let (sum, over_again) = sum.overflowing_add(u64::from(carry));
            carry = over || over_again;
            *block = sum | (*block & !places);
        }
    }
    let free = row.iter().map(|block| block.count_zeros() as usize).sum::<usize>();
    free.min(left.len())
}

fn join_phrases(text: &str) -> String {
    static PHRASE: LazyLock<Regex> = LazyLock::new(|| {
        let mut phrases: Vec<String> = PHRASES.iter().map(|phrase| regex::escape(phrase)).collect();
        phrases.sort_by_key(|phrase| std::cmp::Reverse(phrase.len()));
        pattern(&phrases.join("|"))
    });
    PHRASE.replace_all(text, |found: &Captures| found[0].replace(' ', JOINT)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_one_word_and_a_path_is_cut_into_pieces() {
        let prepared = Prepared::new("cat: src/a.txt: No such file or directory");
        assert_eq!(prepared.num_words(), 3);
        let phrase = prepared.words().last().unwrap();
        assert!(is_phrase(phrase));
        assert_eq!(prepared.pieces(), ["cat:", "src/", "a.txt:", phrase]);
    }

    #[test]
    fn words_are_bared_of_what_surrounds_them() {
        let bared = ["'a.txt':", "(fig)", "src/", "/", "a-b", "..."].map(bare);
        assert_eq!(bared, ["a.txt", "fig", "src", "/", "a-b", "..."]);
    }

    #[test]
    fn the_common_subsequence_is_that_of_the_textbook() {
        let mut state = 1u64;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let mut text = || (0..draw(150)).map(|_| ["a", "b", "c", "d"][draw(4) as usize]).collect::<Vec<_>>();
            let (left, right) = (text(), text());
            assert_eq!(common_in_order(&left, &right), textbook(&left, &right), "{left:?} {right:?}");
        }
    }

    fn textbook(left: &[&str], right: &[&str]) -> usize {
        let mut row = vec![0; right.len() + 1];
        for word in left {
            let above = row.clone();
            for place in 0..right.len() {
                row[place + 1] =
                    if *word == right[place] { above[place] + 1 } else { above[place + 1].max(row[place]) };
            }
        }
        row[right.len()]
    }
}
