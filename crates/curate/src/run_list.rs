//! A sorted list of runs of words in a file, and whether a run is in it.
//!
//! Two bytes a run, a [`Filter`], tell most runs that are not in the list. The others are looked up in it: up to
//! [`MOST_HELD_BYTES`] it is held, four bytes a run; of a longer one a page of the file is read.

use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::error::{Error, Result};
use crate::overlap::number;

/// What a list may take in memory.
const MOST_HELD_BYTES: u64 = 256 << 20;
/// Bytes before the first run: the words of a run.
const HEAD_BYTES: u64 = 8;
/// Runs of a bucket of a list that is held, about.
const BUCKET_RUNS: u64 = 16;
/// Runs of a page of the file.
const PAGE_RUNS: usize = 512;

/// The runs of a file.
#[derive(Debug)]
pub(crate) struct RunList {
    len: u64,
    filter: Filter,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Held),
    File(Filed),
}

impl RunList {
    /// Opens a file: the words of a run, then the runs in order. The words of a run and the list.
    pub(crate) fn read(path: &Path) -> Result<(usize, Self)> {
        Self::read_within(path, MOST_HELD_BYTES)
    }

    fn read_within(path: &Path, most_bytes: u64) -> Result<(usize, Self)> {
        let (file, _) = fs_err::File::open(path)?.into_parts();
        let bytes = file.metadata()?.len();
        if bytes < HEAD_BYTES || bytes % 8 != 0 {
            let detail = format!("`{}`: {bytes} bytes are no list of runs", path.display());
            return Err(Error::Plan { plan: "evaluation overlap".into(), detail });
        }
        let len = bytes / 8 - 1;
        let mut reader = BufReader::new(&file);
        let run_words = number(&mut reader)? as usize;
        let runs = (0..len).map(|_| number(&mut reader));
        let mut filter = Filter::new(len);
        let runs = runs.inspect(|run| run.iter().for_each(|run| filter.add(*run)));
        let place = match 4 * len <= most_bytes {
            true => Place::Memory(Held::new(len, runs)?),
            false => Place::File(Filed { len, first_of_page: Filed::first_of_pages(runs)?, file }),
        };
        Ok((run_words, Self { len, filter, place }))
    }

    /// Number of runs.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether a run is in the list.
    pub(crate) fn contains(&self, run: u64) -> Result<bool> {
        if !self.filter.may_hold(run) {
            return Ok(false);
        }
        match &self.place {
            Place::Memory(held) => Ok(held.contains(run)),
            Place::File(filed) => filed.contains(run),
        }
    }
}

/// Runs in memory: the first bits of a run are the number of its bucket, the next 32 stand in it. What comes after tells
/// no two runs apart: of a hundred million runs that are not in a list of as many, about one is taken for one that is.
#[derive(Debug)]
struct Held {
    bucket_bits: u32,
    ends: Vec<u32>,
    tails: Vec<u32>,
}

impl Held {
    /// `len`: fewer than 2^32.
    fn new(len: u64, runs: impl Iterator<Item = Result<u64>>) -> Result<Self> {
        let bucket_bits = (len / BUCKET_RUNS).max(1).ilog2();
        let mut held = Self { bucket_bits, ends: vec![0; 1 << bucket_bits], tails: Vec::with_capacity(len as usize) };
        for run in runs {
            let (bucket, tail) = held.split(run?);
            held.tails.push(tail);
            held.ends[bucket] = held.tails.len() as u32;
        }
        let mut last = 0;
        for end in &mut held.ends {
            last = last.max(*end);
            *end = last;
        }
        Ok(held)
    }

    fn split(&self, run: u64) -> (usize, u32) {
        let (bucket, rest) = (u128::from(run) << self.bucket_bits >> 64, run << self.bucket_bits);
        (bucket as usize, (rest >> 32) as u32)
    }

    fn contains(&self, run: u64) -> bool {
        let (bucket, tail) = self.split(run);
        let start = bucket.checked_sub(1).map_or(0, |before| self.ends[before]);
        self.tails[start as usize..self.ends[bucket] as usize].binary_search(&tail).is_ok()
    }
}

/// Runs in their file.
#[derive(Debug)]
struct Filed {
    len: u64,
    first_of_page: Vec<u64>,
    file: File,
}

impl Filed {
    fn first_of_pages(runs: impl Iterator<Item = Result<u64>>) -> Result<Vec<u64>> {
        let mut first_of_page = Vec::new();
        for (at, run) in runs.enumerate() {
            let run = run?;
            if at % PAGE_RUNS == 0 {
                first_of_page.push(run);
            }
        }
        Ok(first_of_page)
    }

    fn contains(&self, run: u64) -> Result<bool> {
        let Some(page) = self.first_of_page.partition_point(|first| *first <= run).checked_sub(1) else {
            return Ok(false);
        };
        let first = (page * PAGE_RUNS) as u64;
        let mut bytes = [0; PAGE_RUNS * 8];
        let bytes = &mut bytes[..8 * (self.len - first).min(PAGE_RUNS as u64) as usize];
        self.file.read_exact_at(bytes, HEAD_BYTES + 8 * first)?;
        let (runs, _) = bytes.as_chunks::<8>();
        Ok(runs.binary_search_by_key(&run, |bytes| u64::from_le_bytes(*bytes)).is_ok())
    }
}

/// A Bloom filter whose bits of one run lie in one word: 16 bits a run, four of them set, so that about one in a hundred
/// runs that are not held passes.
#[derive(Debug)]
struct Filter {
    words: Vec<u64>,
}

impl Filter {
    fn new(runs: u64) -> Self {
        Self { words: vec![0; (runs / 4 + 1) as usize] }
    }

    /// The word by the high bits of the run, four of its bits by the low ones.
    fn place(&self, run: u64) -> (usize, u64) {
        let word = (u128::from(run) * self.words.len() as u128) >> 64;
        let bits = (0..4).fold(0, |bits, at| bits | 1 << ((run >> (6 * at)) & 63));
        (word as usize, bits)
    }

    fn add(&mut self, run: u64) {
        let (word, bits) = self.place(run);
        self.words[word] |= bits;
    }

    fn may_hold(&self, run: u64) -> bool {
        let (word, bits) = self.place(run);
        self.words[word] & bits == bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::mix;

    /// Numbers as far from each other as runs are.
    fn numbers(range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|at| mix(at.wrapping_mul(3))).collect()
    }

    #[test]
    fn a_list_finds_its_runs_and_no_others_in_memory_and_in_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs");
        for len in [0, 1, 2, 15, 16, 17, 511, 512, 513, 40_000] {
            let mut runs = numbers(1..len + 1);
            runs.extend([0, u64::MAX]);
            runs.sort_unstable();
            let bytes: Vec<u8> = std::iter::once(13).chain(runs.iter().copied()).flat_map(u64::to_le_bytes).collect();
            fs_err::write(&path, bytes).unwrap();
            for most_bytes in [u64::MAX, 0] {
                let (run_words, list) = RunList::read_within(&path, most_bytes).unwrap();
                assert_eq!((run_words, list.len()), (13, len + 2));
                assert_eq!(matches!(list.place, Place::Memory(_)), most_bytes > 0);
                assert!(runs.iter().all(|run| list.contains(*run).unwrap()), "{len} in {most_bytes}");
                let others = numbers(len + 1..len + 50_000);
                assert!(!others.iter().any(|run| list.contains(*run).unwrap()), "{len} in {most_bytes}");
            }
        }
    }

    #[test]
    fn the_filter_passes_few_that_it_does_not_hold() {
        let mut filter = Filter::new(100_000);
        numbers(1..100_001).into_iter().for_each(|run| filter.add(run));
        assert!(numbers(1..100_001).into_iter().all(|run| filter.may_hold(run)));
        let passed = numbers(100_001..200_001).into_iter().filter(|run| filter.may_hold(*run)).count();
        assert!(passed < 1500, "{passed} of 100,000");
    }
}
