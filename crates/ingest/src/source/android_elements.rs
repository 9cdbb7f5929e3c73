//! The element lists of AndroidWorld screens, as JSON objects and as its agents print them.
//!
//! A list is flat: the elements of the screen that say something, numbered from 0; actions name that number. Its text
//! form is a tree of one level (see [`tree`](super::tree)). Role: the class without its package. Name: the text, else
//! the content description. The app's package is written where it differs from the element before. Left out: `bbox`
//! (`bbox_pixels` in other units) and `metadata`.

use serde::Deserialize;

use super::tree::{Place, Tree};
use crate::refusal::Refusal;

/// One element.
#[derive(Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct Element {
    text: Option<String>,
    #[serde(alias = "content_desc")]
    content_description: Option<String>,
    #[serde(alias = "class")]
    class_name: Option<String>,
    bbox_pixels: Option<Pixels>,
    hint_text: Option<String>,
    is_checkable: Option<bool>,
    is_checked: Option<bool>,
    is_clickable: Option<bool>,
    is_editable: Option<bool>,
    is_enabled: Option<bool>,
    is_focusable: Option<bool>,
    is_focused: Option<bool>,
    is_long_clickable: Option<bool>,
    is_scrollable: Option<bool>,
    is_selected: Option<bool>,
    is_visible: Option<bool>,
    package_name: Option<String>,
    resource_name: Option<String>,
    tooltip: Option<String>,
    resource_id: Option<String>,
}

/// A box as an object, or as left, top, right and bottom.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(untagged)]
enum Pixels {
    Named { x_min: f64, y_min: f64, x_max: f64, y_max: f64 },
    Listed([f64; 4]),
}

impl Pixels {
    fn place(&self) -> Place {
        match *self {
            Pixels::Named { x_min, y_min, x_max, y_max } => {
                Place { left: x_min, top: y_min, right: x_max, bottom: y_max }
            }
            Pixels::Listed([left, top, right, bottom]) => Place { left, top, right, bottom },
        }
    }
}

/// The elements of a screen as text.
pub(crate) fn write(elements: &[Element]) -> String {
    let mut tree = Tree::default();
    let mut package = None;
    for (number, element) in elements.iter().enumerate() {
        let filled = |text: &'_ Option<String>| text.clone().filter(|text| !text.is_empty());
        let name = filled(&element.text).or(filled(&element.content_description));
        let description = element.content_description.as_deref().filter(|text| Some(*text) != name.as_deref());
        let role = element.class_name.as_deref().map_or("element", |class| class.rsplit('.').next().unwrap_or(class));
        let is = |fact: Option<bool>| fact == Some(true);
        let is_not = |fact: Option<bool>| fact == Some(false);
        let changed = element.package_name.as_deref().filter(|found| package != Some(*found));
        package = element.package_name.as_deref().or(package);
        tree.node(0, Some(number as i64), role)
            .name(name.as_deref())
            .text("description", description)
            .text("hint", element.hint_text.as_deref())
            .text("tooltip", element.tooltip.as_deref())
            .text("resource", element.resource_name.as_deref().or(element.resource_id.as_deref()))
            .text("package", changed)
            .fact("checkable", is(element.is_checkable))
            .fact("checked", is(element.is_checked))
            .fact("clickable", is(element.is_clickable))
            .fact("editable", is(element.is_editable))
            .fact("disabled", is_not(element.is_enabled))
            .fact("focusable", is(element.is_focusable))
            .fact("focused", is(element.is_focused))
            .fact("long-clickable", is(element.is_long_clickable))
            .fact("scrollable", is(element.is_scrollable))
            .fact("selected", is(element.is_selected))
            .fact("invisible", is_not(element.is_visible))
            .place(element.bbox_pixels.as_ref().map(Pixels::place));
    }
    tree.finish()
}

/// Reads an element that an agent of AndroidWorld printed for its prompt, as in
/// `UI element 2: {"index": 2, "text": "Phone", "is_clickable": True}`, with its box left, right, top, bottom.
///
/// The print is neither JSON nor Python: quotes and line ends inside a text are not escaped, so a text ends where the
/// next key, or the print, follows its quote.
pub(crate) fn parse_printed(print: &str, edges: Option<[f64; 4]>) -> Result<Element, Refusal> {
    let refusal = |what: &str| Refusal::new("printed_element", format!("{what} in `{}`", shorten(print)));
    let inner = print.split_once(": {").map(|(_, rest)| rest).and_then(|rest| rest.strip_suffix('}'));
    let mut rest = inner.ok_or_else(|| refusal("no `{`…`}`"))?;
    let mut element = Element::default();
    if let Some([left, right, top, bottom]) = edges {
        element.bbox_pixels = Some(Pixels::Listed([left, top, right, bottom]));
    }
    while !rest.is_empty() {
        let key = rest.strip_prefix('"').and_then(|rest| rest.split_once("\": "));
        let (key, after) = key.ok_or_else(|| refusal("no key"))?;
        let (value, next) = match after.strip_prefix('"') {
            Some(text) => split_text(text).ok_or_else(|| refusal("a text without an end"))?,
            None => after.split_once(", ").unwrap_or((after, "")),
        };
        set(&mut element, key, value).ok_or_else(|| refusal(&format!("unknown {key} = {value}")))?;
        rest = next;
    }
    Ok(element)
}

/// The keys of a print, in its order.
const PRINTED_KEYS: [&str; 12] = [
    "index",
    "text",
    "content_description",
    "hint_text",
    "tooltip",
    "is_clickable",
    "is_long_clickable",
    "is_editable",
    "is_scrollable",
    "is_focusable",
    "is_selected",
    "is_checked",
];

/// A text up to its quote, and what follows the comma after it.
fn split_text(text: &str) -> Option<(&str, &str)> {
    let starts_with_key = |rest: &str| {
        let is_key = |rest: &str, key: &str| rest.strip_prefix(key).is_some_and(|rest| rest.starts_with("\": "));
        rest.strip_prefix(", \"").is_some_and(|rest| PRINTED_KEYS.iter().any(|key| is_key(rest, key)))
    };
    let end = text.match_indices('"').map(|(at, _)| at).find(|at| starts_with_key(&text[at + 1..]));
    match end {
        Some(end) => Some((&text[..end], &text[end + 3..])),
        None => Some((text.strip_suffix('"')?, "")),
    }
}

fn set(element: &mut Element, key: &str, value: &str) -> Option<()> {
    let text = || Some(value.to_string());
    let fact = || match value {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    };
    match key {
        "index" => {}
        "text" => element.text = text(),
        "content_description" => element.content_description = text(),
        "hint_text" => element.hint_text = text(),
        "tooltip" => element.tooltip = text(),
        "is_clickable" => element.is_clickable = Some(fact()?),
        "is_long_clickable" => element.is_long_clickable = Some(fact()?),
        "is_editable" => element.is_editable = Some(fact()?),
        "is_scrollable" => element.is_scrollable = Some(fact()?),
        "is_focusable" => element.is_focusable = Some(fact()?),
        "is_selected" => element.is_selected = Some(fact()?),
        "is_checked" => element.is_checked = Some(fact()?),
        _ => return None,
    }
    Some(())
}

fn shorten(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(print: &str) -> String {
        write(&[parse_printed(print, Some([1.0, 3.0, 2.0, 4.0])).unwrap()])
    }

    #[test]
    fn a_printed_element_is_read_though_its_text_is_not_escaped() {
        let print = "UI element 0: {\"index\": 0, \"text\": \"Say \"hi\", \"ok\": yes\nand {go}\", \"is_clickable\": True, \"is_checked\": False}";
        assert_eq!(printed(print), "[0] element \"Say \\\"hi\\\", \\\"ok\\\": yes\\nand {go}\" clickable (1,2,3,4)");
        let last = "UI element 0: {\"index\": 0, \"text\": \"a\", \"hint_text\": \"\"b\"\"}";
        assert_eq!(printed(last), "[0] element \"a\" hint=\"\\\"b\\\"\" (1,2,3,4)");
    }

    #[test]
    fn a_print_with_a_key_nobody_knows_is_refused_with_its_start() {
        let refusal = parse_printed("UI element 0: {\"index\": 0, \"depth\": 3}", None).unwrap_err();
        assert_eq!(refusal.detail, "unknown depth = 3 in `UI element 0: {\"index\": 0, \"depth\": 3}`");
        assert!(parse_printed("UI element 0", None).is_err());
        assert!(parse_printed("UI element 0: {\"is_clickable\": Maybe}", None).is_err());
        assert!(parse_printed("UI element 0: {\"text\": \"a}", None).is_err());
    }

    #[test]
    fn the_package_is_written_where_it_changes_and_what_does_not_hold_is_left_out() {
        let json = r#"[
            {"text": null, "class_name": "android.widget.ScrollView", "is_scrollable": true, "is_enabled": true,
             "package_name": "a.home", "bbox_pixels": {"x_min": 0, "x_max": 1080, "y_min": 63, "y_max": 2400}},
            {"text": "Phone", "content_description": "Phone", "package_name": "a.home", "is_visible": false},
            {"text": "", "content_desc": "Back", "class": "android.view.View", "package_name": "a.bar",
             "is_enabled": false, "resource_name": "a.bar:id/back", "bbox_pixels": [0, 128, 1080, 2337]}]"#;
        let elements: Vec<Element> = serde_json::from_str(json).unwrap();
        let expected = "[0] ScrollView package=\"a.home\" scrollable (0,63,1080,2400)\n\
                        [1] element \"Phone\" invisible\n\
                        [2] View \"Back\" resource=\"a.bar:id/back\" package=\"a.bar\" disabled (0,128,1080,2337)";
        assert_eq!(write(&elements), expected);
    }
}
