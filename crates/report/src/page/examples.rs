//! Sampled predictions beside the truth, with what was invented and what is missing marked, and filters over them.

use similar::{ChangeTag, TextDiff};
use worldloom_schema::{Evaluation, Example, Prediction, System};

use super::filters::Filters;
use crate::html::{escape, grouped, hundred};

/// Texts longer than this are compared word by word instead of character by character.
const LONGEST_BY_CHARACTER: usize = 400;
/// Characters that are shown of a part of the prompt.
const LONGEST_PROMPT_PART: usize = 6000;

pub(super) fn render(evaluation: &Evaluation) -> String {
    if evaluation.examples.is_empty() {
        return String::new();
    }
    let filters = Filters::of(evaluation);
    let examples = evaluation.examples.iter().map(|example| example_html(example, &filters)).collect::<String>();
    format!(
        "<section>\n<h2>Sampled predictions</h2>\n<p>Drawn by seed over domains and turn classes. <ins>Underlined</ins>: in \
         the prediction only. <del>Struck through</del>: in the truth only.</p>\n{}{examples}</section>\n",
        filters.to_html()
    )
}

fn example_html(example: &Example, filters: &Filters<'_>) -> String {
    let shots = filters.predictors().filter_map(|name| Some((name, example.predictions.get(name)?)));
    let shot = |(name, prediction): (&str, &Prediction)| {
        prediction_html(name, prediction, &example.truth, &filters.shot_class(name, prediction))
    };
    let shots = shots.map(shot).collect::<String>();
    format!(
        "<article class=\"example {}\">\n<h3>{} <span class=\"badge\">{}</span> <span class=\"badge\">{}</span></h3>\n{}{}\
         <pre>$ {}</pre>\n<div class=\"shots\">\n<div class=\"shot\"><b>truth</b>{}</div>\n{shots}</div>\n</article>\n",
        filters.example_class(example),
        escape(&example.id),
        escape(&example.class),
        escape(&example.family),
        prompt(&example.system),
        history(example),
        escape(&example.action),
        block(&example.truth)
    )
}

/// What the model was told before the first turn, part by part as far as there is one.
fn prompt(system: &System) -> String {
    let parts = [
        ("task", Some(&system.task_description)),
        ("actions", system.action_space.as_ref()),
        ("initial state", system.initial_state.as_ref()),
        ("simulation instruction", system.simulation_instruction.as_ref()),
    ];
    let parts = parts
        .into_iter()
        .filter_map(|(name, text)| Some((name, text?)))
        .chain(system.demonstrations.iter().map(|text| ("demonstration", text)));
    let part = |(name, text): (&str, &String)| match text.trim().is_empty() {
        true => String::new(),
        false => format!("<small>{name}</small>{}", block(&shortened(text))),
    };
    let parts = parts.map(part).collect::<String>();
    match parts.is_empty() {
        true => parts,
        false => format!("<details><summary class=\"muted\">prompt</summary>{parts}</details>\n"),
    }
}

/// A long text without its middle: the evaluation has it whole.
fn shortened(text: &str) -> String {
    let letters = text.chars().count();
    if letters <= LONGEST_PROMPT_PART {
        return text.into();
    }
    let half = LONGEST_PROMPT_PART / 2;
    let (head, tail): (String, String) =
        (text.chars().take(half).collect(), text.chars().skip(letters - half).collect());
    format!("{head}\n[… {} characters …]\n{tail}", grouped((letters - 2 * half) as u64))
}

fn history(example: &Example) -> String {
    if example.history.is_empty() {
        return String::new();
    }
    let turns = example.history.iter().map(|(action, observation)| {
        let end = if observation.is_empty() || observation.ends_with('\n') { "" } else { "\n" };
        format!("$ {}\n{}{end}", escape(action), escape(observation))
    });
    format!(
        "<details><summary class=\"muted\">{} earlier turns</summary><pre>{}</pre></details>\n",
        example.history.len(),
        turns.collect::<String>()
    )
}

fn prediction_html(name: &str, prediction: &Prediction, truth: &str, class: &str) -> String {
    let verdict = match (&prediction.fault, prediction.normalised, prediction.rubric) {
        (Some(fault), ..) => format!("fault: {}", escape(fault)),
        (None, true, _) => "match".into(),
        (None, false, Some(rubric)) => format!("rubric {}", hundred(rubric)),
        (None, false, None) => "no match".into(),
    };
    let thinking = prediction.thinking.as_deref().map_or(String::new(), |thinking| {
        format!("<details><summary class=\"muted\">thinking</summary>{}</details>", block(thinking))
    });
    let text = match prediction.fault {
        Some(_) => block(&prediction.text),
        None => difference(truth, &prediction.text),
    };
    let name = escape(name);
    format!("<div class=\"shot {class}\"><b>{name}</b><span class=\"badge\">{verdict}</span>{thinking}{text}</div>\n")
}

fn block(text: &str) -> String {
    match text.is_empty() {
        true => "<pre class=\"muted\">(empty)</pre>".into(),
        false => format!("<pre>{}</pre>", escape(text)),
    }
}

/// The prediction with marks where it differs from the truth.
fn difference(truth: &str, prediction: &str) -> String {
    if truth == prediction {
        return block(prediction);
    }
    let diff = match truth.len().max(prediction.len()) <= LONGEST_BY_CHARACTER {
        true => TextDiff::from_chars(truth, prediction),
        false => TextDiff::from_words(truth, prediction),
    };
    let mut out = String::new();
    let mut open = ChangeTag::Equal;
    for change in diff.iter_all_changes() {
        if change.tag() != open {
            out += closing(open);
            out += opening(change.tag());
            open = change.tag();
        }
        out += &escape(change.value());
    }
    format!("<pre>{out}{}</pre>", closing(open))
}

fn opening(tag: ChangeTag) -> &'static str {
    match tag {
        ChangeTag::Equal => "",
        ChangeTag::Delete => "<del>",
        ChangeTag::Insert => "<ins>",
    }
}

fn closing(tag: ChangeTag) -> &'static str {
    match tag {
        ChangeTag::Equal => "",
        ChangeTag::Delete => "</del>",
        ChangeTag::Insert => "</ins>",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_marked_and_escaped() {
        assert_eq!(difference("a<b", "a<b"), "<pre>a&lt;b</pre>");
        assert_eq!(difference("x<y", "x>y"), "<pre>x<del>&lt;</del><ins>&gt;</ins>y</pre>");
        assert_eq!(difference("fig", ""), "<pre><del>fig</del></pre>");
        assert_eq!(difference("", ""), "<pre class=\"muted\">(empty)</pre>");
    }

    #[test]
    fn a_mark_holds_all_of_the_text_of_both_sides() {
        let (truth, prediction) = ("one two three ".repeat(40), "one too three ".repeat(40));
        let html = difference(&truth, &prediction);
        let without = |open: &str, close: &str| {
            let mut text = html.clone();
            while let Some(start) = text.find(open) {
                let end = text[start..].find(close).unwrap() + start + close.len();
                text.replace_range(start..end, "");
            }
            text.replace("<del>", "").replace("</del>", "").replace("<ins>", "").replace("</ins>", "")
        };
        assert_eq!(without("<ins>", "</ins>"), format!("<pre>{truth}</pre>"));
        assert_eq!(without("<del>", "</del>"), format!("<pre>{prediction}</pre>"));
    }
}
