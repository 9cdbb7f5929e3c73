//! Factuality: how much of the truth's content the prediction reproduces, false content counted against it.

use super::Score;
use super::words::{Prepared, common_in_order};

/// F1 over pieces in the order of the text: `2 · common / (truth + prediction)`. Whatever is missing or false lowers
/// it; the layout does not, that is [`super::format`].
pub(crate) fn share(truth: &Prepared, prediction: &Prepared) -> f64 {
    let (truth, prediction) = (truth.pieces(), prediction.pieces());
    match truth.len() + prediction.len() {
        0 => 1.0,
        pieces => 2.0 * common_in_order(&truth, &prediction) as f64 / pieces as f64,
    }
}

pub(crate) fn score(share: f64) -> Score {
    Score::graded(share, [0.85, 0.7, 0.5, 0.25])
}
