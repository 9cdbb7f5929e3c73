//! Lengths in a few exact figures.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The spread of a length. Every different length is counted, so that the figures are exact and do not depend on order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// The sum of all.
    pub sum: u64,
    /// The mean.
    pub mean: f64,
    /// At most so long is half of them.
    pub median: u64,
    /// At most so long are nine of ten.
    pub p90: u64,
    /// The longest.
    pub max: u64,
    #[serde(skip)]
    numbers: BTreeMap<u64, u64>,
}

impl Lengths {
    /// Counts one.
    pub(super) fn add(&mut self, length: u64) {
        *self.numbers.entry(length).or_default() += 1;
    }

    /// Works out the figures.
    pub(super) fn finish(&mut self) {
        let count: u64 = self.numbers.values().sum();
        self.sum = self.numbers.iter().map(|(length, number)| length * number).sum();
        self.mean = if count == 0 { 0.0 } else { self.sum as f64 / count as f64 };
        self.median = self.at_share(count, 0.5);
        self.p90 = self.at_share(count, 0.9);
        self.max = self.numbers.keys().next_back().copied().unwrap_or(0);
    }

    /// The smallest length that is reached by this share.
    fn at_share(&self, count: u64, share: f64) -> u64 {
        let wanted = (count as f64 * share).ceil() as u64;
        let mut seen = 0;
        let reached = self.numbers.iter().find(|(_, number)| {
            seen += **number;
            seen >= wanted
        });
        reached.map_or(0, |(length, _)| *length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_exact() {
        let mut lengths = Lengths::default();
        (1..=10).rev().for_each(|length| lengths.add(length * length));
        lengths.finish();
        assert_eq!((lengths.sum, lengths.mean), (385, 38.5));
        assert_eq!((lengths.median, lengths.p90, lengths.max), (25, 81, 100));
        let mut none = Lengths::default();
        none.finish();
        assert_eq!(none, Lengths::default());
    }
}
