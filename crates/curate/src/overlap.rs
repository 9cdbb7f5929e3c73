//! What a text shares with evaluation texts: runs of words, kept as numbers (13-gram decontamination).
//!
//! The runs lie in a file, sorted and each once, so that plans find them wherever they run; [`RunList`] looks them up. A
//! text of evaluation can be named beside its runs: it is not compared with itself.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::run_list::RunList;
use crate::words::{of_name, runs};

/// Runs that are held before they are put aside, sorted.
const HELD_RUNS: usize = 1 << 24;

/// The runs of all evaluation texts.
#[derive(Debug)]
pub(crate) struct Overlaps {
    run_words: usize,
    runs: RunList,
}

/// What a text shares with evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Overlap {
    /// Share of the text's words that stand in a shared run.
    pub(crate) share: f64,
    /// Words in a row that stand in shared runs, at most.
    pub(crate) longest: u64,
}

impl Overlaps {
    /// Opens what [`OverlapBuilder::write`] wrote.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let (run_words, runs) = RunList::read(path)?;
        Ok(Self { run_words, runs })
    }

    /// Number of different runs, and of texts that were named.
    pub(crate) fn len(&self) -> u64 {
        self.runs.len()
    }

    /// Whether this is the name of an evaluation text.
    pub(crate) fn has_named(&self, name: &str) -> Result<bool> {
        self.runs.contains(of_name(name))
    }

    /// Compares a text by its words.
    pub(crate) fn of(&self, words: &[u64]) -> Result<Overlap> {
        let length = self.run_words.min(words.len());
        let (mut shared, mut longest, mut current, mut covered_to) = (0, 0, 0, 0);
        for (start, run) in runs(words, self.run_words).enumerate() {
            if !self.runs.contains(run)? {
                continue;
            }
            let end = start + length;
            let new = end - covered_to.max(start);
            current = if start <= covered_to && covered_to > 0 { current + new } else { length };
            shared += new;
            covered_to = end;
            longest = longest.max(current);
        }
        Ok(Overlap { share: shared as f64 / words.len().max(1) as f64, longest: longest as u64 })
    }
}

/// Collects the runs of evaluation texts; what is more than it may hold lies in files without a name.
#[derive(Debug)]
pub(crate) struct OverlapBuilder {
    run_words: usize,
    folder: PathBuf,
    most: usize,
    held: Vec<u64>,
    aside: Vec<File>,
}

impl OverlapBuilder {
    /// `folder`: where there is room.
    pub(crate) fn new(run_words: usize, folder: &Path) -> Self {
        Self { run_words, folder: folder.into(), most: HELD_RUNS, held: Vec::new(), aside: Vec::new() }
    }

    /// Adds one text by its words.
    pub(crate) fn add(&mut self, words: &[u64]) -> Result<()> {
        runs(words, self.run_words).try_for_each(|run| self.push(run))
    }

    /// Names the text whose runs were added.
    pub(crate) fn name(&mut self, name: &str) -> Result<()> {
        self.push(of_name(name))
    }

    fn push(&mut self, run: u64) -> Result<()> {
        if self.held.len() == self.most {
            self.make_room()?;
        }
        self.held.push(run);
        Ok(())
    }

    /// Drops repetitions; if few were, puts the rest aside.
    fn make_room(&mut self) -> Result<()> {
        self.sort();
        if self.held.len() > self.most / 2 {
            let mut file = BufWriter::new(tempfile::tempfile_in(&self.folder)?);
            self.held.iter().try_for_each(|run| file.write_all(&run.to_le_bytes()))?;
            self.aside.push(file.into_inner().map_err(std::io::IntoInnerError::into_error)?);
            self.held.clear();
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.held.sort_unstable();
        self.held.dedup();
    }

    /// Writes the runs, sorted and each once, and opens them.
    pub(crate) fn write(mut self, path: &Path) -> Result<Overlaps> {
        self.sort();
        let mut file = BufWriter::new(fs_err::File::create(path)?);
        file.write_all(&(self.run_words as u64).to_le_bytes())?;
        let mut lists: Vec<Box<dyn Iterator<Item = Result<u64>>>> = vec![Box::new(self.held.into_iter().map(Ok))];
        for mut aside in self.aside {
            let bytes = aside.stream_position()?;
            aside.rewind()?;
            let mut reader = BufReader::new(aside);
            lists.push(Box::new((0..bytes / 8).map(move |_| number(&mut reader))));
        }
        merge(lists, |run| Ok(file.write_all(&run.to_le_bytes())?))?;
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
        Overlaps::read(path)
    }
}

/// Gives what sorted lists hold in order, each number once.
fn merge(mut lists: Vec<Box<dyn Iterator<Item = Result<u64>>>>, mut take: impl FnMut(u64) -> Result<()>) -> Result<()> {
    let mut heads = BinaryHeap::new();
    for (list, numbers) in lists.iter_mut().enumerate() {
        heads.extend(numbers.next().transpose()?.map(|number| Reverse((number, list))));
    }
    let mut last = None;
    while let Some(Reverse((number, list))) = heads.pop() {
        if last != Some(number) {
            take(number)?;
            last = Some(number);
        }
        heads.extend(lists[list].next().transpose()?.map(|number| Reverse((number, list))));
    }
    Ok(())
}

pub(crate) fn number(reader: &mut impl Read) -> Result<u64> {
    let mut bytes = [0; 8];
    reader.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::add_words;

    fn words(text: &str) -> Vec<u64> {
        let mut words = Vec::new();
        add_words(text, &mut words);
        words
    }

    /// The runs of texts, put aside whenever there are three.
    fn written(run_words: usize, texts: &[&str], folder: &Path) -> Overlaps {
        let mut builder = OverlapBuilder { most: 3, ..OverlapBuilder::new(run_words, folder) };
        texts.iter().for_each(|text| builder.add(&words(text)).unwrap());
        builder.write(&folder.join("runs")).unwrap()
    }

    fn overlap(evaluation: &[&str], text: &str) -> (f64, u64) {
        let folder = tempfile::tempdir().unwrap();
        let found = written(3, evaluation, folder.path()).of(&words(text)).unwrap();
        (found.share, found.longest)
    }

    #[test]
    fn shared_runs_are_measured_in_words_of_the_text() {
        let evaluation = ["a b c d e", "x y z"];
        assert_eq!(overlap(&evaluation, "a b c d e"), (1.0, 5));
        assert_eq!(overlap(&evaluation, "p q a b c d r s t u"), (0.4, 4));
        assert_eq!(overlap(&evaluation, "a b q c d"), (0.0, 0), "two words are no run");
        assert_eq!(overlap(&evaluation, "X, Y; z. p a b c p"), (0.75, 3), "two runs apart");
        assert_eq!(overlap(&evaluation, "a b c x y z"), (1.0, 6), "two runs in a row are one");
        assert_eq!(overlap(&evaluation, ""), (0.0, 0));
    }

    #[test]
    fn a_short_text_is_shared_when_it_is_equal() {
        assert_eq!(overlap(&["a b"], "a b"), (1.0, 2));
        assert_eq!(overlap(&["a b"], "a b c"), (0.0, 0));
    }

    #[test]
    fn every_run_is_found_and_no_other_however_little_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let texts: Vec<String> = (0..3000).map(|at| format!("{at} b c d e f g h i j k l m {}", at % 7)).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let little = written(13, &texts, folder.path());
        assert_eq!(little.len(), 3007, "each row has a first run of its own and one of seven second ones");
        let file = fs_err::read(folder.path().join("runs")).unwrap();
        let mut builder = OverlapBuilder::new(13, folder.path());
        texts.iter().rev().for_each(|text| builder.add(&words(text)).unwrap());
        let much = builder.write(&folder.path().join("runs")).unwrap();
        assert!(fs_err::read(folder.path().join("runs")).unwrap() == file, "the same bytes, held or put aside");
        for held in [&little, &much] {
            for text in &texts {
                assert_eq!(held.of(&words(text)).unwrap().longest, 14, "{text}");
            }
            for at in 3000..9000 {
                assert_eq!(held.of(&words(&format!("{at} b c d e f g h i j k l"))).unwrap().longest, 0);
            }
        }
        assert_eq!(fs_err::read_dir(folder.path()).unwrap().count(), 1, "what was put aside is gone");
    }

    #[test]
    fn a_named_text_is_told_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = OverlapBuilder { most: 3, ..OverlapBuilder::new(3, folder.path()) };
        for name in ["one", "two"] {
            builder.add(&words("a b c d")).unwrap();
            builder.name(name).unwrap();
        }
        let found = builder.write(&folder.path().join("runs")).unwrap();
        assert_eq!(["one", "two", "three", ""].map(|name| found.has_named(name).unwrap()), [true, true, false, false]);
        assert_eq!(found.len(), 4, "two runs and two names");
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs");
        fs_err::write(&path, "12345").unwrap();
        assert!(Overlaps::read(&path).unwrap_err().to_string().contains("5 bytes are no list of runs"));
        let none = OverlapBuilder::new(13, folder.path()).write(&path).unwrap();
        assert_eq!(none.of(&words("a b c")).unwrap(), Overlap { share: 0.0, longest: 0 });
    }
}
