//! Android in the Wild (AitW): steps of a screenshot and what a person did on it.
//!
//! Published are TFRecord files with a step a record (`aitw`); people have the same fields as JSON, a step a row, scalars
//! in place of lists of one. Steps of an `episode_id` make an episode, in the order of `step_id`. SeeClick's release
//! (`aitw-seeclick`) is an object of subsets, each a list of episodes, each a list of steps with fields of its own.
//!
//! An action is a number: 3 types a text, 4 is a gesture from where the finger touched to where it was lifted, as shares of
//! the screen; less than 0.04 apart they are a click (upstream's rule), else a swipe. The lift is written where it is
//! another point. The last action may say that the task is done or impossible, which is the outcome and has no screen
//! after it. Left out: screenshots (counted; the observation is empty, of kind image), elements that an OCR and an icon
//! detector found on them. Written after the documentation and others' readers, no file of upstream was at hand. Task
//! group: hash of the goal.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use worldloom_schema::{Domain, Outcome, System};

use super::Draft;
use super::format::{Drafts, FileFormat, Found, numbered};
use super::screens::{Act, Screen, Screens};
use crate::json::{self, Fields, Value, quote};
use crate::piece::{FilePiece, RecordRow};
use crate::refusal::{Counts, Refusal, count};

/// A step a row.
pub(crate) static STEPS: FileFormat = FileFormat {
    name: "aitw",
    description: "Android in the Wild: TFRecord files as published, or the same fields as JSON, a step a row; screenshots only",
    example: r#"{"episode_id": "12", "step_id": 0, "goal_info": "open chrome", "results/action_type": 4, "results/yx_touch": [0.7, 0.5], "results/yx_lift": [0.7, 0.5], "results/type_action": "", "image/encoded": "12-0.png"}
{"episode_id": "12", "step_id": 1, "goal_info": "open chrome", "results/action_type": 10, "results/yx_touch": [-1, -1], "results/yx_lift": [-1, -1], "results/type_action": "", "image/encoded": "12-1.png"}"#,
    detects: |file| {
        let names = ["episode_id", "step_id", "goal_info", "results/action_type"];
        file.first_fields().is_some_and(|fields| names.iter().all(|name| fields.contains_key(*name)))
    },
    read: steps,
};

/// Episodes as SeeClick has them.
pub(crate) static EPISODES: FileFormat = FileFormat {
    name: "aitw-seeclick",
    description: "Android in the Wild as SeeClick has it: an object of subsets, of lists of steps; screenshots only",
    example: r#"{"general": [[{"ep_id": "12", "goal": "open chrome", "img_filename": "general/12_0", "action_type_id": 4, "action_type_text": "click", "touch": [0.5, 0.7], "lift": [0.5, 0.7], "type_text": ""}, {"ep_id": "12", "goal": "open chrome", "img_filename": "general/12_1", "action_type_id": 10, "action_type_text": "status task complete", "touch": [-1, -1], "lift": [-1, -1], "type_text": ""}]]}"#,
    detects: |file| {
        let subset = file.first_fields().and_then(|fields| first_item(fields.into_values().next()?));
        let step = subset.and_then(first_item).and_then(|raw| Value::of(raw).ok());
        matches!(step, Some(Value::Object(step)) if step.contains_key("action_type_id") && step.contains_key("ep_id"))
    },
    read: episodes,
};

fn first_item(raw: &RawValue) -> Option<&RawValue> {
    match Value::of(raw).ok()? {
        Value::List(items) => items.into_iter().next(),
        _ => None,
    }
}

/// A step, whoever wrote it.
struct Step {
    /// Where in its episode it stands.
    number: i64,
    goal: String,
    act: Act,
    /// What the person said of the task, where the action is that.
    is_done: Option<bool>,
}

/// Steps of one episode, and where the first of them stands.
struct Episode {
    row: u64,
    offset: u64,
    steps: Vec<Step>,
}

/// The rows of a file as episodes, in the order in which they begin.
fn steps(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let (mut episodes, mut places, mut found) = (Vec::<Episode>::new(), BTreeMap::new(), Drafts::new());
    for RecordRow { number: row, offset, text } in file.rows(counts) {
        let read = text.and_then(|text| match Value::parse(&text).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => published(&fields),
            other => Err(Refusal::field_type("row", "an object", other.kind())),
        });
        match read {
            Ok((id, step)) => {
                let place = *places.entry(id).or_insert(episodes.len());
                if place == episodes.len() {
                    episodes.push(Episode { row, offset, steps: Vec::new() });
                }
                episodes[place].steps.push(step);
            }
            Err(refusal) => found.push(Found { row, offset, draft: Err(refusal) }),
        }
    }
    found.extend(episodes.into_iter().map(|Episode { row, offset, steps }| Found {
        row,
        offset,
        draft: episode(steps, counts),
    }));
    found.sort_by_key(|found| found.row);
    Ok(found)
}

/// Fields with one value, which TFRecord keeps in lists.
const SCALARS: [&str; 5] = ["episode_id", "step_id", "goal_info", "results/action_type", "results/type_action"];

/// A row with the fields of the published files: its episode and the step.
fn published(row: &Fields<'_>) -> Result<(String, Step), Refusal> {
    let mut fields = row.clone();
    for name in SCALARS {
        if let Some(Value::List(items)) = row.get(name).map(|raw| Value::of(raw)).transpose()? {
            match items.first() {
                Some(item) => fields.insert(name.into(), item),
                None => fields.remove(name),
            };
        }
    }
    let needed = |name: &str| json::text(&fields, name)?.ok_or_else(|| Refusal::field_type(name, "a value", "nothing"));
    let (id, number) = (needed("episode_id")?, needed("step_id")?);
    let number =
        number.parse().map_err(|_| Refusal::field_type("step_id", "a whole number", &format!("`{number}`")))?;
    let gesture = || {
        let [touch, lift] = ["results/yx_touch", "results/yx_lift"].map(|name| point(&fields, name));
        let ([touch_y, touch_x], [lift_y, lift_x]) = (touch?, lift?);
        Ok(gesture([touch_x, touch_y], [lift_x, lift_y]))
    };
    let kind = kind(&needed("results/action_type")?)?;
    let (act, is_done) = kind.act(|| typed(&fields, "results/type_action"), gesture)?;
    Ok((id, Step { number, goal: needed("goal_info")?, act, is_done }))
}

/// The subsets of SeeClick's file, one episode after the other.
fn episodes(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let text = file.text(counts);
    let subsets: Vec<(String, &RawValue)> = json::pairs(&text).map_err(|error| Refusal::json(&error))?;
    let mut drafts = Vec::new();
    for (name, subset) in &subsets {
        let episodes: Vec<Vec<&RawValue>> =
            serde_json::from_str(subset.get()).map_err(|error| Refusal::json(&error).of(name))?;
        for steps in episodes {
            let steps = steps.into_iter().zip(0..).map(|(raw, number)| match Value::of(raw)? {
                Value::Object(fields) => seeclick(&fields, number),
                other => Err(Refusal::field_type("step", "an object", other.kind())),
            });
            drafts.push(steps.collect::<Result<Vec<_>, _>>().and_then(|steps| episode(steps, counts)));
        }
    }
    Ok(numbered(drafts))
}

fn seeclick(fields: &Fields<'_>, number: i64) -> Result<Step, Refusal> {
    let needed = |name: &str| json::text(fields, name)?.ok_or_else(|| Refusal::field_type(name, "a value", "nothing"));
    let gesture = || Ok(gesture(point(fields, "touch")?, point(fields, "lift")?));
    let (act, is_done) = kind(&needed("action_type_id")?)?.act(|| typed(fields, "type_text"), gesture)?;
    Ok(Step { number, goal: needed("goal")?, act, is_done })
}

/// An episode from its steps; one with a hole in it would take a later screen for the answer to an action.
fn episode(mut steps: Vec<Step>, counts: &mut Counts) -> Result<Draft, Refusal> {
    steps.sort_by_key(|step| step.number);
    let all = steps.len();
    steps.dedup_by_key(|step| step.number);
    count(counts, "steps_repeated", (all - steps.len()) as u64);
    let hole = steps.array_windows().find(|[step, next]| step.number.checked_add(1) != Some(next.number));
    if let Some([step, next]) = hole {
        return Err(Refusal::new("step_missing", format!("step {} after step {}", next.number, step.number)));
    }
    let (task_description, success) = match steps.first().zip(steps.last()) {
        Some((first, last)) => (first.goal.clone(), last.is_done),
        None => return Err(Refusal::new("no_turns", "an episode without steps")),
    };
    let mut screens = Screens::default();
    for step in steps {
        screens.show(Screen::Image);
        screens.act(step.act);
    }
    let (initial_state, turns) = screens.finish(counts);
    Ok(Draft {
        domain: Some(Domain::Android),
        system: System { task_description, initial_state, ..System::default() },
        outcome: Outcome { reward: None, success },
        turns,
        ..Draft::default()
    })
}

enum Kind {
    Type,
    Gesture,
    Key(&'static str),
    /// Whether the task is done; else it is impossible.
    Status(bool),
}

impl Kind {
    /// The action, with what was typed or how a finger moved, and whether it says that the task is done.
    fn act(
        self,
        typed: impl FnOnce() -> Result<Act, Refusal>,
        gesture: impl FnOnce() -> Result<Act, Refusal>,
    ) -> Result<(Act, Option<bool>), Refusal> {
        Ok(match self {
            Kind::Type => (typed()?, None),
            Kind::Gesture => (gesture()?, None),
            Kind::Key(name) => (Act::call(name, []), None),
            Kind::Status(is_done) => (status(is_done), Some(is_done)),
        })
    }
}

/// An action by its number, by its name in upstream's code, or by that in its paper, which some exports write.
fn kind(found: &str) -> Result<Kind, Refusal> {
    Ok(match found.trim().to_lowercase().as_str() {
        "3" | "type" => Kind::Type,
        "4" | "dual_point" | "dual-point gesture" => Kind::Gesture,
        "5" | "press_back" | "go_back" => Kind::Key("press_back"),
        "6" | "press_home" | "go_home" => Kind::Key("press_home"),
        "7" | "press_enter" | "enter" => Kind::Key("press_enter"),
        "10" | "status_task_complete" | "task_complete" => Kind::Status(true),
        "11" | "status_task_impossible" | "task_impossible" => Kind::Status(false),
        _ => return Err(Refusal::new("action", format!("expected 3 to 7, 10, 11 or their names, found `{found}`"))),
    })
}

fn typed(fields: &Fields<'_>, name: &str) -> Result<Act, Refusal> {
    Ok(Act::call("type", [("text", quote(&json::text(fields, name)?.unwrap_or_default()))]))
}

fn status(is_done: bool) -> Act {
    Act::call(if is_done { "status_task_complete" } else { "status_task_impossible" }, [])
}

/// The digits of a point's two numbers, as they came.
fn point<'a>(fields: &Fields<'a>, name: &str) -> Result<[&'a str; 2], Refusal> {
    let items = json::list(fields, name)?.unwrap_or_default();
    let digits = items.iter().map(|raw| match Value::of(raw)? {
        Value::Number(digits) => Ok(digits),
        other => Err(Refusal::field_type(name, "numbers", other.kind())),
    });
    let digits = digits.collect::<Result<Vec<_>, _>>()?;
    digits.try_into().map_err(|found: Vec<_>| Refusal::field_type(name, "two numbers", &found.len().to_string()))
}

/// Points closer than this share of the screen are one (`_SWIPE_DISTANCE_THRESHOLD` of upstream's `action_matching.py`).
const CLICK_DISTANCE: f64 = 0.04;

/// A click or a swipe from one `[x, y]` to another.
fn gesture(touch: [&str; 2], lift: [&str; 2]) -> Act {
    let share = |digits: &str| digits.parse().unwrap_or(f64::NAN);
    let apart = (share(touch[0]) - share(lift[0])).hypot(share(touch[1]) - share(lift[1]));
    let name = if apart <= CLICK_DISTANCE { "click" } else { "swipe" };
    let lift = if touch == lift { &[][..] } else { &[("lift_x", lift[0]), ("lift_y", lift[1])] };
    let arguments = [("x", touch[0]), ("y", touch[1])].into_iter().chain(lift.iter().copied());
    Act::call(name, arguments.map(|(name, digits)| (name, digits.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gesture_is_a_click_where_its_points_are_one_by_upstreams_rule() {
        let check = |touch, lift, expected: &str| assert_eq!(gesture(touch, lift).text, expected);
        check(["0.5", "0.7"], ["0.5", "0.7"], r#"{"name": "click", "arguments": {"x": 0.5, "y": 0.7}}"#);
        let near = r#"{"name": "click", "arguments": {"x": 0.50, "y": 0.7, "lift_x": 0.53, "lift_y": 0.71}}"#;
        check(["0.50", "0.7"], ["0.53", "0.71"], near);
        let far = r#"{"name": "swipe", "arguments": {"x": 0.5, "y": 0.7, "lift_x": 0.5, "lift_y": 0.2}}"#;
        check(["0.5", "0.7"], ["0.5", "0.2"], far);
    }

    #[test]
    fn a_repeated_step_is_counted_and_a_missing_one_is_refused() {
        let step = |number| Step { number, goal: "go".into(), act: Act::call("press_back", []), is_done: None };
        let mut counts = Counts::new();
        let draft = episode([2, 1, 0, 1].map(step).into(), &mut counts).unwrap();
        assert_eq!((draft.turns.len(), counts["steps_repeated"], counts["images_left_out"]), (2, 1, 3));
        let refusal = episode([0, 1, 4].map(step).into(), &mut counts).unwrap_err();
        assert_eq!((refusal.rule, refusal.detail.as_str()), ("step_missing", "step 4 after step 1"));
        assert_eq!(episode(Vec::new(), &mut counts).unwrap_err().rule, "no_turns");
    }
}
