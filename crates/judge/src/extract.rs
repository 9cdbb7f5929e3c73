//! From a completion to the prediction in it. What the model thought is dropped here, so that no judge ever sees it.
//!
//! The policy is strict. *Thinking* is what stands before the prediction:
//! - a block that opens the text, `<think>…</think>`, any number of them in a row;
//! - an orphan `</think>` (the prompt opened the block): everything before the last one that an opening tag of the
//!   prediction follows; a `</think>` with none after it is text of the observation;
//! - an orphan `<think>` at the start: everything up to the first opening tag.
//!
//! Tags of thinking are found in any case, those of the prediction only as written. What is left must hold exactly one
//! opening and one closing tag, in this order. Text around the block is ignored. An observation that holds one of the
//! two tags itself cannot be told from several blocks and is a fault.

use serde::{Deserialize, Serialize};

/// Opens the prediction.
pub const OPEN_TAG: &str = "<predicted_observation>";
/// Closes the prediction.
pub const CLOSE_TAG: &str = "</predicted_observation>";
const OPEN_THINK: &str = "<think>";
const CLOSE_THINK: &str = "</think>";

/// Why a completion holds no prediction. Always the policy's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// No opening tag.
    MissingTag,
    /// An opening tag without a closing one.
    UnclosedTag,
    /// More than one block, or tags out of order.
    SeveralBlocks,
    /// The length limit ended the completion.
    CutByLength,
}

impl Fault {
    /// All four, in order.
    pub const ALL: [Fault; 4] = [Fault::MissingTag, Fault::UnclosedTag, Fault::SeveralBlocks, Fault::CutByLength];

    /// The name as it is logged.
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::MissingTag => "missing_tag",
            Fault::UnclosedTag => "unclosed_tag",
            Fault::SeveralBlocks => "several_blocks",
            Fault::CutByLength => "cut_by_length",
        }
    }
}

/// What a completion comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extraction {
    /// The prediction; an empty one is a prediction too.
    Observation(String),
    /// None.
    Fault(Fault),
}

/// Takes the prediction out of a completion; `stopped` says that a stop token ended it and not the length limit.
///
/// The content is exact, without the line break after the opening tag and the one before the closing tag:
///
/// ```
/// use worldloom_judge::{Extraction, extract};
/// let completion = "<think>\ntwo files\n</think>\n<predicted_observation>\na.txt\nb.txt\n</predicted_observation>";
/// assert_eq!(extract(completion, true), Extraction::Observation("a.txt\nb.txt".into()));
/// ```
pub fn extract(completion: &str, stopped: bool) -> Extraction {
    if !stopped {
        return Extraction::Fault(Fault::CutByLength);
    }
    match prediction_block(without_thinking(completion)) {
        Ok(content) => Extraction::Observation(content.to_string()),
        Err(fault) => Extraction::Fault(fault),
    }
}

/// The whole completion as the prediction: for models that were trained on bare observations.
pub fn extract_untagged(completion: &str, stopped: bool) -> Extraction {
    if stopped { Extraction::Observation(completion.to_string()) } else { Extraction::Fault(Fault::CutByLength) }
}

fn prediction_block(text: &str) -> Result<&str, Fault> {
    let (opens, closes) = (text.matches(OPEN_TAG).count(), text.matches(CLOSE_TAG).count());
    match (opens, closes) {
        (0, _) => return Err(Fault::MissingTag),
        (1, 0) => return Err(Fault::UnclosedTag),
        (1, 1) => {}
        _ => return Err(Fault::SeveralBlocks),
    }
    let (_, after_open) = text.split_once(OPEN_TAG).ok_or(Fault::MissingTag)?;
    let (content, _) = after_open.split_once(CLOSE_TAG).ok_or(Fault::SeveralBlocks)?;
    let content = content.strip_prefix('\n').unwrap_or(content);
    Ok(content.strip_suffix('\n').unwrap_or(content))
}

fn without_thinking(completion: &str) -> &str {
    let mut rest = completion;
    loop {
        let lower = rest.trim_start().to_ascii_lowercase();
        let start = rest.len() - lower.len();
        if !lower.starts_with(OPEN_THINK) {
            break;
        }
        match lower.find(CLOSE_THINK) {
            Some(close) => rest = &rest[start + close + CLOSE_THINK.len()..],
            None => return rest.find(OPEN_TAG).map_or("", |open| &rest[open..]),
        }
    }
    let Some(last_open) = rest.rfind(OPEN_TAG) else { return rest };
    match rest[..last_open].to_ascii_lowercase().rfind(CLOSE_THINK) {
        Some(close) => &rest[close + CLOSE_THINK.len()..],
        None => rest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(completion: &str, expected: Result<&str, Fault>) {
        let expected = match expected {
            Ok(text) => Extraction::Observation(text.into()),
            Err(fault) => Extraction::Fault(fault),
        };
        assert_eq!(extract(completion, true), expected, "{completion:?}");
    }

    fn block(content: &str) -> String {
        format!("{OPEN_TAG}\n{content}\n{CLOSE_TAG}")
    }

    #[test]
    fn the_content_is_exact_but_for_one_line_break_at_each_end() {
        for content in ["a", "", "  indented\n\ttab  ", "\n", "\n\na\n\n", "{0} {} $HOME \\n", "ünïcode 文字"] {
            check(&block(content), Ok(content));
        }
        check(&format!("{OPEN_TAG}a{CLOSE_TAG}"), Ok("a"));
        check(&format!("{OPEN_TAG}{CLOSE_TAG}"), Ok(""));
        check(&format!("{OPEN_TAG}\n{CLOSE_TAG}"), Ok(""));
        check(&format!("  {}\n", block("a")), Ok("a"));
    }

    #[test]
    fn thinking_is_dropped_whole_and_orphan() {
        check(&format!("<think>\nplan\n</think>\n{}", block("a")), Ok("a"));
        check(&format!("<think></think><think>x</think>{}", block("a")), Ok("a"));
        check(&format!("plan\n</think>\n{}", block("a")), Ok("a"));
        check(&format!("<think>\nplan {}", block("a")), Ok("a"));
        check(&format!("<THINK>plan</Think>{}", block("a")), Ok("a"));
    }

    #[test]
    fn a_block_drafted_while_thinking_is_not_the_prediction() {
        check(&format!("<think>draft {}</think>{}", block("draft"), block("a")), Ok("a"));
        check(&format!("draft {}</think>{}", block("draft"), block("a")), Ok("a"));
        check(&format!("<think>only {}</think>", block("draft")), Err(Fault::MissingTag));
    }

    #[test]
    fn think_tags_inside_the_prediction_are_text() {
        check(&block("<think>x</think>"), Ok("<think>x</think>"));
        check(&format!("<think>plan</think>{}", block("a</think>")), Ok("a</think>"));
    }

    #[test]
    fn each_fault_has_its_name() {
        check("", Err(Fault::MissingTag));
        check("a.txt", Err(Fault::MissingTag));
        check("<think>never ends", Err(Fault::MissingTag));
        check(&format!("a{CLOSE_TAG}"), Err(Fault::MissingTag));
        check("<Predicted_Observation>a</Predicted_Observation>", Err(Fault::MissingTag));
        check(&format!("{OPEN_TAG}\na.txt"), Err(Fault::UnclosedTag));
        check(&format!("{}{}", block("a"), block("a")), Err(Fault::SeveralBlocks));
        check(&format!("{CLOSE_TAG}a{OPEN_TAG}"), Err(Fault::SeveralBlocks));
        check(&format!("{OPEN_TAG}{}", block("a")), Err(Fault::SeveralBlocks));
        check(&format!("{}{CLOSE_TAG}", block("a")), Err(Fault::SeveralBlocks));
    }

    #[test]
    fn a_completion_cut_by_length_is_a_fault_even_when_its_block_is_closed() {
        assert_eq!(extract(&block("a"), false), Extraction::Fault(Fault::CutByLength));
        assert_eq!(extract_untagged("a", false), Extraction::Fault(Fault::CutByLength));
        assert_eq!(extract_untagged("a\n", true), Extraction::Observation("a\n".into()));
    }

    proptest::proptest! {
        #[test]
        fn whatever_is_thought_only_the_block_comes_out(thought in "[a-z<>/\n ]{0,40}", content in "[ -;=?-~\n]{0,40}") {
            let completion = format!("<think>{thought}</think>{}", block(&content));
            proptest::prop_assert_eq!(extract(&completion, true), Extraction::Observation(content));
        }
    }
}
