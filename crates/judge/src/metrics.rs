//! What evaluation keeps of one prediction.

use serde::{Deserialize, Serialize};

use crate::extract::{Extraction, Fault};
use crate::rubric::{Judge, JudgeContext, Scores};
use crate::text::{exact_match, line_f1, normalised_match};

/// The figures of one prediction.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Equal to the truth byte for byte.
    pub exact: bool,
    /// Equal after normalising and masking.
    pub normalised: bool,
    /// F1 over lines.
    pub line_f1: f64,
    /// The rubric from 0 to 100; 0 for a fault; none where the judge gave no scores.
    pub rubric: Option<f64>,
    /// The five scores behind the rubric, where there was a prediction and the judge gave them.
    #[serde(default)]
    pub scores: Option<Scores>,
    /// Why there was no prediction.
    pub fault: Option<Fault>,
}

/// Measures what was extracted. A fault counts as 0 everywhere: left out, it would flatter a weak model.
pub fn measure(judge: &dyn Judge, context: &JudgeContext<'_>, truth: &str, extraction: &Extraction) -> Metrics {
    let prediction = match extraction {
        Extraction::Observation(prediction) => prediction,
        Extraction::Fault(fault) => {
            return Metrics {
                exact: false,
                normalised: false,
                line_f1: 0.0,
                rubric: Some(0.0),
                scores: None,
                fault: Some(*fault),
            };
        }
    };
    let scores = judge.score(context, truth, prediction).scores();
    Metrics {
        exact: exact_match(truth, prediction),
        normalised: normalised_match(truth, prediction),
        line_f1: line_f1(truth, prediction).f1,
        rubric: scores.map(|scores| scores.rubric_0_100()),
        scores,
        fault: None,
    }
}

#[cfg(test)]
mod tests {
    use worldloom_schema::Domain;

    use super::*;
    use crate::rubric::BuiltinJudge;

    #[test]
    fn a_match_is_full_a_fault_is_nothing_and_the_rest_lies_between() {
        let context = JudgeContext { domain: Domain::Terminal, initial_state: None, history: &[], action: "ls" };
        let of = |extraction| measure(&BuiltinJudge, &context, "a.txt\nb.txt", &extraction);
        let full = of(Extraction::Observation("a.txt\nb.txt\n".into()));
        let scores = Some(Scores::FULL);
        assert_eq!((full.exact, full.normalised, full.line_f1, full.rubric), (false, true, 1.0, Some(100.0)));
        assert_eq!((full.scores, full.fault), (scores, None));
        let half = of(Extraction::Observation("a.txt".into()));
        assert!(!half.normalised && half.line_f1 == 2.0 / 3.0);
        assert!(half.rubric.is_some_and(|rubric| 0.0 < rubric && rubric < 100.0));
        let fault = of(Extraction::Fault(Fault::UnclosedTag));
        assert_eq!((fault.rubric, fault.line_f1, fault.fault), (Some(0.0), 0.0, Some(Fault::UnclosedTag)));
    }
}
