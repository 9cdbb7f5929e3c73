//! Episodes of BrowserGym and AgentLab as JSON: an object with `steps`, or a file with a step a line.
//!
//! A step is `{obs, action, reward, terminated, agent_info}`, where `obs` is the page before the action: `url`,
//! `last_action_error`, and the accessibility tree as text (`axtree_txt`) or as Chrome gives it (`axtree_object`), else
//! the document (`pruned_html`, `dom_txt`). Upstream pickles its steps; this is what its tools write as JSON.
//!
//! The text of a page is its `url`, the error of the action before it, and the tree; Chrome's tree is written in the one
//! form of [`tree`](super::tree), its number the node's `bid`. Taken: the action's code, `agent_info.think` as thoughts,
//! the sum of rewards. Left out: screenshots (counted where they are all there is), `chat_messages`, `stats`. Written
//! after the documentation, no file of upstream was at hand. Task group: `task_name`, else the hash of the goal.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use worldloom_schema::{Domain, Outcome, System};

use super::Draft;
use super::format::{Drafts, FileFormat, Found, RowFormat, one};
use super::screens::{Act, Screen, Screens};
use super::tree::Tree;
use crate::json::{self, Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal};

/// An object per episode.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "browsergym",
    description: "BrowserGym and AgentLab episodes as JSON: an object with steps of page, action and reward",
    example: r#"{"task_name": "browsergym/miniwob.click-test", "goal": "Click the button.", "steps": [{"obs": {"url": "http://a/", "axtree_txt": "[1] button 'Go'", "last_action_error": ""}, "action": "click('1')", "reward": 0}, {"obs": {"url": "http://a/", "axtree_txt": "RootWebArea 'Done'", "last_action_error": ""}, "action": null, "reward": 1}]}"#,
    detects: |fields| json::first_has(fields, "steps", "obs") && json::first_has(fields, "steps", "action"),
    read: |fields, _, counts| Ok(one(episode(fields, json::objects(fields, "steps")?, counts)?)),
};

/// A file per episode.
pub(crate) static STEPS: FileFormat = FileFormat {
    name: "browsergym-steps",
    description: "A BrowserGym or AgentLab episode as JSON lines: a step of page, action and reward each",
    example: r#"{"step": 0, "task_name": "browsergym/miniwob.click-test", "obs": {"goal": "Click the button.", "axtree_txt": "[1] button 'Go'", "last_action_error": ""}, "action": "click('1')", "reward": 0}
{"step": 1, "obs": {"axtree_txt": "RootWebArea 'Done'", "last_action_error": ""}, "action": null, "reward": 1}"#,
    detects: |file| file.first_fields().is_some_and(|fields| is_step(&fields)),
    read: steps,
};

fn is_step(fields: &Fields<'_>) -> bool {
    let obs = json::object(fields, "obs").ok().flatten();
    fields.contains_key("action") && obs.is_some_and(|obs| PAGES.iter().any(|name| obs.contains_key(*name)))
}

/// Where a page may stand, in the order in which it is looked for.
const PAGES: [&str; 4] = ["axtree_txt", "axtree_object", "pruned_html", "dom_txt"];

fn steps(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let rows = file.rows(counts);
    let (mut steps, mut drafts) = (Vec::new(), Drafts::new());
    for row in &rows {
        let step = row.text.as_ref().map_err(Clone::clone).and_then(|text| match Value::parse(text) {
            Ok(Value::Object(fields)) => Ok(fields),
            Ok(other) => Err(Refusal::field_type("row", "an object", other.kind())),
            Err(error) => Err(Refusal::json(&error)),
        });
        match step {
            Ok(step) => steps.push(step),
            Err(refusal) => drafts.push(Found { row: row.number, offset: row.offset, draft: Err(refusal) }),
        }
    }
    let head = steps.first().cloned().unwrap_or_default();
    drafts.insert(0, Found { row: 0, offset: 0, draft: episode(&head, steps, counts) });
    Ok(drafts)
}

/// An episode from what is said of it as a whole and its steps.
fn episode(head: &Fields<'_>, steps: Vec<Fields<'_>>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let (mut screens, mut reward, mut goal) = (Screens::default(), None, goal(head)?);
    for step in &steps {
        let obs = json::object(step, "obs")?.unwrap_or_default();
        goal = goal.or(self::goal(&obs)?);
        screens.show(page(&obs)?);
        if let Some(error) = json::text(&obs, "last_action_error")? {
            screens.set_error(!error.trim().is_empty());
        }
        if let Some(more) = json::number(step, "reward")? {
            reward = Some(reward.unwrap_or(0.0) + more);
        }
        let thoughts = json::object(step, "agent_info")?.map(|info| json::text(&info, "think")).transpose()?;
        if let Some(action) = json::text(step, "action")?.filter(|action| !action.trim().is_empty()) {
            screens.act(Act::code(action.trim()).because(thoughts.flatten()));
        }
    }
    let (initial, turns) = screens.finish(counts);
    let task_group = match json::object(head, "env_args")? {
        Some(arguments) => json::text(&arguments, "task_name")?,
        None => json::text(head, "task_name")?,
    };
    let task_description = goal.unwrap_or_default();
    Ok(Draft {
        domain: Some(Domain::Web),
        task_group,
        system: System { task_description, initial_state: initial, ..System::default() },
        outcome: Outcome { reward, success: None },
        turns,
        ..Draft::default()
    })
}

/// `goal`, else the texts of `goal_object`.
fn goal(fields: &Fields<'_>) -> Result<Option<String>, Refusal> {
    if let Some(goal) = json::text(fields, "goal")?.filter(|goal| !goal.is_empty()) {
        return Ok(Some(goal));
    }
    let parts = json::objects(fields, "goal_object")?;
    let texts: Result<Vec<_>, Refusal> = parts.iter().map(|part| json::text(part, "text")).collect();
    let text = texts?.into_iter().flatten().collect::<Vec<_>>().join("\n");
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// The page as text: address, error of the action before, tree.
fn page(obs: &Fields<'_>) -> Result<Screen, Refusal> {
    let mut found = None;
    for name in PAGES {
        found = match name {
            "axtree_object" => json::object(obs, name)?.map(|tree| chrome_tree(&tree)).transpose()?,
            _ => json::text(obs, name)?,
        };
        if found.as_ref().is_some_and(|text| !text.trim().is_empty()) {
            break;
        }
    }
    let Some(tree) = found else { return Ok(Screen::Image) };
    let mut lines = Vec::new();
    lines.extend(json::text(obs, "url")?.map(|url| format!("url: {url}")));
    let error = json::text(obs, "last_action_error")?.filter(|error| !error.trim().is_empty());
    lines.extend(error.map(|error| format!("error: {}", error.trim())));
    lines.push(tree.trim_end().to_string());
    Ok(Screen::Tree(lines.join("\n")))
}

/// A node of Chrome's accessibility tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node<'a> {
    #[serde(borrow)]
    node_id: &'a RawValue,
    #[serde(default)]
    ignored: bool,
    #[serde(borrow)]
    role: Option<Said<'a>>,
    #[serde(borrow)]
    name: Option<Said<'a>>,
    #[serde(borrow)]
    value: Option<Said<'a>>,
    #[serde(borrow, default)]
    properties: Vec<Property<'a>>,
    #[serde(borrow, default)]
    child_ids: Vec<&'a RawValue>,
    #[serde(rename = "browsergym_id")]
    bid: Option<String>,
}

#[derive(Deserialize)]
struct Property<'a> {
    name: String,
    #[serde(borrow)]
    value: Option<Said<'a>>,
}

/// A value beside its type.
#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    value: Option<&'a RawValue>,
}

impl Said<'_> {
    fn text(&self) -> Option<String> {
        match Value::parse(self.value?.get()).ok()? {
            Value::Text(text) => Some(text),
            Value::Number(digits) => Some(digits.into()),
            _ => None,
        }
    }

    fn holds(&self) -> bool {
        self.value.is_some_and(|value| value.get() == "true")
    }
}

/// A node's depth may not exceed this: a tree that names itself would have no end.
const MOST_DEPTH: usize = 256;

/// `{nodes: […]}` as a tree; what Chrome ignores is left out and its children stand in its place.
fn chrome_tree(tree: &Fields<'_>) -> Result<String, Refusal> {
    let raw = json::list(tree, "nodes")?.unwrap_or_default();
    let read = raw.iter().map(|raw| serde_json::from_str(raw.get()).map_err(|error| Refusal::json(&error)));
    let nodes: Vec<Node<'_>> = read.collect::<Result<_, _>>()?;
    let places: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.node_id.get(), at)).collect();
    let mut written = Tree::default();
    let mut open = if nodes.is_empty() { Vec::new() } else { vec![(0, 0)] };
    let mut left = nodes.len();
    while let Some((at, depth)) = open.pop() {
        left = left
            .checked_sub(1)
            .ok_or_else(|| Refusal::new("tree_loop", "a node of `axtree_object` has two parents"))?;
        if depth > MOST_DEPTH {
            return Err(Refusal::new("tree_depth", format!("`axtree_object` is more than {MOST_DEPTH} deep")));
        }
        let node = &nodes[at];
        let below = if node.ignored { depth } else { write(node, depth, &mut written) };
        let children = node.child_ids.iter().rev().filter_map(|id| places.get(id.get()));
        open.extend(children.map(|child| (*child, below)));
    }
    Ok(written.finish())
}

/// Writes a node; the depth of its children.
fn write(node: &Node<'_>, depth: usize, tree: &mut Tree) -> usize {
    let text = |said: &Option<Said<'_>>| said.as_ref().and_then(Said::text);
    let role = text(&node.role).unwrap_or_else(|| "node".into());
    let role = match &node.bid {
        Some(bid) => format!("[{bid}] {role}"),
        None => role,
    };
    let name = text(&node.name);
    let mut line = tree.node(depth, None, &role).name(name.as_deref()).text("value", text(&node.value).as_deref());
    for property in &node.properties {
        let Some(value) = &property.value else { continue };
        line = line.fact(&property.name, value.holds()).text(&property.name, value.text().as_deref());
    }
    depth + 1
}
