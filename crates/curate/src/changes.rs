//! How far two states of a screen differ: by their lines, without what changes by itself.

use std::collections::HashMap;

use crate::words::{is_word, mix};

/// The share of lines that stand in one state only, of the lines of both; 0 for equal states.
///
/// White space around and inside lines does not count, nor do numbers in brackets (`[123]`): trees number their nodes
/// anew each time.
pub(crate) fn changed_share(before: &str, after: &str) -> f64 {
    if before == after {
        return 0.0;
    }
    let mut balance: HashMap<u64, i64> = HashMap::new();
    let mut lines = 0u64;
    for (text, sign) in [(before, 1), (after, -1)] {
        for line in text.lines().filter_map(line_key) {
            *balance.entry(line).or_default() += sign;
            lines += 1;
        }
    }
    let different: u64 = balance.values().map(|number| number.unsigned_abs()).sum();
    if lines == 0 { 0.0 } else { different as f64 / lines as f64 }
}

/// A line as a number; none for a blank one.
fn line_key(line: &str) -> Option<u64> {
    let mut key = 0u64;
    let mut letters = line.trim().chars().peekable();
    letters.peek()?;
    while let Some(letter) = letters.next() {
        if letter.is_whitespace() && letters.peek().is_some_and(|next| next.is_whitespace()) {
            continue;
        }
        let letter = if letter.is_whitespace() { ' ' } else { letter };
        key = mix(key ^ u64::from(u32::from(letter)));
        if letter == '[' {
            skip_number(&mut letters);
        }
    }
    Some(key)
}

/// Steps over digits that end with a bracket.
fn skip_number(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let digits = letters.clone().take_while(char::is_ascii_digit).count();
    let ends = letters.clone().nth(digits).is_some_and(|letter| letter == ']' || !is_word(letter));
    if digits > 0 && ends {
        letters.by_ref().take(digits).for_each(drop);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_differ_by_lines() {
        for (before, after, expected) in [
            ("a\nb", "a\nb", 0.0),
            ("a\nb", "b\n\n  a ", 0.0),
            ("button  'Go'", "button 'Go'", 0.0),
            ("[12] button 'Go'\n[13] link", "[7] button 'Go'\n[9] link", 0.0),
            ("[12] button 'Go'", "[12] button 'Stop'", 1.0),
            ("a\nb\nc", "a\nb\nd", 2.0 / 6.0),
            ("a\na", "a", 1.0 / 3.0),
            ("items [3a]", "items [4a]", 1.0),
            ("", "a", 1.0),
            ("", "\n", 0.0),
        ] {
            assert_eq!(changed_share(before, after), expected, "{before:?} {after:?}");
        }
    }
}
