//! Histories that agents of AndroidWorld keep of a run: one array of steps per file, screens as printed elements.
//!
//! A step has `task_goal`, `ui_description` (the screen before the action: `{ui_description, ui_bbox}` per element,
//! read by [`parse_printed`](android_elements::parse_printed)), `action_output` (thoughts, then `Action:`), `summary`
//! and `result`. Taken: screens, actions, thoughts, whether the harness refused the action (it says so in place of a
//! summary), `result` of the last step, the actions that the prompt declares. Left out: prompts and summaries; the last
//! action, whose screen was not kept. Task group: hash of the task.

use serde::Deserialize;
use worldloom_schema::{Domain, Outcome, System};

use super::android_actions::{action_list, read_answer};
use super::android_elements::{self, parse_printed};
use super::screens::{Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::piece::{FilePiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AndroidHistory;

const NAME: &str = "android-history";
/// How the harness begins when it did not carry out an action.
const HARNESS_ERRORS: [&str; 3] =
    ["Can not parse the output to a valid action", "The parameter index is out of range", "Can not execute the action"];

impl Source for AndroidHistory {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "Histories of AndroidWorld agents: an array of steps with printed UI elements and the agent's answer".into(),
            example: r#"[{"task_goal": "Open the clock.", "result": false, "ui_description": [{"ui_description": "UI element 0: {\"index\": 0, \"text\": \"Clock\", \"is_clickable\": True}", "ui_bbox": [0, 90, 0, 40]}], "action_output": "Reason: It is here.\nAction: {\"action_type\": \"click\", \"index\": 0}", "summary": "Opened it."}, {"task_goal": "Open the clock.", "result": true, "ui_description": [{"ui_description": "UI element 0: {\"index\": 0, \"text\": \"12:00\", \"is_clickable\": False}", "ui_bbox": [0, 90, 0, 40]}], "action_output": null, "summary": null}]"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let fields = piece.file().and_then(FilePiece::first_fields);
        let names = ["task_goal", "ui_description", "action_output"];
        fields.is_some_and(|fields| names.iter().all(|name| fields.contains_key(*name)))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        let text = file.text(out.counts);
        read(&text, origin, out)
    }
}

#[derive(Deserialize)]
struct Step {
    task_goal: String,
    result: Option<bool>,
    action_prompt: Option<String>,
    action_output: Option<String>,
    summary: Option<String>,
    ui_description: Vec<Described>,
}

#[derive(Deserialize)]
struct Described {
    ui_description: String,
    /// Left, right, top, bottom.
    ui_bbox: Option<[f64; 4]>,
}

fn read(text: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let steps: Vec<Step> = serde_json::from_str(text).map_err(|error| Refusal::json(&error))?;
    let Some((first, last)) = steps.first().zip(steps.last()) else {
        return Err(Refusal::new("no_turns", "an empty list of steps"));
    };
    let mut screens = Screens::default();
    for (at, step) in steps.iter().enumerate() {
        let screen =
            screen(step).map_err(|refusal| Refusal { detail: format!("step {at}: {}", refusal.detail), ..refusal })?;
        screens.show(screen);
        if let Some(answer) = &step.action_output {
            let mut act = read_answer(answer);
            let is_refusal = |summary: &String| HARNESS_ERRORS.iter().any(|error| summary.starts_with(error));
            act.is_error = step.summary.as_ref().map(is_refusal);
            screens.act(act);
        }
    }
    let system = System {
        task_description: first.task_goal.clone(),
        action_space: first.action_prompt.as_deref().and_then(action_list),
        ..System::default()
    };
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Android),
        system,
        outcome: Outcome { reward: None, success: last.result },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

fn screen(step: &Step) -> Result<Screen, Refusal> {
    let elements: Result<Vec<_>, Refusal> =
        step.ui_description.iter().map(|element| parse_printed(&element.ui_description, element.ui_bbox)).collect();
    Ok(Screen::Tree(android_elements::write(&elements?)))
}
