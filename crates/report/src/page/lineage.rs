//! What every step took and made: the flow through its rules, its counts, its key and the keys of its inputs.

use serde_json::{Map, Value};

use super::figures::figure_html;
use crate::chart::{Flow, FlowRow, Part, flow};
use crate::html::{escape, grouped};
use crate::run::Step;

/// The section and its number of figures.
pub(super) fn render(steps: &[Step]) -> (String, u64) {
    if steps.is_empty() {
        return (String::new(), 0);
    }
    let (mut html, mut count) = (String::new(), 0);
    for step in steps {
        let svg = flow(&flows(step));
        count += u64::from(svg.is_some());
        html += &step_html(step, svg.as_deref());
    }
    let about =
        "<p>From top to bottom: what was there (bold), what a rule took away (−), and the parts of what was left.</p>";
    (format!("<section>\n<h2>Data lineage</h2>\n{about}\n{html}</section>\n"), count)
}

fn step_html(step: &Step, svg: Option<&str>) -> String {
    let figure = svg.map(|svg| figure_html(&format!("{}: what became of the data", step.name), &[], svg));
    let counts = rows(&step.report);
    let table = format!("<div class=\"scroll\"><table><tbody>{counts}</tbody></table></div>\n");
    let table = match (counts.is_empty(), figure.is_some()) {
        (true, _) => "<p class=\"muted\">The step reported no counts.</p>\n".into(),
        (false, true) => format!("<details><summary class=\"muted\">all counts</summary>{table}</details>\n"),
        (false, false) => table,
    };
    format!("<h3>{}</h3>\n{}{}{table}", escape(&step.name), origin(step), figure.unwrap_or_default())
}

/// Kind, key and inputs of the artifact, where it has a manifest.
fn origin(step: &Step) -> String {
    let Some(manifest) = &step.manifest else { return String::new() };
    let short = |key: &str| key.chars().take(12).collect::<String>();
    let inputs = manifest.inputs.iter().map(|(role, input)| format!("{} {}", escape(role), escape(&short(&input.key))));
    let inputs = inputs.collect::<Vec<_>>().join(", ");
    format!(
        "<p class=\"muted\">{} {}{}</p>\n",
        escape(&manifest.kind),
        escape(&short(&manifest.key)),
        if inputs.is_empty() { String::new() } else { format!(" from {inputs}") }
    )
}

/// The flows of a step, told by the form of its report: `ingest`, `curate` or `render`; none for others.
fn flows(step: &Step) -> Vec<Flow> {
    if step.report.contains_key("rejects_by_rule") {
        return vec![ingested(step)];
    }
    if step.report.contains_key("pools") {
        return vec![curated(step, "trajectories"), curated(step, "turns")];
    }
    if step.report.contains_key("weight_sum") {
        return vec![rendered_documents(step), rendered_tokens(step)];
    }
    Vec::new()
}

fn row(label: impl Into<String>, number: u64, part: Part) -> FlowRow {
    FlowRow { label: label.into(), number, part }
}

/// A row for each entry of a map of the report that is more than nothing; `number` finds its figure.
fn taken(step: &Step, map: &str, number: impl Fn(&Value) -> Option<u64>) -> Vec<FlowRow> {
    let entries = step.report.get(map).and_then(Value::as_object).into_iter().flatten();
    let numbers = entries.filter_map(|(name, value)| Some((words(name), number(value)?)));
    numbers.filter(|(_, number)| *number > 0).map(|(name, number)| row(name, number, Part::Taken)).collect()
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}

/// Rows of the raw logs to rows that became trajectories or documents.
fn ingested(step: &Step) -> Flow {
    let Some(read) = step.count("rows") else { return Vec::new() };
    let rejected = taken(step, "rejects_by_rule", Value::as_u64);
    let left = read.saturating_sub(rejected.iter().map(|row| row.number).sum());
    let mut flow = vec![row("rows read", read, Part::All)];
    flow.extend(rejected);
    flow.push(row("rows taken", left, Part::All));
    flow.extend(step.count("trajectories").map(|number| row("trajectories", number, Part::All)));
    flow
}

/// Trajectories or turns through the rules in their order, then into the pools.
fn curated(step: &Step, takes: &str) -> Flow {
    let rules = step.report.get("flow").and_then(Value::as_array).into_iter().flatten();
    let rules: Vec<FlowRow> = rules
        .filter(|rule| rule.get("takes").and_then(Value::as_str) == Some(takes))
        .filter_map(|rule| Some((rule.get("rule")?.as_str()?, rule.get("taken")?.as_u64()?)))
        .filter(|(_, number)| *number > 0)
        .map(|(name, number)| row(words(name), number, Part::Taken))
        .collect();
    let (Some(read), Some(written)) = (step.count(&format!("{takes}_read")), step.count(takes)) else {
        return Vec::new();
    };
    let with_others = read.saturating_sub(written + rules.iter().map(|row| row.number).sum::<u64>());
    let mut flow = vec![row(format!("{takes} read"), read, Part::All)];
    if with_others > 0 {
        flow.push(row("with their trajectories", with_others, Part::Taken));
    }
    flow.extend(rules);
    flow.push(row(format!("{takes} left"), written, Part::All));
    let pools = step.report.get("pools").and_then(Value::as_object).into_iter().flatten();
    let pools = pools.filter_map(|(name, pool)| Some((name, pool.get(takes)?.as_u64()?)));
    flow.extend(pools.map(|(name, number)| row(format!("pool {name}"), number, Part::Of)));
    flow
}

fn rendered_documents(step: &Step) -> Flow {
    let Some(documents) = step.count("documents") else { return Vec::new() };
    let dropped = taken(step, "dropped", |dropped| dropped.get("documents")?.as_u64());
    let left = documents.saturating_sub(dropped.iter().map(|row| row.number).sum());
    let mut flow = vec![row("documents", documents, Part::All)];
    flow.extend(dropped);
    flow.push(row("documents left", left, Part::All));
    flow.extend(step.count("truncated").filter(|cut| *cut > 0).map(|cut| row("of them cut", cut, Part::Of)));
    flow.extend(step.count("rows").map(|rows| row("rows made", rows, Part::All)));
    flow
}

fn rendered_tokens(step: &Step) -> Flow {
    let (Some(rendered), Some(left)) = (step.count("tokens_rendered"), step.count("tokens")) else { return Vec::new() };
    let repeated = step.count("tokens_repeated").unwrap_or(0);
    let mut flow = vec![row("tokens", rendered + repeated, Part::All)];
    for (name, label) in [("tokens_shared", "in a shared history"), ("tokens_cut", "cut")] {
        flow.extend(step.count(name).filter(|n| *n > 0).map(|number| row(label, number, Part::Taken)));
    }
    flow.extend(taken(step, "dropped", |dropped| dropped.get("tokens")?.as_u64()));
    flow.push(row("tokens left", left, Part::All));
    flow.extend(step.count("trained_tokens").map(|trained| row("of them trained", trained, Part::Of)));
    flow
}

/// One row for each number of `counts`; a report without `counts` shows its own numbers.
fn rows(report: &Map<String, Value>) -> String {
    let counts = report.get("counts").and_then(Value::as_object).unwrap_or(report);
    let mut out = String::new();
    for (name, value) in counts {
        let number = match (value.as_u64(), value.as_f64()) {
            (Some(count), _) => grouped(count),
            (None, Some(number)) => format!("{number:.4}"),
            (None, None) => continue,
        };
        out += &format!("<tr><td>{}</td><td>{number}</td></tr>\n", escape(&words(name)));
    }
    out
}
