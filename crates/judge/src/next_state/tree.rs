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
}
