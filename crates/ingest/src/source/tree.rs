//! Accessibility trees, view hierarchies and documents as text, in one form for every source:
//!
//! ```text
//! [1] FORM id="search" (15,97,345,550)
//!   [2] LABEL "From" (15,136,43,150)
//!   [3] INPUT_text "" id="from" value="Oslo" focused (15,154,309,184)
//! ```
//!
//! One node a line, children two spaces deeper. In a line: the number by which actions name the node, where there is
//! one; the role as upstream names it; the name, quoted as in JSON; facts, as `key="value"`, or as the bare key where
//! a yes/no fact holds; last the box `(left,top,right,bottom)` in whole pixels. A fact that does not hold, is null or
//! is an empty text is left out.

use std::fmt::Write;

use crate::json::quote;

/// A tree as text, node by node from the root down.
#[derive(Default)]
pub(crate) struct Tree {
    text: String,
}

impl Tree {
    /// Starts the next line: a node `depth` levels below the root.
    pub(crate) fn node(&mut self, depth: usize, number: Option<i64>, role: &str) -> Node<'_> {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.extend(std::iter::repeat_n("  ", depth));
        if let Some(number) = number {
            write!(self.text, "[{number}] ").expect("writing to a string does not fail");
        }
        self.text.push_str(role);
        Node { text: &mut self.text }
    }

    /// The text, without a line end.
    pub(crate) fn finish(self) -> String {
        self.text
    }
}

/// The line that is being written.
pub(crate) struct Node<'a> {
    text: &'a mut String,
}

impl Node<'_> {
    fn push(self, word: &str) -> Self {
        self.text.push(' ');
        self.text.push_str(word);
        self
    }

    /// The name, if the node has one; an empty name is one.
    pub(crate) fn name(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => self.push(&quote(name)),
            None => self,
        }
    }

    /// A fact with a text.
    pub(crate) fn text(self, key: &str, value: Option<&str>) -> Self {
        match value.filter(|value| !value.is_empty()) {
            Some(value) => self.push(&format!("{key}={}", quote(value))),
            None => self,
        }
    }

    /// A yes/no fact.
    pub(crate) fn fact(self, key: &str, holds: bool) -> Self {
        if holds { self.push(key) } else { self }
    }

    /// Where the node is.
    pub(crate) fn place(self, place: Option<Place>) -> Self {
        match place {
            Some(Place { left, top, right, bottom }) => {
                let whole = [left, top, right, bottom].map(|edge| edge.round() as i64);
                self.push(&format!("({},{},{},{})", whole[0], whole[1], whole[2], whole[3]))
            }
            None => self,
        }
    }
}

/// The box of a node, in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Place {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_one_line_a_node_with_what_holds() {
        let mut tree = Tree::default();
        tree.node(0, Some(1), "FORM").text("id", Some("search")).text("class", Some("")).place(None);
        let place = Place { left: 15.4, top: 136.0, right: 42.6, bottom: -0.2 };
        tree.node(1, None, "LABEL").name(Some("a \"b\"\nc")).fact("focused", true).fact("checked", false);
        tree.node(1, Some(-3), "INPUT").name(Some("")).text("value", None).place(Some(place));
        let expected = "[1] FORM id=\"search\"\n  LABEL \"a \\\"b\\\"\\nc\" focused\n  [-3] INPUT \"\" (15,136,43,0)";
        assert_eq!(tree.finish(), expected);
    }
}
