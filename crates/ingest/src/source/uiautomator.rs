//! Dumps of Android's UIAutomator (`uiautomator dump`) as trees: `<hierarchy rotation="0"><node text="…" …/></hierarchy>`.
//!
//! The text form is that of [`tree`](super::tree). Role: the class without its package, else the element's own name, which
//! other dumpers write in its place. Name: the text, else the description. The package is written where it differs from
//! the node before. Left out: `index`, which the order says, `NAF` and what single dumpers add.

use std::collections::BTreeMap;

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Decoder, Reader};

use super::tree::{Place, Tree};
use crate::refusal::Refusal;

/// A dump deeper than any screen would be mostly spaces.
const MOST_DEPTH: usize = 256;

/// How often the texts of a dump were escaped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Escaped {
    Once,
    /// By the program and once more by its library.
    Twice,
}

/// A dump as text. Words around its element, such as those that the command prints, are passed over.
pub(crate) fn tree(xml: &str, escaped: Escaped) -> Result<String, Refusal> {
    let wrong = |error: &dyn std::fmt::Display| Refusal::new("xml", error.to_string());
    let mut reader = Reader::from_str(xml);
    let (mut tree, mut depth, mut is_found, mut package) = (Tree::default(), 0, false, String::new());
    loop {
        let event = reader.read_event().map_err(|error| wrong(&error))?;
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                let node = attributes(element, reader.decoder(), escaped).map_err(|error| wrong(&error))?;
                let name = String::from_utf8_lossy(element.name().as_ref()).into_owned();
                match (depth, is_found) {
                    (0, false) if name == "hierarchy" => {
                        let rotation = node.get("rotation").map(String::as_str).filter(|rotation| *rotation != "0");
                        tree.node(0, None, "hierarchy").text("rotation", rotation);
                        is_found = true;
                    }
                    (0, _) => return Err(Refusal::new("xml", format!("expected one <hierarchy>, found <{name}>"))),
                    (MOST_DEPTH.., _) => {
                        return Err(Refusal::new("tree_depth", format!("a tree is more than {MOST_DEPTH} deep")));
                    }
                    (_, _) => write_node(&name, &node, depth, &mut package, &mut tree),
                }
                depth += usize::from(matches!(event, Event::Start(_)));
            }
            Event::End(_) => depth -= 1,
            Event::Eof if depth > 0 => return Err(Refusal::new("cut", "the dump ends inside an element")),
            Event::Eof if !is_found => return Err(Refusal::new("xml", "expected one <hierarchy>, found none")),
            Event::Eof => return Ok(tree.finish()),
            _ => {}
        }
    }
}

/// The attributes of an element by name; a text whose escapes are wrong is taken as it stands.
fn attributes(
    element: &BytesStart<'_>,
    decoder: Decoder,
    escaped: Escaped,
) -> Result<BTreeMap<String, String>, quick_xml::Error> {
    let mut attributes = BTreeMap::new();
    for attribute in element.attributes() {
        let attribute = attribute?;
        let text = match attribute.decode_and_unescape_value(decoder) {
            Ok(text) => text.into_owned(),
            Err(_) => String::from_utf8_lossy(&attribute.value).into_owned(),
        };
        let text = match escaped {
            Escaped::Once => text,
            Escaped::Twice => quick_xml::escape::unescape(&text).map_or(text.clone(), |text| text.into_owned()),
        };
        attributes.insert(String::from_utf8_lossy(attribute.key.as_ref()).into_owned(), text);
    }
    Ok(attributes)
}

fn write_node(name: &str, node: &BTreeMap<String, String>, depth: usize, package: &mut String, tree: &mut Tree) {
    let text = |key: &str| node.get(key).map(String::as_str).filter(|text| !text.is_empty());
    let is = |key: &str| text(key) == Some("true");
    let is_not = |key: &str| text(key) == Some("false");
    let class = text("class").unwrap_or(name);
    let (label, description) = (text("text"), text("content-desc"));
    let label = label.or(description);
    let changed = text("package").filter(|found| found != package);
    tree.node(depth, None, class.rsplit('.').next().unwrap_or(class))
        .name(label)
        .text("description", description.filter(|description| Some(*description) != label))
        .text("hint", text("hint"))
        .text("resource", text("resource-id"))
        .text("package", changed)
        .fact("checkable", is("checkable"))
        .fact("checked", is("checked"))
        .fact("clickable", is("clickable"))
        .fact("disabled", is_not("enabled"))
        .fact("focusable", is("focusable"))
        .fact("focused", is("focused"))
        .fact("long-clickable", is("long-clickable"))
        .fact("password", is("password"))
        .fact("scrollable", is("scrollable"))
        .fact("selected", is("selected"))
        .fact("invisible", is_not("visible-to-user"))
        .place(text("bounds").and_then(place));
    if let Some(changed) = changed {
        *package = changed.to_string();
    }
}

/// A box such as `[0,63][1080,2274]`.
fn place(bounds: &str) -> Option<Place> {
    let (first, last) = bounds.strip_prefix('[')?.strip_suffix(']')?.split_once("][")?;
    let point = |text: &str| {
        let (x, y) = text.split_once(',')?;
        Some((f64::from(x.parse::<i32>().ok()?), f64::from(y.parse::<i32>().ok()?)))
    };
    let ((left, top), (right, bottom)) = (point(first)?, point(last)?);
    Some(Place { left, top, right, bottom })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(xml: &str, expected: &str) {
        assert_eq!(tree(xml, Escaped::Once).unwrap(), expected);
    }

    #[test]
    fn a_dump_is_a_line_a_node_with_what_holds() {
        let xml = r#"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation="1">
            <node index="0" text="" resource-id="" class="android.widget.FrameLayout" package="com.fig" content-desc="" enabled="true" scrollable="true" bounds="[0,-3][1080,2274]">
              <node NAF="true" index="0" text="A &lt;b&gt; &amp;&#10;&quot;c&quot;" content-desc="c" resource-id="com.fig:id/a" class="android.widget.Button" package="com.fig" clickable="true" enabled="false" visible-to-user="false" bounds="[0,0]" />
              <android.view.View text="" content-desc="Up" package="com.bar" selected="true" /></node></hierarchy>UI hierchary dumped to: /dev/tty"#;
        let expected = "hierarchy rotation=\"1\"\n  FrameLayout package=\"com.fig\" scrollable (0,-3,1080,2274)\n    \
                        Button \"A <b> &\\n\\\"c\\\"\" description=\"c\" resource=\"com.fig:id/a\" clickable disabled invisible\n    \
                        View \"Up\" package=\"com.bar\" selected";
        check(xml, expected);
        check("<hierarchy rotation=\"0\"/>", "hierarchy");
        check("<hierarchy><node text=\"1 &nosuch; 2\"/></hierarchy>", "hierarchy\n  node \"1 &nosuch; 2\"");
    }

    #[test]
    fn texts_that_were_escaped_twice_are_read_twice() {
        let xml = "<hierarchy><node text=\"Q&amp;amp;A &amp;amp;lt;\"/></hierarchy>";
        assert_eq!(tree(xml, Escaped::Twice).unwrap(), "hierarchy\n  node \"Q&A &lt;\"");
        check(xml, "hierarchy\n  node \"Q&amp;A &amp;lt;\"");
    }

    #[test]
    fn what_is_no_dump_is_refused() {
        let refused = |xml: &str| tree(xml, Escaped::Once).unwrap_err().rule;
        assert_eq!(refused("<hierarchy><node>"), "cut");
        assert_eq!(refused("<hierarchy></node>"), "xml");
        assert_eq!(refused("</hierarchy>"), "xml");
        assert_eq!(refused("<hierarchy/><hierarchy/>"), "xml");
        assert_eq!(refused("<html/>"), "xml");
        assert_eq!(refused("ERROR: null root node"), "xml");
        assert_eq!(refused("<hierarchy><node text=1/></hierarchy>"), "xml");
        let deep =
            |depth: usize| format!("<hierarchy>{}{}</hierarchy>", "<node>".repeat(depth), "</node>".repeat(depth));
        assert!(tree(&deep(MOST_DEPTH - 1), Escaped::Once).is_ok());
        assert_eq!(refused(&deep(100_000)), "tree_depth");
    }
}
