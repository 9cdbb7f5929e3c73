//! The stage table, the tables by class and by family, and the paired differences.

use std::collections::{BTreeMap, BTreeSet};

use worldloom_schema::{Evaluation, Interval, Measures, Predictor, PredictorKind};

use crate::figures::{MEASURES, Measure, fault_share};
use crate::html::{NONE, escape, hundred, is_known, signed};

pub(super) fn render(evaluation: &Evaluation, calibration: &str) -> String {
    let mut out = String::from("<section>\n<h2>Results</h2>\n");
    out += "<p>Means on a 0–100 scale with 95 % bootstrap intervals, clustered by episode. ";
    out += "A completion without a usable prediction counts as a miss and as rubric 0.</p>\n";
    out += &stage_table(evaluation);
    out += &meanings();
    out += &further(evaluation);
    out += calibration;
    out += &differences(evaluation);
    out += &grid(evaluation, "By domain", |predictor| &predictor.by_domain);
    out += &grid(evaluation, "By kind of observation", |predictor| &predictor.by_kind);
    out += &grid(evaluation, "By turn class", |predictor| &predictor.by_class);
    out += &grid(evaluation, "By command family", |predictor| &predictor.by_family);
    out + "</section>\n"
}

fn stage_table(evaluation: &Evaluation) -> String {
    let titles = MEASURES.iter().map(|measure| format!("<th>{}</th>", measure.title)).collect::<String>();
    let body = |class: &str, kind: PredictorKind| {
        let rows = evaluation.predictors.iter().filter(|predictor| predictor.kind == kind);
        format!("<tbody class=\"{class}\">{}</tbody>\n", rows.map(stage_row).collect::<String>())
    };
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr><th>all turns</th>{titles}<th>faults</th><th>asked with</th></tr>\
         </thead>\n{}{}{}</table></div>\n",
        body("stages", PredictorKind::Stage),
        body("ablations", PredictorKind::Ablation),
        body("baselines", PredictorKind::Baseline)
    )
}

fn stage_row(predictor: &Predictor) -> String {
    let cells = MEASURES.iter().map(|measure| value_cell(measure, Some(&predictor.all))).collect::<String>();
    let reasons = predictor.all.faults.iter().filter(|(_, share)| **share > 0.0);
    let reasons = reasons.map(|(reason, share)| format!("<small>{} {}</small>", escape(reason), percent(*share)));
    format!(
        "<tr><td>{}</td>{cells}<td>{}{}</td><td class=\"asked\">{}</td></tr>\n",
        escape(&predictor.name),
        percent(fault_share(&predictor.all)),
        reasons.collect::<String>(),
        escape(&predictor.asked)
    )
}

fn percent(share: f64) -> String {
    hundred(100.0 * share)
}

fn meanings() -> String {
    let parts = MEASURES.iter().map(|measure| format!("<b>{}</b>: {}", measure.title, measure.meaning));
    format!("<p class=\"muted\">{}.</p>\n", parts.collect::<Vec<_>>().join("; "))
}

/// A cell with a mean and its interval, shaded by the mean.
fn value_cell(measure: &Measure, measures: Option<&Measures>) -> String {
    let interval = measures.map(measure.of).filter(|interval| is_known(interval));
    interval.map_or_else(|| format!("<td>{NONE}</td>"), |interval| interval_cell(interval, measure.scale))
}

fn interval_cell(interval: &Interval, scale: f64) -> String {
    let text = |value: f64| hundred(value * scale);
    let share = (interval.mean * scale / 100.0).clamp(0.0, 1.0);
    format!(
        "<td class=\"value\" style=\"--share:{share:.3}\">{}<small>{}–{}</small></td>",
        text(interval.mean),
        text(interval.low),
        text(interval.high)
    )
}

/// The rubric's dimensions, then what code measures by itself: name, title, factor to the 0–100 scale, meaning.
const FURTHER: [(&str, &str, f64, &str); 12] = [
    ("format", "format", 1.0, ""),
    ("factuality", "factuality", 1.0, ""),
    ("consistency", "consistency", 1.0, ""),
    ("realism", "realism", 1.0, ""),
    ("quality", "quality", 1.0, ""),
    ("unit_precision", "precision", 100.0, ""),
    ("unit_recall", "recall", 100.0, ""),
    ("unit_f1", "unit F1", 100.0, "lines, nodes or leaves that changed, in common"),
    ("no_change", "no change", 100.0, "screens that stay, predicted to stay"),
    ("error_class", "error class", 100.0, "the same class of error, or none in both"),
    ("valid", "valid", 100.0, "of the kind that the observation is"),
    ("length_ratio", "length", 100.0, "the shorter length over the longer"),
];

fn further(evaluation: &Evaluation) -> String {
    let is_there = |name: &str| evaluation.predictors.iter().any(|predictor| predictor.all.more.contains_key(name));
    let columns: Vec<_> = FURTHER.iter().filter(|(name, ..)| is_there(name)).collect();
    if columns.is_empty() {
        return String::new();
    }
    let titles = columns.iter().map(|(_, title, ..)| format!("<th>{title}</th>")).collect::<String>();
    let row = |predictor: &Predictor| {
        let cell = |(name, _, scale, _): &&(&str, &str, f64, &str)| match predictor.all.more.get(*name) {
            Some(interval) if is_known(interval) => interval_cell(interval, *scale),
            _ => format!("<td>{NONE}</td>"),
        };
        format!("<tr><td>{}</td>{}</tr>\n", escape(&predictor.name), columns.iter().map(cell).collect::<String>())
    };
    let meanings: Vec<String> = columns
        .iter()
        .filter(|(.., meaning)| !meaning.is_empty())
        .map(|(_, title, _, meaning)| format!("<b>{title}</b>: {meaning}"))
        .collect();
    format!(
        "<h3>By dimension, and without a judge</h3>\n<div class=\"scroll\"><table>\n<thead><tr><th>all turns</th>{titles}</tr>\
         </thead>\n<tbody>{}</tbody></table></div>\n<p class=\"muted\">{}.</p>\n",
        evaluation.predictors.iter().map(row).collect::<String>(),
        meanings.join("; ")
    )
}

fn differences(evaluation: &Evaluation) -> String {
    if evaluation.differences.is_empty() {
        return String::new();
    }
    // Rows in the order of the evaluation, one for each pair and set of turns.
    let mut rows: Vec<(&str, &str, &str)> = Vec::new();
    let mut values: BTreeMap<(&str, &str, &str, &str), &Interval> = BTreeMap::new();
    for difference in &evaluation.differences {
        let row = (difference.from.as_str(), difference.to.as_str(), difference.turns.as_str());
        if !rows.contains(&row) {
            rows.push(row);
        }
        values.insert((row.0, row.1, row.2, &difference.measure), &difference.interval);
    }
    let row = |(from, to, turns): &(&str, &str, &str)| {
        let cell = |measure: &Measure| difference_cell(measure, values.get(&(*from, *to, *turns, measure.name)));
        let cells = MEASURES.iter().map(cell).collect::<String>();
        format!("<tr><td>{} − {}</td><td>{}</td>{cells}</tr>\n", escape(to), escape(from), escape(turns))
    };
    let titles = MEASURES.iter().map(|measure| format!("<th>{}</th>", measure.title)).collect::<String>();
    format!(
        "<h3>Paired differences</h3>\n<p>Later minus earlier on the same turns; coloured where the interval leaves out \
         zero.</p>\n<div class=\"scroll\"><table>\n<thead><tr><th>pair</th><th>turns</th>{titles}</tr></thead>\n\
         <tbody>{}</tbody></table></div>\n",
        rows.iter().map(row).collect::<String>()
    )
}

fn difference_cell(measure: &Measure, interval: Option<&&Interval>) -> String {
    let Some(interval) = interval.filter(|interval| is_known(interval)) else { return format!("<td>{NONE}</td>") };
    let text = |value: f64| signed(value * measure.scale);
    let class = match interval {
        interval if interval.low > 0.0 => " class=\"up\"",
        interval if interval.high < 0.0 => " class=\"down\"",
        _ => "",
    };
    let (mean, low, high) = (text(interval.mean), text(interval.low), text(interval.high));
    format!("<td{class}>{mean}<small>{low} to {high}</small></td>")
}

/// Rows are classes or families, columns are predictors; one table for each measure, the second one open.
fn grid(evaluation: &Evaluation, title: &str, of: fn(&Predictor) -> &BTreeMap<String, Measures>) -> String {
    let keys: BTreeSet<&String> = evaluation.predictors.iter().flat_map(|predictor| of(predictor).keys()).collect();
    if keys.is_empty() {
        return String::new();
    }
    let names = evaluation.predictors.iter().map(|predictor| format!("<th>{}</th>", escape(&predictor.name)));
    let names = names.collect::<String>();
    let mut out = format!("<h3>{title}</h3>\n");
    for measure in &MEASURES {
        let rows = keys.iter().map(|key| {
            let cells = evaluation.predictors.iter().map(|predictor| value_cell(measure, of(predictor).get(*key)));
            let turns = evaluation.predictors.iter().find_map(|predictor| of(predictor).get(*key));
            let turns = turns.map_or(0, |measures| measures.exact.n);
            format!("<tr><td>{}</td><td>{turns}</td>{}</tr>\n", escape(key), cells.collect::<String>())
        });
        out += &format!(
            "<details{}><summary>{}</summary><div class=\"scroll\"><table>\n<thead><tr><th></th><th>turns</th>{names}\
             </tr></thead>\n<tbody>{}</tbody></table></div></details>\n",
            if measure.name == "normalised" { " open" } else { "" },
            measure.title,
            rows.collect::<String>()
        );
    }
    out
}
