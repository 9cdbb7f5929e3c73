//! ScreenAgent sessions: a folder per session, a JSON file per step, named by time; screens as screenshots only.
//!
//! A step is `{session_id, task_prompt, saved_image_name, actions}`, the image taken before the actions. Mouse, keyboard
//! and wait actions of a step are one turn, as they were sent together; one is a call, several are a JSON list of calls.
//! Taken: these calls, the task in English where there is one, what the annotators made of the model's answer, as reasoning.
//! Left out, counted: screenshots; steps that only plan or evaluate; steps without an answer of the model, which are
//! made-up negative examples of the step before them (`_neg_`).
//! Task group: hash of the task.

use serde::Deserialize;
use serde_json::value::RawValue;
use worldloom_schema::{ActionKind, Domain, System};

use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::Value;
use crate::piece::{FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct ScreenAgent;

const NAME: &str = "screenagent";
/// Actions that the environment sees.
const ENVIRONMENT_ACTIONS: [&str; 3] = ["MouseAction", "KeyboardAction", "WaitAction"];

impl Source for ScreenAgent {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "A folder of a ScreenAgent session: a JSON file per step with mouse and keyboard actions; screenshots only".into(),
            example: r#"{"session_id": "a1", "task_prompt_en": "Open the menu.", "saved_image_name": "1.jpg", "LLM_response": "Click it.", "LLM_response_editer_en": "Click it.", "actions": [{"action_type": "MouseAction", "mouse_action_type": "click", "mouse_button": "left", "mouse_position": {"width": 9, "height": 9}}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder() else { return false };
        let first = steps(folder).next().and_then(|entry| folder.read(entry).ok());
        first.is_some_and(|bytes| {
            let text = String::from_utf8_lossy(&bytes);
            let names = ["session_id", "saved_image_name", "actions"];
            matches!(Value::parse(&text), Ok(Value::Object(fields)) if names.iter().all(|name| fields.contains_key(*name)))
        })
    }

    fn takes(&self, entry: &str) -> bool {
        !entry.contains('/') && entry.ends_with(".json")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Ok(()) };
        let texts: Result<Vec<(String, String)>, Refusal> =
            steps(folder).map(|entry| Ok((entry.to_string(), folder.text(entry, out.counts)?))).collect();
        read(&texts?, origin, out)
    }
}

/// The steps, in the order of their names.
fn steps<'a>(folder: &'a FolderPiece<'_>) -> impl Iterator<Item = &'a str> {
    folder.entries.iter().map(String::as_str).filter(|entry| !entry.contains('/') && entry.ends_with(".json"))
}

#[derive(Deserialize)]
struct Step<'a> {
    task_prompt_en: Option<String>,
    task_prompt: Option<String>,
    #[serde(rename = "LLM_response")]
    model_answer: Option<String>,
    #[serde(rename = "LLM_response_editer_en")]
    english_answer: Option<String>,
    #[serde(rename = "LLM_response_editer")]
    answer: Option<String>,
    #[serde(borrow, default)]
    actions: Vec<&'a RawValue>,
}

/// Reads the steps of a session, in the order of their names.
fn read(files: &[(String, String)], origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let mut screens = Screens::default();
    let mut task = None;
    for (name, text) in files {
        let in_file = |refusal: Refusal| Refusal { detail: format!("{name}: {}", refusal.detail), ..refusal };
        let step: Step<'_> = serde_json::from_str(text).map_err(|error| in_file(Refusal::json(&error)))?;
        if step.model_answer.is_none() {
            screens.leave_out("negative_examples_left_out", 1);
            continue;
        }
        screens.show(Screen::Image);
        match act(&step).map_err(in_file)? {
            Some(act) => screens.act(act),
            None => screens.leave_out("steps_without_an_environment_action", 1),
        }
        task = task.or(step.task_prompt_en.or(step.task_prompt));
    }
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Os),
        system: System { task_description: task.unwrap_or_default(), ..System::default() },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

/// What the step does to the environment.
fn act(step: &Step<'_>) -> Result<Option<Act>, Refusal> {
    let mut calls = Vec::new();
    for raw in &step.actions {
        calls.extend(call(raw)?);
    }
    let thoughts = step.english_answer.as_ref().or(step.answer.as_ref()).map(|answer| without_code(answer));
    let act = match calls.len() {
        0 => return Ok(None),
        1 => calls.remove(0),
        _ => {
            let texts: Vec<String> = calls.iter().map(|call| call.text.clone()).collect();
            let text = format!("[{}]", texts.join(", "));
            Act { kind: ActionKind::ToolCall, ..Act::words(text) }.flag("family", "sequence")
        }
    };
    Ok(Some(act.because(thoughts)))
}

/// An action as a call, if the environment sees it.
fn call(raw: &RawValue) -> Result<Option<Act>, Refusal> {
    let act = Act::from_object(raw.get(), "action_type")?;
    let is_seen = ENVIRONMENT_ACTIONS.iter().any(|name| act.flags.contains(&format!("family:{name}")));
    Ok(is_seen.then_some(act))
}

/// The words around fenced code.
fn without_code(answer: &str) -> String {
    let words: Vec<&str> = answer.split("```").step_by(2).map(str::trim).filter(|words| !words.is_empty()).collect();
    words.join("\n\n")
}
