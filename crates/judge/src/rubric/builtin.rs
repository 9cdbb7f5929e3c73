//! The judge bundled for offline use: deterministic code, the five dimensions against the true observation.
//!
//! What a shell prints is measured as text: its words, its error messages, its columns. Elsewhere an observation that has
//! a form (JSON, a screen, a diff, a table, a list of results) is cut into its parts and measured by them
//! ([`super::structure`]), other text by its words; there what it says as a whole ([`super::headline`]: failed or not, the
//! verdict of tests, an exit status) limits the rest. A prediction that is not of the truth's form is measured as text and
//! has at most 2 for format and realism and 3 for consistency: nobody can work with half a document.
//!
//! A match (exact, or equal after masking) has 5 in everything; nothing else has. The dimensions are measured one by
//! one and then limited by each other, as the published judges do for their gates:
//! - nothing said where something is printed, or something where nothing is, is of little use in any dimension;
//! - factuality 1 leaves at most 3 for consistency and 2 for quality (1 where nothing at all is reproduced, so that
//!   padding of the right length gains nothing), factuality 2 at most 3 for quality;
//! - prose about the output (praise, narration) counts twice: each dimension is the lower of those with it and without
//!   it, realism is 1, and format and quality lose a point more. So it cannot gain.
//!
//! It compares and does not know: another true fact about the world, a plausible page that is not the recorded one, is
//! simply other content to it. Where that matters, a model has to judge.

use worldloom_schema::Domain;

use super::headline::Headline;
use super::parts::{Parts, Shape};
use super::prose::ProseFilter;
use super::structure::Cut;
use super::words::Prepared;
use super::{Judge, JudgeContext, JudgeOutcome, Score, Scores};
use super::{consistency, factuality, format, quality, realism, structure};
use crate::text::{exact_match, normalised_match};

/// Scores by code alone, in every domain.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltinJudge;

impl Judge for BuiltinJudge {
    fn score(&self, context: &JudgeContext<'_>, truth: &str, prediction: &str) -> JudgeOutcome {
        if exact_match(truth, prediction) || normalised_match(truth, prediction) {
            return JudgeOutcome::Scored(Scores::FULL);
        }
        let measured = measure(context, truth, prediction);
        JudgeOutcome::Scored(match ProseFilter::new(context, truth).cut(prediction) {
            None => measured.below_full(),
            Some(plain) => punished(lower_of(measured.scores, measure(context, truth, &plain).scores)),
        })
    }
}

/// Scores, and the two shares that tell what is short of full.
pub(super) struct Measured {
    pub(super) scores: Scores,
    /// Of the content that is right.
    pub(super) share: f64,
    /// Smaller by larger amount.
    pub(super) length_ratio: f64,
}

fn measure(context: &JudgeContext<'_>, truth: &str, prediction: &str) -> Measured {
    let shape = Shape::of(context.domain, truth);
    let cut = |text| Some(Cut { text, parts: Parts::cut(shape, text)? });
    let measured = match (cut(truth), cut(prediction)) {
        (Some(truth), Some(prediction)) => structure::measure(context, shape, &truth, &prediction).limited(),
        _ => measure_text(context, shape, truth, prediction),
    };
    if context.domain == Domain::Terminal {
        return measured;
    }
    let headlines = (Headline::of(shape, truth), Headline::of(shape, prediction));
    Measured { scores: headlines.0.limit(&headlines.1, measured.scores), ..measured }
}

fn measure_text(context: &JudgeContext<'_>, shape: Shape, truth: &str, prediction: &str) -> Measured {
    let (truth, prediction) = (Prepared::new(truth), Prepared::new(prediction));
    let share = factuality::share(&truth, &prediction);
    let scores = Scores {
        format: format::score(context.domain, &truth, &prediction),
        factuality: factuality::score(share),
        consistency: consistency::score(context, &truth, &prediction),
        realism: realism::score(context, &truth, &prediction),
        quality: quality::score(&truth, &prediction),
    };
    let scores = if shape == Shape::Text { scores } else { out_of_form(scores) };
    let measured = Measured { scores, share, length_ratio: quality::length_ratio(&truth, &prediction) };
    match truth.pieces().is_empty() != prediction.pieces().is_empty() {
        true => Measured { scores: mute(scores), ..measured },
        false => measured.limited(),
    }
}

/// Of a prediction that is not of the truth's form; one without its content either has nothing.
fn out_of_form(scores: Scores) -> Scores {
    let (format, quality) =
        if scores.factuality == Score::MIN { (Score::MIN, Score::MIN) } else { (Score(2), scores.quality) };
    Scores {
        format,
        consistency: scores.consistency.min(Score(3)),
        realism: scores.realism.min(Score(2)),
        quality,
        ..scores
    }
}

impl Measured {
    /// What factuality leaves to the others.
    fn limited(self) -> Self {
        let scores = self.scores;
        let (consistency, quality) = match scores.factuality {
            Score(1) if self.share == 0.0 => (Score(3), Score::MIN),
            Score(1) => (Score(3), Score(2)),
            Score(2) => (Score::MAX, Score(3)),
            _ => (Score::MAX, Score::MAX),
        };
        let scores =
            Scores { consistency: scores.consistency.min(consistency), quality: scores.quality.min(quality), ..scores };
        Self { scores, ..self }
    }

    /// What is no match is not perfect: another length costs a point of quality, other content one of factuality, the
    /// same content laid out otherwise one of format.
    fn below_full(self) -> Scores {
        let scores = self.scores;
        if scores != Scores::FULL {
            scores
        } else if self.length_ratio < 1.0 {
            Scores { quality: Score(4), ..scores }
        } else if self.share < 1.0 {
            Scores { factuality: Score(4), ..scores }
        } else {
            Scores { format: Score(4), ..scores }
        }
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
