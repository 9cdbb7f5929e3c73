//! Filters of the example browser: by domain, by turn class, by command family, by predictor and by how well it did.
//!
//! They are radio buttons and style rules, no script: the page runs none. What a browser without `:has` cannot hide
//! stays visible. Names from data become numbers in ids, classes and rules.

use std::collections::BTreeSet;

use worldloom_schema::{Evaluation, Example, Prediction};

use crate::html::escape;

type Meets = fn(&Prediction) -> bool;

/// What a score can be asked for, with the predictions that meet it. A match meets every threshold from below.
const SCORES: [(&str, Meets); 7] = [
    ("match", |prediction| prediction.fault.is_none() && prediction.normalised),
    ("rubric 90 or more", |prediction| is_within(prediction, 90.0, f64::INFINITY)),
    ("75 or more", |prediction| is_within(prediction, 75.0, f64::INFINITY)),
    ("50 or more", |prediction| is_within(prediction, 50.0, f64::INFINITY)),
    ("below 50", |prediction| is_within(prediction, f64::NEG_INFINITY, 50.0)),
    ("below 25", |prediction| is_within(prediction, f64::NEG_INFINITY, 25.0)),
    ("fault", |prediction| prediction.fault.is_some()),
];

/// Whether a prediction without a fault has its rubric from `low` to below `high`; a match counts as 100.
fn is_within(prediction: &Prediction, low: f64, high: f64) -> bool {
    let rubric = if prediction.normalised { Some(100.0) } else { prediction.rubric };
    prediction.fault.is_none() && rubric.is_some_and(|rubric| low <= rubric && rubric < high)
}

/// The values that can be filtered by.
pub(super) struct Filters<'a> {
    domains: Vec<&'a str>,
    classes: Vec<&'a str>,
    families: Vec<&'a str>,
    predictors: Vec<&'a str>,
}

impl<'a> Filters<'a> {
    pub(super) fn of(evaluation: &'a Evaluation) -> Self {
        let distinct = |of: fn(&Example) -> &String| -> Vec<&'a str> {
            let values: BTreeSet<&str> = evaluation.examples.iter().map(|example| of(example).as_str()).collect();
            values.into_iter().collect()
        };
        let is_shown = |name: &&str| evaluation.examples.iter().any(|example| example.predictions.contains_key(*name));
        let names = evaluation.predictors.iter().map(|predictor| predictor.name.as_str());
        Self {
            domains: distinct(|example| &example.domain),
            classes: distinct(|example| &example.class),
            families: distinct(|example| &example.family),
            predictors: names.filter(is_shown).collect(),
        }
    }

    /// Those with predictions in the examples, in the order of the table.
    pub(super) fn predictors(&self) -> impl Iterator<Item = &'a str> {
        self.predictors.iter().copied()
    }

    /// The classes of an example's element.
    pub(super) fn example_class(&self, example: &Example) -> String {
        let (domain, class) = (place(&self.domains, &example.domain), place(&self.classes, &example.class));
        format!("domain-{domain} class-{class} family-{}", place(&self.families, &example.family))
    }

    /// The classes of a prediction's element.
    pub(super) fn shot_class(&self, predictor: &str, prediction: &Prediction) -> String {
        let met = SCORES.iter().enumerate().filter(|(_, (_, meets))| meets(prediction));
        let met = met.map(|(index, _)| format!(" score-{index}")).collect::<String>();
        format!("by by-{}{met}", place(&self.predictors, predictor))
    }

    /// The buttons, and the rules that they switch.
    pub(super) fn to_html(&self) -> String {
        let scores: Vec<&str> = SCORES.iter().map(|(name, _)| *name).collect();
        let groups = [
            ("domain", "domain", &self.domains),
            ("turn class", "class", &self.classes),
            ("family", "family", &self.families),
            ("predictor", "by", &self.predictors),
            ("score", "score", &scores),
        ];
        let shown = groups.iter().filter(|(_, _, values)| values.len() > 1);
        let buttons = shown.map(|(title, key, values)| group_html(title, key, values)).collect::<String>();
        format!("<style>\n{}</style>\n<form class=\"filters\">\n{buttons}</form>\n", self.rules())
    }

    fn rules(&self) -> String {
        let mut rules = String::new();
        let hide = "{display:none}\n";
        let of_examples = [("domain", &self.domains), ("class", &self.classes), ("family", &self.families)];
        for (key, count) in of_examples.map(|(key, values)| (key, values.len())) {
            for index in 0..count {
                rules += &format!("main:has(#f-{key}-{index}:checked) .example:not(.{key}-{index}){hide}");
            }
        }
        for (key, count) in [("by", self.predictors.len()), ("score", SCORES.len())] {
            for index in 0..count {
                rules += &format!("main:has(#f-{key}-{index}:checked) .shot.by:not(.{key}-{index}){hide}");
                rules += &format!("main:has(#f-{key}-{index}:checked) .example:not(:has(.{key}-{index})){hide}");
            }
        }
        for by in 0..self.predictors.len() {
            for score in 0..SCORES.len() {
                rules += &format!(
                    "main:has(#f-by-{by}:checked):has(#f-score-{score}:checked) \
                     .example:not(:has(.by-{by}.score-{score})){hide}"
                );
            }
        }
        rules
    }
}

fn place(values: &[&str], value: &str) -> usize {
    values.iter().position(|known| *known == value).unwrap_or(values.len())
}

fn group_html(title: &str, key: &str, values: &[&str]) -> String {
    let button = |id: String, name: &str, checked: &str| {
        format!("<label><input type=\"radio\" name=\"{key}\" id=\"{id}\"{checked}>{}</label>", escape(name))
    };
    let all = button(format!("f-{key}-all"), "all", " checked");
    let each = values.iter().enumerate().map(|(index, name)| button(format!("f-{key}-{index}"), name, ""));
    format!("<fieldset><legend>{title}</legend>{all}{}</fieldset>\n", each.collect::<String>())
}
