//! MinHash: a short signature of a set of shingles, of which two agree at as many places as the sets are alike.
//!
//! A *shingle* is a run of words. Place i of a *signature* holds the least value of the i-th hash over all shingles; two
//! signatures agree at a place with the probability `|A ∩ B| / |A ∪ B|` (Broder 1997). *Bands* are groups of places: two
//! texts are compared where a whole band agrees (locality-sensitive hashing).

use crate::words::{mix, runs};

/// The hashes of one number of places.
#[derive(Debug, Clone)]
pub struct MinHash {
    shingle_words: usize,
    hashes: Vec<(u64, u64)>,
}

impl MinHash {
    /// Signatures of so many places over shingles of so many words.
    pub fn new(places: usize, shingle_words: usize) -> Self {
        let number = |at: usize| mix(0x5851_f42d_4c95_7f2d_u64.wrapping_mul(at as u64 + 1));
        let hashes = (0..places).map(|at| (number(2 * at) | 1, number(2 * at + 1))).collect();
        Self { shingle_words, hashes }
    }

    /// The signature of a text's words; none for a text without words.
    pub fn signature(&self, words: &[u64]) -> Option<Vec<u32>> {
        if words.is_empty() {
            return None;
        }
        let mut least = vec![u32::MAX; self.hashes.len()];
        for shingle in runs(words, self.shingle_words) {
            for (least, (factor, offset)) in least.iter_mut().zip(&self.hashes) {
                let value = (shingle.wrapping_mul(*factor).wrapping_add(*offset) >> 32) as u32;
                *least = (*least).min(value);
            }
        }
        Some(least)
    }
}

/// The estimated Jaccard similarity of two texts: the share of places at which their signatures agree.
pub fn similarity(first: &[u32], second: &[u32]) -> f64 {
    let equal = first.iter().zip(second).filter(|(one, other)| one == other).count();
    equal as f64 / first.len().max(second.len()).max(1) as f64
}

/// The most rows per band with which texts of this similarity still meet in some band in 99 of 100 cases:
/// `1 − (1 − s^rows)^bands ≥ 0.99`.
pub fn rows_per_band(places: usize, similarity: f64) -> usize {
    let meets = |rows: usize| 1.0 - (1.0 - similarity.powi(rows as i32)).powi((places / rows) as i32) >= 0.99;
    (1..=places).rev().find(|rows| meets(*rows)).unwrap_or(1)
}

/// A number for each band of a signature; bands of different places differ.
pub fn band_keys(signature: &[u32], rows: usize) -> impl Iterator<Item = u64> {
    let bands = signature.chunks_exact(rows.max(1)).enumerate();
    bands.map(|(band, places)| places.iter().fold(mix(band as u64 + 1), |key, place| mix(key ^ u64::from(*place))))
}

/// A signature as it is stored.
pub(crate) fn to_bytes(signature: &[u32]) -> Vec<u8> {
    signature.iter().flat_map(|place| place.to_le_bytes()).collect()
}

/// A signature as it was stored.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|place| u32::from_le_bytes([place[0], place[1], place[2], place[3]])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn jaccard(first: &[u64], second: &[u64], shingle_words: usize) -> f64 {
        let set = |words: &[u64]| runs(words, shingle_words).collect::<BTreeSet<u64>>();
        let (first, second) = (set(first), set(second));
        first.intersection(&second).count() as f64 / first.union(&second).count().max(1) as f64
    }

    proptest! {
        /// A text and a copy of it with a part replaced.
        #[test]
        fn signatures_agree_as_often_as_the_sets_are_alike(
            words in prop::collection::vec(0u64..500, 20..400), from in 0.0f64..1.0, share in 0.0f64..1.0,
        ) {
            let words: Vec<u64> = words.into_iter().map(mix).collect();
            let mut other = words.clone();
            let start = (from * words.len() as f64) as usize;
            let end = (start + (share * words.len() as f64) as usize).min(words.len());
            other[start..end].iter_mut().for_each(|word| *word = mix(*word ^ 77));
            let hashes = MinHash::new(1024, 3);
            let (one, two) = (hashes.signature(&words).unwrap(), hashes.signature(&other).unwrap());
            let expected = jaccard(&words, &other, 3);
            // Five standard deviations of a share of 1,024 places, plus one place.
            let tolerance = 5.0 * (expected * (1.0 - expected) / 1024.0).sqrt() + 1.0 / 1024.0;
            let found = similarity(&one, &two);
            prop_assert!((found - expected).abs() <= tolerance, "{} instead of {}", found, expected);
        }

        #[test]
        fn equal_texts_share_all_bands_and_a_stored_signature_is_the_same(
            words in prop::collection::vec(any::<u64>(), 1..50), rows in 1usize..16,
        ) {
            let signature = MinHash::new(64, 5).signature(&words).unwrap();
            let keys: Vec<u64> = band_keys(&signature, rows).collect();
            prop_assert_eq!(keys.len(), 64 / rows);
            prop_assert_eq!(&keys, &band_keys(&signature, rows).collect::<Vec<_>>());
            prop_assert_eq!(from_bytes(&to_bytes(&signature)), signature);
        }
    }

    #[test]
    fn bands_are_as_wide_as_the_threshold_allows() {
        for (places, threshold, rows) in [(128, 0.8, 6), (128, 0.5, 3), (128, 0.95, 16), (64, 1.0, 64)] {
            assert_eq!(rows_per_band(places, threshold), rows, "{places} places at {threshold}");
        }
    }

    #[test]
    fn a_text_without_words_has_no_signature() {
        assert_eq!(MinHash::new(8, 5).signature(&[]), None);
    }
}
