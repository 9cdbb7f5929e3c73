//! Bars: what the stages reach by domain and by turn class, and how long answers and documents are.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use worldloom_schema::{Evaluation, Measures, Predictor, PredictorKind};

use super::figures::figure_html;
use crate::chart::{Bar, Group, bars};
use crate::error::Result;
use crate::figures::{MEASURES, Measure};
use crate::html::{grouped, hundred};
use crate::run::Step;

/// More groups than these are not readable as bars.
const MOST_GROUPS: usize = 12;

/// Figures side by side, and how many they are.
#[derive(Default)]
pub(super) struct Figures {
    html: String,
    count: u64,
}

impl Figures {
    fn add(&mut self, title: &str, keys: &[String], groups: &[Group]) -> Result<()> {
        if let Some(svg) = bars(title, groups)?.filter(|_| groups.len() <= MOST_GROUPS) {
            self.html += &figure_html(title, keys, &svg);
            self.count += 1;
        }
        Ok(())
    }

    /// The figures, or nothing, and their number.
    pub(super) fn finish(self) -> (String, u64) {
        match self.count {
            0 => (String::new(), 0),
            count => (format!("<div class=\"figures\">\n{}</div>\n", self.html), count),
        }
    }
}

type ByKey = fn(&Predictor) -> &BTreeMap<String, Measures>;

/// Matches and rubric by domain and by turn class: stages and ablations beside each other, rules where there are none.
pub(super) fn results(evaluation: &Evaluation) -> Result<(String, u64)> {
    let shown = shown(evaluation);
    let mut figures = Figures::default();
    let keyed: [(&str, ByKey); 2] = [("domain", |one| &one.by_domain), ("turn class", |one| &one.by_class)];
    for (what, of) in keyed {
        for measure in MEASURES.iter().filter(|measure| matches!(measure.name, "normalised" | "rubric")) {
            let labels: BTreeSet<&String> = shown.iter().flat_map(|predictor| of(predictor).keys()).collect();
            let bar = |predictor: &&Predictor, label: &String| bar(measure, of(predictor).get(label)?);
            let group = |label: &String| Group {
                label: label.clone(),
                bars: shown.iter().map(|predictor| bar(predictor, label)).collect(),
            };
            let groups: Vec<Group> = labels.into_iter().map(group).collect();
            figures.add(&format!("{} by {what}, 0–100, 95 % intervals", measure.title), &names(&shown), &groups)?;
        }
    }
    Ok(figures.finish())
}

/// Those whose bars are drawn.
fn shown(evaluation: &Evaluation) -> Vec<&Predictor> {
    let (trained, rules): (Vec<&Predictor>, Vec<&Predictor>) =
        evaluation.predictors.iter().partition(|predictor| predictor.kind != PredictorKind::Baseline);
    if trained.is_empty() { rules } else { trained }
}

fn names(predictors: &[&Predictor]) -> Vec<String> {
    predictors.iter().map(|predictor| predictor.name.clone()).collect()
}

fn bar(measure: &Measure, measures: &Measures) -> Option<Bar> {
    let interval = measure.of(measures)?;
    let [value, low, high] = [interval.mean, interval.low, interval.high].map(|value| value * measure.scale);
    Some(Bar { value, interval: Some([low, high]) })
}

/// How long the answers are, with the share that was cut, and how long the documents of rendered rows are.
pub(super) fn lengths(evaluation: Option<&Evaluation>, steps: &[Step]) -> Result<(String, u64)> {
    let mut figures = Figures::default();
    let predictors = evaluation.iter().flat_map(|evaluation| &evaluation.predictors);
    let answering: Vec<&Predictor> = predictors.filter(|predictor| !predictor.lengths.is_empty()).collect();
    let key = |predictor: &&Predictor| match predictor.cut_share {
        Some(share) => format!("{}, {} % cut", predictor.name, hundred(100.0 * share)),
        None => predictor.name.clone(),
    };
    let keys: Vec<String> = answering.iter().map(key).collect();
    let histograms: Vec<&Histogram> = answering.iter().map(|predictor| &predictor.lengths).collect();
    figures.add("length of answers in tokens, % of each predictor", &keys, &histogram_groups(&histograms))?;
    for step in steps {
        let Some(lengths) = step.report.get("lengths").and_then(|lengths| Histogram::deserialize(lengths).ok()) else {
            continue;
        };
        let truncated = step.count("truncated").unwrap_or(0);
        let key = format!("{} documents, {} cut", grouped(lengths.values().sum()), grouped(truncated));
        let title = format!("{}: length of documents in tokens, %", step.name);
        figures.add(&title, &[key], &histogram_groups(&[&lengths]))?;
    }
    let (html, count) = figures.finish();
    let about = "<p>Each group counts what is longer than the group before it and no longer than its label. An answer is \
                 cut at the longest length it may have, a document at the length of a row.</p>\n";
    Ok((if count == 0 { html } else { format!("<section>\n<h2>Lengths</h2>\n{about}{html}</section>\n") }, count))
}

/// Upper bound in tokens to number.
type Histogram = BTreeMap<u64, u64>;

/// A group for each bound, a bar for each histogram: its share in percent.
fn histogram_groups(histograms: &[&Histogram]) -> Vec<Group> {
    let mut bounds: BTreeSet<u64> = histograms.iter().flat_map(|histogram| histogram.keys().copied()).collect();
    // Bounds are powers of two; one that nothing falls under leaves a gap and is not left out.
    let (least, most) = (bounds.first().copied().unwrap_or(0), bounds.last().copied().unwrap_or(0));
    bounds.extend(std::iter::successors(Some(least.max(1)), |bound| bound.checked_mul(2)).take_while(|b| *b < most));
    let bar = |histogram: &&Histogram, bound: u64| {
        let all = histogram.values().sum::<u64>().max(1);
        let number = histogram.get(&bound).copied().unwrap_or(0);
        Some(Bar { value: 100.0 * number as f64 / all as f64, interval: None })
    };
    let group = |bound: u64| Group {
        label: grouped(bound),
        bars: histograms.iter().map(|histogram| bar(histogram, bound)).collect(),
    };
    bounds.into_iter().map(group).collect()
}
