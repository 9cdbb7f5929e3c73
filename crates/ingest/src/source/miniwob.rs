//! MiniWoB++ demonstrations: the whole document at each event of a browser, one object per demonstration.
//!
//! A row is `{taskName, utterance, states: [{time, action, dom}]}`, `dom` the document before `action`. Events are
//! grouped into gestures ([`miniwob_gestures`]), each a turn; its observation is the document before the next gesture,
//! for the last one the document at its last event. An action names the node it met (`ref`) and the place.
//! Taken of a node: tag, `ref` as its number, text as its name, id, class, value (`checked` of a box), focus, box. Left out:
//! colours, the mark of the next event's target, which would tell what comes, and `ref` of bare texts.
//! Task group: `taskName`. Reward: `rawReward` (1 or -1; `reward` is the same less the time taken).

use serde::Deserialize;
use worldloom_schema::{Domain, Outcome, System};

use super::miniwob_gestures::{Deed, Event, Gesture, group};
use super::screens::{Act, Screen, Screens};
use super::tree::{Place, Tree};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{self, quote};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct MiniWob;

const NAME: &str = "miniwob";

impl Source for MiniWob {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "MiniWoB++ demonstrations: an object with the whole document at each event of the browser".into(),
            example: r#"{"taskName": "click-button", "utterance": "Click OK.", "rawReward": 1, "states": [{"action": null, "dom": {"tag": "BUTTON", "ref": 1, "text": "OK", "left": 0, "top": 0, "width": 40, "height": 20, "children": []}}, {"action": {"type": "mousedown", "timing": 1, "x": 9, "y": 9}, "dom": {"tag": "BUTTON", "ref": 1, "text": "OK", "recordingTarget": true, "left": 0, "top": 0, "width": 40, "height": 20, "children": []}}, {"action": {"type": "click", "timing": 1, "x": 9, "y": 9}, "dom": {"tag": "BUTTON", "ref": 1, "text": "OK", "focused": true, "left": 0, "top": 0, "width": 40, "height": 20, "children": []}}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let fields = piece.row_fields().filter(|fields| fields.contains_key("utterance"));
        fields.is_some_and(|fields| json::first_has(&fields, "states", "dom"))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        read(piece.row().unwrap_or_default(), origin, out)
    }
}

#[derive(Deserialize)]
struct Demonstration {
    #[serde(rename = "taskName")]
    task_name: Option<String>,
    utterance: String,
    #[serde(rename = "rawReward")]
    raw_reward: Option<f64>,
    states: Vec<State>,
}

#[derive(Deserialize)]
struct State {
    action: Option<Event>,
    dom: Node,
}

#[derive(Deserialize)]
struct Node {
    tag: String,
    #[serde(rename = "ref")]
    number: Option<i64>,
    id: Option<String>,
    classes: Option<String>,
    text: Option<String>,
    value: Option<Value>,
    #[serde(default)]
    focused: bool,
    #[serde(default, rename = "recordingTarget")]
    is_target: bool,
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    #[serde(default)]
    children: Vec<Node>,
}

/// What a field holds: whether its box is checked, or a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Value {
    Checked(bool),
    Text(String),
    Number(serde_json::Number),
}

fn read(row: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let demonstration: Demonstration = serde_json::from_str(row).map_err(|error| Refusal::json(&error))?;
    let states = &demonstration.states;
    let events = states.iter().enumerate().filter_map(|(number, state)| Some((number, state.action.as_ref()?)));
    let mut screens = Screens::default();
    let gestures = group(events);
    screens.leave_out("events_joined_to_a_gesture", events_within(&gestures));
    for gesture in &gestures {
        let before = &states[gesture.first].dom;
        screens.show(Screen::Tree(write(before)));
        screens.act(act(&gesture.deed, target(before)));
    }
    if let Some(last) = gestures.last().filter(|gesture| gesture.last > gesture.first) {
        screens.show(Screen::Tree(write(&states[last.last].dom)));
    }
    let success = demonstration.raw_reward.map(|reward| reward > 0.0);
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Web),
        task_group: demonstration.task_name,
        system: System { task_description: demonstration.utterance, ..System::default() },
        outcome: Outcome { reward: demonstration.raw_reward, success },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

fn events_within(gestures: &[Gesture]) -> u64 {
    gestures.iter().map(|gesture| (gesture.last - gesture.first) as u64).sum()
}

fn act(deed: &Deed, target: Option<i64>) -> Act {
    let target = target.map(|number| ("ref", number.to_string()));
    let place = |(x, y): (f64, f64), names: [&'static str; 2]| [(names[0], number(x)), (names[1], number(y))];
    match deed {
        Deed::Mouse { from, to, clicks } => {
            let name = match clicks {
                0 if from != to => "drag",
                0 => "mouse_press",
                1 => "click",
                _ => "double_click",
            };
            let end = (name == "drag").then(|| place(*to, ["to_x", "to_y"]));
            Act::call(name, target.into_iter().chain(place(*from, ["x", "y"])).chain(end.into_iter().flatten()))
        }
        Deed::Type(text) => Act::call("type", target.into_iter().chain([("text", quote(text))])),
        Deed::Press(keys) => Act::call("press", target.into_iter().chain([("key", quote(keys))])),
        Deed::Scroll => Act::call("scroll", target),
        Deed::Other(name) => Act::call(name, target),
    }
}

/// A coordinate as JSON, whole where it is.
fn number(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { value.to_string() }
}

/// The node that the next event meets.
fn target(node: &Node) -> Option<i64> {
    if node.is_target { node.number } else { node.children.iter().find_map(target) }
}

/// The document as text.
fn write(root: &Node) -> String {
    let mut tree = Tree::default();
    let mut open = vec![(0, root)];
    while let Some((depth, node)) = open.pop() {
        let is_text = node.tag == "t";
        let place =
            Place { left: node.left, top: node.top, right: node.left + node.width, bottom: node.top + node.height };
        let role = if is_text { "text" } else { &node.tag };
        let (checked, value) = match &node.value {
            Some(Value::Checked(checked)) => (*checked, None),
            Some(Value::Text(text)) => (false, Some(text.clone())),
            Some(Value::Number(number)) => (false, Some(number.to_string())),
            None => (false, None),
        };
        tree.node(depth, node.number.filter(|_| !is_text), role)
            .name(node.text.as_deref().filter(|text| !text.is_empty()))
            .text("id", node.id.as_deref())
            .text("class", node.classes.as_deref())
            .text("value", value.as_deref())
            .fact("checked", checked)
            .fact("focused", node.focused)
            .place(Some(place));
        open.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
    }
    tree.finish()
}
