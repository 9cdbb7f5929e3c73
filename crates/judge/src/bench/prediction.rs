//! From what a model wrote to its prediction, as the published evaluator does it: lenient, and with its surprises.

use std::sync::LazyLock;

use regex::Regex;

use super::python::{pattern, strip};

/// Stands before a true observation in the rows.
pub const MARKER: &str = "**Environment Observation:**";
/// What a prediction is where there is none.
pub const NO_OUTPUT: &str = "No output";
/// The domains whose marker is taken off and whose judges have a system prompt.
pub const DOMAINS: [&str; 7] = ["android", "mcp", "os", "search", "swe", "terminal", "web"];

/// A tag with its two patterns, in any case as Python's `IGNORECASE` has it.
pub(super) struct Tag {
    open: Regex,
    close: Regex,
}

impl Tag {
    fn new(name: &str) -> Self {
        // Python lets a dotted capital and a dotless small I match an i; the rest is simple case folding in both.
        let name = name.replace('i', "[i\u{130}\u{131}]");
        Self { open: pattern(&format!("(?i)<{name}>")), close: pattern(&format!("(?i)</{name}>")) }
    }

    /// What the last opening tag opens, up to the next closing tag or the end, stripped.
    pub(super) fn last_block<'a>(&self, text: &'a str) -> Option<&'a str> {
        let start = self.open.find_iter(text).last()?.end();
        let end = self.close.find_at(text, start).map_or(text.len(), |close| close.start());
        Some(strip(&text[start..end]))
    }
}

static THINK: LazyLock<Tag> = LazyLock::new(|| Tag::new("think"));
pub(super) static PREDICTION: LazyLock<Tag> = LazyLock::new(|| Tag::new("predicted_observation"));
pub(super) static EVALUATION: LazyLock<Tag> = LazyLock::new(|| Tag::new("final_evaluation"));

/// The prediction in a completion. Never a failure: without a tag it is the whole text but for the thinking, and
/// without text it is [`NO_OUTPUT`]; an empty block is an empty prediction.
pub fn extract_prediction(completion: &str) -> String {
    if completion.is_empty() {
        return NO_OUTPUT.into();
    }
    let text = without_thinking(completion, &PREDICTION);
    match PREDICTION.last_block(&text) {
        Some(block) => block.into(),
        None if strip(&text).is_empty() => NO_OUTPUT.into(),
        None => strip(&text).into(),
    }
}

/// The text without [`MARKER`]: the one it starts with, else all of them; other domains than the seven keep theirs.
pub fn without_marker(text: &str, domain: &str) -> String {
    if !DOMAINS.contains(&domain) {
        return text.into();
    }
    match text.strip_prefix(MARKER) {
        Some(rest) => strip(rest).into(),
        None => strip(&text.replace(MARKER, "")).into(),
    }
}

/// Drops the thinking. Each `<think>` goes with the next `</think>` not yet taken; a closing tag without an opening one
/// drops everything before it, an opening one without a closing one everything up to the next `answer` tag.
pub(super) fn without_thinking(text: &str, answer: &Tag) -> String {
    let opens: Vec<_> = THINK.open.find_iter(text).map(|found| found.range()).collect();
    let closes: Vec<_> = THINK.close.find_iter(text).map(|found| found.range()).collect();
    if opens.is_empty() && closes.is_empty() {
        return text.into();
    }
    let mut is_taken = vec![false; closes.len()];
    let mut dropped = Vec::new();
    for open in opens {
        let next = (0..closes.len()).find(|&at| !is_taken[at] && closes[at].start >= open.end);
        match next {
            Some(at) => {
                is_taken[at] = true;
                dropped.push(open.start..closes[at].end);
            }
            None => {
                let end = answer.open.find_at(text, open.end).map_or(text.len(), |tag| tag.start());
                dropped.push(open.start..end);
            }
        }
    }
    dropped.extend(closes.iter().zip(is_taken).filter(|(_, taken)| !taken).map(|(close, _)| 0..close.end));
    dropped.sort_by_key(|range| (range.start, range.end));
    let (mut kept, mut at) = (String::new(), 0);
    for range in dropped {
        if range.start > at {
            kept.push_str(&text[at..range.start]);
        }
        at = at.max(range.end);
    }
    kept.push_str(&text[at..]);
    strip(&kept).into()
}
