//! Lists of search results: entries with a title, an address, fields by name and a snippet.

use std::sync::LazyLock;

use regex::Regex;

use super::parts::Part;
use crate::text::pattern;

/// `1. Title`, `[1] Title`, `1) Title`, `- Title`, `## Title`, `Title: …`.
static ENTRY: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:\[?\d{1,3}[\].)]\]?\s+|[-*•]\s+|#{1,4}\s+|(?i:result \d+:?\s*|title:\s*))(\S.*)$"));
/// `[title](address)`, which may have brackets in it.
static LINK: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\**\[(.+?)\]\((\S+)\)\**$"));
static ADDRESS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^\W*(?i:url|link|source|address)?\W*(https?://[^\s)>]+)\W*$"));
static FIELD: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\W*([A-Za-z][A-Za-z ]{1,18}):\s+(\S.*)$"));

/// Two entries or more, with an address among them.
pub(super) fn is_list(text: &str) -> bool {
    let entries = text.lines().filter(|line| ENTRY.is_match(line.trim_start())).count();
    entries >= 2 && text.contains("://")
}

/// None where there is no entry.
pub(super) fn cut(text: &str) -> Option<Vec<Part>> {
    let (mut parts, mut has_entry) = (Vec::new(), false);
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if let Some(title) = ENTRY.captures(line).and_then(|found| found.get(1)) {
            has_entry = true;
            parts.extend(title_of(title.as_str()));
        } else if !has_entry {
            parts.push(Part::new("heading", line));
        } else if let Some(address) = ADDRESS.captures(line).and_then(|found| found.get(1)) {
            parts.push(Part::new("url", address.as_str()));
        } else if let Some((name, value)) = FIELD.captures(line).and_then(|found| found.get(1).zip(found.get(2))) {
            parts.push(Part::new(name.as_str().to_lowercase(), value.as_str()));
        } else {
            parts.push(Part::new("snippet", line));
        }
    }
    has_entry.then_some(parts)
}

fn title_of(title: &str) -> Vec<Part> {
    match LINK.captures(title) {
        Some(link) => vec![Part::new("title", &link[1]), Part::new("url", &link[2])],
        None => vec![Part::new("title", title)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_in_the_layouts_of_searches() {
        let fields =
            |text: &str| cut(text).unwrap().into_iter().map(|part| (part.place, part.value)).collect::<Vec<_>>();
        let pair = |place: &str, value: &str| (place.to_string(), value.to_string());
        let expected = [
            pair("heading", "A search for 'fig' found 1 result:"),
            pair("title", "Fig (fruit)"),
            pair("url", "https://en.wikipedia.org/wiki/Fig_(fruit)"),
            pair("snippet", "Sweet and old."),
        ];
        let markdown = "A search for 'fig' found 1 result:\n\n1. [Fig (fruit)](https://en.wikipedia.org/wiki/Fig_(fruit))\n\nSweet and old.";
        assert_eq!(fields(markdown), expected);
        let labelled = "A search for 'fig' found 1 result:\n[1] Fig (fruit)\nURL: https://en.wikipedia.org/wiki/Fig_(fruit\nDate: 2024-01-02";
        let found = fields(labelled);
        assert_eq!((&found[1], &found[3]), (&expected[1], &pair("date", "2024-01-02")));
        assert_eq!(found[2].0, "url");
        assert!(cut("no entry here").is_none() && !is_list("1. step one\n2. step two"));
    }
}
