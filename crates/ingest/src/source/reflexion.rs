//! Reflexion's text log of ReAct agents; see [`react`](super::react) for the text and the task group.

use worldloom_schema::Domain;

use super::Draft;
use super::format::{Drafts, FileFormat, numbered};
use super::react::{self, mark_harness};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "react-log",
    description: "ReAct text with `Question:` blocks and numbered thoughts, actions, observations",
    example: "Question: Which fruit is blue?\nThought 1: I need to search fruit.\nAction 1: Search[fruit]\nObservation 1: A plum is a blue fruit.\nThought 2: It is the plum.\nAction 2: Finish[plum]\nObservation 2: Answer is CORRECT\nCorrect answer: plum\n",
    detects,
    read,
};

/// How a block begins.
const QUESTION: &str = "Question: ";
/// How it ends.
const ANSWER: &str = "Correct answer:";
/// How the harness answers the last action.
const VERDICT: &str = "Answer is ";

/// Whether a text has such a block.
fn detects(file: &FilePiece<'_>) -> bool {
    let head = file.text(&mut Counts::new());
    let block = blocks(&head).next();
    block.is_some_and(|block| block.contains("\nAction 1: ") && block.contains("\nObservation 1:"))
}

/// The episodes of a text.
fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let text = file.text(counts);
    Ok(numbered(blocks(&text).map(|block| Ok(episode(block, counts)))))
}

/// The blocks, each from its question on.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices('\n').map(|(at, _)| at + 1))
        .filter(|start| text[*start..].starts_with(QUESTION))
        .collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &text[start..end])
}

fn episode(block: &str, counts: &mut Counts) -> Draft {
    let block = block.split_once(&format!("\n{ANSWER}")).map_or(block, |(told, _)| told);
    let (question, told) = block.split_once('\n').unwrap_or((block, ""));
    let mut turns = react::turns(react::parts(told), counts);
    let mut success = None;
    for turn in turns.iter_mut().filter(|turn| turn.action.starts_with("Finish[")) {
        if let Some(verdict) = turn.observation.strip_prefix(VERDICT) {
            success = Some(verdict.trim() == "CORRECT");
            mark_harness(turn);
        }
    }
    let question = question.strip_prefix(QUESTION).unwrap_or(question).trim().to_string();
    let mut draft = react::draft(Domain::Search, question, turns);
    draft.outcome.success = success;
    draft
}
