//! ReAct text: `Thought`, `Action` and `Observation` by turns, in the shapes that three well-known logs have.
//!
//! - `fireact`: a JSON object keyed by question, whose `traj` is one text or a list of chat messages (FireAct).
//! - `react-log`: a text of blocks `Question: …`, numbered `Thought k:`, `Action k:`, `Observation k:`, to `Correct
//!   answer:` (Reflexion).
//! - `react-webshop`: a text of episodes that begin with `Action: reset` (ReAct on WebShop), or the notebook that
//!   printed it.
//!
//! A label counts at the start of a line; what follows belongs to it to the next label. What an agent wrote beyond its
//! first action before the environment answered was not run; it is left out and counted. Taken: thoughts as reasoning;
//! the first page of a shop as the state before the first action. What the harness says (`Episode finished, …`, `Answer
//! is …`, `OK.` to a thought, a score) is kept under the flag `skip:harness_text`, its verdict as outcome. Left out:
//! gold answers, summaries of trials, warnings of Python in a shop's trace, all counted.
//!
//! Task group: the hash of the question or the instruction, so that all trials and agents of a question stay together.

use worldloom_schema::{ActionKind, Domain, Turn};

use super::Draft;
use super::format::{HARNESS_TEXT, spoken};
use crate::episode::turn;
use crate::refusal::{Counts, count};

/// What a line begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Label {
    Thought,
    Action,
    Observation,
}

/// A label with its text.
pub(crate) struct Part {
    pub(crate) label: Label,
    pub(crate) text: String,
}

/// The label at the start of a line, with the rest of the line: `Action 3: Search[x]`, `Action: Search[x]`.
fn label(line: &str) -> Option<(Label, &str)> {
    let labels = [("Thought", Label::Thought), ("Action", Label::Action), ("Observation", Label::Observation)];
    labels.into_iter().find_map(|(word, label)| {
        let rest = line.strip_prefix(word)?;
        let number = rest.trim_start_matches(' ').trim_start_matches(|letter: char| letter.is_ascii_digit());
        let text = number.strip_prefix(':')?;
        let is_number = rest.starts_with(':') || (rest.starts_with(' ') && rest.len() > number.len() + 1);
        is_number.then(|| (label, text.strip_prefix(' ').unwrap_or(text)))
    })
}

/// The labelled parts of a text; lines before the first label belong to none.
pub(crate) fn parts(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in text.split_inclusive('\n') {
        match label(line) {
            Some((label, rest)) => parts.push(Part { label, text: rest.into() }),
            None => parts.last_mut().into_iter().for_each(|part| part.text.push_str(line)),
        }
    }
    parts
}

/// The turns of the parts: an action and the observation after it.
pub(crate) fn turns(parts: Vec<Part>, counts: &mut Counts) -> Vec<Turn> {
    let mut turns = Vec::new();
    let (mut thoughts, mut action) = (Vec::new(), None::<String>);
    for Part { label, text } in parts {
        match label {
            Label::Thought if action.is_some() => count(counts, "words_after_an_action", 1),
            Label::Thought => thoughts.push(text.trim().to_string()),
            Label::Action if action.is_some() => count(counts, "calls_without_a_result", 1),
            Label::Action => action = Some(text.trim().to_string()),
            Label::Observation => {
                let Some(action) = action.take() else {
                    count(counts, "results_without_a_call", 1);
                    continue;
                };
                let mut turn = turn(action, ActionKind::Text, text.trim_end_matches('\n').into());
                turn.reasoning = spoken(Some(std::mem::take(&mut thoughts).join("\n")));
                turns.push(turn);
            }
        }
    }
    count(counts, "calls_without_a_result", u64::from(action.is_some()));
    turns
}

/// An episode of a question.
pub(crate) fn draft(domain: Domain, question: String, turns: Vec<Turn>) -> Draft {
    let mut draft = Draft { domain: Some(domain), turns, ..Draft::default() };
    draft.system.task_description = question;
    draft
}

/// Marks a turn whose observation the harness wrote.
pub(crate) fn mark_harness(turn: &mut Turn) {
    turn.flags.push(HARNESS_TEXT.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stands_at_the_start_of_a_line_with_or_without_a_number() {
        for (line, expected) in [
            ("Action: Search[x]", Some((Label::Action, "Search[x]"))),
            ("Action 12: Search[x]", Some((Label::Action, "Search[x]"))),
            ("Observation:", Some((Label::Observation, ""))),
            ("Thought 1:  two", Some((Label::Thought, " two"))),
            ("Action : x", None),
            ("Actions: x", None),
            (" Action: x", None),
            ("Action item: x", None),
            ("Action", None),
        ] {
            assert_eq!(label(line), expected, "{line}");
        }
    }

    #[test]
    fn what_follows_a_label_belongs_to_it_to_the_next() {
        let text = "head\nThought 1: a\nb\nAction 1: Go[x]\nObservation 1: one\n\ntwo: Action: no\n";
        let mut counts = Counts::new();
        let turns = turns(parts(text), &mut counts);
        assert_eq!(turns.len(), 1);
        assert_eq!(turns[0].reasoning.as_deref(), Some("a\nb"));
        assert_eq!((turns[0].action.as_str(), turns[0].observation.as_str()), ("Go[x]", "one\n\ntwo: Action: no"));
        assert!(counts.is_empty());
    }
}
