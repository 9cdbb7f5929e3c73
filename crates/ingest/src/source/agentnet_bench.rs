//! AgentNetBench samples: one object per desktop task, screens as screenshots only.
//!
//! A row has `task_id`, `user_task_description` and `steps` of `{image, action, inner_monologue}`, where the action is
//! pyautogui code with positions as shares of the screen, and the image is the one before it. Taken: code, thoughts.
//! Left out: images (counted), `inner_monologue.observation`, which a language model wrote from the image and the
//! environment never said (counted as `written_observations_left_out`), graders' alternatives. Task group: `task_id`.

use serde::Deserialize;
use worldloom_schema::{Domain, System};

use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json;
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AgentNetBench;

const NAME: &str = "agentnet-bench";

impl Source for AgentNetBench {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "AgentNetBench samples: an object per desktop task with pyautogui actions; screenshots only".into(),
            example: r#"{"task_id": "a1", "user_task_description": "Save the file.", "steps": [{"image": "a1_0.png", "action": "pyautogui.hotkey('ctrl', 's')", "inner_monologue": {"observation": "An editor.", "thought": "Save it."}}, {"image": "a1_1.png", "action": "computer.terminate(status='success')", "inner_monologue": {}}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let fields = piece.row_fields().filter(|fields| fields.contains_key("task_id"));
        fields.is_some_and(|fields| json::first_has(&fields, "steps", "inner_monologue"))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        read(piece.row().unwrap_or_default(), origin, out)
    }
}

#[derive(Deserialize)]
struct Sample {
    task_id: Option<String>,
    user_task_description: Option<String>,
    high_level_task_description: Option<String>,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    action: String,
    #[serde(default)]
    inner_monologue: Monologue,
}

#[derive(Default, Deserialize)]
struct Monologue {
    observation: Option<String>,
    thought: Option<String>,
}

fn read(row: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let sample: Sample = serde_json::from_str(row).map_err(|error| Refusal::json(&error))?;
    let mut screens = Screens::default();
    for step in sample.steps {
        screens.show(Screen::Image);
        let written = step.inner_monologue.observation.is_some_and(|text| !text.is_empty());
        screens.leave_out("written_observations_left_out", u64::from(written));
        screens.act(Act::code(step.action).because(step.inner_monologue.thought));
    }
    let task_description = sample.user_task_description.or(sample.high_level_task_description).unwrap_or_default();
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Os),
        task_group: sample.task_id,
        system: System { task_description, ..System::default() },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}
