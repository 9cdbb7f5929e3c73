//! Outcomes to tables: means with intervals, over all turns, by class and by family, and paired differences.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use worldloom_judge::{Dimension, clustered_mean, paired_difference};
use worldloom_schema::{CalibrationBin, Difference, Interval, Measures, PredictorKind};

use super::Measured;
use super::config::EvaluateConfig;
use super::outcome::Outcome;
use super::turns::{EvaluationTurn, EvaluationTurns};

/// Bins of a calibration, at most.
const CALIBRATION_BINS: usize = 10;

/// One value of an outcome; none where it was not given.
type Value = fn(&Outcome) -> Option<f64>;

/// The measures by name.
const MEASURES: [(&str, Value); 4] = [
    ("exact", |outcome| Some(share(outcome.exact))),
    ("normalised", |outcome| Some(share(outcome.normalised))),
    ("line_f1", |outcome| Some(outcome.line_f1)),
    ("rubric", |outcome| outcome.rubric),
];

fn share(is_met: bool) -> f64 {
    if is_met { 1.0 } else { 0.0 }
}

/// The measures over the turns that `takes` wants.
pub(super) fn measures(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    outcomes: &[Outcome],
    takes: &(dyn Fn(&EvaluationTurn) -> bool + Sync),
) -> Measures {
    let chosen: Vec<(usize, &Outcome)> =
        turns.iter().zip(outcomes).filter(|(turn, _)| takes(turn)).map(|(turn, o)| (turn.episode, o)).collect();
    let mean = |value: Value| {
        let values: Vec<(usize, f64)> =
            chosen.iter().filter_map(|(episode, outcome)| Some((*episode, value(outcome)?))).collect();
        interval(clustered_mean(&values, config.resamples, config.seed))
    };
    let means: Vec<Interval> = MEASURES.par_iter().map(|(_, value)| mean(*value)).collect();
    let [exact, normalised, line_f1, rubric]: [Interval; 4] = means[..].try_into().expect("there are four measures");
    Measures { exact, normalised, line_f1, rubric, faults: faults(&chosen), more: BTreeMap::new() }
}

/// [`measures`] with all further means.
pub(super) fn full_measures(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    outcomes: &[Outcome],
    takes: &(dyn Fn(&EvaluationTurn) -> bool + Sync),
) -> Measures {
    let mut values: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
    for (turn, outcome) in turns.iter().zip(outcomes).filter(|(turn, _)| takes(turn)) {
        for (name, value) in &outcome.more {
            values.entry(name).or_default().push((turn.episode, *value));
        }
    }
    let mean = |(name, values): (&&str, &Vec<(usize, f64)>)| {
        (name.to_string(), rounded(interval(clustered_mean(values, config.resamples, config.seed))))
    };
    let more = values.par_iter().map(mean).collect();
    Measures { more, ..measures(config, turns, outcomes, takes) }
}

fn rounded(Interval { mean, low, high, n, clusters }: Interval) -> Interval {
    let [mean, low, high] = [mean, low, high].map(written);
    Interval { mean, low, high, n, clusters }
}

/// With nine decimals, so that a number is read back as it was written.
fn written(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// Predictions in bins of equal size, from the least confident to the most.
pub(super) fn calibration(outcomes: &[Outcome]) -> Vec<CalibrationBin> {
    let is_match = |outcome: &Outcome| (outcome.confidence, share(outcome.normalised));
    let mut points: Vec<(f64, f64)> =
        outcomes.iter().map(is_match).filter_map(|(confidence, matches)| Some((confidence?, matches))).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let per_bin = points.len().div_ceil(CALIBRATION_BINS).max(1);
    let bin = |points: &[(f64, f64)]| {
        let n = points.len() as f64;
        CalibrationBin {
            confidence: written(points.iter().map(|(confidence, _)| confidence).sum::<f64>() / n),
            matches: written(points.iter().map(|(_, matches)| matches).sum::<f64>() / n),
            n: points.len() as u64,
        }
    };
    points.chunks(per_bin).map(bin).collect()
}

/// Completions by the power of two that their tokens do not exceed.
pub(super) fn lengths(outcomes: &[Outcome]) -> BTreeMap<u64, u64> {
    let mut lengths = BTreeMap::new();
    for (tokens, _) in outcomes.iter().filter_map(|outcome| outcome.length) {
        *lengths.entry(tokens.next_power_of_two()).or_default() += 1;
    }
    lengths
}

/// Share of the completions that did not end by themselves.
pub(super) fn cut_share(outcomes: &[Outcome]) -> Option<f64> {
    let completions: Vec<bool> = outcomes.iter().filter_map(|outcome| Some(outcome.length?.1)).collect();
    let cut = completions.iter().filter(|stopped| !**stopped).count();
    (!completions.is_empty()).then(|| written(cut as f64 / completions.len() as f64))
}

/// Share of each fault among the chosen.
fn faults(chosen: &[(usize, &Outcome)]) -> BTreeMap<String, f64> {
    let mut faults: BTreeMap<String, f64> = BTreeMap::new();
    for fault in chosen.iter().filter_map(|(_, outcome)| outcome.fault) {
        *faults.entry(fault.into()).or_default() += 1.0;
    }
    faults.values_mut().for_each(|count| *count /= chosen.len() as f64);
    faults
}

/// The measures for each value of a key.
pub(super) fn by(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    outcomes: &[Outcome],
    key: &(dyn Fn(&EvaluationTurn) -> &String + Sync),
) -> BTreeMap<String, Measures> {
    let keys: BTreeSet<&String> = turns.iter().map(key).collect();
    let one = |name: &&String| {
        let measures = measures(config, turns, outcomes, &|turn| key(turn) == *name);
        ((*name).clone(), measures)
    };
    keys.par_iter().map(one).collect()
}

/// The measures with all further means, for each value of a key.
pub(super) fn full_by(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    outcomes: &[Outcome],
    key: &(dyn Fn(&EvaluationTurn) -> &str + Sync),
) -> BTreeMap<String, Measures> {
    let keys: BTreeSet<&str> = turns.iter().map(key).collect();
    let one = |name: &&str| {
        let measures = full_measures(config, turns, outcomes, &|turn| key(turn) == *name);
        (name.to_string(), measures)
    };
    keys.par_iter().map(one).collect()
}

/// The measures of the turns on each rule axis.
pub(super) fn by_axis(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    outcomes: &[Outcome],
) -> BTreeMap<String, Measures> {
    let axes: BTreeSet<&String> = turns.iter().flat_map(|turn| &turn.axes).collect();
    let one = |axis: &&String| {
        let measures = full_measures(config, turns, outcomes, &|turn| turn.axes.contains(axis));
        ((*axis).clone(), measures)
    };
    axes.par_iter().map(one).collect()
}

/// The turns that a difference is taken over.
#[derive(Clone, Copy)]
enum Over<'a> {
    All,
    Class(&'a str),
    Domain(&'a str),
}

impl Over<'_> {
    fn takes(self, turn: &EvaluationTurn) -> bool {
        match self {
            Over::All => true,
            Over::Class(class) => turn.class == class,
            Over::Domain(domain) => turn.domain == domain,
        }
    }

    /// As [`Difference::turns`] names it.
    fn name(self) -> String {
        match self {
            Over::All => "all".into(),
            Over::Class(class) => class.into(),
            Over::Domain(domain) => format!("domain:{domain}"),
        }
    }
}

/// Between successive stages, and between each ablation and baseline and the last stage: the four measures and the
/// dimensions, over all turns, by class and by domain.
pub(super) fn differences(config: &EvaluateConfig, turns: &EvaluationTurns, measured: &[Measured]) -> Vec<Difference> {
    let of_kind = |kind| measured.iter().filter(move |measured| measured.kind == kind);
    let stages: Vec<&Measured> = of_kind(PredictorKind::Stage).collect();
    let mut pairs: Vec<(&Measured, &Measured)> = stages.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if let Some(last) = stages.last() {
        let others = of_kind(PredictorKind::Ablation).chain(of_kind(PredictorKind::Baseline));
        pairs.extend(others.map(|other| (other, *last)));
    }
    let classes: BTreeSet<&str> = turns.iter().map(|turn| turn.class.as_str()).collect();
    let domains: BTreeSet<&str> = turns.iter().map(|turn| turn.domain).collect();
    let sets = std::iter::once(Over::All).chain(classes.into_iter().map(Over::Class));
    let sets: Vec<Over<'_>> = sets.chain(domains.into_iter().map(Over::Domain)).collect();
    let names = || MEASURES.map(|(name, _)| name).into_iter().chain(Dimension::ALL.map(Dimension::as_str));
    let mut wanted = Vec::new();
    for pair in pairs {
        for over in &sets {
            wanted.extend(names().map(|measure| (pair, *over, measure)));
        }
    }
    let one = |&((from, to), over, measure): &((&Measured, &Measured), Over<'_>, &str)| Difference {
        from: from.name.clone(),
        to: to.name.clone(),
        measure: measure.into(),
        turns: over.name(),
        interval: difference(config, turns, (from, to), over, measure),
    };
    wanted.par_iter().map(one).collect()
}

fn difference(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    (from, to): (&Measured, &Measured),
    over: Over<'_>,
    measure: &str,
) -> Interval {
    let both = turns.iter().zip(from.outcomes.iter().zip(&to.outcomes)).filter(|(turn, _)| over.takes(turn));
    let pair = |(turn, (before, after)): (&EvaluationTurn, (&Outcome, &Outcome))| {
        Some((turn.episode, value(before, measure)?, value(after, measure)?))
    };
    let pairs: Vec<(usize, f64, f64)> = both.filter_map(pair).collect();
    rounded(interval(paired_difference(&pairs, config.resamples, config.seed)))
}

/// A measure or a further figure by its name.
fn value(outcome: &Outcome, name: &str) -> Option<f64> {
    match MEASURES.iter().find(|(measure, _)| *measure == name) {
        Some((_, value)) => value(outcome),
        None => outcome.more.iter().find(|(further, _)| *further == name).map(|(_, value)| *value),
    }
}

/// As it is stored; `n` is 0 where there is nothing.
fn interval(found: Option<worldloom_judge::Interval>) -> Interval {
    found.map_or(Interval::default(), |found| Interval {
        mean: found.mean,
        low: found.low,
        high: found.high,
        n: found.n as u64,
        clusters: found.clusters as u64,
    })
}
