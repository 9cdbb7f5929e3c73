//! The order of training: a seeded permutation of row numbers for each epoch, with random access.
//!
//! Position `p` counts rows drawn since the start of the run; it lies in epoch `p / len`. The row at a position is a
//! function of seed and position alone, so resuming is a seek and nothing about the order has to be saved.

use crate::seeds::{Purpose, split_seed};

const ROUNDS: u64 = 6;

/// A permutation of `0..len` per epoch: a Feistel network on the next power of four, walked until it lands inside
/// (Black and Rogaway, CT-RSA 2002, "cycle walking").
#[derive(Debug, Clone, Copy)]
pub struct Order {
    len: u64,
    half_bits: u32,
    seed: u64,
}

impl Order {
    /// The orders of `len` rows; `len` must not be 0.
    pub fn new(len: usize, seed: u64) -> Self {
        assert!(len > 0, "an order needs at least one row");
        let len = len as u64;
        let bits = u64::BITS - (len - 1).leading_zeros();
        Self { len, half_bits: bits.div_ceil(2).max(1), seed }
    }

    /// The row at this position.
    pub fn at(&self, position: u64) -> usize {
        let (epoch, mut value) = (position / self.len, position % self.len);
        let key = split_seed(self.seed, Purpose::Data, epoch);
        loop {
            value = self.permute(value, key);
            if value < self.len {
                return value as usize;
            }
        }
    }

    fn permute(&self, value: u64, key: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..ROUNDS {
            let mixed = mix(right ^ key.rotate_left(round as u32 * 11).wrapping_add(round));
            (left, right) = (right, left ^ (mixed & mask));
        }
        (left << self.half_bits) | right
    }
}

/// The finaliser of splitmix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_epoch_visits_every_row_once(len in 1usize..400, seed: u64, epoch in 0u64..5) {
            let order = Order::new(len, seed);
            let mut rows: Vec<usize> = (0..len as u64).map(|at| order.at(epoch * len as u64 + at)).collect();
            rows.sort_unstable();
            prop_assert_eq!(rows, (0..len).collect::<Vec<_>>());
        }
    }

    #[test]
    fn epochs_and_seeds_differ() {
        let list = |seed, epoch: u64| (0..100).map(|at| Order::new(100, seed).at(epoch * 100 + at)).collect::<Vec<_>>();
        assert_ne!(list(1, 0), list(1, 1));
        assert_ne!(list(1, 0), list(2, 0));
        assert_ne!(list(1, 0), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_row_lands_anywhere() {
        let mean = (0..2000).map(|seed| Order::new(10, seed).at(0)).sum::<usize>() as f64 / 2000.0;
        assert!((mean - 4.5).abs() < 0.3, "mean of the first row over seeds is {mean}, expected about 4.5");
    }
}
