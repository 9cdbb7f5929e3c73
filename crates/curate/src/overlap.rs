//! What a text shares with evaluation texts: runs of words, kept as numbers (13-gram decontamination).

use std::io::{BufReader, BufWriter, Read, Write};
use std::path::Path;

use crate::error::{Error, Result};
use crate::words::runs;

/// The runs of all evaluation texts. A filter of 16 bits per run answers most questions without a search.
#[derive(Debug, Default)]
pub(crate) struct Overlaps {
    run_words: usize,
    sorted: Vec<u64>,
    filter: Vec<u64>,
}

/// What a text shares with evaluation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Overlap {
    /// Share of the text's words that stand in a shared run.
    pub(crate) share: f64,
    /// Words in a row that stand in shared runs, at most.
    pub(crate) longest: u64,
}

/// Collects the runs of evaluation texts.
#[derive(Debug)]
pub(crate) struct OverlapBuilder {
    run_words: usize,
    runs: Vec<u64>,
    sorted: usize,
}

impl OverlapBuilder {
    pub(crate) fn new(run_words: usize) -> Self {
        Self { run_words, runs: Vec::new(), sorted: 0 }
    }

    /// Adds one text by its words.
    pub(crate) fn add(&mut self, words: &[u64]) {
        self.runs.extend(runs(words, self.run_words));
        // Repetitions are dropped whenever as much has come as is kept.
        if self.runs.len() > 2 * self.sorted + (1 << 20) {
            self.sort();
        }
    }

    fn sort(&mut self) {
        self.runs.sort_unstable();
        self.runs.dedup();
        self.sorted = self.runs.len();
    }

    pub(crate) fn finish(mut self) -> Overlaps {
        self.sort();
        Overlaps::new(self.run_words, self.runs)
    }
}

impl Overlaps {
    fn new(run_words: usize, sorted: Vec<u64>) -> Self {
        let words = (sorted.len() / 4).next_power_of_two();
        let mut filter = vec![0u64; words];
        for run in &sorted {
            let (word, bit) = place(*run, words);
            filter[word] |= bit;
        }
        Self { run_words, sorted, filter }
    }

    /// Number of different runs.
    pub(crate) fn len(&self) -> usize {
        self.sorted.len()
    }

    fn contains(&self, run: u64) -> bool {
        let (word, bit) = place(run, self.filter.len());
        self.filter[word] & bit != 0 && self.sorted.binary_search(&run).is_ok()
    }

    /// Compares a text by its words.
    pub(crate) fn of(&self, words: &[u64]) -> Overlap {
        let length = self.run_words.min(words.len());
        let (mut shared, mut longest, mut current, mut covered_to) = (0, 0, 0, 0);
        for (start, run) in runs(words, self.run_words).enumerate() {
            if !self.contains(run) {
                continue;
            }
            let end = start + length;
            let new = end - covered_to.max(start);
            current = if start <= covered_to && covered_to > 0 { current + new } else { length };
            shared += new;
            covered_to = end;
            longest = longest.max(current);
        }
        Overlap { share: shared as f64 / words.len().max(1) as f64, longest: longest as u64 }
    }

    /// Writes the runs as a file that the functions of plans read.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let mut file = BufWriter::new(fs_err::File::create(path)?);
        file.write_all(&(self.run_words as u64).to_le_bytes())?;
        for run in &self.sorted {
            file.write_all(&run.to_le_bytes())?;
        }
        Ok(file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?)
    }

    /// Reads what [`Overlaps::write`] wrote.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let file = fs_err::File::open(path)?;
        let bytes = file.metadata()?.len();
        if bytes < 8 || bytes % 8 != 0 {
            let detail = format!("`{}`: {bytes} bytes are no list of runs", path.display());
            return Err(Error::Plan { plan: "evaluation overlap".into(), detail });
        }
        let mut file = BufReader::new(file);
        let mut number = || -> Result<u64> {
            let mut bytes = [0; 8];
            file.read_exact(&mut bytes)?;
            Ok(u64::from_le_bytes(bytes))
        };
        let run_words = number()? as usize;
        let sorted = (1..bytes / 8).map(|_| number()).collect::<Result<Vec<u64>>>()?;
        Ok(Self::new(run_words, sorted))
    }
}

fn place(run: u64, words: usize) -> (usize, u64) {
    ((run >> 6) as usize & (words - 1), 1 << (run & 63))
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

    fn overlap(evaluation: &[&str], text: &str) -> (f64, u64) {
        let mut builder = OverlapBuilder::new(3);
        evaluation.iter().for_each(|text| builder.add(&words(text)));
        let found = builder.finish().of(&words(text));
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
    fn a_stored_list_answers_as_before() {
        let mut builder = OverlapBuilder::new(13);
        for at in 0..3000u64 {
            builder.add(&words(&format!("{at} b c d e f g h i j k l m {}", at % 7)));
        }
        let before = builder.finish();
        assert_eq!(before.len(), 3007, "each row has a first run of its own and one of seven second ones");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs");
        before.write(&path).unwrap();
        let after = Overlaps::read(&path).unwrap();
        for text in
            ["17 b c d e f g h i j k l m 3", "b c d e f g h i j k l m 3 n", "b c d", "9000 b c d e f g h i j k l"]
        {
            assert_eq!(after.of(&words(text)), before.of(&words(text)), "{text}");
        }
        assert_eq!(after.of(&words("17 b c d e f g h i j k l m")).longest, 13);
        fs_err::write(&path, "12345").unwrap();
        assert!(Overlaps::read(&path).unwrap_err().to_string().contains("5 bytes are no list of runs"));
    }
}
