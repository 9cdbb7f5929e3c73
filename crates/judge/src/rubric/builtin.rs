//! The judge bundled for offline use: deterministic code, the five dimensions against the true observation.
//!
//! A match (exact, or equal after masking) has 5 in everything; nothing else has. The dimensions are measured one by
//! one and then limited by each other, as the published judges do for their gates:
//! - nothing said where something is printed, or something where nothing is, is of little use in any dimension;
//! - factuality 1 leaves at most 3 for consistency and 2 for quality (1 where nothing at all is reproduced, so that
//!   padding of the right length gains nothing), factuality 2 at most 3 for quality;
//! - prose about the output (praise, narration) counts twice: each dimension is the lower of those with it and without
//!   it, realism is 1, and format and quality lose a point more. So it cannot gain.

use super::prose::ProseFilter;
use super::words::Prepared;
use super::{Judge, JudgeContext, JudgeOutcome, Score, Scores};
use super::{consistency, factuality, format, quality, realism};
use crate::text::{exact_match, normalised_match};

/// Scores by code alone. Made for the terminal; other domains are scored as text, without its error forms and prompts.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltinJudge;

impl Judge for BuiltinJudge {
    fn score(&self, context: &JudgeContext<'_>, truth: &str, prediction: &str) -> JudgeOutcome {
        if exact_match(truth, prediction) || normalised_match(truth, prediction) {
            return JudgeOutcome::Scored(Scores::FULL);
        }
        let plain = ProseFilter::new(context, truth).cut(prediction);
        let (truth, prediction) = (Prepared::new(truth), Prepared::new(prediction));
        let measured = measure(context, &truth, &prediction);
        JudgeOutcome::Scored(match plain {
            None => below_full(measured, &truth, &prediction),
            Some(plain) => punished(lower_of(measured, measure(context, &truth, &Prepared::new(&plain)))),
        })
    }
}

fn measure(context: &JudgeContext<'_>, truth: &Prepared, prediction: &Prepared) -> Scores {
    let scores = Scores {
        format: format::score(context.domain, truth, prediction),
        factuality: factuality::score(truth, prediction),
        consistency: consistency::score(context, truth, prediction),
        realism: realism::score(context, truth, prediction),
        quality: quality::score(truth, prediction),
    };
    if truth.pieces().is_empty() != prediction.pieces().is_empty() {
        mute(scores)
    } else {
        limited(scores, factuality::share(truth, prediction))
    }
}

/// One of the two texts is empty.
fn mute(scores: Scores) -> Scores {
    Scores {
        format: Score::MIN,
        factuality: Score::MIN,
        consistency: scores.consistency.min(Score(2)),
        realism: scores.realism.min(Score(2)),
        quality: Score::MIN,
    }
}

fn limited(scores: Scores, share: f64) -> Scores {
    let (consistency, quality) = match scores.factuality {
        Score(1) if share == 0.0 => (Score(3), Score::MIN),
        Score(1) => (Score(3), Score(2)),
        Score(2) => (Score::MAX, Score(3)),
        _ => (Score::MAX, Score::MAX),
    };
    Scores { consistency: scores.consistency.min(consistency), quality: scores.quality.min(quality), ..scores }
}

/// What is no match is not perfect: another length costs a point of quality, other content one of factuality, the same
/// content laid out otherwise one of format.
fn below_full(scores: Scores, truth: &Prepared, prediction: &Prepared) -> Scores {
    if scores != Scores::FULL {
        scores
    } else if quality::length_ratio(truth, prediction) < 1.0 {
        Scores { quality: Score(4), ..scores }
    } else if factuality::share(truth, prediction) < 1.0 {
        Scores { factuality: Score(4), ..scores }
    } else {
        Scores { format: Score(4), ..scores }
    }
}

fn punished(scores: Scores) -> Scores {
    Scores { format: scores.format.lowered(1), realism: Score::MIN, quality: scores.quality.lowered(1), ..scores }
}

fn lower_of(one: Scores, other: Scores) -> Scores {
    Scores {
        format: one.format.min(other.format),
        factuality: one.factuality.min(other.factuality),
        consistency: one.consistency.min(other.consistency),
        realism: one.realism.min(other.realism),
        quality: one.quality.min(other.quality),
    }
}
