//! Trees in text: accessibility trees by indentation, view hierarchies as tags.

use std::sync::LazyLock;

use regex::Regex;

use crate::text::{lines, pattern};

/// A node of an accessibility tree: an id in brackets or not, a role, a quoted name.
static NODE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r#"^\s*(?:\[[^\]]*\]\s*)?[A-Za-z][\w-]*(?:\s+\[[^\]]*\])?(?:\s*['"“].*|\s*$|:\s*$|\s+\w+=.*)"#)
});

/// Ids that a browser gives anew each time: `[42]`, `bid=42`, `id="42"`.
static IDS: LazyLock<Regex> =
    LazyLock::new(|| pattern(r#"\[\w{0,3}\d+\]\s*|\b(?:bid|node-?id|id|index)=["']?\d+["']?\s*"#));

static TAG: LazyLock<Regex> = LazyLock::new(|| pattern(r"^\s*</?[A-Za-z][\w.:-]*(?:\s[^<>]*)?/?>"));

/// Three lines or more, indented, most of them nodes or all of them tags.
pub(crate) fn looks_like_one(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.len() < 3 {
        return false;
    }
    let is_indented = lines.iter().any(|line| line.starts_with([' ', '\t']));
    let nodes = lines.iter().filter(|line| NODE.is_match(line) && line.contains(['\'', '"', '[', '“'])).count();
    let tags = lines.iter().filter(|line| TAG.is_match(line)).count();
    tags == lines.len() || is_indented && nodes * 10 >= lines.len() * 6
}

/// The box of a node, at the end of its line or as an attribute.
static BOX: LazyLock<Regex> = LazyLock::new(|| pattern(r#"\s*\(-?\d+,-?\d+,-?\d+,-?\d+\)\s*$|\s*\bbounds="[^"]*""#));

/// Lines above a tree that say where one is.
static HEADER: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?i:url|title|error|window|app|package|activity|tabs?): "));

/// Whether a text in an environment of screens is one: most of its lines are nodes, however few.
pub(crate) fn is_screen(text: &str) -> bool {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let is_named = |line: &str| NODE.is_match(line) && line.contains(['\'', '"', '[', '“']);
    let nodes = lines.iter().filter(|line| is_named(line) || TAG.is_match(line) || BOX.is_match(line)).count();
    let headers = lines.iter().filter(|line| HEADER.is_match(line)).count();
    nodes > 0 && (nodes + headers) * 10 >= lines.len() * 6
}

/// A line of a tree.
pub(crate) struct Node<'a> {
    /// Blanks before it.
    pub(crate) depth: usize,
    pub(crate) role: &'a str,
    /// Name and facts.
    pub(crate) content: String,
    /// What actions name it by.
    pub(crate) id: Option<&'a str>,
    pub(crate) has_id: bool,
    pub(crate) has_box: bool,
}

/// None where the line is blank or only closes a tag.
pub(crate) fn node(line: &str) -> Option<Node<'_>> {
    static PARTS: LazyLock<Regex> = LazyLock::new(|| pattern(r#"^\s*(?:\[(\w{1,12})\]\s*)?<?([^\s'"“>:]+):?(.*)$"#));
    static CLOSING: LazyLock<Regex> = LazyLock::new(|| pattern(r"</[\w.:-]+>\s*$|/?>\s*$"));
    let depth = line.len() - line.trim_start().len();
    if line.trim().is_empty() || line.trim_start().starts_with("</") {
        return None;
    }
    let parts = PARTS.captures(line)?;
    let (id, role, rest) = (parts.get(1), parts.get(2)?.as_str(), parts.get(3)?.as_str());
    let content = IDS.replace_all(rest, "");
    let content = BOX.replace_all(&content, "");
    let content = if line.trim_start().starts_with('<') {
        CLOSING.replace(&content, "").trim_start().trim_start_matches('>').to_string()
    } else {
        content.into_owned()
    };
    let id = id.map(|id| id.as_str());
    let has_id = id.is_some() || IDS.is_match(rest);
    Some(Node { depth, role, content: content.trim().into(), id, has_id, has_box: BOX.is_match(line) })
}

/// Each node by its role and name, under those above it; ids are left out.
pub(super) fn units(text: &str, add: &mut dyn FnMut(String)) {
    for path in paths(text) {
        add(path.join(" / "));
    }
}

/// Each node with the nodes above it, from the root.
pub(crate) fn paths(text: &str) -> Vec<Vec<String>> {
    let mut above: Vec<(usize, String)> = Vec::new();
    let mut paths = Vec::new();
    for line in lines(text) {
        let trimmed = line.trim_start();
        if trimmed.is_empty() || trimmed.starts_with("</") {
            continue;
        }
        let depth = line.len() - trimmed.len();
        above.retain(|(other, _)| *other < depth);
        above.push((depth, IDS.replace_all(trimmed, "").trim().to_string()));
        paths.push(above.iter().map(|(_, node)| node.clone()).collect());
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_known_by_what_is_above_them_and_not_by_their_ids() {
        let tree = "Root 'a'\n\t[12] list\n\t\t[13] item 'x'\n\t[14] item 'x'";
        let found: Vec<String> = paths(tree).into_iter().map(|path| path.join(" / ")).collect();
        assert_eq!(found, ["Root 'a'", "Root 'a' / list", "Root 'a' / list / item 'x'", "Root 'a' / item 'x'"]);
        let renumbered = tree.replace("[12]", "[77]").replace("[13]", "[a78]");
        assert_eq!(paths(&renumbered), paths(tree));
    }

    #[test]
    fn a_line_is_read_in_the_forms_of_all_sources() {
        for (line, role, content, id, has_box) in [
            (
                "  [15] INPUT_text \"Name\" value=\"Oslo\" focused (15,154,309,184)",
                "INPUT_text",
                "\"Name\" value=\"Oslo\" focused",
                Some("15"),
                true,
            ),
            ("RootWebArea 'Shop'", "RootWebArea", "'Shop'", None, false),
            ("url: http://shop/", "url", "http://shop/", None, false),
            ("<b id=3>Go</b>", "b", "Go", None, false),
            ("  <node text=\"x\" bounds=\"[0,0][9,9]\"/>", "node", "text=\"x\"", None, true),
            ("Text (48,728,60,768)", "Text", "", None, true),
        ] {
            let found = node(line).unwrap();
            assert_eq!(
                (found.role, found.content.as_str(), found.id, found.has_box),
                (role, content, id, has_box),
                "{line}"
            );
        }
        assert!(node("  </node>").is_none() && node(" ").is_none());
    }

    #[test]
    fn a_screen_may_be_small_and_stand_under_its_address() {
        for text in ["[0] element \"Off\" (0,0,90,40)", "url: http://a/\n<html>Page</html>", "Text (48,728,60,768)"] {
            assert!(is_screen(text), "{text}");
        }
        for text in ["", "url: http://a/", "The page could not be opened.", "fig\nplum"] {
            assert!(!is_screen(text), "{text}");
        }
    }
}
