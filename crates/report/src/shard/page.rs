//! Rows as one HTML page without scripts: trained tokens stand out; their reason and weight are in the tip of the mouse.

use super::{Cell, Segment, ShardRow, ShardSummary};
use crate::html::{escape, grouped};
use crate::page::document;

const STYLE: &str = include_str!("style.css");

/// The page: figures, notes of the run that made the rows, and the rows themselves.
pub fn page(title: &str, summary: &ShardSummary, notes: &[String], rows: &[ShardRow]) -> String {
    let notes: String = notes.iter().map(|note| format!("{}\n", escape(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<section><pre>{notes}</pre></section>\n") };
    let articles: String = rows.iter().map(article).collect();
    let body = format!(
        "<header><h1>{}</h1><p>{} of {} rows. <span class=\"t\">Trained</span> tokens, \
         <span class=\"t h\">trained with a smaller weight</span>, <span class=\"k\">added tokens</span>, context. \
         A dot stands for a line break.</p></header>\n<section><pre>{}</pre></section>\n{notes}{articles}",
        escape(title),
        grouped(rows.len() as u64),
        grouped(summary.rows),
        escape(&summary.table())
    );
    document(title, STYLE, &body)
}

fn article(row: &ShardRow) -> String {
    let (tokens, trained) = row.size();
    let segments: String = row.segments.iter().enumerate().map(|(at, segment)| segment_html(at, segment)).collect();
    format!(
        "<article><details open><summary>row {} <span class=\"badge\">{} tokens</span><span class=\"badge\">{} trained\
         </span><span class=\"badge\">{} documents</span></summary>\n{segments}</details></article>\n",
        row.number,
        grouped(tokens as u64),
        grouped(trained as u64),
        row.segments.len()
    )
}

fn segment_html(at: usize, segment: &Segment) -> String {
    let (tokens, trained) = segment.size();
    let branch = segment.continues.map(|parent| format!(", goes on from {parent}")).unwrap_or_default();
    let cells: String = segment.cells.iter().map(cell_html).collect();
    format!(
        "<p class=\"muted\">{at}: {}{branch} · {tokens} tokens, {trained} trained</p><pre class=\"row\">{cells}</pre>\n",
        escape(&segment.source)
    )
}

fn cell_html(cell: &Cell) -> String {
    let text = escape(&cell.text).replace('\n', "<i>·</i>\n");
    let class = match (cell.weight, cell.is_added) {
        (0.0, false) if cell.reason.is_empty() => return format!("<span>{text}</span>"),
        (0.0, false) => return format!("<span title=\"{}\">{text}</span>", escape(&cell.reason)),
        (0.0, true) => "k",
        (weight, false) if weight < 1.0 => "t h",
        (weight, true) if weight < 1.0 => "t h k",
        (_, false) => "t",
        (_, true) => "t k",
    };
    let ids: Vec<String> = cell.tokens.iter().map(u32::to_string).collect();
    let why = if cell.reason.is_empty() { String::new() } else { format!("{}, ", escape(&cell.reason)) };
    format!("<span class=\"{class}\" title=\"{why}weight {}, id {}\">{text}</span>", cell.weight, ids.join(" "))
}
