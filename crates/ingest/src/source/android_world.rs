//! Runs of AndroidWorld agents with every screen as an element list: one object per run.
//!
//! A row is an object with `step_records` of `{state: {ui_elements}, action}`, or, recorded by hand, with parallel lists
//! `observations` of `{ui_elements}` and `actions`. Taken: the screen before each action, `final_state` after the last,
//! thoughts before `Action:`, the actions that the prompt declares, `success`, the total reward. Left out: prompts,
//! summaries and the further copies of each screen in `agent_data`; the screen right after an action where the agent
//! waited for the next (`state` of the next step is what it acted on).
//! Task group: `task_name` (AndroidWorld draws the words of a task from a template of this name), else the hash of the
//! task.

use serde::Deserialize;
use serde_json::value::RawValue;
use worldloom_schema::{Domain, Outcome, System};

use super::android_actions::{action_list, read_action, read_answer};
use super::android_elements::{self, Element};
use super::screens::{Screen, Screens};
use super::{Draft, FormatInfo, Origin, Source};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct AndroidWorld;

const NAME: &str = "android-world";

impl Source for AndroidWorld {
    fn name(&self) -> &'static str {
        NAME
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: NAME.into(),
            description: "AndroidWorld runs: an object with a goal and the screen, a list of UI elements, before each action".into(),
            example: r#"{"goal": "Open the clock.", "step_records": [{"state": {"ui_elements": [{"text": "Clock", "class_name": "android.widget.TextView", "is_clickable": true}]}, "action": "Reason: It is here.\nAction: {\"action_type\": \"click\", \"index\": 0}"}], "final_state": {"ui_elements": [{"text": "12:00"}]}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(fields) = piece.row_fields().filter(|fields| fields.contains_key("goal")) else { return false };
        let has_lists = fields.contains_key("actions") && json::first_has(&fields, "observations", "ui_elements");
        has_lists || json::first_has(&fields, "step_records", "state")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        read(piece.row().unwrap_or_default(), origin, out)
    }
}

#[derive(Deserialize)]
struct Run<'a> {
    task_name: Option<String>,
    goal: Option<String>,
    success: Option<bool>,
    #[serde(default)]
    prompts: Vec<Option<String>>,
    #[serde(borrow, default)]
    step_records: Vec<Step<'a>>,
    final_state: Option<State>,
    reward_evaluation: Option<Reward>,
    #[serde(default)]
    observations: Vec<State>,
    #[serde(borrow, default)]
    actions: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Step<'a> {
    state: Option<State>,
    #[serde(borrow)]
    action: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct State {
    ui_elements: Vec<Element>,
}

#[derive(Deserialize)]
struct Reward {
    total_reward: Option<f64>,
}

impl State {
    fn screen(&self) -> Screen {
        Screen::Tree(android_elements::write(&self.ui_elements))
    }
}

fn read(row: &str, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
    let run: Run<'_> = serde_json::from_str(row).map_err(|error| Refusal::json(&error))?;
    let mut screens = Screens::default();
    if run.step_records.is_empty() {
        show_lists(&run, &mut screens)?;
    } else {
        show_steps(&run, &mut screens)?;
    }
    if let Some(state) = &run.final_state {
        screens.show(state.screen());
    }
    let system = System {
        task_description: run.goal.unwrap_or_default(),
        action_space: run.prompts.iter().flatten().next().and_then(|prompt| action_list(prompt)),
        ..System::default()
    };
    let reward = run.reward_evaluation.and_then(|reward| reward.total_reward);
    let draft = Draft {
        format: NAME,
        domain: Some(Domain::Android),
        task_group: run.task_name,
        system,
        outcome: Outcome { reward, success: run.success },
        ..Draft::default()
    };
    screens.give(draft, origin, out)
}

fn show_steps(run: &Run<'_>, screens: &mut Screens) -> Result<(), Refusal> {
    for step in &run.step_records {
        if let Some(state) = &step.state {
            screens.show(state.screen());
        }
        if let Some(action) = step.action {
            act(action, screens)?;
        }
    }
    Ok(())
}

fn show_lists(run: &Run<'_>, screens: &mut Screens) -> Result<(), Refusal> {
    let mut actions = run.actions.iter();
    for state in &run.observations {
        screens.show(state.screen());
        if let Some(action) = actions.next() {
            act(action, screens)?;
        }
    }
    screens.leave_out("actions_without_a_screen", actions.count() as u64);
    Ok(())
}

/// An action as the agent's answer, or as an object.
fn act(action: &RawValue, screens: &mut Screens) -> Result<(), Refusal> {
    match Value::of(action)? {
        Value::Null => {}
        Value::Text(answer) => screens.act(read_answer(&answer)),
        _ => screens.act(read_action(action.get())),
    }
    Ok(())
}
