//! Text that talks *about* the output instead of being it: praise, the judge's vocabulary, narration.
//!
//! Such words count only where the environment never used them (in the history, the action, the initial state or the
//! truth). A shell's output is not prose, so there the list is long; in other domains, where pages and messages may
//! speak of anything, it is only what no page would say of itself: praise, and the sentence that presents it.

use std::sync::LazyLock;

use regex::Regex;
use worldloom_schema::Domain;

use super::JudgeContext;
use super::consistency::known_texts;
use crate::text::pattern;

/// Asks for a good score, in any domain.
static PRAISE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(?:all|every) (?:fields?|values?|lines?|details?|requirements?|dimensions?)\b.*\b(?:correct|accurate|right)",
        r"|\b(?:factuality|realism|consistency|quality|format)\W{1,4}[1-5]\b|\brubric\b|\bground truth\b",
        r"|\b(?:full (?:marks|score|credit)|top score|fully (?:meets|correct)|world model|as an ai|language model)\b",
        r"|\b[45](?:\.0)? ?(?:/|out of) ?5\b|\b10 ?(?:/|out of) ?10\b|\b100 ?(?:/|out of) ?100\b",
        r"|\b(?:output|response|prediction|observation) (?:is|matches) (?:the )?(?:correct|accurate|true|valid|real|exact)",
    ))
});

/// Words that no tool of a shell prints.
static PRAISE_IN_A_SHELL: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(?:correctly|accurately|faithfully|flawless(?:ly)?|perfect(?:ly)?|realistic(?:ally)?|plausibl[ey])\b",
        r"|\b(?:all|every) (?:fields?|values?|details?|requirements?|dimensions?)\b",
        r"|\b(?:accurate|accuracy|authentic|well[- ]formed|well[- ]formatted|high[- ]quality|factual(?:ly)?)\b",
        r"|\b(?:score|rating|grade)s?\W{1,4}(?:[1-5]|100|10)\b|\b(?:evaluator|evaluation|judge)\b",
        r"|\b(?:as expected|exactly as|consistent with|matches the|identical to|in line with|verified)\b",
        r"|\b(?:simulat(?:ed|ion|es)|predict(?:ed|ions?|s)?|expected output)\b",
        r"|\bno (?:errors?|mistakes?|issues?|contradictions?|hallucinations?)\b",
        r"|\bthis (?:is|output is|response is|prediction is) (?:the )?(?:correct|right|true|valid|real|exact)\b",
    ))
});

/// Sentences around an output.
static NARRATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^\W*(?:here(?:'s| is| are)|note(?: that)?:|explanation:|output:|result:|sure\b|of course|okay,|certainly)",
        r"|^\W*(?:i|we|you|it|there)(?:'ll|'m|'ve| am| will| would| should| have| can| is| are) .",
        r"|\bhere(?:'s| is| are) (?:the|what|your|an?)\b|\bthe output of (?:the|this) command\b",
        r"|\b(?:the|this|that) (?:command|file|output|directory|script|result|observation|shell|terminal|user)",
        r" (?:was|will|would|should|has|is|contains?|prints?|shows?|lists?|displays?|outputs?|returns?|did|does)\b",
    ))
});

/// Sentences that no page or tool says of itself.
static PRESENTATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^\W*here(?:'s| is| are) (?:the|an?|your|my) (?:expected |predicted |simulated |resulting )?",
        r"(?:output|observation|response|results?|page|screen|tree|diff|json)\b",
    ))
});

/// Tells prose from output, for one truth in its context.
pub(crate) struct ProseFilter {
    /// The environment's own words, in lower case.
    known: String,
    in_a_shell: bool,
}

impl ProseFilter {
    pub(crate) fn new(context: &JudgeContext<'_>, truth: &str) -> Self {
        let texts: Vec<String> = known_texts(context).chain([truth]).map(str::to_lowercase).collect();
        ProseFilter { known: texts.join("\n"), in_a_shell: context.domain == Domain::Terminal }
    }

    /// The text without its lines of prose; `None` where there are none.
    pub(crate) fn cut(&self, text: &str) -> Option<String> {
        let plain: Vec<&str> = text.split('\n').filter(|line| !self.is_prose(line)).collect();
        (plain.len() < text.split('\n').count()).then(|| plain.join("\n"))
    }

    /// Whether a line asks for a good score.
    pub(crate) fn has_praise(&self, text: &str) -> bool {
        PRAISE.find_iter(text).any(|found| !self.knows(found.as_str()))
    }

    fn is_prose(&self, line: &str) -> bool {
        let has = |words: &Regex| words.find_iter(line).any(|found| !self.knows(found.as_str()));
        has(&PRAISE)
            || has(&PRESENTATION)
            || self.in_a_shell && (has(&PRAISE_IN_A_SHELL) || NARRATION.is_match(line) && !self.knows(line))
    }

    fn knows(&self, words: &str) -> bool {
        self.known.contains(words.trim().to_lowercase().as_str())
    }
}
