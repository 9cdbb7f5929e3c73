//! Text from data on a terminal: made harmless, and broken into lines of a width.

use ratatui::text::Span;

/// Columns of a tab stop.
const TAB: usize = 4;

/// One line without anything that a terminal would obey; the control pictures stand for control characters.
pub(super) fn clean(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for letter in line.chars() {
        match letter {
            '\t' => out.extend(std::iter::repeat_n(' ', TAB)),
            '\u{0}'..='\u{1f}' => out.push(char::from_u32(0x2400 + letter as u32).unwrap_or('?')),
            '\u{7f}' => out.push('\u{2421}'),
            '\u{80}'..='\u{9f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => out.push('\u{fffd}'),
            letter => out.push(letter),
        }
    }
    out
}

/// The lines of a text, cleaned and broken at `width` columns.
pub(super) fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(2);
    let mut lines = Vec::new();
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        let line = clean(line.strip_suffix('\r').unwrap_or(line));
        let (mut start, mut columns) = (0, 0);
        for (at, letter) in line.char_indices() {
            let next = Span::raw(&line[at..at + letter.len_utf8()]).width();
            if columns + next > width {
                lines.push(line[start..at].to_string());
                (start, columns) = (at, 0);
            }
            columns += next;
        }
        lines.push(line[start..].to_string());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_columns_and_nothing_is_obeyed() {
        assert_eq!(wrap("abcdef\n\ngh\n", 4), ["abcd", "ef", "", "gh"]);
        assert_eq!(wrap("日本語x", 4), ["日本", "語x"]);
        assert_eq!(wrap("a\u{1b}[2Jb\r\n\tc", 9), ["a␛[2Jb", "    c"]);
        assert_eq!(wrap("", 4), [""]);
        assert_eq!(wrap("\u{202e}x\u{0}", 80), ["\u{fffd}x␀"]);
    }
}
