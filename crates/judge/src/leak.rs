//! Thinking that could only be written, or only makes sense, by someone who had the answer.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::pattern;

/// Shortest line that counts as copied: shorter ones stand in any text.
const MIN_LINE_CHARS: usize = 6;
/// Shortest truth that can be copied.
const MIN_TRUTH_CHARS: usize = 24;

/// What is wrong with a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leak {
    /// It names a source of the answer that nobody has who predicts: "the real output shows".
    QuotesSource,
    /// It writes the answer out before the answer.
    CopiesAnswer,
}

/// Words for an answer that lies before the one who thinks. Plain English, as teachers write; `expected output` alone is
/// what a prediction may be called.
static SOURCES: LazyLock<Regex> = LazyLock::new(|| {
    let answer = "(?:output|observation|response|result|answer|screen|page)";
    let known = "(?:real|true|actual|given|provided|recorded|reference|ground[- ]truth|gold|correct)";
    let says = "(?:shows?|says?|is given|was given|is provided|reads?|contains?|states?|lists?|indicates?|tells?)";
    let words = format!(
        r"(?i)\bground[- ]truth\b|\bgold (?:answer|label|output)\b|\breference (?:answer|output|solution)\b|\b{known} {answer} (?:\w+ )?{says}\b|\b(?:according to|based on|as (?:seen|shown|given) in|matches|matching|from|copy(?:ing)?|consistent with) the {known} {answer}\b|\bthe {answer} (?:i was given|that was given to me|we were given)\b|\bi (?:was|am|have been) (?:told|given) (?:that )?the (?:\w+ )?{answer}\b"
    );
    pattern(&words)
});

/// What is wrong with a trace, if anything: `known` is all that the one who thinks may quote (prompt, history, action);
/// at most `max_copied` of the truth's characters may stand in it in whole lines that are not known.
pub fn leak(trace: &str, truth: &str, known: &str, max_copied: f64) -> Option<Leak> {
    if SOURCES.is_match(trace) {
        return Some(Leak::QuotesSource);
    }
    (copied(trace, truth, known) > max_copied).then_some(Leak::CopiesAnswer)
}

/// Share of the truth's characters in lines that the text holds and that nothing known does; 0 of a short truth.
pub fn copied(text: &str, truth: &str, known: &str) -> f64 {
    let length = |text: &str| text.chars().count();
    let lines = || truth.lines().map(str::trim).filter(|line| !line.is_empty());
    let total: usize = lines().map(length).sum();
    if total < MIN_TRUTH_CHARS {
        return 0.0;
    }
    let is_copied = |line: &&str| length(line) >= MIN_LINE_CHARS && text.contains(*line) && !known.contains(*line);
    let copied: usize = lines().filter(is_copied).map(length).sum();
    copied as f64 / total as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_that_speaks_of_the_answer_it_was_given_is_told_from_thinking_about_outputs() {
        for trace in [
            "The real output shows two files, so I list them.",
            "Based on the actual observation, the command fails.",
            "This matches the ground truth.",
            "The ground-truth has three lines.",
            "According to the provided response, the id is 7.",
            "I was given the correct answer: fig.",
            "Copying the recorded output.",
            "the true screen clearly shows a dialog",
        ] {
            assert_eq!(leak(trace, "", "", 0.5), Some(Leak::QuotesSource), "{trace}");
        }
        for trace in [
            "ls lists a.txt and b.txt, so the output is two lines.",
            "The output is the directory's content. The actual size is not known, so any number will do.",
            "cat prints the file. The real path of ~ is /home/u.",
            "The result shows up on the next page, as given in the list of tools.",
            "The correct exit code is 1. The expected output is one line.",
        ] {
            assert_eq!(leak(trace, "", "", 0.5), None, "{trace}");
        }
    }

    #[test]
    fn a_trace_that_writes_the_answer_out_is_a_copy_unless_it_knew_the_lines() {
        let truth = "total 8\n-rw-r--r-- 1 u u 12 fig.txt\n-rw-r--r-- 1 u u 40 plum.txt\n";
        let draft = format!("The listing will be:\n{truth}");
        assert_eq!(leak(&draft, truth, "", 0.5), Some(Leak::CopiesAnswer));
        assert_eq!(leak(&draft, truth, &format!("### Turn 1\n{truth}"), 0.5), None, "it was printed before");
        assert_eq!(leak(&draft, truth, "", 1.0), None);
        assert_eq!(leak("fig.txt has 12 bytes, plum.txt 40", truth, "", 0.5), None);
        assert_eq!(leak("-rw-r--r-- 1 u u 12 fig.txt comes first", truth, "", 0.5), None, "one line of three");
        assert_eq!(leak("pwd prints /home/u", "/home/u\n", "", 0.0), None, "short answers are no copies");
        assert_eq!(leak("", "", "", 0.0), None);
        let unicode = "文件不存在：文件不存在：文件不存在：文件不存在：";
        assert_eq!(leak(&format!("答案 {unicode}"), unicode, "", 0.5), Some(Leak::CopiesAnswer));
    }
}
