//! Text that talks *about* the output instead of being it: praise, the judge's vocabulary, narration.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::pattern;

/// Words that ask for a good score. None is printed by a tool; where an environment's own texts hold one, it is known
/// (see [`Sources::knows`]) and does not count.
static PRAISE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)\b(?:all|every) (?:fields?|values?|lines?|details?|requirements?|dimensions?)\b",
        r"|\b(?:correctly|accurately|faithfully|flawless(?:ly)?|perfect(?:ly)?|realistic(?:ally)?|plausibl[ey])\b",
        r"|\b(?:accurate|accuracy|authentic|well[- ]formed|well[- ]formatted|high[- ]quality|factual(?:ly)?)\b",
        r"|\b(?:factuality|realism|rubric|ground truth|full (?:marks|score|credit)|top score|fully (?:meets|correct))\b",
        r"|\b(?:score|rating|grade|format|consistency|quality)\s*[:=]\s*(?:[1-5]|100|10)\b",
        r"|\b[45](?:\.0)? ?(?:/|out of) ?5\b|\b10 ?(?:/|out of) ?10\b|\b100 ?(?:/|out of) ?100\b",
        r"|\b(?:as expected|exactly as|consistent with|matches the|identical to|in line with|verified)\b",
        r"|\b(?:simulat(?:ed|ion|es)|predict(?:ed|ion|s)|expected output|world model|judge|evaluator|evaluation)\b",
        r"|\bno (?:errors?|mistakes?|issues?|contradictions?|hallucinations?)\b",
        r"|\bthis (?:is|output is|response is|prediction is) (?:the )?(?:correct|right|true|valid|real|exact)\b",
    ))
});

/// Sentences around an output.
static NARRATION: LazyLock<Regex> = LazyLock::new(|| {
    pattern(concat!(
        r"(?i)^\W*(?:here(?:'s| is| are)|note(?: that)?:|explanation:|output:|result:|sure\b|of course|okay,|certainly)",
        r"|^\W*(?:i|we|you|it|there)(?:'ll|'m|'ve| am| will| would| should| have| can| is| are) .",
        r"|\b(?:the|this|that) (?:command|file|output|directory|script|result|observation|shell|terminal|user)",
        r" (?:was|will|would|should|has|is|contains?|prints?|shows?|lists?|displays?|outputs?|returns?|did|does)\b",
        r"|\bas an ai\b|\blanguage model\b",
    ))
});

/// The texts that an environment's own words come from, in lower case.
pub(crate) struct Sources(String);

impl Sources {
    pub(crate) fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        Sources(texts.map(str::to_lowercase).collect::<Vec<_>>().join("\n"))
    }

    /// Whether the environment has used these words.
    fn knows(&self, words: &str) -> bool {
        self.0.contains(&words.to_lowercase())
    }
}

/// Whether a text holds praise or the judge's vocabulary that the environment never used.
pub(crate) fn praises(text: &str, sources: &Sources) -> bool {
    PRAISE.find_iter(text).any(|words| !sources.knows(words.as_str()))
}

/// Whether a line tells about the output.
pub(crate) fn narrates(line: &str, sources: &Sources) -> bool {
    NARRATION.is_match(line) && !sources.knows(line.trim())
}

/// The text without its lines of praise; `None` where there are none.
pub(crate) fn without_praise(text: &str, sources: &Sources) -> Option<String> {
    praises(text, sources).then(|| {
        let plain: Vec<&str> = text.split('\n').filter(|line| !praises(line, sources)).collect();
        plain.join("\n")
    })
}
