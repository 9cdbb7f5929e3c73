//! The best of several candidates: most won comparisons, then the highest score, then the first drawn.

use std::cmp::Ordering;

use worldloom_judge::asked::{Pair, Respondent, compare};
use worldloom_judge::{JudgeContext, line_f1};

/// An answer that may become a trace.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scored {
    pub(super) trace: String,
    pub(super) prediction: String,
    /// Mean of the rubric, 1 to 5.
    pub(super) score: f64,
}

/// Candidates of one query, one at least.
pub(super) struct Field<'a> {
    pub(super) context: JudgeContext<'a>,
    pub(super) truth: &'a str,
    pub(super) candidates: &'a [Scored],
}

/// The number of the best candidate of each query. A model compares all pairs where there is one; without one, or where
/// it says nothing, scores and then likeness of lines decide.
pub(super) fn best(respondent: Option<&dyn Respondent>, fields: &[Field<'_>]) -> Vec<usize> {
    let mut pairs = Vec::new();
    for (number, field) in fields.iter().enumerate() {
        let count = field.candidates.len();
        pairs.extend((0..count).flat_map(|one| (one + 1..count).map(move |other| (number, one, other))));
    }
    let outcomes = match respondent {
        Some(respondent) => {
            let pair = |&(number, one, other): &(usize, usize, usize)| {
                let Field { context, truth, candidates }: &Field<'_> = &fields[number];
                let (first, second) = (candidates[one].prediction.as_str(), candidates[other].prediction.as_str());
                Pair { context: *context, truth, first, second }
            };
            compare(respondent, &pairs.iter().map(pair).collect::<Vec<_>>())
        }
        None => vec![None; pairs.len()],
    };
    let mut wins: Vec<Vec<u32>> = fields.iter().map(|field| vec![0; field.candidates.len()]).collect();
    for ((number, one, other), outcome) in pairs.into_iter().zip(outcomes) {
        match outcome.unwrap_or_else(|| by_measure(&fields[number], one, other)) {
            Ordering::Greater => wins[number][one] += 1,
            Ordering::Less => wins[number][other] += 1,
            Ordering::Equal => {}
        }
    }
    fields.iter().zip(wins).map(|(field, wins)| winner(field.candidates, &wins)).collect()
}

fn by_measure(field: &Field<'_>, one: usize, other: usize) -> Ordering {
    let [one, other] = [one, other].map(|at| &field.candidates[at]);
    let likeness = |candidate: &Scored| line_f1(field.truth, &candidate.prediction).f1;
    one.score.total_cmp(&other.score).then_with(|| likeness(one).total_cmp(&likeness(other)))
}

fn winner(candidates: &[Scored], wins: &[u32]) -> usize {
    let order = |&one: &usize, &other: &usize| {
        let by_wins = wins[one].cmp(&wins[other]);
        // Among equals the first drawn: `max_by` would take the last.
        by_wins.then_with(|| candidates[one].score.total_cmp(&candidates[other].score)).then(other.cmp(&one))
    };
    (0..candidates.len()).max_by(order).unwrap_or_default()
}
