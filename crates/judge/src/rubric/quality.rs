//! Quality: nothing missing, nothing invented, the right length.
//!
//! It counts words only: *which* words is factuality's matter, whose verdict limits this one (see [`super::builtin`]).

use super::Score;
use super::words::{Prepared, ratio};

pub(crate) fn score(truth: &Prepared, prediction: &Prepared) -> Score {
    Score::graded(ratio(truth.num_words(), prediction.num_words()), [0.95, 0.85, 0.65, 0.4])
}
