//! Why a row is not used, and what was counted on the way.

use std::collections::BTreeMap;

/// Counts by name; names are fixed in the code, so that a report can be read without it.
pub(crate) type Counts = BTreeMap<&'static str, u64>;

/// Adds one count to another.
pub(crate) fn count(counts: &mut Counts, name: &'static str, number: u64) {
    if number > 0 {
        *counts.entry(name).or_default() += number;
    }
}

/// The rule that refused a row, with the facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Name of the rule.
    pub(crate) rule: &'static str,
    /// Field, found and expected.
    pub(crate) detail: String,
}

impl Refusal {
    pub(crate) fn new(rule: &'static str, detail: impl Into<String>) -> Self {
        Self { rule, detail: detail.into() }
    }

    /// The same, said of a file in a folder.
    pub(crate) fn of(self, entry: &str) -> Self {
        Self { detail: format!("`{entry}`: {}", self.detail), ..self }
    }

    /// The same, said of an element of a list.
    pub(crate) fn at(self, list: &str, index: usize) -> Self {
        Self { detail: format!("{list}[{index}]: {}", self.detail), ..self }
    }

    /// A row that is not JSON: cut off at its end, or wrong inside.
    pub(crate) fn json(error: &serde_json::Error) -> Self {
        let rule = if error.is_eof() { "cut" } else { "json" };
        Self::new(rule, error.to_string())
    }

    /// A field of another type than the format has there.
    pub(crate) fn field_type(field: &str, expected: &str, found: &str) -> Self {
        Self::new("field_type", format!("`{field}`: expected {expected}, found {found}"))
    }
}
