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

/// A dump: its nodes in order, the element `hierarchy` first.
pub(crate) struct Dump {
    pub(crate) nodes: Vec<Node>,
}

/// A node: how deep it lies, the name of its element, its attributes.
pub(crate) struct Node {
    depth: usize,
    name: String,
    attributes: BTreeMap<String, String>,
}

impl Dump {
    /// Reads a dump. Words around its element, such as those that the command prints, are passed over.
    pub(crate) fn read(xml: &str, escaped: Escaped) -> Result<Self, Refusal> {
        let wrong = |error: &dyn std::fmt::Display| Refusal::new("xml", error.to_string());
        let mut reader = Reader::from_str(xml);
        let (mut nodes, mut depth) = (Vec::new(), 0);
        loop {
            let event = reader.read_event().map_err(|error| wrong(&error))?;
            match &event {
                Event::Start(element) | Event::Empty(element) => {
                    let attributes = attributes(element, reader.decoder(), escaped).map_err(|error| wrong(&error))?;
                    let name = String::from_utf8_lossy(element.name().as_ref()).into_owned();
                    if depth == 0 && !(nodes.is_empty() && name == "hierarchy") {
                        return Err(Refusal::new("xml", format!("expected one <hierarchy>, found <{name}>")));
                    }
                    if depth >= MOST_DEPTH {
                        return Err(Refusal::new("tree_depth", format!("a tree is more than {MOST_DEPTH} deep")));
                    }
                    nodes.push(Node { depth, name, attributes });
                    depth += usize::from(matches!(event, Event::Start(_)));
                }
                Event::End(_) => depth -= 1,
                Event::Eof if depth > 0 => return Err(Refusal::new("cut", "the dump ends inside an element")),
                Event::Eof if nodes.is_empty() => {
                    return Err(Refusal::new("xml", "expected one <hierarchy>, found none"));
                }
                Event::Eof => return Ok(Self { nodes }),
                _ => {}
            }
        }
    }

    /// The dump as text; `numbers` are those by which actions name its nodes, by their place in `nodes`.
    pub(crate) fn tree(&self, numbers: &BTreeMap<usize, i64>) -> String {
        let (mut tree, mut package) = (Tree::default(), None);
        for (at, node) in self.nodes.iter().enumerate() {
            node.write(numbers.get(&at).copied(), package, &mut tree);
            package = node.text("package").or(package);
        }
        tree.finish()
    }
}

/// A dump as text, whose nodes no action names by a number.
pub(crate) fn tree(xml: &str, escaped: Escaped) -> Result<String, Refusal> {
    Ok(Dump::read(xml, escaped)?.tree(&BTreeMap::new()))
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

impl Node {
    /// An attribute, if it says something.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str).filter(|text| !text.is_empty())
    }

    /// Whether an attribute holds.
    pub(crate) fn is(&self, key: &str) -> bool {
        self.text(key) == Some("true")
    }

    /// Where the node is.
    pub(crate) fn place(&self) -> Option<Place> {
        self.text("bounds").and_then(place)
    }

    fn write(&self, number: Option<i64>, package: Option<&str>, tree: &mut Tree) {
        let is_not = |key: &str| self.text(key) == Some("false");
        let class = self.text("class").unwrap_or(&self.name);
        let (label, description) = (self.text("text"), self.text("content-desc"));
        let label = label.or(description);
        tree.node(self.depth, number, class.rsplit('.').next().unwrap_or(class))
            .name(label)
            .text("description", description.filter(|description| Some(*description) != label))
            .text("hint", self.text("hint"))
            .text("resource", self.text("resource-id"))
            .text("package", self.text("package").filter(|found| Some(*found) != package))
            .text("rotation", self.text("rotation").filter(|rotation| *rotation != "0"))
            .fact("checkable", self.is("checkable"))
            .fact("checked", self.is("checked"))
            .fact("clickable", self.is("clickable"))
            .fact("disabled", is_not("enabled"))
            .fact("focusable", self.is("focusable"))
            .fact("focused", self.is("focused"))
            .fact("long-clickable", self.is("long-clickable"))
            .fact("password", self.is("password"))
            .fact("scrollable", self.is("scrollable"))
            .fact("selected", self.is("selected"))
            .fact("invisible", is_not("visible-to-user"))
            .place(self.place());
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
