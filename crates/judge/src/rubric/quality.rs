//! Quality: nothing missing, nothing invented, the right length.
//!
//! It counts pieces only: *which* ones is factuality's matter, whose verdict limits this one (see [`super::builtin`]).

use super::Score;
use super::words::{Prepared, ratio};

pub(crate) fn score(truth: &Prepared, prediction: &Prepared) -> Score {
    Score::graded(length_ratio(truth, prediction), [0.95, 0.8, 0.6, 0.35])
}

/// Smaller by larger number of pieces.
pub(crate) fn length_ratio(truth: &Prepared, prediction: &Prepared) -> f64 {
    ratio(truth.pieces().len(), prediction.pieces().len())
}
