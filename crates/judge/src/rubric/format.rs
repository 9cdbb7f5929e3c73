//! Format: the same kind of output (nothing, error, JSON, long listing, numbers, text) in the same shape (lines,
//! columns).

use std::sync::LazyLock;

use regex::Regex;
use serde::de::IgnoredAny;
use worldloom_schema::Domain;

use super::Score;
use super::bash::is_error_line;
use super::words::{Prepared, ratio};
use crate::text::pattern;

/// What kind of output a text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    LongListing,
    Numbers,
    Text,
}

pub(crate) fn score(domain: Domain, truth: &Prepared, prediction: &Prepared) -> Score {
    let lines = ratio(truth.num_lines(), prediction.num_lines());
    let columns = ratio(truth.num_words() * prediction.num_lines(), prediction.num_words() * truth.num_lines());
    let shape = Score::graded(lines * columns, [0.7, 0.45, 0.2, 0.08]);
    shape.min(kind_limit(domain, truth, prediction))
}

/// The most that is left to a prediction of another kind.
fn kind_limit(domain: Domain, truth: &Prepared, prediction: &Prepared) -> Score {
    let (expected, found) = (kind(truth), kind(prediction));
    let (expected_errors, found_errors) = (errors(domain, truth), errors(domain, prediction));
    if (expected_errors == Errors::None) != (found_errors == Errors::None) {
        let mixed = expected_errors == Errors::Some || found_errors == Errors::Some;
        return if mixed { Score(3) } else { Score(2) };
    }
    match (expected, found) {
        _ if expected == found => Score::MAX,
        (Kind::Json, _) | (_, Kind::Json) => Score(2),
        _ => Score(3),
    }
}

fn kind(text: &Prepared) -> Kind {
    static MODE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(⟦inode⟧ )?[-dlcbps][-rwxsStT]{6,12}[.+@]? "));
    let first = text.text.trim_start();
    let most = |holds: &dyn Fn(&str) -> bool| 2 * text.lines().filter(|line| holds(line)).count() > text.num_lines();
    if first.starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(first).is_ok() {
        Kind::Json
    } else if most(&|line| MODE.is_match(line)) {
        Kind::LongListing
    } else if most(&|line| line.trim().parse::<f64>().is_ok()) {
        Kind::Numbers
    } else {
        Kind::Text
    }
}

/// How much of a text is error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Errors {
    None,
    Some,
    All,
}

fn errors(domain: Domain, text: &Prepared) -> Errors {
    let is_error = |line: &&str| domain == Domain::Terminal && is_error_line(line);
    match text.lines().filter(is_error).count() {
        0 => Errors::None,
        all if all == text.num_lines() => Errors::All,
        _ => Errors::Some,
    }
}
