//! A figure as a file of its own: the drawing with its title above and its keys below, on white.

use std::fmt::Write;

use super::{LINES, SIZE};
use crate::html::escape;

/// Height of a line of text.
const LINE: usize = 22;
/// Letters of the title on one line.
const LETTERS_OF_TITLE: usize = 56;
/// Width of a letter of a key, about, and what stands beside its text.
const KEY_LETTER: usize = 8;
const KEY_ROOM: usize = 40;

/// An SVG document around a drawing of the width of all figures. The keys' colours are those of the lines.
pub(crate) fn standalone(title: &str, keys: &[String], svg: &str) -> String {
    let (width, height) = (SIZE.0 as usize, height(svg));
    let titles = wrapped(title);
    let top = titles.len() * LINE + 8;
    let (placed, rows) = place(keys, width);
    let total = top + height + rows * LINE + if rows > 0 { 10 } else { 0 };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\" \
         font-family=\"sans-serif\" fill=\"#222222\">\n<title>{}</title>\n\
         <rect width=\"{width}\" height=\"{total}\" fill=\"#FFFFFF\"/>\n",
        escape(title)
    );
    for (row, line) in titles.iter().enumerate() {
        let _ = writeln!(
            out,
            "<text x=\"10\" y=\"{}\" font-size=\"16\" font-weight=\"bold\">{}</text>",
            (row + 1) * LINE,
            escape(line)
        );
    }
    let _ = writeln!(out, "<g transform=\"translate(0 {top})\">\n{}\n</g>", inner(svg));
    for (index, (x, row)) in placed.into_iter().enumerate() {
        let (y, colour) = (top + height + row * LINE, LINES[index % LINES.len()]);
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"{}\" width=\"18\" height=\"6\" fill=\"#{:02X}{:02X}{:02X}\"/>\
             <text x=\"{}\" y=\"{}\" font-size=\"14\">{}</text>",
            y + 9,
            colour.0,
            colour.1,
            colour.2,
            x + 24,
            y + 17,
            escape(&keys[index])
        );
    }
    out + "</svg>\n"
}

/// Left edge and row of each key, and the number of rows.
fn place(keys: &[String], width: usize) -> (Vec<(usize, usize)>, usize) {
    let (mut x, mut row, mut placed) = (10, 0, Vec::new());
    for key in keys {
        let wide = key.chars().count() * KEY_LETTER + KEY_ROOM;
        if x > 10 && x + wide > width {
            (x, row) = (10, row + 1);
        }
        placed.push((x, row));
        x += wide;
    }
    (placed, if keys.is_empty() { 0 } else { row + 1 })
}

/// Lines of about the same length, cut between words.
fn wrapped(title: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in title.split_whitespace() {
        let line = lines.last_mut().expect("there is one from the start");
        if !line.is_empty() && line.chars().count() + word.chars().count() >= LETTERS_OF_TITLE {
            lines.push(word.into());
        } else {
            *line += if line.is_empty() { "" } else { " " };
            *line += word;
        }
    }
    lines
}

/// The attribute `height` of the drawing.
fn height(svg: &str) -> usize {
    let after = svg.split_once(" height=\"").map_or("", |(_, after)| after);
    after.split('"').next().and_then(|number| number.parse().ok()).unwrap_or(SIZE.1 as usize)
}

/// What stands between the drawing's own tags.
fn inner(svg: &str) -> &str {
    let body = svg.trim().split_once('>').map_or("", |(_, body)| body);
    body.strip_suffix("</svg>").unwrap_or(body).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_title_keys_and_the_drawing_below_each_other() {
        let svg = "<svg width=\"520\" height=\"300\" xmlns=\"x\">\n<circle/>\n</svg>\n";
        let keys: Vec<String> = (0..8).map(|number| format!("predictor number {number}")).collect();
        let file = standalone("sft: loss & more, of which there is a great deal to be told in one title", &keys, svg);
        assert_eq!((file.matches("<svg ").count(), file.matches("</svg>").count()), (1, 1));
        assert!(file.contains("<title>sft: loss &amp; more") && file.contains("translate(0 52)\">\n<circle/>\n</g>"));
        assert_eq!(file.matches("fill=\"#0072B2\"").count(), 2, "colours go round");
        assert!(file.contains("predictor number 7") && file.contains("height=\"450\""), "{file}");
        assert!(standalone("x", &[], svg).contains("height=\"330\""));
    }
}
