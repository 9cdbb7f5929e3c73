//! AndroidControl as it was published: TFRecord files with an episode each record.
//!
//! A record has `goal`, and lists of equal order: `screenshots` and `accessibility_trees` of each screen (an
//! `AndroidAccessibilityForest` of android_env as a protocol buffer), `actions` as JSON and `step_instructions` between
//! them. The text of a screen is its windows from the front to the back, each with its tree in the form of
//! [`tree`](super::tree). Taken: trees, actions, the annotator's words for a step as reasoning. Left out: screenshots,
//! sizes. Written after the documentation and the protocol's files, no file of upstream was at hand. Task group: hash of
//! the task, as of [`android_control`](super::android_control).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base64::Engine;
use worldloom_schema::{Domain, System};

use super::Draft;
use super::format::{RowFormat, one};
use super::screens::{Act, Screen, Screens};
use super::tree::{Place, Tree};
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal};
use crate::tf_records::{Message, Wire, varint};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "android-control-records",
    description: "AndroidControl as published: TFRecord episodes with accessibility trees, actions and instructions",
    example: r#"{"goal": ["Go back."], "accessibility_trees": [{"base64": "CgRaAgoA"}, {"base64": "CgRaAgoA"}], "actions": ["{\"action_type\": \"navigate_back\"}"], "step_instructions": ["Tap the arrow."]}"#,
    detects: |fields| ["goal", "accessibility_trees", "actions"].iter().all(|name| fields.contains_key(*name)),
    read: |fields, _, counts| Ok(one(episode(fields, counts)?)),
};

fn episode(fields: &Fields<'_>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let mut screens = Screens::default();
    let (actions, words) = (texts(fields, "actions")?, texts(fields, "step_instructions")?);
    let trees = json::list(fields, "accessibility_trees")?.unwrap_or_default();
    for (at, raw) in trees.iter().enumerate() {
        let bytes = bytes(raw.get()).ok_or_else(|| Refusal::field_type("accessibility_trees", "bytes", "other"))?;
        let text = forest(&bytes).map_err(|refusal| refusal.at("accessibility_trees", at))?;
        screens.show(if text.is_empty() { Screen::Image } else { Screen::Tree(text) });
        if let Some(action) = actions.get(at) {
            screens.act(Act::from_object(action, "action_type")?.because(words.get(at).cloned()));
        }
    }
    let (initial_state, turns) = screens.finish(counts);
    let task_description = texts(fields, "goal")?.into_iter().next().unwrap_or_default();
    let system = System { task_description, initial_state, ..System::default() };
    Ok(Draft { domain: Some(Domain::Android), system, turns, ..Draft::default() })
}

fn texts(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, Refusal> {
    let text = |(at, raw): (usize, &&serde_json::value::RawValue)| match Value::of(raw)? {
        Value::Text(text) => Ok(text),
        other => Err(Refusal::field_type(&format!("{name}[{at}]"), "a string", other.kind())),
    };
    json::list(fields, name)?.unwrap_or_default().iter().enumerate().map(text).collect()
}

/// The bytes that [`tf_records`](crate::tf_records) wrote.
fn bytes(raw: &str) -> Option<Vec<u8>> {
    match Value::parse(raw).ok()? {
        Value::Text(text) => Some(text.into_bytes()),
        Value::Object(fields) => match Value::parse(fields.get("base64")?.get()).ok()? {
            Value::Text(text) => base64::engine::general_purpose::STANDARD.decode(text).ok(),
            _ => None,
        },
        _ => None,
    }
}

/// A node or a window: its numbers and texts by field.
#[derive(Default)]
struct Parts<'a> {
    numbers: BTreeMap<u64, i64>,
    bytes: BTreeMap<u64, Vec<&'a [u8]>>,
}

impl<'a> Parts<'a> {
    fn of(message: &'a [u8]) -> Self {
        let mut parts = Self::default();
        for (field, value) in Message(message) {
            match value {
                Wire::Number(number) => {
                    parts.numbers.insert(field, number as i64);
                }
                Wire::Bytes(bytes) => parts.bytes.entry(field).or_default().push(bytes),
                Wire::Four(_) | Wire::Eight => {}
            }
        }
        parts
    }

    fn number(&self, field: u64) -> i64 {
        self.numbers.get(&field).copied().unwrap_or(0)
    }

    fn is(&self, field: u64) -> bool {
        self.number(field) != 0
    }

    fn text(&self, field: u64) -> Option<String> {
        let bytes = self.bytes.get(&field)?.last()?;
        Some(String::from_utf8_lossy(bytes).into_owned()).filter(|text| !text.is_empty())
    }

    fn place(&self, field: u64) -> Option<Place> {
        let edges = Parts::of(self.bytes.get(&field)?.last()?);
        let [left, top, right, bottom] = [1, 2, 3, 4].map(|edge| edges.number(edge) as i32 as f64);
        Some(Place { left, top, right, bottom })
    }
}

/// The windows of a screen, the front one first.
fn forest(bytes: &[u8]) -> Result<String, Refusal> {
    let windows = Message(bytes).bytes_of(1).ok_or_else(|| Refusal::new("tree", "no forest of windows"))?;
    let mut windows: Vec<Parts<'_>> = windows.into_iter().map(Parts::of).collect();
    windows.sort_by_key(|window| Reverse(window.number(4)));
    let kinds = ["unknown", "application", "input_method", "system", "accessibility_overlay", "split_screen_divider"];
    let mut tree = Tree::default();
    for window in &windows {
        let kind = usize::try_from(window.number(6)).ok().and_then(|kind| kinds.get(kind)).copied().unwrap_or("other");
        tree.node(0, None, "window")
            .name(window.text(5).as_deref())
            .text("type", Some(kind))
            .fact("active", window.is(8))
            .fact("focused", window.is(9))
            .place(window.place(1));
        for nodes in window.bytes.get(&11).into_iter().flatten() {
            write_nodes(nodes, &mut tree)?;
        }
    }
    Ok(tree.finish())
}

/// A tree that names itself would have no end.
const MOST_DEPTH: usize = 256;

/// `AndroidAccessibilityTree { nodes }`: each node after its parent, in the parent's order; then those that no node names,
/// at the depth they say.
fn write_nodes(bytes: &[u8], tree: &mut Tree) -> Result<(), Refusal> {
    let nodes = Message(bytes).bytes_of(1).ok_or_else(|| Refusal::new("tree", "no tree of nodes"))?;
    let nodes: Vec<Parts<'_>> = nodes.into_iter().map(Parts::of).collect();
    let places: BTreeMap<i64, usize> = nodes.iter().enumerate().map(|(at, node)| (node.number(1), at)).collect();
    let roots = nodes.iter().enumerate().filter(|(_, node)| node.number(27) == 0).map(|(at, _)| (at, 1));
    let mut open: Vec<(usize, usize)> = roots.collect();
    open.reverse();
    let mut is_written = vec![false; nodes.len()];
    while let Some((at, depth)) = open.pop() {
        if std::mem::replace(&mut is_written[at], true) {
            return Err(Refusal::new("tree_loop", "a node has two parents"));
        }
        if depth > MOST_DEPTH {
            return Err(Refusal::new("tree_depth", format!("a tree is more than {MOST_DEPTH} deep")));
        }
        write_node(&nodes[at], depth, tree);
        let children = children(&nodes[at]);
        open.extend(children.iter().rev().filter_map(|id| places.get(id)).map(|child| (*child, depth + 1)));
    }
    for (node, _) in nodes.iter().zip(&is_written).filter(|(_, is_written)| !**is_written) {
        let depth = usize::try_from(node.number(27)).unwrap_or(0).min(MOST_DEPTH);
        write_node(node, depth + 1, tree);
    }
    Ok(())
}

/// The numbers of a node's children, packed.
fn children(node: &Parts<'_>) -> Vec<i64> {
    let mut found = Vec::new();
    for packed in node.bytes.get(&25).into_iter().flatten() {
        let mut rest = *packed;
        while let Some(id) = varint(&mut rest) {
            found.push(id as i64);
        }
    }
    found
}

fn write_node(node: &Parts<'_>, depth: usize, tree: &mut Tree) {
    let class = node.text(3).unwrap_or_else(|| "node".into());
    let role = class.rsplit('.').next().unwrap_or(&class);
    let (text, description) = (node.text(7), node.text(4));
    let name = text.clone().or(description.clone());
    let description = description.filter(|description| Some(description) != name.as_ref());
    tree.node(depth, None, role)
        .name(name.as_deref())
        .text("description", description.as_deref())
        .text("hint", node.text(5).as_deref())
        .text("tooltip", node.text(31).as_deref())
        .text("resource", node.text(10).as_deref())
        .text("package", node.text(6).filter(|_| node.number(27) == 0).as_deref())
        .fact("checkable", node.is(12))
        .fact("checked", node.is(13))
        .fact("clickable", node.is(14))
        .fact("editable", node.is(15))
        .fact("disabled", !node.is(16))
        .fact("focusable", node.is(17))
        .fact("focused", node.is(18))
        .fact("long-clickable", node.is(19))
        .fact("password", node.is(20))
        .fact("scrollable", node.is(21))
        .fact("selected", node.is(22))
        .fact("invisible", !node.is(23))
        .place(node.place(2));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message of numbers and of shorter messages or texts.
    fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
        fields.iter().flat_map(|(field, bytes)| [&[field << 3 | 2, bytes.len() as u8], *bytes].concat()).collect()
    }

    /// A node of this number and depth that is enabled and visible, with children if any.
    fn node(id: u8, depth: u8, children: &[u8]) -> Vec<u8> {
        let facts = [8, id, 0x80, 1, 1, 0xb8, 1, 1, 0xd8, 1, depth];
        let tail = if children.is_empty() { Vec::new() } else { [&[0xca, 1, children.len() as u8], children].concat() };
        [message(&[(3, b"a.View"), (7, &[b'n', b'0' + id])]), facts.to_vec(), tail].concat()
    }

    fn written(nodes: &[Vec<u8>]) -> Result<String, &'static str> {
        let tree: Vec<u8> = nodes.iter().flat_map(|node| message(&[(1, node)])).collect();
        forest(&message(&[(1, &message(&[(11, &tree)]))])).map_err(|refusal| refusal.rule)
    }

    #[test]
    fn children_follow_their_parent_and_a_node_that_none_names_is_not_lost() {
        let window = "window type=\"unknown\"";
        let found = written(&[node(1, 0, &[3, 2]), node(2, 1, &[]), node(3, 1, &[9]), node(4, 2, &[])]).unwrap();
        assert_eq!(found, format!("{window}\n  View \"n1\"\n    View \"n3\"\n    View \"n2\"\n      View \"n4\""));
    }

    #[test]
    fn a_tree_that_names_a_node_twice_is_refused() {
        assert_eq!(written(&[node(1, 0, &[2, 2]), node(2, 1, &[])]), Err("tree_loop"));
        assert_eq!(written(&[node(1, 0, &[1])]), Err("tree_loop"));
    }
}
