//! Recordings of the AgentNet tool: a folder per desktop task, with the accessibility tree before each action.
//!
//! Read are `task_name.json` (`{task_name}`), `reduced_events_complete.jsonl` (an action per line, with `axtree`, the
//! last tree before it began) and `a11y.jsonl` (trees by time), from which the first after the last action is taken.
//! Actions are written as pyautogui code, as AgentNet's own pipeline does; an action of a kind that is not known is
//! written in the recorder's words. Taken of a node: control type without `Control` as its role, name, box. Left out:
//! raw events, pointer traces, window titles by time, the recorder's own facts about a tree.
//! Task group: hash of the task.

use serde::Deserialize;
use worldloom_schema::{Domain, System};

use super::screens::{Act, Screen, Screens};
use super::tree::{Place, Tree};
use super::{Draft, FormatInfo, Origin, Source};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AgentNetRecording;

const NAME: &str = "agentnet-recording";
const ACTIONS: &str = "reduced_events_complete.jsonl";
const TREES: &str = "a11y.jsonl";
const TASK: &str = "task_name.json";

impl Source for AgentNetRecording {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "A folder of the AgentNet tool: task_name.json, a11y.jsonl and reduced_events_complete.jsonl with UI trees".into(),
            example: r#"{"action": "click", "description": "Single left Click", "start_time": 2.0, "end_time": 2.5, "click_type": 1, "button": "left", "coordinate": {"x": 9, "y": 9}, "axtree": {"Name": "OK", "ControlType": "ButtonControl", "BoundingRectangle": {"left": 0, "top": 0, "right": 40, "bottom": 20}, "Children": []}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.folder().is_some_and(|folder| folder.has(ACTIONS))
    }

    fn takes(&self, entry: &str) -> bool {
        !entry.contains('/')
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let actions = folder.text(ACTIONS, out.counts)?;
        let trees = if folder.has(TREES) { folder.text(TREES, out.counts)? } else { String::new() };
        let task = if folder.has(TASK) { Some(folder.text(TASK, out.counts)?) } else { None };
        read(&actions, &trees, task.as_deref(), origin, out)
    }
}

#[derive(Deserialize)]
struct Task {
    #[serde(default)]
    task_name: String,
    #[serde(default)]
    description: String,
}

#[derive(Deserialize)]
struct Action {
    action: String,
    #[serde(default)]
    description: String,
    end_time: f64,
    axtree: Option<Node>,
    target: Option<Target>,
    coordinate: Option<Point>,
    #[serde(default)]
    click_type: u32,
    button: Option<String>,
    #[serde(default)]
    drag_trace: Vec<(f64, f64)>,
    #[serde(default)]
    trace: Vec<Scrolled>,
    #[serde(default)]
    key_names: Vec<String>,
}

#[derive(Deserialize)]
struct Target {
    title: Option<String>,
}

#[derive(Deserialize)]
struct Point {
    x: f64,
    y: f64,
}

#[derive(Deserialize)]
struct Scrolled {
    x: f64,
    y: f64,
    #[serde(default)]
    dx: i64,
    #[serde(default)]
    dy: i64,
}

#[derive(Deserialize)]
struct Snapshot {
    time_stamp: f64,
    axtree: Node,
}

#[derive(Deserialize)]
struct Node {
    #[serde(default, rename = "Name")]
    name: String,
    #[serde(default, rename = "ControlType")]
    control_type: String,
    #[serde(rename = "BoundingRectangle")]
    rectangle: Option<Rectangle>,
    #[serde(default, rename = "Children")]
    children: Vec<Node>,
}

#[derive(Deserialize)]
struct Rectangle {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// Reads a recording from the texts of its files.
fn read(
    actions: &str,
    trees: &str,
    task: Option<&str>,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    let actions: Vec<Action> = lines(actions, ACTIONS)?;
    let mut screens = Screens::default();
    for action in &actions {
        if let Some(tree) = &action.axtree {
            screens.show(Screen::Tree(write(tree)));
        }
        let act = act(action);
        let target =
            action.target.as_ref().and_then(|target| target.title.as_deref()).filter(|title| !title.is_empty());
        screens.act(match target {
            Some(title) => act.flag("target", title),
            None => act,
        });
    }
    let end = actions.last().map_or(0.0, |action| action.end_time);
    if let Some(snapshot) = next_snapshot(trees, end)? {
        screens.show(Screen::Tree(write(&snapshot.axtree)));
    }
    let task = match task {
        Some(text) => serde_json::from_str(text).map_err(|error| Refusal::new("json", format!("{TASK}: {error}")))?,
        None => Task { task_name: String::new(), description: String::new() },
    };
    let task_description = if task.task_name.is_empty() { task.description } else { task.task_name };
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Os),
        system: System { task_description, ..System::default() },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

fn lines<T: for<'a> Deserialize<'a>>(text: &str, file: &str) -> Result<Vec<T>, Refusal> {
    let filled = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    let parsed = filled.map(|(at, line)| {
        serde_json::from_str(line).map_err(|error| Refusal::new("json", format!("{file} line {}: {error}", at + 1)))
    });
    parsed.collect()
}

/// The first tree that was taken after a time.
fn next_snapshot(trees: &str, time: f64) -> Result<Option<Snapshot>, Refusal> {
    let snapshots: Vec<Snapshot> = lines(trees, TREES)?;
    let later = snapshots.into_iter().filter(|snapshot| snapshot.time_stamp > time);
    Ok(later.min_by(|one, other| one.time_stamp.total_cmp(&other.time_stamp)))
}

/// An action as pyautogui code.
fn act(action: &Action) -> Act {
    let code = match (action.action.as_str(), &action.coordinate) {
        ("click", Some(at)) => Some(click(action, at)),
        ("drag", Some(from)) => action.drag_trace.last().map(|(x, y)| {
            let button = button(action);
            format!("pyautogui.moveTo({})\npyautogui.dragTo({}{button})", place(from.x, from.y), place(*x, *y))
        }),
        ("scroll", _) => scroll(&action.trace),
        ("type" | "press", _) if !action.key_names.is_empty() => Some(keys(&action.key_names)),
        _ => None,
    };
    let act = match code {
        Some(code) => Act::code(code),
        None => Act::words(format!("{}: {}", action.action, action.description.trim())),
    };
    act.flag("family", &action.action)
}

fn click(action: &Action, at: &Point) -> String {
    let name = match action.click_type {
        2 => "doubleClick",
        3 => "tripleClick",
        _ => "click",
    };
    format!("pyautogui.{name}({}{})", place(at.x, at.y), button(action))
}

/// The button, where it is not the left one.
fn button(action: &Action) -> String {
    let other = action.button.as_deref().filter(|button| *button != "left");
    other.map_or(String::new(), |button| format!(", button={}", python_text(button)))
}

fn place(x: f64, y: f64) -> String {
    format!("x={x}, y={y}")
}

fn scroll(trace: &[Scrolled]) -> Option<String> {
    let first = trace.first()?;
    let (across, up): (i64, i64) = (trace.iter().map(|step| step.dx).sum(), trace.iter().map(|step| step.dy).sum());
    let mut code = format!("pyautogui.moveTo({})", place(first.x, first.y));
    if up != 0 || across == 0 {
        code += &format!("\npyautogui.scroll({up})");
    }
    if across != 0 {
        code += &format!("\npyautogui.hscroll({across})");
    }
    Some(code)
}

/// Keys one after the other: runs of letters are written, others pressed.
fn keys(names: &[String]) -> String {
    let mut code: Vec<String> = Vec::new();
    let mut letters = String::new();
    let write = |letters: &mut String, code: &mut Vec<String>| {
        if !letters.is_empty() {
            code.push(format!("pyautogui.write({})", python_text(&std::mem::take(letters))));
        }
    };
    for name in names {
        match name.as_str() {
            "space" => letters.push(' '),
            letter if letter.chars().count() == 1 => letters.push_str(letter),
            key => {
                write(&mut letters, &mut code);
                code.push(format!("pyautogui.press({})", python_text(key)));
            }
        }
    }
    write(&mut letters, &mut code);
    code.join("\n")
}

/// A text as Python writes it.
fn python_text(text: &str) -> String {
    let mut quoted = String::from("'");
    for letter in text.chars() {
        match letter {
            '\\' => quoted.push_str("\\\\"),
            '\'' => quoted.push_str("\\'"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    quoted + "'"
}

/// The tree as text.
fn write(root: &Node) -> String {
    let mut tree = Tree::default();
    let mut open = vec![(0, root)];
    while let Some((depth, node)) = open.pop() {
        let role = node.control_type.strip_suffix("Control").unwrap_or(&node.control_type);
        let place = node.rectangle.as_ref().map(|Rectangle { left, top, right, bottom }| Place {
            left: *left,
            top: *top,
            right: *right,
            bottom: *bottom,
        });
        let name = Some(node.name.as_str()).filter(|name| !name.is_empty());
        tree.node(depth, None, if role.is_empty() { "node" } else { role }).name(name).place(place);
        open.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
    }
    tree.finish()
}
