//! ReAct's trace on WebShop, as the notebook printed it; see [`react`](super::react) for the text and the task group.

use serde_json::value::RawValue;
use worldloom_schema::{Domain, Turn};

use super::format::{Drafts, FileFormat, RowFormat, numbered};
use super::react::{self, mark_harness};
use super::{Draft, Origin};
use crate::json::{self, Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "react-webshop",
    description: "ReAct's trace on WebShop: text of episodes from `Action: reset` on, or its notebook",
    example: "-----------------\n0\nAction: reset\nObservation: \nWebshop \nInstruction:  \ni want a red cup \n[Search] \n\nAction: search[red cup]\nObservation: \n[Back to Search] \n[B0] \nCup, red \n$5.0 \n\nAction: click[Buy Now]\nObservation: Your score (min 0.0, max 1.0): 1.0\n",
    detects,
    read,
};

/// The same in the notebook that printed it.
pub(crate) static NOTEBOOK: RowFormat = RowFormat {
    name: "react-webshop-notebook",
    description: "the notebook of ReAct on WebShop, whose cells printed the trace",
    example: r#"{"cells": [{"cell_type": "code", "source": [], "outputs": [{"output_type": "stream", "text": ["Action: reset\n", "Observation: \n", "Webshop \n", "Instruction:  \n", "i want a cup \n", "[Search] \n", "\n", "Action: search[cup]\n", "Observation: \n", "[B0] \n"]}]}], "nbformat": 4}"#,
    detects: detects_notebook,
    read: read_notebook,
};

/// How an episode begins.
const RESET: &str = "Action: reset\n";
/// How the harness ends it.
const SCORE: &str = "Your score (min 0.0, max 1.0): ";

fn detects(file: &FilePiece<'_>) -> bool {
    is_trace(&file.text(&mut Counts::new()))
}

/// Whether a text is a trace.
fn is_trace(text: &str) -> bool {
    blocks(text).next().is_some_and(|block| block.contains("\nInstruction:") && block.contains("[Search]"))
}

/// Whether a row is a notebook that printed one.
fn detects_notebook(fields: &Fields<'_>) -> bool {
    fields.contains_key("cells") && printed(fields).is_ok_and(|cells| cells.iter().any(|text| is_trace(text)))
}

/// The episodes of a notebook.
fn read_notebook(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut episodes = Vec::new();
    for text in printed(fields)?.iter().filter(|text| is_trace(text)) {
        episodes.extend(blocks(text).map(|block| Ok(episode(block, counts))));
    }
    Ok(numbered(episodes))
}

/// What each cell printed.
fn printed(fields: &Fields<'_>) -> Result<Vec<String>, Refusal> {
    let mut texts = Vec::new();
    for cell in json::objects(fields, "cells")? {
        let mut text = String::new();
        for output in json::objects(&cell, "outputs")? {
            output.get("text").map(|raw| add_lines(raw, &mut text)).transpose()?;
        }
        texts.push(text);
    }
    Ok(texts)
}

/// Text as a string or as a list of lines.
fn add_lines(raw: &RawValue, text: &mut String) -> Result<(), Refusal> {
    match Value::of(raw)? {
        Value::Text(lines) => text.push_str(&lines),
        Value::List(lines) => lines.iter().try_for_each(|line| add_lines(line, text))?,
        _ => {}
    }
    Ok(())
}

/// The episodes of a trace.
fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let text = file.text(counts);
    Ok(numbered(blocks(&text).map(|block| Ok(episode(block, counts)))))
}

/// The blocks, each from its `Action: reset` on.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    let is_start = |(at, _): &(usize, &str)| *at == 0 || text[..*at].ends_with('\n');
    let starts: Vec<usize> = text.match_indices(RESET).filter(is_start).map(|(at, _)| at).collect();
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &text[start..end])
}

fn episode(block: &str, counts: &mut Counts) -> Draft {
    let told = without_warnings(without_rule(block), counts);
    let mut turns = react::turns(react::parts(&told), counts);
    turns.iter_mut().for_each(|turn| turn.observation = turn.observation.trim_start_matches('\n').into());
    let first = if turns.is_empty() { None } else { Some(turns.remove(0).observation) };
    let mut reward = None;
    for turn in &mut turns {
        reward = verdict(turn).or(reward);
    }
    let instruction = first.as_deref().and_then(instruction).unwrap_or_default();
    let mut draft = react::draft(Domain::Web, instruction, turns);
    draft.system.initial_state = first;
    draft.outcome.reward = reward;
    draft.outcome.success = reward.map(|reward| reward >= 1.0);
    draft
}

/// The score of a turn that ends the episode. Marks it and the `OK.` that a thought gets.
fn verdict(turn: &mut Turn) -> Option<f64> {
    let score = turn.observation.strip_prefix(SCORE).map(|score| score.trim().parse());
    if score.is_some() || (turn.action.starts_with("think[") && turn.observation == "OK.") {
        mark_harness(turn);
    }
    score?.ok()
}

/// The block without what the loop around it prints: the averages, the rule, the number of the next episode.
fn without_rule(block: &str) -> &str {
    let is_rule = |line: &str| line.len() >= 13 && line.bytes().all(|byte| byte == b'-');
    let mut at = 0;
    for line in block.split_inclusive('\n') {
        if is_rule(line.trim_end()) {
            let told = block[..at].trim_end_matches('\n');
            return told.rsplit_once('\n').filter(|(_, last)| is_averages(last)).map_or(told, |(told, _)| told);
        }
        at += line.len();
    }
    block
}

/// `12 0.5 0.25 0.0`: the episode's number and the means so far.
fn is_averages(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    words.len() >= 3 && words.iter().all(|word| word.parse::<f64>().is_ok())
}

/// The block without the warnings that Python printed into it, each with the line of code under it.
fn without_warnings(block: &str, counts: &mut Counts) -> String {
    let mut told = String::with_capacity(block.len());
    let mut lines = block.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if line.contains(".py:") && line.contains("Warning: ") {
            count(counts, "warnings_left_out", 1);
            lines.next_if(|line| line.starts_with("  "));
            continue;
        }
        told.push_str(line);
    }
    told
}

/// The words after `Instruction:` on the first page.
fn instruction(page: &str) -> Option<String> {
    let (_, rest) = page.split_once("Instruction:")?;
    let words = rest.split_once("\n[").map_or(rest, |(words, _)| words);
    Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
}
