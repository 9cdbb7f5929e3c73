//! Screens of DroidBot and AutoDroid: explorations as YAML, task profiles as JSON; the states are HTML-like already.
//!
//! An exploration (`*.utg.yaml`) is `{records: [{State, Choice, Input}], task_name}`; profiles are an object
//! app → task hash → `{task, profile: [{label: [choice, input], state}]}`, each task a trajectory. The state is the screen
//! before the choice, one line an element, taken as it came. The choice is the number of an element, or -1 for none, with
//! which recordings end; the input is what was typed into it, or the word `null`.
//! Left out: state hashes, and the history of a profile, which its turns say again. Explorations start over without
//! saying so, hence some of their screens do not follow from the choice before.
//! Task group: the app, which is the key in profiles and the file's name in explorations, without case and signs; tasks
//! of an app share its screens.

use std::collections::BTreeMap;

use serde::Deserialize;
use worldloom_schema::{Domain, System};

use super::screens::{Act, Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{self, Value, quote};
use crate::piece::{FilePiece, Piece, Shape, Sink};
use crate::refusal::Refusal;
use crate::yaml;

/// The format of explorations.
pub(crate) struct Exploration;

/// The format of task profiles.
pub(crate) struct Profiles;

const EXPLORATION: &str = "droidbot-exploration";
const PROFILES: &str = "autodroid-profiles";
/// What an exploration is named where it had no task.
const NO_TASK: [&str; 4] = ["utg", "explore", "exploring", ""];

impl Source for Exploration {
    fn name(&self) -> &'static str {
        EXPLORATION
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: EXPLORATION.into(),
            description:
                "DroidBot explorations (AutoDroid): YAML records of a screen in HTML-like lines and the element chosen"
                    .into(),
            example: r#"records:
- Choice: 0
  Input: 'null'
  State: <button id=0>New note</button>
- Choice: -1
  Input: 'null'
  State: <input id=0>Title</input>
task_name: utg"#
                .into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(file) = piece.file() else { return false };
        let head = String::from_utf8_lossy(file.bytes);
        head.trim_start().starts_with("records:") && ["Choice:", "State:"].iter().all(|key| head.contains(key))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        let text = file.text(out.counts);
        read_exploration(&text, origin, out)
    }
}

impl Source for Profiles {
    fn name(&self) -> &'static str {
        PROFILES
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: PROFILES.into(),
            description: "AutoDroid task profiles: an object of apps, of tasks, of screens in HTML-like lines with the element chosen".into(),
            example: r#"{"notes": {"7f3a": {"task": "Add a note.", "profile": [{"label": [0, "null"], "state": "<button id=0>New note</button>"}, {"label": [-1, "null"], "state": "<input id=0>Title</input>"}]}}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let app = piece.file().and_then(FilePiece::first_fields).and_then(|fields| fields.into_values().next());
        let Some(Ok(Value::Object(tasks))) = app.map(Value::of) else { return false };
        let Some(Ok(Value::Object(task))) = tasks.into_values().next().map(Value::of) else { return false };
        json::first_has(&task, "profile", "label")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        let text = file.text(out.counts);
        read_profiles(&text, origin, out)
    }
}

#[derive(Deserialize)]
struct Utg {
    records: Vec<Record>,
    #[serde(default)]
    task_name: String,
}

#[derive(Deserialize)]
struct Record {
    #[serde(rename = "State")]
    state: String,
    #[serde(rename = "Choice")]
    choice: i64,
    #[serde(rename = "Input")]
    input: Option<String>,
}

#[derive(Deserialize)]
struct Task {
    task: String,
    profile: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    label: (i64, Option<String>),
    state: String,
}

fn read_exploration(text: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let json = yaml::to_json(text)?;
    let utg: Utg = serde_json::from_str(&json).map_err(|error| Refusal::new("yaml", error.to_string()))?;
    let steps = utg.records.into_iter().map(|record| (record.state, record.choice, record.input));
    let task = if NO_TASK.contains(&utg.task_name.as_str()) { "Explore the app.".into() } else { utg.task_name };
    let name = origin.file.rsplit('/').next().unwrap_or(origin.file);
    give(EXPLORATION, task, name.split('.').next().unwrap_or(name), steps, origin, out)
}

fn read_profiles(text: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let apps: BTreeMap<String, BTreeMap<String, Task>> =
        serde_json::from_str(text).map_err(|error| Refusal::json(&error))?;
    for (app, tasks) in apps {
        for (key, task) in tasks {
            let steps = task.profile.into_iter().map(|step| (step.state, step.label.0, step.label.1));
            if let Err(refusal) = give(PROFILES, task.task, &app, steps, origin, out) {
                let detail = format!("{app}, task {key}: {}", refusal.detail);
                out.refuse(origin.row, origin.offset, Refusal { detail, ..refusal });
            }
        }
    }
    Ok(())
}

fn give(
    format: &'static str,
    task: String,
    app: &str,
    steps: impl Iterator<Item = (String, i64, Option<String>)>,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    let mut screens = Screens::default();
    for (state, choice, input) in steps {
        screens.show(Screen::Tree(state));
        if choice >= 0 {
            screens.act(act(choice, input.as_deref()));
        }
    }
    let app: String = app.to_lowercase().chars().filter(|letter| letter.is_alphanumeric()).collect();
    let draft = Draft {
        format,
        domain: Some(Domain::Android),
        task_group: Some(format!("app-{app}")),
        system: System { task_description: task, ..System::default() },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

fn act(choice: i64, input: Option<&str>) -> Act {
    let id = ("id", choice.to_string());
    match input.filter(|text| *text != "null") {
        Some(text) => Act::call("input_text", [id, ("text", quote(text))]),
        None => Act::call("tap", [id]),
    }
}
