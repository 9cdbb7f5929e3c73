//! AndroidControl episodes as UI-S1 prepares them: one object per episode, screens as screenshots only.
//!
//! A row has `goal` and `steps` of `{action_content: {action, …}, step_instruction, screenshot}`; the screenshot is the
//! one before the action. Taken: actions, the annotator's words for a step as reasoning, `is_successful`. Left out:
//! screenshots (counted; the observation is empty, of kind image) and `check_options`, a grader's tolerance.
//! Task group: hash of the task.

use serde::Deserialize;
use serde_json::value::RawValue;
use worldloom_schema::{Domain, Outcome, System};

use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json;
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AndroidControl;

const NAME: &str = "android-control";

impl Source for AndroidControl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "AndroidControl episodes as UI-S1 prepares them: an object with goal and steps; screenshots only".into(),
            example: r#"{"goal": "Go back.", "is_successful": true, "steps": [{"action_content": {"action": "click", "coordinate": [540, 2273]}, "screenshot": "0.png", "step_instruction": "Tap the arrow."}, {"action_content": {"action": "wait", "time": 2}, "screenshot": "1.png", "step_instruction": "Wait."}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let fields = piece.row_fields().filter(|fields| fields.contains_key("goal"));
        fields.is_some_and(|fields| json::first_has(&fields, "steps", "action_content"))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        read(piece.row().unwrap_or_default(), origin, out)
    }
}

#[derive(Deserialize)]
struct Episode<'a> {
    goal: String,
    is_successful: Option<bool>,
    #[serde(borrow)]
    steps: Vec<Step<'a>>,
}

#[derive(Deserialize)]
struct Step<'a> {
    #[serde(borrow)]
    action_content: &'a RawValue,
    step_instruction: Option<String>,
}

fn read(row: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let episode: Episode<'_> = serde_json::from_str(row).map_err(|error| Refusal::json(&error))?;
    let mut screens = Screens::default();
    for step in episode.steps {
        screens.show(Screen::Image);
        screens.act(Act::from_object(step.action_content.get(), "action")?.because(step.step_instruction));
    }
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Android),
        system: System { task_description: episode.goal, ..System::default() },
        outcome: Outcome { reward: None, success: episode.is_successful },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}
