//! Outcomes to tables: means with intervals, over all turns, by class and by family, and paired differences.

use std::collections::{BTreeMap, BTreeSet};

use rayon::prelude::*;
use worldloom_judge::{clustered_mean, paired_difference};
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
        let Interval { mean, low, high, n, clusters } = interval(clustered_mean(values, config.resamples, config.seed));
        let [mean, low, high] = [mean, low, high].map(written);
        (name.to_string(), Interval { mean, low, high, n, clusters })
    };
    let more = values.par_iter().map(mean).collect();
    Measures { more, ..measures(config, turns, outcomes, takes) }
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

/// Between successive stages, and between each ablation and baseline and the last stage; over all turns and by class.
pub(super) fn differences(config: &EvaluateConfig, turns: &EvaluationTurns, measured: &[Measured]) -> Vec<Difference> {
    let of_kind = |kind| measured.iter().filter(move |measured| measured.kind == kind);
    let stages: Vec<&Measured> = of_kind(PredictorKind::Stage).collect();
    let mut pairs: Vec<(&Measured, &Measured)> = stages.windows(2).map(|pair| (pair[0], pair[1])).collect();
    if let Some(last) = stages.last() {
        let others = of_kind(PredictorKind::Ablation).chain(of_kind(PredictorKind::Baseline));
        pairs.extend(others.map(|other| (other, *last)));
    }
    let classes = turns.class_shares().into_keys().map(Some);
    let sets: Vec<Option<String>> = std::iter::once(None).chain(classes).collect();
    let mut wanted = Vec::new();
    for (from, to) in pairs {
        for class in &sets {
            for (measure, value) in MEASURES {
                wanted.push((from, to, class.as_deref(), measure, value));
            }
        }
    }
    let one = |(from, to, class, measure, value): &(&Measured, &Measured, Option<&str>, &str, Value)| Difference {
        from: from.name.clone(),
        to: to.name.clone(),
        measure: measure.to_string(),
        turns: class.unwrap_or("all").into(),
        interval: difference(config, turns, (from, to), *class, *value),
    };
    wanted.par_iter().map(one).collect()
}

fn difference(
    config: &EvaluateConfig,
    turns: &EvaluationTurns,
    (from, to): (&Measured, &Measured),
    class: Option<&str>,
    value: Value,
) -> Interval {
    let both = turns.iter().zip(from.outcomes.iter().zip(&to.outcomes));
    let both = both.filter(|(turn, _)| class.is_none_or(|class| turn.class == class));
    let pairs: Vec<(usize, f64, f64)> =
        both.filter_map(|(turn, (before, after))| Some((turn.episode, value(before)?, value(after)?))).collect();
    interval(paired_difference(&pairs, config.resamples, config.seed))
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
