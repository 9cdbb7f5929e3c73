//! The page: one HTML file with its style and figures inside, readable on a phone, in print, light or dark.

mod bars;
mod examples;
mod figures;
mod filters;
mod lineage;
mod tables;

use crate::error::Result;
use crate::html::{escape, grouped};
use crate::run::Content;

/// The style sheet, inlined.
const STYLE: &str = include_str!("style.css");

/// The whole page, and how many figures it has.
pub(crate) fn render(content: &Content) -> Result<(String, u64)> {
    let (figures, mut count) = figures::render(&content.stages)?;
    let mut body = format!("<header><h1>{}</h1>{}</header>\n", escape(&content.title), lead(content));
    match &content.evaluation {
        Some(evaluation) => {
            let (bars, of_bars) = bars::results(evaluation)?;
            let (calibration, of_calibration) = figures::calibration(evaluation)?;
            count += of_bars + of_calibration;
            body += &tables::render(evaluation, &bars, &calibration);
        }
        None => body += "<section><h2>Results</h2><p class=\"muted\">No evaluation was given.</p></section>\n",
    }
    body += &figures;
    let (lengths, of_lengths) = bars::lengths(content.evaluation.as_ref(), &content.steps)?;
    body += &lengths;
    count += of_lengths;
    if let Some(evaluation) = &content.evaluation {
        body += &examples::render(evaluation);
    }
    let (lineage, of_lineage) = lineage::render(&content.steps);
    body += &lineage;
    count += of_lineage;
    Ok((document(&content.title, "", &body), count))
}

/// A page: its title, style beside that of all pages, and body.
pub(crate) fn document(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n",
        escape(title)
    )
}

/// One sentence under the title.
fn lead(content: &Content) -> String {
    let Some(evaluation) = &content.evaluation else { return String::new() };
    let shares = evaluation.class_shares.iter();
    let shares: Vec<String> =
        shares.map(|(class, share)| format!("{} {:.0} %", escape(class), 100.0 * share)).collect();
    format!(
        "<p>Predicted observations compared with what the environment really answered: {} turns of {} episodes that \
         training never saw{}.</p>",
        grouped(evaluation.turns),
        grouped(evaluation.episodes),
        if shares.is_empty() { String::new() } else { format!(" ({})", shares.join(", ")) }
    )
}
