//! The stage table as text: aligned, at most 100 columns wide.

use std::collections::{BTreeMap, BTreeSet};

use worldloom_schema::{Evaluation, Interval, Measures, Predictor};

use crate::figures::{CHECKS, MEASURES, Measure, fault_share, is_distance};
use crate::html::{NONE, cut, grouped, hundred, is_known, signed};

/// Names are cut to this width.
const NAME_WIDTH: usize = 17;
/// Pairs of names are cut to this width; fewer measures stand beside them.
const PAIR_WIDTH: usize = 30;
/// Measures of the table of differences: all but the first, which moves with the second.
const DIFFERENCES: &[Measure] = MEASURES.split_at(1).1;
/// Classes beside each other in one block.
const CLASSES_PER_BLOCK: usize = 4;

/// The stage table of an evaluation: all turns, normalised match by class, rules by axis, and the paired differences.
pub fn table(evaluation: &Evaluation) -> String {
    let mut out = format!(
        "{} turns of {} episodes, seed {}; means on a 0–100 scale with 95 % intervals by episode\n\n",
        grouped(evaluation.turns),
        grouped(evaluation.episodes),
        evaluation.seed
    );
    out += &layout(&all_turns(evaluation), NAME_WIDTH);
    let classes: Vec<&String> = evaluation.class_shares.keys().collect();
    for block in classes.chunks(CLASSES_PER_BLOCK) {
        out += "\n";
        out += &layout(&by_class(evaluation, block), NAME_WIDTH);
    }
    let axes: BTreeSet<&String> = evaluation.predictors.iter().flat_map(|predictor| predictor.by_axis.keys()).collect();
    let axes: Vec<&String> = axes.into_iter().filter(|axis| !is_distance(axis)).collect();
    if !axes.is_empty() {
        out += "\n";
        out += &layout(&by_axis(evaluation, &axes), NAME_WIDTH);
    }
    if !evaluation.differences.is_empty() {
        out += "\n";
        out += &layout(&differences(evaluation), PAIR_WIDTH);
    }
    out
}

fn all_turns(evaluation: &Evaluation) -> Vec<Vec<String>> {
    let mut header = vec!["all turns".to_string()];
    header.extend(MEASURES.iter().map(|measure| measure.title.to_string()));
    header.push("faults".into());
    let mut rows = vec![header];
    let mut earlier = None;
    for predictor in &evaluation.predictors {
        if earlier.is_some_and(|earlier| earlier != predictor.kind) {
            rows.push(Vec::new());
        }
        earlier = Some(predictor.kind);
        let mut row = vec![predictor.name.clone()];
        row.extend(MEASURES.iter().map(|measure| cell(measure, &predictor.all)));
        row.push(hundred(100.0 * fault_share(&predictor.all)));
        rows.push(row);
    }
    rows
}

fn by_class(evaluation: &Evaluation, classes: &[&String]) -> Vec<Vec<String>> {
    let title = |class: &&String| {
        let share = evaluation.class_shares.get(*class).copied().unwrap_or(f64::NAN);
        format!("{} ({:.0} %)", cut(class, 12), 100.0 * share)
    };
    by_key(evaluation, &MEASURES[1], classes, classes.iter().map(title), |predictor| &predictor.by_class)
}

fn by_axis(evaluation: &Evaluation, axes: &[&String]) -> Vec<Vec<String>> {
    let titles = axes.iter().map(|axis| format!("axis {}", cut(axis, 12)));
    by_key(evaluation, &CHECKS, axes, titles, |predictor| &predictor.by_axis)
}

/// One measure: a row for each predictor, a column for each key.
fn by_key(
    evaluation: &Evaluation,
    measure: &Measure,
    keys: &[&String],
    titles: impl Iterator<Item = String>,
    of: fn(&Predictor) -> &BTreeMap<String, Measures>,
) -> Vec<Vec<String>> {
    let header = std::iter::once(measure.title.to_string()).chain(titles).collect();
    let mut rows: Vec<Vec<String>> = vec![header];
    for predictor in &evaluation.predictors {
        let cell = |key: &&String| of(predictor).get(*key).map_or(NONE.into(), |measures| cell(measure, measures));
        rows.push(std::iter::once(predictor.name.clone()).chain(keys.iter().map(cell)).collect());
    }
    rows
}

fn differences(evaluation: &Evaluation) -> Vec<Vec<String>> {
    let mut header = vec!["later − earlier".to_string()];
    header.extend(DIFFERENCES.iter().map(|measure| measure.title.to_string()));
    let mut rows = vec![header];
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for difference in evaluation.differences.iter().filter(|difference| difference.turns == "all") {
        let pair = (difference.from.as_str(), difference.to.as_str());
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    for (from, to) in pairs {
        let find = |measure: &Measure| {
            let same = |difference: &&worldloom_schema::Difference| {
                (difference.from.as_str(), difference.to.as_str()) == (from, to)
                    && difference.measure == measure.name
                    && difference.turns == "all"
            };
            let found = evaluation.differences.iter().find(same);
            found.map_or(NONE.into(), |found| difference_cell(measure, &found.interval))
        };
        let mut row = vec![format!("{to} − {from}")];
        row.extend(DIFFERENCES.iter().map(find));
        rows.push(row);
    }
    rows
}

fn cell(measure: &Measure, measures: &Measures) -> String {
    let Some(interval) = measure.of(measures) else { return NONE.into() };
    let text = |value: f64| hundred(value * measure.scale);
    format!("{} ({}–{})", text(interval.mean), text(interval.low), text(interval.high))
}

fn difference_cell(measure: &Measure, interval: &Interval) -> String {
    if !is_known(interval) {
        return NONE.into();
    }
    let text = |value: f64| signed(value * measure.scale);
    format!("{} ({}, {})", text(interval.mean), text(interval.low), text(interval.high))
}

/// Rows in columns: the first column to the left, the others to the right; an empty row is an empty line.
pub(crate) fn layout(rows: &[Vec<String>], name_width: usize) -> String {
    let num_columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let text = |row: &[String], column: usize| match column {
        0 => cut(&row[0], name_width),
        _ => row.get(column).cloned().unwrap_or_default(),
    };
    let width = |column| {
        rows.iter().filter(|row| !row.is_empty()).map(|row| text(row, column).chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..num_columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate().take(row.len()) {
            let text = text(row, column);
            line += &match column {
                0 => format!("{text:<width$}"),
                _ => format!("  {text:>width$}"),
            };
        }
        out += line.trim_end();
        out += "\n";
    }
    out
}
