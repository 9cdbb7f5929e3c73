//! The proof that pools are disjoint, on the files that were written.
//!
//! A value is a number of 126 bits here: that any two of 2^32 values are one by chance has a probability of 2^-63. Of more
//! than [`HELD_VALUES`] a part is looked at after the other, so that memory does not grow with the pools.

use std::path::{Path, PathBuf};

use worldloom_schema::{Pool, TableReader, Trajectory};

use crate::client::texts;
use crate::error::{Error, Result};
use crate::inputs::each_batch;
use crate::report::{Report, SharedBetween};
use crate::run::pool_file;

/// Values that are held at once: 128 MiB of them.
const HELD_VALUES: u64 = 1 << 23;
/// The bits of a number that say in which pool it is.
const POOL_BITS: u32 = 2;

/// Counts what every two pools share, where anything is an error, and the task groups of each.
pub(crate) fn check_disjoint(out: &Path, report: &mut Report) -> Result<()> {
    let files = Pool::ALL.map(|pool| out.join(pool_file(pool)));
    let (groups, ids) = (Counts::of(&files, "task_group")?, Counts::of(&files, "trajectory_id")?);
    for (at, first) in Pool::ALL.into_iter().enumerate() {
        if let Some(pool) = report.pools.get_mut(first.as_str()) {
            pool.groups = groups.0[at][at];
        }
        for (other, second) in Pool::ALL.into_iter().enumerate().skip(at + 1) {
            let (groups, ids) = (groups.0[at][other], ids.0[at][other]);
            if groups + ids > 0 {
                return Err(Error::NotDisjoint { first, second, groups, ids });
            }
            report.shared.push(SharedBetween { first, second, groups, ids });
        }
    }
    Ok(())
}

/// Different values that are in two pools, by the pools; in a pool, where both are the same.
#[derive(Debug, Default, PartialEq)]
struct Counts([[u64; Pool::ALL.len()]; Pool::ALL.len()]);

impl Counts {
    /// Of a column of the pools' files.
    fn of(files: &[PathBuf; Pool::ALL.len()], column: &str) -> Result<Self> {
        let rows: Vec<u64> =
            files.iter().map(|file| Ok(TableReader::<Trajectory>::open(file)?.num_rows())).collect::<Result<_>>()?;
        let mut counts = Self::default();
        let parts = rows.iter().sum::<u64>().div_ceil(HELD_VALUES);
        for part in 0..parts {
            let mut numbers = Vec::new();
            for (pool, file) in files.iter().enumerate() {
                each_batch(file, &[column], |batch| {
                    let values = texts(batch, column)?;
                    let of_batch = values.iter().flatten().map(number);
                    numbers.extend(
                        of_batch.filter(|number| of_part(*number, parts) == part).map(|number| number | pool as u128),
                    );
                    Ok(())
                })?;
            }
            counts.add(numbers);
        }
        Ok(counts)
    }

    /// Numbers of values with their pools; all of a value are among them.
    fn add(&mut self, mut numbers: Vec<u128>) {
        numbers.sort_unstable();
        numbers.dedup();
        for same in numbers.chunk_by(|one, other| one >> POOL_BITS == other >> POOL_BITS) {
            let pools = same.iter().map(|number| (number & ((1 << POOL_BITS) - 1)) as usize);
            for first in pools.clone() {
                pools.clone().filter(|second| *second >= first).for_each(|second| self.0[first][second] += 1);
            }
        }
    }
}

/// A value as a number, whose last bits are free.
fn number(value: &str) -> u128 {
    let hash = blake3::hash(value.as_bytes());
    let bytes = hash.as_bytes().iter().take(16);
    bytes.fold(0, |number, byte| number << 8 | u128::from(*byte)) >> POOL_BITS << POOL_BITS
}

fn of_part(number: u128, parts: u64) -> u64 {
    (number >> 64) as u64 % parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_once_in_each_pool_and_where_pools_share_them() {
        let mut counts = Counts::default();
        let of = |values: &[&str], pool: u128| values.iter().map(|value| number(value) | pool).collect::<Vec<_>>();
        counts.add([of(&["a", "b", "a"], 0), of(&["c"], 1), of(&["b", "c", "d"], 3)].concat());
        assert_eq!(counts, Counts([[2, 0, 0, 1], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 3]]));
    }

    #[test]
    fn all_numbers_of_a_value_are_in_one_part_and_parts_are_alike() {
        let parts: Vec<u64> = (0..3000).map(|at| of_part(number(&format!("group-{at}")) | (at % 4), 3)).collect();
        for part in 0..3 {
            let size = parts.iter().filter(|of| **of == part).count();
            // Five standard deviations of a share of a third of 3,000.
            assert!((870..1130).contains(&size), "{size}");
        }
        assert_eq!(of_part(number("a"), 7), of_part(number("a") | 3, 7));
    }
}
