//! Corrupted truths: what a verifier must not let pass.

use crate::next_state::{Form, is_same_state};
use crate::text::{lines, normalise, normalised_match};

/// Wrong observations made from a true one and the one before it; none of them matches the truth or is the same state.
pub(super) fn corruptions(truth: &str, before: Option<&str>) -> Vec<String> {
    let text = normalise(truth);
    let all: Vec<&str> = lines(&text).collect();
    let mut found = vec![String::new(), "bash: command not found".into(), "Error: request failed".into(), "ok".into()];
    found.extend(before.map(str::to_string));
    found.push(format!("{text}\nand one more line"));
    found.push(format!("{text}\n+and one more"));
    if let Some(digit) = text.find(|c: char| c.is_ascii_digit()) {
        found.push(other_number(&text, digit));
    }
    if let Some(last) = text.rfind(|c: char| c.is_ascii_digit()) {
        found.push(other_number(&text, last));
    }
    if let Some(letter) = text.char_indices().filter(|(_, c)| c.is_alphabetic()).nth(1) {
        let (at, c) = letter;
        found.push(format!("{}{}{}", &text[..at], if c == 'q' { 'z' } else { 'q' }, &text[at + c.len_utf8()..]));
    }
    if all.len() > 1 {
        found.push(all[1..].join("\n"));
        found.push(all[..all.len() - 1].join("\n"));
        found.push(all[..all.len() / 2].join("\n"));
        found.push([&all[1..], &all[..1]].concat().join("\n"));
    }
    let form = Form::of(truth);
    found.retain(|corrupted| !normalised_match(truth, corrupted) && !is_same_state(form, truth, corrupted));
    found.sort_unstable();
    found.dedup();
    found
}

fn other_number(text: &str, at: usize) -> String {
    let digit = text.as_bytes()[at] - b'0';
    format!("{}{}{}", &text[..at], (digit + 4) % 10, &text[at + 1..])
}
