//! What one predictor's answer to one turn is worth.

use std::io::{BufWriter, Write};
use std::path::Path;

use rayon::prelude::*;
use serde_json::{Map, Value, json};
use worldloom_judge::{Dimension, Extraction, Judge, Observed, measure, observe};

use super::Measured;
use super::baselines::Baseline;
use super::turns::EvaluationTurns;
use crate::error::Result;
use crate::model::Answer;

/// The figures of one answer, with its text.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Outcome {
    pub(super) exact: bool,
    pub(super) normalised: bool,
    pub(super) line_f1: f64,
    /// 0–100; none where the judge gave no scores.
    pub(super) rubric: Option<f64>,
    pub(super) fault: Option<&'static str>,
    /// The dimensions, 0–100, and what code measures by itself, by name.
    pub(super) more: Vec<(&'static str, f64)>,
    pub(super) confidence: Option<f64>,
    /// Tokens of the completion and whether it ended by itself; none without a completion.
    pub(super) length: Option<(u64, bool)>,
    /// The prediction, or the raw completion where there is none.
    pub(super) text: String,
    pub(super) thinking: Option<String>,
}

impl Outcome {
    /// With the share of the turn's checks that the prediction passes, where the turn has any.
    fn checked(mut self, turns: &EvaluationTurns, index: usize) -> Self {
        if let Some(verifier) = turns.verifier(index) {
            let failed = if self.fault.is_some() { verifier.checks.len() } else { verifier.failures(&self.text).len() };
            self.more.push(("checks", 1.0 - failed as f64 / verifier.checks.len() as f64));
        }
        self
    }
}

/// Measures a model's answers, one for each turn.
pub(super) fn measure_answers(judge: &dyn Judge, turns: &EvaluationTurns, answers: Vec<Answer>) -> Vec<Outcome> {
    let one = |(index, answer): (usize, Answer)| {
        let thinking = answer.thinking().map(String::from);
        let (confidence, length) = (answer.confidence, answer.tokens.map(|tokens| (tokens, answer.stopped)));
        let outcome = match answer.prediction {
            Ok(prediction) => measure_prediction(judge, turns, index, prediction, thinking),
            Err(fault) => miss(turns, index, fault.as_str(), answer.completion, thinking),
        };
        Outcome { confidence, length, ..outcome.checked(turns, index) }
    };
    answers.into_par_iter().enumerate().map(one).collect()
}

/// Measures a rule on every turn.
pub(super) fn measure_baseline(judge: &dyn Judge, turns: &EvaluationTurns, baseline: &Baseline) -> Vec<Outcome> {
    let one = |index: usize| {
        let prediction = baseline.predict(turns.history(index), turns.turn(index));
        measure_prediction(judge, turns, index, prediction, None).checked(turns, index)
    };
    (0..turns.len()).into_par_iter().map(one).collect()
}

fn measure_prediction(
    judge: &dyn Judge,
    turns: &EvaluationTurns,
    index: usize,
    prediction: String,
    thinking: Option<String>,
) -> Outcome {
    let (turn, before) = (turns.turn(index), turns.before(index));
    let truth = &turn.observation;
    let mut more = observe(turn.observation_kind, before, truth, &prediction).named();
    let extraction = Extraction::Observation(prediction.clone());
    let metrics = turns.with_context(index, |context| measure(judge, context, truth, &extraction));
    if let Some(scores) = metrics.scores {
        let scaled = |dimension| (scores.get(dimension).value() - 1.0) / 4.0 * 100.0;
        more.extend(Dimension::ALL.map(|dimension| (dimension.as_str(), scaled(dimension))));
    }
    Outcome {
        exact: metrics.exact,
        normalised: metrics.normalised,
        line_f1: metrics.line_f1,
        rubric: metrics.rubric,
        fault: None,
        more,
        confidence: None,
        length: None,
        text: prediction,
        thinking,
    }
}

/// No usable prediction: nothing in every measure.
fn miss(turns: &EvaluationTurns, index: usize, fault: &'static str, text: String, thinking: Option<String>) -> Outcome {
    let (turn, before) = (turns.turn(index), turns.before(index));
    let observed = Observed::fault(turn.observation_kind, before, &turn.observation);
    let dimensions = Dimension::ALL.map(|dimension| (dimension.as_str(), 0.0));
    Outcome {
        exact: false,
        normalised: false,
        line_f1: 0.0,
        rubric: Some(0.0),
        fault: Some(fault),
        more: observed.named().into_iter().chain(dimensions).collect(),
        confidence: None,
        length: None,
        text,
        thinking,
    }
}

/// Every prediction beside the truth, one turn a line.
pub(super) fn write_predictions(path: &Path, turns: &EvaluationTurns, measured: &[Measured]) -> Result<()> {
    let mut file = BufWriter::new(fs_err::File::create(path)?);
    for (index, place) in turns.iter().enumerate() {
        let prediction = |measured: &Measured| {
            let outcome = &measured.outcomes[index];
            let value = json!({
                "text": outcome.text,
                "thinking": outcome.thinking,
                "normalised": outcome.normalised,
                "rubric": outcome.rubric,
                "fault": outcome.fault,
                "tokens": outcome.length.map(|(tokens, _)| tokens),
                "stopped": outcome.length.map(|(_, stopped)| stopped),
            });
            (measured.name.clone(), value)
        };
        let turn = turns.turn(index);
        let line = json!({
            "id": turns.id(index),
            "class": place.class,
            "family": place.family,
            "action": turn.action,
            "truth": turn.observation,
            "predictions": measured.iter().map(prediction).collect::<Map<String, Value>>(),
        });
        writeln!(file, "{line}")?;
    }
    Ok(file.flush()?)
}
