//! Realism: the output looks as the environment itself would print it. Each offence lowers the score once.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use worldloom_schema::Domain;

use super::bash::{ErrorForm, error_form, named_error};
use super::words::Prepared;
use super::{JudgeContext, Score};
use crate::text::pattern;

/// A line printed this often in a row is a loop, unless the truth has such a run.
const LOOP_LENGTH: usize = 3;

pub(crate) fn score(context: &JudgeContext<'_>, truth: &Prepared, prediction: &Prepared) -> Score {
    let true_lines: BTreeSet<&str> = truth.lines().collect();
    let own: Vec<&str> = prediction.lines().filter(|line| !true_lines.contains(line)).collect();
    let mut points = markup(truth, prediction) + run(truth, prediction);
    if context.domain == Domain::Terminal {
        points += worst_error(context, truth, &own);
        points += shell_noise(context.action, &own) + impossible(context.action, &own);
    }
    Score::MAX.lowered(points)
}

/// Fences, chat tokens and tags of ours.
fn markup(truth: &Prepared, prediction: &Prepared) -> u8 {
    static MARKUP: LazyLock<Regex> = LazyLock::new(|| {
        pattern(concat!(
            r"```|~~~|<\|[a-z_]+\|>|(?i)</?(?:think|predicted_observation|observation|output|tool_response)>",
            r"|\*\*[A-Za-z][^*\n]*\*\*|(?m)^#{2,} ",
        ))
    });
    let foreign = MARKUP.find_iter(&prediction.text).any(|markup| !truth.text.contains(markup.as_str()));
    if foreign { 3 } else { 0 }
}

fn run(truth: &Prepared, prediction: &Prepared) -> u8 {
    let longest = longest_run(prediction);
    if longest >= LOOP_LENGTH && longest > longest_run(truth) { 2 } else { 0 }
}

fn longest_run(text: &Prepared) -> usize {
    let (mut longest, mut length, mut last) = (0, 0, "");
    for line in text.lines().filter(|line| !line.is_empty()) {
        length = if line == last { length + 1 } else { 1 };
        last = line;
        longest = longest.max(length);
    }
    longest
}

fn worst_error(context: &JudgeContext<'_>, truth: &Prepared, own: &[&str]) -> u8 {
    const SEPARATORS: [char; 14] = [' ', '\n', '\t', '|', ';', '&', '(', ')', '`', '"', '\'', '{', '$', '<'];
    let functions = context.history.iter().map(|(action, _)| *action).filter(|action| action.contains("()"));
    let words = functions.chain([context.action]).flat_map(|action| action.split(SEPARATORS));
    let programs = truth.lines().filter_map(|line| Some(named_error(line)?.0)).chain(words).collect();
    let forms = own.iter().filter_map(|line| error_form(line, &programs));
    let points = forms.map(|form| match form {
        ErrorForm::Genuine => 0,
        ErrorForm::Foreign => 2,
        ErrorForm::Invented => 3,
    });
    points.max().unwrap_or(0)
}

/// A prompt, or the command itself: a tool returns what the command printed and nothing else.
fn shell_noise(action: &str, own: &[&str]) -> u8 {
    static PROMPT: LazyLock<Regex> =
        LazyLock::new(|| pattern(r"^(?:\[?[\w.-]+@[\w.-]+[: ]?[^\s$#]*\]?[$#]|[$]|bash-\d\.\d[$#]|>>>)(?: |$)"));
    let echoes = |line: &&str| line.trim() == action.trim() && !action.trim().is_empty();
    if own.iter().any(|line| PROMPT.is_match(line) || echoes(line)) { 2 } else { 0 }
}

/// An exit code no process has, or a mode that no file has.
fn impossible(action: &str, own: &[&str]) -> u8 {
    static MODE_LIKE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[-dl][-rwx]{4,}[^\s]* +\d"));
    static MODE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^[-dl](?:[-r][-w][-xsStT]){3}[.+@]? +\d"));
    let asks_code = action.contains("$?");
    let code = |line: &str| {
        line.split_whitespace().filter_map(|word| word.parse::<i64>().ok()).any(|code| !(0..256).contains(&code))
    };
    if own.iter().any(|line| asks_code && code(line) || MODE_LIKE.is_match(line) && !MODE.is_match(line)) {
        2
    } else {
        0
    }
}
