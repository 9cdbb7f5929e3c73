//! The stage table, the tables by class and by family, and the paired differences.

use std::collections::{BTreeMap, BTreeSet};

use worldloom_schema::{Evaluation, Interval, Measures, Predictor, PredictorKind};

use crate::figures::{CHECKS, DIMENSIONS, MEASURES, Measure, WITHOUT_JUDGE, fault_share, is_distance};
use crate::html::{NONE, escape, hundred, is_known, signed};

/// The tables, with the figures that belong between them.
pub(super) fn render(evaluation: &Evaluation, bars: &str, calibration: &str) -> String {
    let mut out = String::from("<section>\n<h2>Results</h2>\n");
    out += "<p>Means on a 0–100 scale with 95 % bootstrap intervals, clustered by episode. ";
    out += "A completion without a usable prediction counts as a miss and as rubric 0.</p>\n";
    out += &stage_table(evaluation);
    out += &meanings();
    out += bars;
    out += &further_of_all(evaluation);
    out += calibration;
    out += &differences(evaluation);
    out += &grid(evaluation, "By domain", &MEASURES, |predictor| &predictor.by_domain);
    out += &grid(evaluation, "By kind of observation", &MEASURES, |predictor| &predictor.by_kind);
    out += &by_axis(evaluation);
    out += &grid(evaluation, "By turn class", &MEASURES, |predictor| &predictor.by_class);
    out += &grid(evaluation, "By command family", &MEASURES, |predictor| &predictor.by_family);
    out + "</section>\n"
}

fn stage_table(evaluation: &Evaluation) -> String {
    let titles = MEASURES.iter().map(|measure| format!("<th>{}</th>", measure.title)).collect::<String>();
    let body = |class: &str, kind: PredictorKind| {
        let rows = evaluation.predictors.iter().filter(|predictor| predictor.kind == kind);
        format!("<tbody class=\"{class}\">{}</tbody>\n", rows.map(stage_row).collect::<String>())
    };
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr><th>all turns</th>{titles}<th>faults</th><th class=\"asked\">asked with</th></tr>\
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
    let interval = measures.and_then(|measures| measure.of(measures));
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

/// The dimensions and what code measures by itself, over all turns.
fn further_of_all(evaluation: &Evaluation) -> String {
    let tables = further_tables(evaluation, "all turns", &|predictor| Some(&predictor.all));
    if tables.is_empty() {
        return tables;
    }
    let meanings = WITHOUT_JUDGE.iter().filter(|measure| !measure.meaning.is_empty());
    let meanings: Vec<String> =
        meanings.map(|measure| format!("<b>{}</b>: {}", measure.title, measure.meaning)).collect();
    let meanings = meanings.join("; ");
    format!("<h3>By dimension, and without a judge</h3>\n{tables}<p class=\"muted\">{meanings}.</p>\n")
}

/// A table of the dimensions and one of what code measures by itself: a row for each predictor, a column for each
/// measure that somebody has; empty where nobody has any.
fn further_tables<'a>(
    evaluation: &'a Evaluation,
    title: &str,
    of: &dyn Fn(&'a Predictor) -> Option<&'a Measures>,
) -> String {
    let of_all: Vec<(&Predictor, Option<&Measures>)> =
        evaluation.predictors.iter().map(|predictor| (predictor, of(predictor))).collect();
    let table = |measures: &[Measure]| {
        let is_there = |measure: &&Measure| of_all.iter().any(|(_, of)| of.is_some_and(|of| measure.of(of).is_some()));
        let columns: Vec<&Measure> = measures.iter().filter(is_there).collect();
        if columns.is_empty() {
            return String::new();
        }
        let titles = columns.iter().map(|measure| format!("<th>{}</th>", measure.title)).collect::<String>();
        let row = |(predictor, of): &(&Predictor, Option<&Measures>)| {
            let cells = columns.iter().map(|measure| value_cell(measure, *of)).collect::<String>();
            format!("<tr><td>{}</td>{cells}</tr>\n", escape(&predictor.name))
        };
        format!(
            "<div class=\"scroll\"><table>\n<thead><tr><th>{}</th>{titles}</tr></thead>\n<tbody>{}</tbody></table></div>\n",
            escape(title),
            of_all.iter().map(row).collect::<String>()
        )
    };
    table(&DIMENSIONS) + &table(&WITHOUT_JUDGE)
}

/// Over all turns first, then by domain and by class.
fn differences(evaluation: &Evaluation) -> String {
    if evaluation.differences.is_empty() {
        return String::new();
    }
    let domains = difference_table(evaluation, &|turns| turns.strip_prefix("domain:"));
    let is_class = |turns: &&str| *turns != "all" && !turns.starts_with("domain:");
    let classes = difference_table(evaluation, &|turns| Some(turns).filter(is_class));
    let folded = |title: &str, table: String| match table.is_empty() {
        true => String::new(),
        false => format!("<details><summary>{title}</summary>{table}</details>\n"),
    };
    format!(
        "<h3>Paired differences</h3>\n<p>Later minus earlier on the same turns; coloured where the interval leaves out \
         zero.</p>\n{}{}{}",
        difference_table(evaluation, &|turns| Some(turns).filter(|turns| *turns == "all")),
        folded("by domain", domains),
        folded("by turn class", classes)
    )
}

/// The differences over the turns that `name` gives a name; empty where there are none.
fn difference_table(evaluation: &Evaluation, name: &dyn for<'a> Fn(&'a str) -> Option<&'a str>) -> String {
    // Rows in the order of the evaluation, one for each pair and set of turns.
    let mut rows: Vec<(&str, &str, &str)> = Vec::new();
    let mut values: BTreeMap<(&str, &str, &str, &str), &Interval> = BTreeMap::new();
    for difference in &evaluation.differences {
        let Some(turns) = name(&difference.turns) else { continue };
        let row = (difference.from.as_str(), difference.to.as_str(), turns);
        if !rows.contains(&row) {
            rows.push(row);
        }
        if is_known(&difference.interval) {
            values.insert((row.0, row.1, row.2, &difference.measure), &difference.interval);
        }
    }
    let is_there = |measure: &&Measure| values.keys().any(|(.., name)| *name == measure.name);
    let columns: Vec<&Measure> = MEASURES.iter().chain(&DIMENSIONS).filter(is_there).collect();
    if columns.is_empty() {
        return String::new();
    }
    let is_one_set = rows.iter().all(|(.., turns)| *turns == "all");
    let row = |(from, to, turns): &(&str, &str, &str)| {
        let cell = |measure: &&Measure| difference_cell(measure, values.get(&(*from, *to, *turns, measure.name)));
        let cells = columns.iter().map(cell).collect::<String>();
        let turns = if is_one_set { String::new() } else { format!("<td>{}</td>", escape(turns)) };
        format!("<tr><td>{} − {}</td>{turns}{cells}</tr>\n", escape(to), escape(from))
    };
    let titles = columns.iter().map(|measure| format!("<th>{}</th>", measure.title)).collect::<String>();
    let turns = if is_one_set { "" } else { "<th>turns</th>" };
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr><th>pair</th>{turns}{titles}</tr></thead>\n\
         <tbody>{}</tbody></table></div>\n",
        rows.iter().map(row).collect::<String>()
    )
}

fn difference_cell(measure: &Measure, interval: Option<&&Interval>) -> String {
    let Some(interval) = interval else { return format!("<td>{NONE}</td>") };
    let text = |value: f64| signed(value * measure.scale);
    let class = match interval {
        interval if interval.low > 0.0 => " class=\"up\"",
        interval if interval.high < 0.0 => " class=\"down\"",
        _ => "",
    };
    let (mean, low, high) = (text(interval.mean), text(interval.low), text(interval.high));
    format!("<td{class}>{mean}<small>{low} to {high}</small></td>")
}

/// The rule axes, with what they ask for.
fn by_axis(evaluation: &Evaluation) -> String {
    let measures = std::iter::once(&CHECKS).chain(&MEASURES);
    let grid = grid(evaluation, "By rule axis", measures, |predictor| &predictor.by_axis);
    if grid.is_empty() {
        return grid;
    }
    format!(
        "{grid}<p class=\"muted\"><b>control</b>: what an imposed condition changes, as the instruction says; \
         <b>error</b>: commands that fail; <b>long</b>: what was set that many turns ago. <b>{}</b>: {}.</p>\n",
        CHECKS.title, CHECKS.meaning
    )
}

/// Rows are keys such as domains or classes, columns are predictors; one table for each measure, the main one open.
/// Where more was measured, one table for each key has it.
fn grid(
    evaluation: &Evaluation,
    title: &str,
    measures: impl IntoIterator<Item = &'static Measure>,
    of: fn(&Predictor) -> &BTreeMap<String, Measures>,
) -> String {
    let keys: BTreeSet<&String> = evaluation.predictors.iter().flat_map(|predictor| of(predictor).keys()).collect();
    if keys.is_empty() {
        return String::new();
    }
    let names = evaluation.predictors.iter().map(|predictor| format!("<th>{}</th>", escape(&predictor.name)));
    let names = names.collect::<String>();
    let mut out = format!("<h3>{title}</h3>\n");
    for measure in measures {
        let rows = keys.iter().map(|key| {
            let cells = evaluation.predictors.iter().map(|predictor| value_cell(measure, of(predictor).get(*key)));
            let turns = evaluation.predictors.iter().find_map(|predictor| of(predictor).get(*key));
            let turns = turns.map_or(0, |measures| measures.exact.n);
            format!("<tr><td>{}</td><td>{turns}</td>{}</tr>\n", escape(key), cells.collect::<String>())
        });
        out += &format!(
            "<details{}><summary>{}</summary><div class=\"scroll\"><table>\n<thead><tr><th></th><th>turns</th>{names}\
             </tr></thead>\n<tbody>{}</tbody></table></div></details>\n",
            if matches!(measure.name, "normalised" | "checks") { " open" } else { "" },
            measure.title,
            rows.collect::<String>()
        );
    }
    for key in keys.into_iter().filter(|key| !is_distance(key)) {
        let tables = further_tables(evaluation, key, &|predictor| of(predictor).get(key));
        if !tables.is_empty() {
            let key = escape(key);
            out += &format!("<details><summary>{key}: by dimension, and without a judge</summary>{tables}</details>\n");
        }
    }
    out
}
