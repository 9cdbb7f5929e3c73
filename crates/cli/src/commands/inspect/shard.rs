//! `inspect shard`: what exactly is trained. Rows with coloured tokens, trained stretches alone, figures, a page.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ArgMatches;
use serde_json::json;
use worldloom_render::{Control, REPORT_FILE, RenderReport, Tokenizer};
use worldloom_report::shard::{Cell, Segment, ShardRow, ShardSummary, Stretch, page};
use worldloom_schema::{Artifact, Row, ShardSet};

use super::text::clean;
use crate::config::UserError;

/// Tokens that may be text only together: a character has at most four bytes.
const MAX_CELL: usize = 4;
const TRAINED: &str = "\u{1b}[30;46m";
const LESS: &str = "\u{1b}[30;106m";
const ADDED: &str = "\u{1b}[33m";
const DIM: &str = "\u{1b}[2m";
const PLAIN: &str = "\u{1b}[0m";

pub(super) fn shard(matches: &ArgMatches) -> Result<()> {
    let path = matches.get_one::<PathBuf>("PATH").cloned().unwrap_or_default();
    let set = ShardSet::open(&path)
        .map_err(|error| UserError::new(error.to_string()).hint("a folder that `render` wrote for cpt or sft"))?;
    let tokenizer = tokenizer(matches, &path, &set)?;
    let number = |name: &str| matches.get_one::<u64>(name).map(|&number| number as usize);
    let rows = chosen(set.len(), number("row"), number("rows"))?;
    let view = View { set: &set, tokenizer: &tokenizer };
    if matches.get_flag("trained") {
        return view.print_trained(&rows);
    }
    if matches.get_flag("reasons") && set.reasons().is_empty() {
        let error = UserError::new(format!("`{}` does not say why its tokens have their weights", path.display()));
        return Err(error.hint("it was rendered by an earlier version; render it again").into());
    }
    let summary = view.summary()?;
    let notes = notes(&path);
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string_pretty(&json!({ "summary": summary, "render": notes }))?);
        return Ok(());
    }
    if let Some(out) = matches.get_one::<PathBuf>("html") {
        let shown = rows.iter().map(|&row| view.row(row)).collect::<Result<Vec<_>>>()?;
        let title = format!("Token rows of {}", path.display());
        fs_err::write(out, page(&title, &summary, &notes, &shown))?;
        eprintln!("written to {}", out.display());
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    let is_colour = out.is_terminal();
    let style = match (matches.get_flag("reasons"), is_colour) {
        (true, _) => explained,
        (false, true) => coloured,
        (false, false) => bracketed,
    };
    let result = view.print(&mut out, &summary, &notes, &rows, style);
    match result.as_ref().err().and_then(|error| error.downcast_ref::<std::io::Error>()) {
        Some(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => result,
    }
}

/// The tokenizer given, or the one that the rows were made with; refused where its hash is another.
fn tokenizer(matches: &ArgMatches, path: &Path, set: &ShardSet) -> Result<Tokenizer> {
    let given = matches.get_one::<PathBuf>("tokenizer").cloned();
    let recorded = || Some(Artifact::open_any(path).ok()?.manifest.inputs.get("tokenizer")?.path.clone());
    let folder = given.or_else(recorded).ok_or_else(|| {
        UserError::new(format!("`{}` does not say which tokenizer it was made with", path.display()))
            .hint("give its folder with --tokenizer")
    })?;
    let tokenizer = Tokenizer::open(&folder)?;
    match set.tokenizer().filter(|&hash| hash != tokenizer.hash()) {
        None => Ok(tokenizer),
        Some(hash) => {
            let found = format!(
                "tokenizer `{}` has hash {}, the rows were made with {hash}",
                folder.display(),
                tokenizer.hash()
            );
            Err(UserError::new(found).hint("give the folder of that tokenizer with --tokenizer").into())
        }
    }
}

/// The row asked for, or some that are spread evenly.
fn chosen(total: usize, row: Option<usize>, rows: Option<usize>) -> Result<Vec<usize>> {
    match row {
        Some(row) if row >= total => Err(UserError::new(format!("row {row} asked for, {total} rows in it")).into()),
        Some(row) => Ok(vec![row]),
        None => {
            let count = rows.unwrap_or(1).min(total);
            Ok((0..count).map(|at| at * total / count).collect())
        }
    }
}

/// What `render` said: its table, what was left out, how long documents were before they were cut.
fn notes(path: &Path) -> Vec<String> {
    let report = fs_err::read(path.join(REPORT_FILE)).ok();
    let Some(report) = report.and_then(|text| serde_json::from_slice::<RenderReport>(&text).ok()) else {
        return Vec::new();
    };
    let mut notes =
        vec![format!("render {}: family {}, seed and settings in manifest.json", report.stage, report.family)];
    notes.extend(report.table());
    let dropped = report.dropped.iter().map(|(reason, at)| format!("left out: {reason} {}", at.documents));
    notes.extend(dropped);
    let count = |name: &str| report.counts.get(name).copied().unwrap_or(0);
    notes.push(format!("longer than a row: {} documents, {} tokens cut", count("truncated"), count("tokens_cut")));
    notes.push(format!("documents that spell control tokens: {}", count("control_text_documents")));
    if count("windows_without_target") > 0 {
        notes.push(format!("windows without a target, left out: {}", count("windows_without_target")));
    }
    notes.extend(crate::steps::lengths(&report));
    notes
}

struct View<'a> {
    set: &'a ShardSet,
    tokenizer: &'a Tokenizer,
}

impl View<'_> {
    fn summary(&self) -> Result<ShardSummary> {
        let mut summary = ShardSummary::default();
        for number in 0..self.set.len() {
            let row = self.set.row(number)?;
            let mut segments = vec![(0, 0); row.continues.len()];
            for (&segment, &weight) in row.segments.iter().zip(&row.weights) {
                let size = &mut segments[segment as usize];
                *size = (size.0 + 1, size.1 + usize::from(weight > 0.0));
            }
            let speakers = self.speakers(&row)?;
            let mut parts: Vec<(&str, usize, usize)> = Vec::new();
            for (speaker, &weight) in speakers.iter().zip(&row.weights) {
                let at = parts.iter().position(|part| part.0 == speaker.as_str()).unwrap_or_else(|| {
                    parts.push((speaker, 0, 0));
                    parts.len() - 1
                });
                parts[at].1 += 1;
                parts[at].2 += usize::from(weight > 0.0);
            }
            let reasons = self.set.row_reasons(number)?.unwrap_or_default();
            let mut whys: Vec<(&str, usize, f64)> = Vec::new();
            for (&reason, &weight) in reasons.iter().zip(&row.weights) {
                let at = whys.iter().position(|why| why.0 == reason).unwrap_or_else(|| {
                    whys.push((reason, 0, 0.0));
                    whys.len() - 1
                });
                whys[at].1 += 1;
                whys[at].2 += f64::from(weight);
            }
            summary.add(&segments, row.total_weight(), &parts, &whys);
        }
        Ok(summary)
    }

    /// Who says each token: the word after the last turn marker; a text where there is none.
    fn speakers(&self, row: &Row) -> Result<Vec<String>> {
        let start = self.tokenizer.control(Control::TurnStart);
        let mut speakers = Vec::with_capacity(row.tokens.len());
        let mut now = "text".to_string();
        for at in 0..row.tokens.len() {
            let begins = at == 0 || row.segments[at] != row.segments[at - 1];
            if begins {
                let parent = row.continues[row.segments[at] as usize];
                let last = row.segments[..at].iter().rposition(|&segment| i64::from(segment) == i64::from(parent));
                now = last.map_or("text".into(), |last| speakers.get(last).cloned().unwrap_or_default());
            }
            if Some(row.tokens[at]) == start {
                let next = &row.tokens[at + 1..row.tokens.len().min(at + 1 + MAX_CELL)];
                let word = self.tokenizer.decode(next)?;
                now = word.split_whitespace().next().filter(|_| !next.is_empty()).unwrap_or("text").to_string();
            }
            speakers.push(now.clone());
        }
        Ok(speakers)
    }

    fn row(&self, number: usize) -> Result<ShardRow> {
        let row = self.set.row(number)?;
        let reasons = self.set.row_reasons(number)?.unwrap_or_default();
        let mut segments: Vec<Segment> = (row.sources.iter().zip(&row.continues))
            .map(|(source, &parent)| Segment {
                source: source.clone(),
                continues: usize::try_from(parent).ok(),
                cells: Vec::new(),
            })
            .collect();
        let mut at = 0;
        while at < row.tokens.len() {
            let end = self.cell_end(&row, &reasons, at)?;
            let tokens = row.tokens[at..end].to_vec();
            let is_first = at == 0 || row.segments[at] != row.segments[at - 1];
            let text = match is_first && row.continues[row.segments[at] as usize] < 0 {
                true => self.tokenizer.decode(&tokens)?,
                false => self.tokenizer.decode_going_on(&tokens)?,
            };
            let is_added = self.tokenizer.is_added(tokens[0]);
            let (weight, reason) = (row.weights[at], reasons.get(at).copied().unwrap_or_default().to_string());
            segments[row.segments[at] as usize].cells.push(Cell { text, weight, is_added, tokens, reason });
            at = end;
        }
        Ok(ShardRow { number, segments })
    }

    /// The end of the shortest run that is whole text, of one segment, weight and reason.
    fn cell_end(&self, row: &Row, reasons: &[&str], at: usize) -> Result<usize> {
        let same = |next: usize| {
            next < row.tokens.len()
                && row.segments[next] == row.segments[at]
                && row.weights[next] == row.weights[at]
                && reasons.get(next) == reasons.get(at)
        };
        for end in at + 1..=at + MAX_CELL {
            if !self.tokenizer.decode_going_on(&row.tokens[at..end])?.contains('\u{fffd}') {
                return Ok(end);
            }
            if !same(end) {
                break;
            }
        }
        Ok(at + 1)
    }

    fn print_trained(&self, rows: &[usize]) -> Result<()> {
        for &number in rows {
            let row = self.row(number)?;
            for (at, segment) in row.segments.iter().enumerate() {
                for (weight, text) in segment.trained() {
                    println!(
                        "{}",
                        json!({ "row": number, "segment": at, "source": segment.source, "weight": weight, "text": text })
                    );
                }
            }
        }
        Ok(())
    }

    fn print(
        &self,
        out: &mut impl Write,
        summary: &ShardSummary,
        notes: &[String],
        rows: &[usize],
        style: fn(&Segment) -> String,
    ) -> Result<()> {
        write!(out, "{}", summary.table())?;
        writeln!(out)?;
        notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        for &number in rows {
            let row = self.row(number).with_context(|| format!("read row {number}"))?;
            let (tokens, trained) = row.size();
            writeln!(out, "\nrow {number}: {tokens} tokens, {trained} trained, {} documents", row.segments.len())?;
            for (at, segment) in row.segments.iter().enumerate() {
                let branch = segment.continues.map(|parent| format!(", goes on from {parent}")).unwrap_or_default();
                let (tokens, trained) = segment.size();
                writeln!(out, "— {at}: {}{branch}, {tokens} tokens, {trained} trained", clean(&segment.source))?;
                writeln!(out, "{}", style(segment))?;
            }
        }
        Ok(())
    }
}

/// The text with trained tokens on a ground of colour, the shade of every other one a little different.
fn coloured(segment: &Segment) -> String {
    let mut out = String::new();
    for (at, cell) in segment.cells.iter().enumerate() {
        let style = match (cell.weight, cell.is_added) {
            (0.0, true) => ADDED.to_string(),
            (0.0, _) => {
                if at % 2 == 0 {
                    DIM.into()
                } else {
                    String::new()
                }
            }
            (weight, _) if weight < 1.0 => LESS.into(),
            (_, true) => format!("{TRAINED}\u{1b}[1m"),
            _ => TRAINED.into(),
        };
        let underline = if cell.weight > 0.0 && at % 2 == 0 { "\u{1b}[4m" } else { "" };
        for (line, text) in cell.text.split('\n').enumerate() {
            if line > 0 {
                out += &format!("{style}⏎{PLAIN}\n");
            }
            if !text.is_empty() {
                out += &format!("{style}{underline}{}{PLAIN}", clean(text));
            }
        }
    }
    out
}

/// A line for each stretch of one reason: the reason, the weight, the number of tokens, the text.
fn explained(segment: &Segment) -> String {
    let line = |stretch: &Stretch<'_>| {
        let text: Vec<String> = stretch.text.split('\n').map(clean).collect();
        format!("{:<12} {:>4} {:>6}  {}", stretch.reason, stretch.weight, stretch.tokens, text.join("⏎"))
    };
    segment.explained().iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The text with trained stretches in brackets, their weight at the end where it is not 1.
fn bracketed(segment: &Segment) -> String {
    let mut out = String::new();
    let mut now = 0.0;
    let close = |weight: f32| match weight {
        0.0 => String::new(),
        1.0 => "⟧".into(),
        weight => format!("⟧{weight}"),
    };
    for cell in &segment.cells {
        if cell.weight != now {
            out += &close(now);
            out += if cell.weight > 0.0 { "⟦" } else { "" };
            now = cell.weight;
        }
        let lines: Vec<String> = cell.text.split('\n').map(clean).collect();
        out += &lines.join("\n");
    }
    out + &close(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        let cell = |text: &str, weight| {
            let reason = if weight > 0.0 { "observation" } else { "action" }.into();
            Cell { text: text.into(), weight, is_added: false, tokens: vec![1], reason }
        };
        let cells =
            vec![cell("ls\u{1b}[2J\n", 0.0), cell("fi", 1.0), cell("g", 1.0), cell("pwd", 0.5), cell("\n", 0.0)];
        Segment { source: "a".into(), continues: None, cells }
    }

    #[test]
    fn trained_stretches_are_marked_with_and_without_colour() {
        assert_eq!(bracketed(&segment()), "ls␛[2J\n⟦fig⟧⟦pwd⟧0.5\n");
        let lines = "action          0      1  ls␛[2J⏎\nobservation     1      2  fig\nobservation   0.5      1  pwd\naction          0      1  ⏎";
        assert_eq!(explained(&segment()), lines);
        let coloured = coloured(&segment());
        assert!(coloured.contains(TRAINED) && coloured.contains(LESS) && !coloured.contains("\u{1b}[2J"));
    }

    #[test]
    fn rows_are_spread_evenly_or_named() {
        assert_eq!(chosen(10, None, None).unwrap(), [0]);
        assert_eq!(chosen(10, None, Some(3)).unwrap(), [0, 3, 6]);
        assert_eq!(chosen(2, None, Some(9)).unwrap(), [0, 1]);
        assert_eq!(chosen(10, Some(9), None).unwrap(), [9]);
        assert!(chosen(10, Some(10), None).is_err());
    }
}
