//! From what a judge wrote to five scores, as the published evaluator does it.
//!
//! The reply's last `final_evaluation` block holds a JSON object; it is looked for in fences, then by matching braces.
//! Three repairs are made whether it needs them or not, and they fire inside strings too. What still does not parse is
//! searched for the first text that looks like scores. Zeros are "no score"; negative numbers stay.

use std::sync::LazyLock;

use num_bigint::BigInt;
use regex::Regex;

use super::json::{self, Failure};
use super::prediction::{EVALUATION, without_thinking};
use super::python::{Value, int_of, pattern, strip};
use crate::rubric::Dimension;

/// What a judge said.
#[derive(Debug, Clone, PartialEq)]
pub struct Evaluation {
    /// In the order of [`Dimension::ALL`]; 0 where there was none, never above 5, negative as it came.
    pub scores: [BigInt; 5],
    /// Mean of the positive scores; 0 without one.
    pub total_score: f64,
    /// What it praised.
    pub strengths: Vec<String>,
    /// What it missed.
    pub weaknesses: Vec<String>,
}

/// Why a reply holds no evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFault {
    /// Nothing but white space.
    Empty,
    /// No object in braces.
    NoJson,
    /// An object without an object `scores` in it.
    InvalidScores,
    /// An object that does not parse, even after the repairs.
    Json,
    /// A number that is none: NaN, an infinity, an integer of thousands of digits.
    Other,
}

impl ReplyFault {
    /// The name as it is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplyFault::Empty => "empty",
            ReplyFault::NoJson => "no_json",
            ReplyFault::InvalidScores => "invalid_scores",
            ReplyFault::Json => "json",
            ReplyFault::Other => "other",
        }
    }
}

/// Reads a judge's reply.
pub fn read_reply(reply: &str) -> Result<Evaluation, ReplyFault> {
    if strip(reply).is_empty() {
        return Err(ReplyFault::Empty);
    }
    let text = without_thinking(strip(reply), &EVALUATION);
    let text = EVALUATION.last_block(&text).filter(|block| !block.is_empty()).unwrap_or(&text);
    let found = object_in(text).ok_or(ReplyFault::NoJson)?;
    let value = parse_repaired(&repaired(found))?;
    let scores = value.get("scores").filter(|scores| matches!(scores, Value::Dict(_)));
    let scores = scores.ok_or(ReplyFault::InvalidScores)?;
    let mut five: [BigInt; 5] = Default::default();
    for (score, dimension) in five.iter_mut().zip(Dimension::ALL) {
        *score = clamped(scores.get(dimension.as_str()))?;
    }
    let positive: Vec<f64> = five.iter().filter(|score| **score > BigInt::ZERO).filter_map(small).collect();
    let total_score = if positive.is_empty() { 0.0 } else { positive.iter().sum::<f64>() / positive.len() as f64 };
    let texts = |key: &str| match value.get(key) {
        Some(Value::List(items)) => items.iter().map(Value::to_str).collect(),
        Some(Value::Text(text)) if !text.is_empty() => vec![text.clone()],
        _ => Vec::new(),
    };
    Ok(Evaluation { scores: five, total_score, strengths: texts("strengths"), weaknesses: texts("weaknesses") })
}

fn small(score: &BigInt) -> Option<f64> {
    u8::try_from(score).ok().map(f64::from)
}

/// A score: whole numbers as they are, others to the nearest (halves to even), text before a `/`, anything else 0;
/// positive ones at most 5.
fn clamped(value: Option<&Value>) -> Result<BigInt, ReplyFault> {
    let score = match value {
        Some(Value::Bool(true)) => BigInt::from(1),
        Some(Value::Int(number)) => number.clone(),
        Some(Value::Float(number)) if !number.is_finite() => return Err(ReplyFault::Other),
        Some(Value::Float(number)) => {
            // Beyond these bounds a float is whole, and its size no longer matters above 5.
            let rounded = number.round_ties_even();
            if rounded > 5.0 { BigInt::from(5) } else { whole(rounded) }
        }
        Some(Value::Text(text)) => int_of(text.split('/').next().unwrap_or_default()).unwrap_or_default(),
        _ => BigInt::ZERO,
    };
    Ok(if score > BigInt::from(5) { BigInt::from(5) } else { score })
}

/// A whole float as an integer, whatever its size.
fn whole(number: f64) -> BigInt {
    format!("{number:.0}").parse().unwrap_or_default()
}

static FENCE: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?is)```(?:json)?[\s\x1c-\x1f]*(.*?)[\s\x1c-\x1f]*```"));

/// The text that is taken for the evaluation.
fn object_in(text: &str) -> Option<&str> {
    let fences = FENCE.captures_iter(text).filter_map(|found| found.get(1)).map(|inner| strip(inner.as_str()));
    let fences: Vec<&str> = fences.filter(|inner| inner.starts_with('{') && inner.ends_with('}')).collect();
    last_with_scores(&fences).or_else(|| last_with_scores(&objects(text))).or_else(|| backward(text))
}

/// The last that names scores, else the last.
fn last_with_scores<'a>(objects: &[&'a str]) -> Option<&'a str> {
    objects.iter().rev().find(|object| object.contains("\"scores\"")).or(objects.last()).copied()
}

/// Objects by matching braces outside strings; a brace that nothing closes is passed over.
fn objects(text: &str) -> Vec<&str> {
    let (bytes, mut found, mut at) = (text.as_bytes(), Vec::new(), 0);
    while let Some(start) = text[at..].find('{').map(|offset| at + offset) {
        match closing_brace(bytes, start) {
            Some(end) => {
                found.push(&text[start..=end]);
                at = end + 1;
            }
            None => at = start + 1,
        }
    }
    found
}

fn closing_brace(bytes: &[u8], start: usize) -> Option<usize> {
    let (mut depth, mut in_string, mut is_escaped) = (0_usize, false, false);
    for (offset, byte) in bytes[start..].iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_string => is_escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' => depth += 1,
            b'}' => {
                depth -= 1;
                if depth == 0 {
                    return Some(start + offset);
                }
            }
            _ => {}
        }
    }
    None
}

/// From the last closing brace back to the one that opens it, strings or not.
fn backward(text: &str) -> Option<&str> {
    let (end, mut depth) = (text.rfind('}')?, 0_usize);
    for (at, byte) in text.as_bytes()[..=end].iter().enumerate().rev() {
        match byte {
            b'}' => depth += 1,
            b'{' => {
                depth -= 1;
                if depth == 0 {
                    return Some(&text[at..=end]);
                }
            }
            _ => {}
        }
    }
    None
}

static REPAIRS: LazyLock<[(Regex, &str); 3]> = LazyLock::new(|| {
    [
        // A comma before a closing bracket.
        (pattern(r",([\s\x1c-\x1f]*[}\]])"), "${1}"),
        // A key in single quotes.
        (pattern(r"'([^']*?)'[\s\x1c-\x1f]*:"), "\"${1}\":"),
        // A key without quotes.
        (pattern(r"([{,][\s\x1c-\x1f]*)([\p{L}\p{N}_]+)[\s\x1c-\x1f]*:"), "${1}\"${2}\":"),
    ]
});

fn repaired(object: &str) -> String {
    REPAIRS
        .iter()
        .fold(object.to_string(), |text, (found, replacement)| found.replace_all(&text, *replacement).into_owned())
}

static SCORES: LazyLock<Regex> = LazyLock::new(|| pattern(r#""scores"[\s\x1c-\x1f]*:[\s\x1c-\x1f]*(\{[^{}]*\})"#));

/// The object, or one with nothing but the first thing in it that looks like scores.
fn parse_repaired(text: &str) -> Result<Value, ReplyFault> {
    let fault = |failure| match failure {
        Failure::Syntax(_) => ReplyFault::Json,
        Failure::Unholdable => ReplyFault::Other,
    };
    match json::parse(text) {
        Ok(value) => Ok(value),
        Err(Failure::Syntax(_)) => {
            let scores = SCORES.captures(text).and_then(|found| found.get(1)).ok_or(ReplyFault::Json)?;
            let scores = json::parse(scores.as_str()).map_err(fault)?;
            Ok(Value::Dict(vec![("scores".into(), scores)]))
        }
        Err(failure) => Err(fault(failure)),
    }
}
