//! What every step took and made: its counts, its key and the keys of its inputs.

use serde_json::{Map, Value};

use crate::html::{escape, grouped};
use crate::run::Step;

pub(super) fn render(steps: &[Step]) -> String {
    if steps.is_empty() {
        return String::new();
    }
    let steps = steps.iter().map(step_html).collect::<String>();
    format!("<section>\n<h2>Data lineage</h2>\n{steps}</section>\n")
}

fn step_html(step: &Step) -> String {
    let counts = rows(&step.report);
    let table = match counts.is_empty() {
        true => "<p class=\"muted\">The step reported no counts.</p>\n".into(),
        false => format!("<div class=\"scroll\"><table><tbody>{counts}</tbody></table></div>\n"),
    };
    format!("<h3>{}</h3>\n{}{table}", escape(&step.name), origin(step))
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
        out += &format!("<tr><td>{}</td><td>{number}</td></tr>\n", escape(&name.replace('_', " ")));
    }
    out
}
