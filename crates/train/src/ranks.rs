//! The processes of one training: each has the whole model and its part of every step's rows.
//!
//! A *rank* is one of them, counted from 0. Rows, order and denominators are functions of seed and step, so nothing about
//! them is exchanged: a step's micro-batches are the same as in one process and are dealt out, gradients are summed in
//! *buckets* of float32 numbers in host memory, and every rank makes the same update. Rank 0 alone writes.

use crate::error::{Error, Result};

/// Numbers that are summed at once.
const BUCKET: usize = 4 << 20;

/// What the processes of a job have in common. All of them make the same calls in the same order; a call returns when
/// every one has made it, and fails where one of them is gone.
pub trait Ranks {
    /// This process, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn count(&self) -> usize;

    /// Replaces numbers by their sums over all ranks, with the same bits on each.
    fn sum_f32(&self, values: &mut [f32]) -> Result<()>;

    /// The same in double precision.
    fn sum_f64(&self, values: &mut [f64]) -> Result<()>;

    /// Gives every rank the bytes of one.
    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()>;
}

/// One process: nothing to exchange.
#[derive(Debug, Clone, Copy, Default)]
pub struct Alone;

impl Ranks for Alone {
    fn rank(&self) -> usize {
        0
    }

    fn count(&self) -> usize {
        1
    }

    fn sum_f32(&self, _values: &mut [f32]) -> Result<()> {
        Ok(())
    }

    fn sum_f64(&self, _values: &mut [f64]) -> Result<()> {
        Ok(())
    }

    fn broadcast(&self, _from: usize, _bytes: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

/// Whether this is the rank that writes.
pub(crate) fn is_first(ranks: &dyn Ranks) -> bool {
    ranks.rank() == 0
}

/// Makes one rank's failure the failure of all: where ranks failed, the first of them keeps its error and the others get
/// [`Error::Rank`] with its words. Nobody returns before everybody has come here.
pub fn agree<T, E>(ranks: &dyn Ranks, outcome: Result<T, E>) -> Result<T, E>
where
    E: From<Error> + std::fmt::Display,
{
    if ranks.count() == 1 {
        return outcome;
    }
    let mut failed = vec![0.0; ranks.count()];
    failed[ranks.rank()] = f64::from(u8::from(outcome.is_err()));
    ranks.sum_f64(&mut failed)?;
    let Some(first) = failed.iter().position(|&failed| failed > 0.0) else { return outcome };
    let words = outcome.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
    let mut words = words.into_bytes();
    ranks.broadcast(first, &mut words)?;
    if first == ranks.rank() {
        return outcome;
    }
    Err(Error::Rank { rank: first, detail: String::from_utf8_lossy(&words).into_owned() }.into())
}

/// Whether any rank says yes.
pub(crate) fn any(ranks: &dyn Ranks, says_yes: bool) -> Result<bool> {
    let mut votes = [f64::from(u8::from(says_yes))];
    ranks.sum_f64(&mut votes)?;
    Ok(votes[0] > 0.0)
}

/// Refuses a value that is not rank 0's; `what` it is a part of names it.
pub(crate) fn check_same(ranks: &dyn Ranks, what: &str, value: &str) -> Result<()> {
    let mut first = value.as_bytes().to_vec();
    ranks.broadcast(0, &mut first)?;
    let outcome = match first == value.as_bytes() {
        true => Ok(()),
        false => {
            let detail = format!("{what} {value}, but rank 0 has {}", String::from_utf8_lossy(&first));
            Err(Error::Rank { rank: ranks.rank(), detail })
        }
    };
    agree(ranks, outcome)
}

/// Sums numbers over all ranks, a bucket at a time.
pub(crate) fn sum_buckets<'a>(ranks: &dyn Ranks, slices: impl Iterator<Item = &'a mut [f32]>) -> Result<()> {
    if ranks.count() == 1 {
        return Ok(());
    }
    let (mut bucket, mut pieces) = (Vec::with_capacity(BUCKET), Vec::new());
    for mut rest in slices {
        while !rest.is_empty() {
            let (piece, after) = rest.split_at_mut(rest.len().min(BUCKET - bucket.len()));
            bucket.extend_from_slice(piece);
            pieces.push(piece);
            rest = after;
            if bucket.len() == BUCKET {
                sum_bucket(ranks, &mut bucket, &mut pieces)?;
            }
        }
    }
    sum_bucket(ranks, &mut bucket, &mut pieces)
}

fn sum_bucket(ranks: &dyn Ranks, bucket: &mut Vec<f32>, pieces: &mut Vec<&mut [f32]>) -> Result<()> {
    ranks.sum_f32(bucket)?;
    let mut from = 0;
    for piece in pieces.drain(..) {
        piece.copy_from_slice(&bucket[from..from + piece.len()]);
        from += piece.len();
    }
    bucket.clear();
    Ok(())
}

/// Deals a step's micro-batches out, the next one to whoever has the least to compute: the numbers of this rank's.
pub(crate) fn dealt(ranks: &dyn Ranks, costs: &[usize]) -> Vec<usize> {
    let mut loads = vec![0; ranks.count()];
    let mut mine = Vec::new();
    for (number, cost) in costs.iter().enumerate() {
        let least = (0..loads.len()).min_by_key(|&rank| loads[rank]).unwrap_or(0);
        loads[least] += cost.max(&1);
        if least == ranks.rank() {
            mine.push(number);
        }
    }
    mine
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A rank whose sums are those of so many equal ones.
    struct Equal(usize, usize);

    impl Ranks for Equal {
        fn rank(&self) -> usize {
            self.0
        }

        fn count(&self) -> usize {
            self.1
        }

        fn sum_f32(&self, values: &mut [f32]) -> Result<()> {
            values.iter_mut().for_each(|value| *value *= self.1 as f32);
            Ok(())
        }

        fn sum_f64(&self, _values: &mut [f64]) -> Result<()> {
            Ok(())
        }

        fn broadcast(&self, _from: usize, _bytes: &mut Vec<u8>) -> Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn every_micro_batch_is_dealt_to_one_rank(costs in proptest::collection::vec(0usize..99, 0..40), count in 1usize..7) {
            let mut all: Vec<usize> = (0..count).flat_map(|rank| dealt(&Equal(rank, count), &costs)).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..costs.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn loads_are_even_where_the_longest_come_first() {
        let costs = [9, 7, 6, 5, 4, 3];
        let load = |rank| dealt(&Equal(rank, 2), &costs).iter().map(|&at| costs[at]).sum::<usize>();
        assert_eq!([load(0), load(1)], [17, 17]);
        assert_eq!(dealt(&Alone, &costs), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn buckets_sum_every_number_once_wherever_slices_end() {
        let mut slices: Vec<Vec<f32>> =
            [3, BUCKET - 1, 0, 1, BUCKET + 5, 2 * BUCKET, 7].map(|len| vec![1.0; len]).into();
        sum_buckets(&Equal(0, 3), slices.iter_mut().map(Vec::as_mut_slice)).unwrap();
        assert!(slices.iter().flatten().all(|&value| value == 3.0));
    }
}
