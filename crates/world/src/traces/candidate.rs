//! One answer of a teacher: a prediction with the thinking before it, or why it is none.

use worldloom_judge::{Extraction, Leak, extract, leak};
use worldloom_render::Control;

use crate::model::thinking_of;
use crate::teacher::Reply;

/// An answer that can be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) trace: String,
    pub(super) prediction: String,
}

/// What a query knows for judging candidates before a judge sees them.
pub(super) struct Known<'a> {
    /// What the environment answered.
    pub(super) truth: &'a str,
    /// All that whoever thinks was shown.
    pub(super) shown: &'a str,
    /// Share of the truth that a trace may write out.
    pub(super) max_copied: f64,
}

/// Name of a candidate's fate where the teacher gave no answer; a later run may have one.
pub(super) const UNAVAILABLE: &str = "teacher_unavailable";

/// Reads an answer, or names what is wrong with it.
pub(super) fn candidate(reply: Reply, known: &Known<'_>) -> Result<Candidate, &'static str> {
    let (reasoning, content) = match reply {
        Reply::Said { reasoning, content } => (reasoning, content),
        Reply::Refused => return Err("refused"),
        Reply::Cut => return Err("cut_by_length"),
        Reply::Rejected => return Err("rejected_by_server"),
        Reply::Unavailable { .. } => return Err(UNAVAILABLE),
    };
    let prediction = match extract(&content, true) {
        Extraction::Observation(observation) => observation,
        Extraction::Fault(fault) => return Err(fault.as_str()),
    };
    let apart = reasoning.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let trace = apart.or_else(|| thinking_of(&content)).ok_or("no_thinking")?.to_string();
    match fault(&trace, known) {
        Some(fault) => Err(fault),
        None => Ok(Candidate { trace, prediction }),
    }
}

/// What is wrong with a trace, whoever wrote it.
pub(super) fn fault(trace: &str, known: &Known<'_>) -> Option<&'static str> {
    let lower = trace.to_ascii_lowercase();
    if Control::TAGS.iter().any(|tag| lower.contains(tag.as_str())) {
        return Some("trace_has_tag");
    }
    match leak(trace, known.truth, known.shown, known.max_copied)? {
        Leak::QuotesSource => Some("quotes_the_source"),
        Leak::CopiesAnswer => Some("copies_the_answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(reasoning: Option<&str>, content: &str) -> Result<Candidate, &'static str> {
        let known = Known { truth: "fig", shown: "", max_copied: 0.5 };
        candidate(Reply::Said { reasoning: reasoning.map(String::from), content: content.into() }, &known)
    }

    #[test]
    fn thinking_is_read_from_its_field_or_from_before_the_tag() {
        let tagged = "<predicted_observation>\nfig\n</predicted_observation>";
        let made = |trace: &str| Ok(Candidate { trace: trace.into(), prediction: "fig".into() });
        assert_eq!(read(Some(" cat prints it.\n"), tagged), made("cat prints it."));
        assert_eq!(read(None, &format!("<think>\ncat prints it.\n</think>\n\n{tagged}")), made("cat prints it."));
        assert_eq!(read(None, &format!("cat prints it.\n{tagged}")), made("cat prints it."));
        assert_eq!(read(Some("cat prints it."), &format!("So:\n{tagged}")), made("cat prints it."));
    }

    #[test]
    fn what_is_no_trace_is_named() {
        let tagged = "<predicted_observation>\nfig\n</predicted_observation>";
        for (reasoning, content, fate) in [
            (None, tagged, "no_thinking"),
            (Some("  "), tagged, "no_thinking"),
            (Some("cat prints it."), "fig", "missing_tag"),
            (Some("I write <think> here."), tagged, "trace_has_tag"),
            (Some("The real output shows fig."), tagged, "quotes_the_source"),
        ] {
            assert_eq!(read(reasoning, content), Err(fate), "{reasoning:?} {content}");
        }
        let known = Known { truth: "", shown: "", max_copied: 0.5 };
        for (reply, fate) in [
            (Reply::Refused, "refused"),
            (Reply::Cut, "cut_by_length"),
            (Reply::Rejected, "rejected_by_server"),
            (Reply::Unavailable { why: String::new() }, UNAVAILABLE),
        ] {
            assert_eq!(candidate(reply, &known), Err(fate));
        }
    }
}
