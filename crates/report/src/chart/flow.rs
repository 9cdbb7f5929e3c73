//! A flow: what comes in, what each step takes away, what is left and what it is split into, as bars below each other.
//!
//! Each bar begins where the one before it ends, so that the eye follows what is left.

use std::fmt::Write;

use super::{LINES, SIZE};
use crate::html::{cut, escape, grouped};

/// Height of a row and of its bar.
const ROW: usize = 24;
const THICK: usize = 14;
/// Left edge and width of the bars; labels stand before them and figures after.
const BARS: (f64, f64) = (196.0, 200.0);
const LETTERS_OF_LABEL: usize = 24;

/// What a row of a flow is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// All that is there at this point.
    All,
    /// Taken away from the end of what was there.
    Taken,
    /// A part of what is left, after the parts before it.
    Of,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FlowRow {
    /// What it is called.
    pub(crate) label: String,
    /// How many.
    pub(crate) number: u64,
    /// What it is.
    pub(crate) part: Part,
}

/// Rows with one unit; the first tells the scale.
pub(crate) type Flow = Vec<FlowRow>;

/// Draws flows below each other, each on a scale of its own. `None` when all are empty.
pub(crate) fn flow(flows: &[Flow]) -> Option<String> {
    let flows: Vec<&Flow> = flows.iter().filter(|flow| !flow.is_empty()).collect();
    let num_rows = flows.iter().map(|flow| flow.len()).sum::<usize>();
    if num_rows == 0 {
        return None;
    }
    let (width, height) = (SIZE.0, num_rows * ROW + (flows.len() - 1) * ROW / 2 + 6);
    let mut svg = format!(
        "<svg width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n"
    );
    let mut top = 0;
    for flow in flows {
        let whole = flow.iter().map(|row| row.number).max().unwrap_or(0).max(1) as f64;
        let (mut left, mut parts) = (0, 0);
        for row in flow {
            let start = match row.part {
                Part::All => {
                    (left, parts) = (row.number, 0);
                    0
                }
                Part::Taken => {
                    left = left.saturating_sub(row.number);
                    left
                }
                Part::Of => {
                    parts += row.number;
                    parts - row.number
                }
            };
            draw_row(&mut svg, row, top, start as f64 / whole, whole);
            top += ROW;
        }
        top += ROW / 2;
    }
    Some(svg + "</svg>\n")
}

fn draw_row(svg: &mut String, row: &FlowRow, top: usize, start: f64, whole: f64) {
    let share = row.number as f64 / whole;
    let (colour, sign, indent, weight) = match row.part {
        Part::All => (LINES[0], "", 4, "bold"),
        Part::Taken => (LINES[1], "−", 18, "normal"),
        Part::Of => (LINES[2], "", 18, "normal"),
    };
    let (x, wide) = (BARS.0 + start * BARS.1, (share * BARS.1).max(if row.number > 0 { 1.0 } else { 0.0 }));
    let text = top + 17;
    let _ = writeln!(
        svg,
        "<text x=\"{indent}\" y=\"{text}\" font-size=\"15\" font-weight=\"{weight}\" fill=\"#222222\">{}</text>\
         <rect x=\"{x:.1}\" y=\"{}\" width=\"{wide:.1}\" height=\"{THICK}\" fill=\"#{:02X}{:02X}{:02X}\"/>\
         <text x=\"{}\" y=\"{text}\" font-size=\"15\" text-anchor=\"end\" fill=\"#222222\">{sign}{}</text>",
        escape(&cut(&row.label, LETTERS_OF_LABEL)),
        top + 5,
        colour.0,
        colour.1,
        colour.2,
        SIZE.0 - 4,
        grouped(row.number),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(label: &str, number: u64, part: Part) -> FlowRow {
        FlowRow { label: label.into(), number, part }
    }

    #[test]
    fn bars_begin_where_what_is_left_ends_and_parts_stand_in_a_row() {
        let rows = vec![
            row("read", 200, Part::All),
            row("doubles & more", 50, Part::Taken),
            row("short", 50, Part::Taken),
            row("written", 100, Part::All),
            row("cpt", 60, Part::Of),
            row("eval", 40, Part::Of),
        ];
        let svg = flow(&[rows, Vec::new()]).unwrap();
        let bars: Vec<(f64, f64)> = svg
            .split("<rect ")
            .skip(1)
            .map(|rect| {
                let number = |name: &str| rect.split(name).nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
                (number("x=\""), number("width=\""))
            })
            .collect();
        let at = |start: f64, share: f64| (BARS.0 + start * BARS.1, share * BARS.1);
        let expected = [at(0.0, 1.0), at(0.75, 0.25), at(0.5, 0.25), at(0.0, 0.5), at(0.0, 0.3), at(0.3, 0.2)];
        assert_eq!(bars, expected);
        assert!(svg.contains("doubles &amp; more") && svg.contains(">−50</text>") && svg.contains(">200</text>"));
    }

    #[test]
    fn nothing_is_no_figure() {
        assert_eq!(flow(&[Vec::new()]), None);
        assert!(flow(&[vec![row("read", 0, Part::All)]]).is_some());
    }
}
