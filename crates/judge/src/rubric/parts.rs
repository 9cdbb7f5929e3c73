//! An observation cut into parts: what stands at which place.
//!
//! A *place* says what a value is and not which of many: a path in JSON without the numbers of its arrays, the column of a
//! table, a node's role under that of its parent, the file and sign of a changed line, the field of a result. So an item
//! too many does not make every later one wrong.
//!
//! ```text
//! {"user": {"id": 7}, "tags": ["a", "b"]}   .user.id = 7   .tags[] = a   .tags[] = b
//! [3] link "Home" focused (0,0,9,9)         list > link = "Home" focused
//! 1. [Fig](https://fig.org)                 title = Fig    url = https://fig.org
//! ```

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use worldloom_schema::Domain;

use super::results;
use super::words::{common_in_order, pieces_of};
use crate::next_state::{self, Form};
use crate::text::{comparable, lines};

/// What an observation is cut by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Leaves by their path; text that holds JSON is opened.
    Json,
    /// Changed and unchanged lines by their file.
    Diff,
    /// Nodes of a tree or view hierarchy.
    Tree,
    /// Cells by their column.
    Table,
    /// Results of a search, field by field.
    Results,
    /// Words in their order: a shell's output, and whatever else has no form.
    Text,
}

impl Shape {
    /// That of a true observation. What a shell prints is text, whatever it looks like.
    pub(crate) fn of(domain: Domain, text: &str) -> Shape {
        let has_screens = matches!(domain, Domain::Android | Domain::Web | Domain::Os);
        match Form::of(text) {
            _ if domain == Domain::Terminal => Shape::Text,
            Form::Json => Shape::Json,
            Form::Diff => Shape::Diff,
            _ if domain == Domain::Search && results::is_list(text) => Shape::Results,
            Form::Tree => Shape::Tree,
            _ if has_screens && next_state::is_screen(text) => Shape::Tree,
            Form::Table => Shape::Table,
            Form::Text => Shape::Text,
        }
    }
}

/// A value at its place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Part {
    pub(crate) place: String,
    /// Normalised and masked.
    pub(crate) value: String,
}

impl Part {
    pub(super) fn new(place: impl Into<String>, value: &str) -> Self {
        Part { place: place.into(), value: comparable(value) }
    }
}

/// An observation's parts, in its order.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) all: Vec<Part>,
    /// The places, in JSON with the types that their values have.
    pub(crate) places: BTreeSet<(String, &'static str)>,
}

impl Parts {
    /// None where the text is not of this shape.
    pub(crate) fn cut(shape: Shape, text: &str) -> Option<Parts> {
        if shape == Shape::Json {
            let (mut all, mut places) = (Vec::new(), BTreeSet::new());
            leaves("", &serde_json::from_str(text).ok()?, &mut |part, kind| {
                places.insert((part.place.clone(), kind));
                all.push(part);
            });
            return Some(Parts { all, places });
        }
        let all = match shape {
            Shape::Diff if Form::of(text) == Form::Diff => changes(text),
            Shape::Table if Form::of(text) == Form::Table => cells(text)?,
            Shape::Tree if next_state::is_screen(text) => nodes(text),
            Shape::Results => results::cut(text)?,
            Shape::Json | Shape::Diff | Shape::Table | Shape::Tree | Shape::Text => return None,
        };
        let places = all.iter().map(|part| (part.place.clone(), "")).collect();
        (!all.is_empty()).then_some(Parts { all, places })
    }

    pub(crate) fn num_pieces(&self) -> usize {
        by_place(&self.all).values().map(Vec::len).sum()
    }

    /// How often each part is there.
    pub(crate) fn counted(&self) -> BTreeMap<&Part, usize> {
        counted(&self.all)
    }

    /// The parts that `other` has not, or not as often.
    pub(crate) fn without(&self, other: &Parts) -> Vec<Part> {
        let mut left = other.counted();
        let mut new = Vec::new();
        for part in &self.all {
            match left.get_mut(part) {
                Some(count) if *count > 0 => *count -= 1,
                _ => new.push(part.clone()),
            }
        }
        new
    }
}

/// How many whole parts two lists have in common, as F1. Nothing against nothing is 1.
pub(crate) fn common_share(one: &BTreeMap<&Part, usize>, other: &BTreeMap<&Part, usize>) -> f64 {
    let common: usize = one.iter().map(|(part, count)| other.get(part).map_or(0, |other| *count.min(other))).sum();
    match one.values().chain(other.values()).sum::<usize>() {
        0 => 1.0,
        all => 2.0 * common as f64 / all as f64,
    }
}

pub(crate) fn counted<'a>(parts: impl IntoIterator<Item = &'a Part>) -> BTreeMap<&'a Part, usize> {
    let mut counted = BTreeMap::new();
    parts.into_iter().for_each(|part| *counted.entry(part).or_default() += 1);
    counted
}

/// How much of one list of parts is in another: `2 · common / (one + other)` over pieces of values, common being those in
/// the same order at the same place. Nothing against nothing is 1.
pub(crate) fn shared(one: &[Part], other: &[Part]) -> f64 {
    let (one, other) = (by_place(one), by_place(other));
    let count = |places: &BTreeMap<&str, Vec<&str>>| places.values().map(Vec::len).sum::<usize>();
    let common: usize = one.iter().filter_map(|(place, pieces)| Some(common_in_order(pieces, other.get(place)?))).sum();
    match count(&one) + count(&other) {
        0 => 1.0,
        all => 2.0 * common as f64 / all as f64,
    }
}

/// Pieces of the values at each place; an empty value is a piece, too.
fn by_place(parts: &[Part]) -> BTreeMap<&str, Vec<&str>> {
    let mut places: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for Part { place, value } in parts {
        let pieces = places.entry(place).or_default();
        let before = pieces.len();
        pieces.extend(pieces_of(value));
        if pieces.len() == before {
            pieces.push("");
        }
    }
    places
}

/// Shows each leaf with its type.
fn leaves(path: &str, value: &Value, add: &mut dyn FnMut(Part, &'static str)) {
    let mut leaf = |text: &str, kind| add(Part::new(path, text), kind);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(name, value)| leaves(&format!("{path}.{name}"), value, add));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| leaves(&format!("{path}[]"), item, add));
        }
        Value::String(text) => match serde_json::from_str::<Value>(text) {
            Ok(inner @ (Value::Object(_) | Value::Array(_))) => leaves(&format!("{path}»"), &inner, add),
            _ => leaf(text, "text"),
        },
        Value::Number(number) => leaf(&number.to_string(), "number"),
        Value::Bool(is_true) => leaf(&is_true.to_string(), "boolean"),
        Value::Null => leaf("null", "null"),
        Value::Object(_) => leaf("{}", "object"),
        Value::Array(_) => leaf("[]", "array"),
    }
}

/// Lines of a diff with their sign and file; the numbers of hunks are no content.
fn changes(text: &str) -> Vec<Part> {
    let (mut parts, mut file) = (Vec::new(), "");
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("+++ ") {
            file = name;
            parts.push(Part::new("file", name));
        } else if line.starts_with("@@ ") {
            parts.push(Part::new("hunk", ""));
        } else if let (false, Some(sign @ ('+' | '-' | ' '))) = (line.starts_with("--- "), line.chars().next()) {
            parts.push(Part::new(format!("{file} {sign}"), &line[1..]));
        }
    }
    parts
}

fn cells(text: &str) -> Option<Vec<Part>> {
    let cell = |cell: String| {
        let (place, value) = cell.split_once('=')?;
        let column = place.rsplit_once('|').map_or("columns", |(_, column)| column);
        Some(Part::new(column, value))
    };
    next_state::table_cells(text)?.into_iter().map(cell).collect()
}

/// Nodes by their role under their parent's; ids and boxes are no content.
fn nodes(text: &str) -> Vec<Part> {
    let masked = comparable(text);
    let mut above: Vec<(usize, &str)> = Vec::new();
    let mut parts = Vec::new();
    for line in lines(&masked) {
        let Some(node) = next_state::node(line) else { continue };
        above.retain(|(depth, _)| *depth < node.depth);
        let parent = above.last().map_or("", |(_, role)| *role);
        parts.push(Part { place: format!("{parent} > {}", node.role), value: node.content });
        above.push((node.depth, node.role));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(shape: Shape, text: &str) -> Vec<(String, String)> {
        Parts::cut(shape, text).unwrap().all.into_iter().map(|part| (part.place, part.value)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(place, value)| (place.to_string(), value.to_string())).collect()
    }

    #[test]
    fn each_shape_is_cut_at_its_joints() {
        let json = r#"{"b": [1, 2], "a": {"t": "x y"}, "inner": "{\"id\": 7}", "none": null, "empty": []}"#;
        let expected =
            [(".b[]", "1"), (".b[]", "2"), (".a.t", "x y"), (".inner».id", "7"), (".none", "null"), (".empty", "[]")];
        let mut found = cut(Shape::Json, json);
        let mut expected = pairs(&expected);
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        let diff = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@ def f\n one\n-two\n+three";
        let expected = [("file", "b/x"), ("hunk", ""), ("b/x  ", "one"), ("b/x -", "two"), ("b/x +", "three")];
        assert_eq!(cut(Shape::Diff, diff), pairs(&expected));
        let tree = "[1] list \"Fruit\" (0,0,9,9)\n  [2] item \"Fig\" focused (1,1,2,2)\n<b id=3>Go</b>";
        let expected = [(" > list", "\"Fruit\""), ("list > item", "\"Fig\" focused"), (" > b", "Go")];
        assert_eq!(cut(Shape::Tree, tree), pairs(&expected));
        let table = "| name | n |\n|---|---|\n| fig | 1 |";
        assert_eq!(cut(Shape::Table, table), pairs(&[("columns", "name|n"), ("name", "fig"), ("n", "1")]));
        assert!(Parts::cut(Shape::Json, "{").is_none() && Parts::cut(Shape::Tree, "some words\nmore").is_none());
    }

    #[test]
    fn an_item_too_many_leaves_the_others_right() {
        let parts = |text: &str| Parts::cut(Shape::Json, text).unwrap().all;
        let (two, three) = (r#"[{"n": "a"}, {"n": "b"}]"#, r#"[{"n": "new"}, {"n": "a"}, {"n": "b"}]"#);
        assert_eq!(shared(&parts(two), &parts(three)), 0.8);
        assert_eq!(shared(&parts(two), &parts(two)), 1.0);
        assert_eq!(shared(&parts(two), &parts(r#"[{"m": "a"}, {"m": "b"}]"#)), 0.0, "another field is another thing");
        assert_eq!(shared(&[], &[]), 1.0);
    }

    #[test]
    fn the_shape_follows_domain_and_text() {
        let element = "[0] element \"Off\" clickable (0,0,90,40)";
        for (domain, text, shape) in [
            (Domain::Terminal, "{\"a\": 1}", Shape::Text),
            (Domain::Mcp, "{\"a\": 1}", Shape::Json),
            (Domain::Android, element, Shape::Tree),
            (Domain::Mcp, element, Shape::Text),
            (Domain::Web, "url: http://shop/\nRootWebArea \"Shop\" focused\n  [a1] link \"Fig\"", Shape::Tree),
            (Domain::Web, "The page could not be opened.", Shape::Text),
            (Domain::Search, "1. [Fig](https://fig.org)\nA fruit.\n2. [Plum](https://plum.org)", Shape::Results),
            (Domain::Search, "A page about figs.\nThey are sweet.", Shape::Text),
            (Domain::Swe, "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b", Shape::Diff),
            (Domain::Swe, "3 passed in 0.1s", Shape::Text),
        ] {
            assert_eq!(Shape::of(domain, text), shape, "{domain} {text}");
        }
    }
}
