//! The five dimensions of an observation that has a form, from its parts.
//!
//! - format: the same places (fields with their types, columns, roles, files), laid out the same way;
//! - factuality: the content at each place ([`shared`]); half of it are the whole parts that came and went since the screen
//!   before, and the lines that a diff adds and takes away;
//! - consistency: the parts that earlier turns made known, as F1 between those of the truth and those of the prediction;
//! - realism: made-up values look as the true ones at their place do, nothing is a filler, ids are not given twice, a
//!   diff's hunks have the lines that their heads promise;
//! - quality: as many parts and pieces as the truth has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::builtin::Measured;
use super::consistency::{Known, quoted};
use super::parts::{Part, Parts, Shape, common_share, counted, shared};
use super::values::{Look, is_filler};
use super::words::{Prepared, ratio};
use super::{JudgeContext, Score, Scores, factuality, realism};
use crate::next_state;
use crate::text::pattern;

/// F1 of what changed below which the main effect is missed.
const LEAST_EFFECT: f64 = 0.4;
/// How much more of a prediction is in the screen before than in the true one where it gives the old one back.
const NEARER: f64 = 0.05;

/// An observation as text and in parts.
pub(super) struct Cut<'a> {
    pub(super) text: &'a str,
    pub(super) parts: Parts,
}

/// The screen that stood before, where observations are screens.
fn screen_before(context: &JudgeContext<'_>, shape: Shape) -> Option<Parts> {
    let earlier = context.history.iter().rev().map(|(_, observation)| *observation).chain(context.initial_state);
    let mut screens = earlier.filter_map(|text| Parts::cut(shape, text));
    if shape == Shape::Tree { screens.next() } else { None }
}

pub(super) fn measure(context: &JudgeContext<'_>, shape: Shape, truth: &Cut<'_>, prediction: &Cut<'_>) -> Measured {
    let before = screen_before(context, shape);
    let share = share_of_content(shape, before.as_ref(), truth, prediction);
    let length_ratio = ratio(truth.parts.num_pieces(), prediction.parts.num_pieces())
        .min(ratio(truth.parts.all.len(), prediction.parts.all.len()));
    let scores = Scores {
        format: format(shape, truth, prediction),
        factuality: factuality::score(share),
        consistency: consistency(context, before.as_ref(), truth, prediction),
        realism: looks_real(context, shape, truth, prediction),
        quality: Score::graded(length_ratio, [0.95, 0.8, 0.6, 0.35]),
    };
    let scores = match before {
        Some(before) => limited_by_effect(&before, truth, prediction, scores),
        None => scores,
    };
    Measured { scores, share, length_ratio }
}

/// What is left to a prediction that shows little of what the action did to the screen: it misses the main effect. One that
/// is nearer to the screen before has kept what is no more.
fn limited_by_effect(before: &Parts, truth: &Cut<'_>, prediction: &Cut<'_>, scores: Scores) -> Scores {
    let (expected, found) = (change(before, &truth.parts), change(before, &prediction.parts));
    if expected.is_empty() || common_share(&counted(&expected), &counted(&found)) >= LEAST_EFFECT {
        return scores;
    }
    let kept = |other: &Parts| shared(&other.all, &prediction.parts.all);
    let is_old = found.is_empty() || kept(before) > kept(&truth.parts) + NEARER;
    Scores {
        factuality: scores.factuality.min(Score(2)),
        consistency: scores.consistency.min(if is_old { Score(2) } else { Score::MAX }),
        quality: scores.quality.min(Score(2)),
        ..scores
    }
}

/// Parts that came, and those that went, marked `-`.
fn change(before: &Parts, after: &Parts) -> Vec<Part> {
    let gone = before.without(after).into_iter().map(|part| Part { place: format!("-{}", part.place), ..part });
    after.without(before).into_iter().chain(gone).collect()
}

fn format(shape: Shape, truth: &Cut<'_>, prediction: &Cut<'_>) -> Score {
    let (expected, found) = (&truth.parts.places, &prediction.parts.places);
    let share = 2.0 * expected.intersection(found).count() as f64 / (expected.len() + found.len()) as f64;
    Score::graded(share, [0.9, 0.7, 0.45, 0.2]).lowered(layout(shape, truth.text, prediction.text))
}

/// Points for another layout of the same parts.
fn layout(shape: Shape, truth: &str, prediction: &str) -> u8 {
    let share = |text: &str, holds: &dyn Fn(&str) -> bool| {
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.iter().filter(|line| holds(line)).count() as f64 / lines.len().max(1) as f64
    };
    let differs = |holds: &dyn Fn(&str) -> bool| (share(truth, holds) - share(prediction, holds)).abs() > 0.5;
    let points = match shape {
        Shape::Json => u8::from(truth.trim().contains('\n') != prediction.trim().contains('\n')),
        Shape::Tree => {
            let has = |fact: fn(&next_state::Node<'_>) -> bool| {
                differs(&|line| next_state::node(line).is_some_and(|node| fact(&node)))
            };
            u8::from(has(|node| node.has_id)) + u8::from(has(|node| node.has_box))
        }
        Shape::Results => {
            let is_numbered = |line: &str| line.trim_start().starts_with(['[', '1', '2', '3']);
            u8::from(truth.lines().any(is_numbered) != prediction.lines().any(is_numbered))
        }
        Shape::Diff | Shape::Table | Shape::Text => 0,
    };
    points.min(2)
}

/// What of the content is right, and of what the action did.
fn share_of_content(shape: Shape, before: Option<&Parts>, truth: &Cut<'_>, prediction: &Cut<'_>) -> f64 {
    let content = shared(&truth.parts.all, &prediction.parts.all);
    let effect = |after: &Parts| match (shape, before) {
        (Shape::Diff, _) => {
            after.all.iter().filter(|part| part.place.ends_with(['+', '-'])).cloned().collect::<Vec<_>>()
        }
        (_, Some(before)) => change(before, after),
        _ => Vec::new(),
    };
    let (expected, found) = (effect(&truth.parts), effect(&prediction.parts));
    match expected.is_empty() {
        true => content,
        false => (content + common_share(&counted(&expected), &counted(&found))) / 2.0,
    }
}

fn consistency(context: &JudgeContext<'_>, before: Option<&Parts>, truth: &Cut<'_>, prediction: &Cut<'_>) -> Score {
    let known = Known::of(context);
    let on_screen = before.map(Parts::counted).unwrap_or_default();
    let is_known = |part: &Part| match before {
        Some(_) => on_screen.contains_key(part) || quoted(&part.value).any(|text| known.is_in_action(text)),
        None => known.has(&part.value) || quoted(&part.value).any(|text| known.has(text)),
    };
    let (expected, found) = [truth, prediction].map(|cut| cut.parts.all.iter().filter(|part| is_known(part))).into();
    let score = Score::graded(common_share(&counted(expected), &counted(found)), [1.0, 0.88, 0.5, 0.25]);
    let root = |parts: &Parts| parts.all.first().cloned();
    match before {
        // The page stays, and the prediction is on another.
        Some(before) if root(before) == root(&truth.parts) && root(&prediction.parts) != root(before) => {
            score.min(Score(2))
        }
        _ => score,
    }
}

fn looks_real(context: &JudgeContext<'_>, shape: Shape, truth: &Cut<'_>, prediction: &Cut<'_>) -> Score {
    let as_text = realism::score(context, &Prepared::new(truth.text), &Prepared::new(prediction.text));
    let own = prediction.parts.without(&truth.parts);
    let points = odd_looks(shape, &truth.parts, prediction, &own)
        + if own.iter().any(|part| is_filler(&part.value)) { 2 } else { 0 }
        + repeated_ids(shape, truth, prediction)
        + if shape == Shape::Diff && !hunks_hold(prediction.text) && hunks_hold(truth.text) { 2 } else { 0 };
    as_text.lowered(points)
}

/// Points for values that look otherwise than all true ones at their place.
fn odd_looks(shape: Shape, truth: &Parts, prediction: &Cut<'_>, own: &[Part]) -> u8 {
    if !matches!(shape, Shape::Json | Shape::Table | Shape::Results) {
        return 0;
    }
    let mut looks: BTreeMap<&str, BTreeSet<Look>> = BTreeMap::new();
    for part in &truth.all {
        looks.entry(&part.place).or_default().insert(Look::of(&part.value));
    }
    let is_odd = |part: &&Part| {
        let Some(expected) = looks.get(part.place.as_str()) else { return false };
        let fits = |look: Look| expected.contains(&look);
        !match Look::of(&part.value) {
            Look::Id => fits(Look::Id) || fits(Look::Words),
            Look::Number => fits(Look::Number) || fits(Look::Negative),
            look => fits(look),
        }
    };
    let share = own.iter().filter(is_odd).count() as f64 / prediction.parts.all.len() as f64;
    [0.0, 0.15, 0.5].iter().filter(|&&most| share > most).count() as u8
}

/// Points for ids that are given twice, where the truth's are not. A result that comes again is a loop.
fn repeated_ids(shape: Shape, truth: &Cut<'_>, prediction: &Cut<'_>) -> u8 {
    match repeats_ids(shape, prediction) && !repeats_ids(shape, truth) {
        true if shape == Shape::Results => 2,
        is_new => u8::from(is_new),
    }
}

/// Whether something is named twice that names one thing: an id in JSON, a result's address, the number of a node.
fn repeats_ids(shape: Shape, cut: &Cut<'_>) -> bool {
    let mut seen = BTreeSet::new();
    let mut is_new = |name: &str| name.is_empty() || seen.insert(name.to_string());
    match shape {
        Shape::Json => {
            let ids = cut.parts.all.iter().filter(|part| part.place.contains("[]") && part.place.ends_with("id"));
            !ids.into_iter().all(|Part { place, value }| is_new(&format!("{place}={value}")))
        }
        Shape::Results => !cut.parts.all.iter().filter(|part| part.place == "url").all(|part| is_new(&part.value)),
        Shape::Tree => {
            let number = |line| next_state::node(line).and_then(|node| node.id);
            !cut.text.lines().filter_map(number).all(is_new)
        }
        Shape::Diff | Shape::Table | Shape::Text => false,
    }
}

/// Whether each hunk has the lines that `@@ -a,b +c,d @@` promises.
fn hunks_hold(text: &str) -> bool {
    static HEAD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@"));
    let mut open = (0i64, 0i64);
    for line in text.lines() {
        let head = HEAD.captures(line);
        if let Some(head) = head {
            if open != (0, 0) {
                return false;
            }
            let number = |at: usize| head.get(at).map_or(Some(1), |number| number.as_str().parse().ok());
            let (Some(old), Some(new)) = (number(1), number(2)) else { return false };
            open = (old, new);
        } else if open != (0, 0) {
            match line.chars().next() {
                Some('-') => open.0 -= 1,
                Some('+') => open.1 -= 1,
                Some('\\') => {}
                _ => open = (open.0 - 1, open.1 - 1),
            }
            if open.0 < 0 || open.1 < 0 {
                return false;
            }
        }
    }
    open == (0, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hunks_have_the_lines_that_they_promise() {
        let diff = "--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n one\n-two\n-three\n+four";
        assert!(hunks_hold(diff) && hunks_hold("@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file"));
        assert!(!hunks_hold(&diff.replace("-1,3", "-1,5")) && !hunks_hold(&diff.replace("\n-three", "")));
    }
}
