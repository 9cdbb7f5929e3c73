//! Filters of the example browser: by domain, by turn class, by command family, by predictor and by how well it did.
//!
//! They are radio buttons and style rules, no script: the page runs none. What a browser without `:has` cannot hide
//! stays visible. Names from data become numbers in ids, classes and rules.

use std::collections::BTreeSet;

use worldloom_schema::{Evaluation, Example, Prediction};

use crate::html::escape;

/// How well a prediction did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Equal after masking.
    Match,
    /// A rubric of at least 75.
    Near,
    /// A lower rubric, or none.
    Far,
    /// No usable prediction.
    Fault,
}

impl Verdict {
    const ALL: [Verdict; 4] = [Verdict::Match, Verdict::Near, Verdict::Far, Verdict::Fault];

    pub(super) fn of(prediction: &Prediction) -> Self {
        match (&prediction.fault, prediction.normalised, prediction.rubric) {
            (Some(_), ..) => Verdict::Fault,
            (None, true, _) => Verdict::Match,
            (None, false, Some(rubric)) if rubric >= 75.0 => Verdict::Near,
            (None, false, _) => Verdict::Far,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Verdict::Match => "match",
            Verdict::Near => "rubric 75 or more",
            Verdict::Far => "rubric below 75",
            Verdict::Fault => "fault",
        }
    }
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
        format!("by by-{} verdict-{}", place(&self.predictors, predictor), Verdict::of(prediction) as usize)
    }

    /// The buttons, and the rules that they switch.
    pub(super) fn to_html(&self) -> String {
        let verdicts: Vec<&str> = Verdict::ALL.iter().map(|verdict| verdict.name()).collect();
        let groups = [
            ("domain", "domain", &self.domains),
            ("turn class", "class", &self.classes),
            ("family", "family", &self.families),
            ("predictor", "by", &self.predictors),
            ("verdict", "verdict", &verdicts),
        ];
        let shown = groups.iter().filter(|(_, _, values)| values.len() > 1);
        let buttons = shown.map(|(title, key, values)| group_html(title, key, values)).collect::<String>();
        format!("<style>\n{}</style>\n<form class=\"filters\">\n{buttons}</form>\n", self.rules(verdicts.len()))
    }

    fn rules(&self, verdicts: usize) -> String {
        let mut rules = String::new();
        let hide = "{display:none}\n";
        let of_examples = [("domain", &self.domains), ("class", &self.classes), ("family", &self.families)];
        for (key, count) in of_examples.map(|(key, values)| (key, values.len())) {
            for index in 0..count {
                rules += &format!("main:has(#f-{key}-{index}:checked) .example:not(.{key}-{index}){hide}");
            }
        }
        for (key, count) in [("by", self.predictors.len()), ("verdict", verdicts)] {
            for index in 0..count {
                rules += &format!("main:has(#f-{key}-{index}:checked) .shot.by:not(.{key}-{index}){hide}");
                rules += &format!("main:has(#f-{key}-{index}:checked) .example:not(:has(.{key}-{index})){hide}");
            }
        }
        for by in 0..self.predictors.len() {
            for verdict in 0..verdicts {
                rules += &format!(
                    "main:has(#f-by-{by}:checked):has(#f-verdict-{verdict}:checked) \
                     .example:not(:has(.by-{by}.verdict-{verdict})){hide}"
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
