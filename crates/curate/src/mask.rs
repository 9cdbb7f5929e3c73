//! The turn mask: an ordered list of rules, each a class, its tests and the share of its turns that CPT trains.

use datafusion::logical_expr::{Expr, col, lit, when};
use serde::{Deserialize, Serialize};
use worldloom_schema::KeepClass;

use crate::error::{Error, Result};

/// What a test looks at; see [`Measures`](crate::Measures).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Share of the action's words that come back.
    Overlap,
    /// Share of the observation's words that are new.
    Novelty,
    /// Characters of the observation per character of the action.
    Ratio,
    /// Different words of the observation.
    Words,
}

/// How a test compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// `>=`
    AtLeast,
    /// `>`
    Above,
    /// `<=`
    AtMost,
    /// `<`
    Below,
}

/// One test, written `novelty >= 0.6`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Test {
    /// The left side.
    pub measure: Measure,
    /// The sign.
    pub comparison: Comparison,
    /// The right side.
    pub value: f64,
}

/// A class with its tests; a turn is of the first class whose tests it passes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaskRule {
    /// The class.
    pub class: KeepClass,
    /// Tests that all have to pass.
    #[serde(default)]
    pub all: Vec<Test>,
    /// Tests of which one has to pass, if there are any.
    #[serde(default)]
    pub any: Vec<Test>,
    /// Share of the class that CPT trains.
    pub keep: f64,
}

/// The rules in order; the last one has no tests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TurnMask {
    /// The rules.
    pub rules: Vec<MaskRule>,
}

impl Default for TurnMask {
    /// The published table (recipe.md §1.5), strictest first: echo, boilerplate, transform, retrieval, expansion, action,
    /// other. Departure: "short" has no published threshold; it is fewer than ten different words.
    fn default() -> Self {
        use Comparison::{Above, AtLeast, AtMost, Below};
        use Measure::{Novelty, Overlap, Ratio, Words};
        let test = |(measure, comparison, value): (Measure, Comparison, f64)| Test { measure, comparison, value };
        let rule = |class, keep, all: &[(Measure, Comparison, f64)], any: &[(Measure, Comparison, f64)]| MaskRule {
            class,
            all: all.iter().copied().map(test).collect(),
            any: any.iter().copied().map(test).collect(),
            keep,
        };
        let rules = vec![
            rule(KeepClass::Echo, 0.05, &[(Overlap, AtLeast, 0.7), (Novelty, Below, 0.3)], &[]),
            rule(KeepClass::Boilerplate, 0.1, &[(Overlap, AtLeast, 0.5), (Novelty, Below, 0.5)], &[]),
            rule(KeepClass::Transform, 0.5, &[(Novelty, Below, 0.5), (Ratio, Below, 1.0)], &[]),
            rule(KeepClass::Retrieval, 1.0, &[(Novelty, AtLeast, 0.6), (Ratio, Above, 1.0)], &[]),
            rule(
                KeepClass::Expansion,
                1.0,
                &[(Overlap, AtLeast, 0.5), (Novelty, AtLeast, 0.5), (Ratio, Above, 1.5)],
                &[],
            ),
            rule(KeepClass::Action, 1.0, &[(Novelty, AtLeast, 0.5)], &[(Ratio, AtMost, 1.0), (Words, Below, 10.0)]),
            rule(KeepClass::Other, 1.0, &[], &[]),
        ];
        Self { rules }
    }
}

impl TurnMask {
    pub(crate) fn check(&self) -> Result<()> {
        let Some(last) = self.rules.last() else {
            return Err(Error::config("turn_mask.rules", "[]", "at least one rule"));
        };
        if !last.all.is_empty() || !last.any.is_empty() {
            return Err(Error::config(
                "turn_mask.rules",
                "a last rule with tests",
                "a last rule that takes every turn",
            ));
        }
        for (at, rule) in self.rules.iter().enumerate() {
            if !(0.0..=1.0).contains(&rule.keep) {
                return Err(Error::config(&format!("turn_mask.rules[{at}].keep"), rule.keep, "0 to 1"));
            }
            if self.rules[..at].iter().any(|earlier| earlier.class == rule.class) {
                let found = class_name(rule.class);
                return Err(Error::config(&format!("turn_mask.rules[{at}].class"), found, "each class once"));
            }
        }
        Ok(())
    }

    /// The class of a turn as an expression over the columns of its measures.
    pub(crate) fn class(&self) -> Result<Expr> {
        self.choose(|rule| lit(class_name(rule.class)))
    }

    /// The share of its class that is kept.
    pub(crate) fn keep_share(&self) -> Result<Expr> {
        self.choose(|rule| lit(rule.keep))
    }

    fn choose(&self, value: impl Fn(&MaskRule) -> Expr) -> Result<Expr> {
        let (last, tested) = self.rules.split_last().expect("the config was checked: there is a last rule");
        let Some((first, rest)) = tested.split_first() else { return Ok(value(last)) };
        let mut cases = when(first.condition(), value(first));
        for rule in rest {
            cases = cases.when(rule.condition(), value(rule));
        }
        cases
            .otherwise(value(last))
            .map_err(|error| Error::Plan { plan: "turn mask".into(), detail: error.to_string() })
    }
}

impl MaskRule {
    fn condition(&self) -> Expr {
        let all = self.all.iter().map(Test::condition).reduce(Expr::and).unwrap_or(lit(true));
        let any = self.any.iter().map(Test::condition).reduce(Expr::or).unwrap_or(lit(true));
        all.and(any)
    }
}

impl Test {
    fn condition(&self) -> Expr {
        let (left, right) = (col(self.measure.name()), lit(self.value));
        match self.comparison {
            Comparison::AtLeast => left.gt_eq(right),
            Comparison::Above => left.gt(right),
            Comparison::AtMost => left.lt_eq(right),
            Comparison::Below => left.lt(right),
        }
    }
}

impl Measure {
    const ALL: [Measure; 4] = [Measure::Overlap, Measure::Novelty, Measure::Ratio, Measure::Words];

    fn name(self) -> &'static str {
        match self {
            Measure::Overlap => "overlap",
            Measure::Novelty => "novelty",
            Measure::Ratio => "ratio",
            Measure::Words => "words",
        }
    }
}

impl Comparison {
    const ALL: [Comparison; 4] = [Comparison::AtLeast, Comparison::AtMost, Comparison::Above, Comparison::Below];

    fn sign(self) -> &'static str {
        match self {
            Comparison::AtLeast => ">=",
            Comparison::Above => ">",
            Comparison::AtMost => "<=",
            Comparison::Below => "<",
        }
    }
}

impl From<Test> for String {
    fn from(test: Test) -> String {
        format!("{} {} {}", test.measure.name(), test.comparison.sign(), test.value)
    }
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let wrong =
            || format!("`{text}` is no test; expected one such as `novelty >= 0.6` of overlap, novelty, ratio, words");
        let parts: Vec<&str> = text.split_whitespace().collect();
        let [measure, sign, value] = parts[..] else { return Err(wrong()) };
        Ok(Test {
            measure: Measure::ALL.into_iter().find(|known| known.name() == measure).ok_or_else(wrong)?,
            comparison: Comparison::ALL.into_iter().find(|known| known.sign() == sign).ok_or_else(wrong)?,
            value: value.parse().map_err(|_| wrong())?,
        })
    }
}

const CLASSES: [KeepClass; 7] = [
    KeepClass::Echo,
    KeepClass::Boilerplate,
    KeepClass::Transform,
    KeepClass::Retrieval,
    KeepClass::Expansion,
    KeepClass::Action,
    KeepClass::Other,
];

/// The name of a class as it is stored.
pub(crate) fn class_name(class: KeepClass) -> &'static str {
    match class {
        KeepClass::Echo => "echo",
        KeepClass::Boilerplate => "boilerplate",
        KeepClass::Transform => "transform",
        KeepClass::Retrieval => "retrieval",
        KeepClass::Expansion => "expansion",
        KeepClass::Action => "action",
        KeepClass::Other => "other",
    }
}

/// The class of this name.
pub(crate) fn class_of(name: &str) -> Option<KeepClass> {
    CLASSES.into_iter().find(|class| class_name(*class) == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_reads_as_it_is_written() {
        let mask = TurnMask::default();
        let text = serde_json::to_string(&mask).unwrap();
        assert!(text.contains(r#"{"class":"echo","all":["overlap >= 0.7","novelty < 0.3"],"any":[],"keep":0.05}"#));
        assert_eq!(serde_json::from_str::<TurnMask>(&text).unwrap(), mask);
    }

    #[test]
    fn a_test_that_cannot_be_read_names_what_is_expected() {
        for text in ["\"novelty\"", "\"jaccard > 1\"", "\"novelty = 1\"", "\"novelty > many\""] {
            let error = serde_json::from_str::<Test>(text).unwrap_err().to_string();
            assert!(error.contains("such as `novelty >= 0.6`"), "{error}");
        }
    }

    #[test]
    fn a_mask_ends_with_a_rule_for_every_turn_and_names_each_class_once() {
        let mut mask = TurnMask::default();
        mask.rules.pop();
        assert!(mask.check().unwrap_err().to_string().contains("takes every turn"));
        let mut mask = TurnMask::default();
        mask.rules[1].class = KeepClass::Echo;
        assert!(mask.check().unwrap_err().to_string().contains("each class once"));
    }
}
