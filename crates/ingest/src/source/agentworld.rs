//! AgentWorldBench rows: the turns of an episode as prompts and responses of a world model.
//!
//! A prompt holds an action, sometimes the state before it, and on a desktop the task; a response holds the observation.
//! Rows of this kind are an evaluation set: they are read so that training data can be checked against them. Where a row
//! asks for turn k, its turns are those up to k. The task is read as part of the task description. Task group: `agentworldbench/` and the row's id.

use std::str::FromStr;

use serde_json::value::RawValue;
use worldloom_schema::{ActionKind, Domain, System, Turn};

use super::{Draft, FormatInfo, Origin, Source};
use crate::episode::turn;
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

const TASK: &str = "**Task Instruction:**";
const STATES: [&str; 2] = ["**Current State:**", "**Current Phone State:**"];
const ACTION: &str = "**Action:**";
const OBSERVATION: &str = "**Environment Observation:**";

/// The format.
pub(crate) struct AgentWorld;

impl Source for AgentWorld {
    fn name(&self) -> &'static str {
        "agentworldbench"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "AgentWorldBench rows: `prompt` and `response` lists, `system_str`, `task`".into(),
            example: r####"{"task": "mcp", "id": "7", "system_str": "You simulate tools.", "prompt": ["### Turn 1\n**Current State:** nothing\n\n**Action:**\n```json\n{\"name\": \"now\"}\n```\n"], "response": ["**Environment Observation:**\n12:00"], "turn_idx": 1, "total_turns": 1}"####.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        ["prompt", "response", "system_str", "task"].iter().all(|name| fields.contains_key(*name))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let fields = match Value::parse(piece.row().unwrap_or_default()).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => fields,
            other => return Err(Refusal::field_type("row", "an object", other.kind())),
        };
        let (prompts, responses) = (texts(&fields, "prompt")?, texts(&fields, "response")?);
        let unanswered = prompts.len().saturating_sub(responses.len());
        out.count("calls_without_a_result", unanswered as u64);
        let task = json::text(&fields, "task")?.unwrap_or_default();
        let domain = Domain::from_str(task.rsplit('/').next().unwrap_or(&task));
        let id = json::text(&fields, "id")?;
        let mut told = json::text(&fields, "system_str")?.unwrap_or_default();
        if let Some(task) = prompts.iter().find_map(|prompt| section(before_action(prompt).0, &[TASK])) {
            told.push_str(if told.is_empty() { "" } else { "\n\n" });
            told.push_str(&task);
        }
        let draft = Draft {
            format: self.name(),
            domain: Some(domain.map_err(|detail| Refusal::new("domain", detail))?),
            task_group: id.map(|id| format!("{}/{id}", self.name())),
            system: System { task_description: told, ..System::default() },
            turns: prompts.iter().zip(&responses).map(|(prompt, response)| pair(prompt, response)).collect(),
            ..Draft::default()
        };
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// A list of strings, or one string.
fn texts(fields: &Fields<'_>, name: &str) -> Result<Vec<String>, Refusal> {
    let text = |raw: &&RawValue| match Value::of(raw)? {
        Value::Text(text) => Ok(text),
        other => Err(Refusal::field_type(name, "a list of strings", other.kind())),
    };
    match fields.get(name).map(|raw| Value::of(raw)).transpose()? {
        Some(Value::Text(text)) => Ok(vec![text]),
        Some(Value::List(items)) => items.iter().map(text).collect(),
        Some(other) => Err(Refusal::field_type(name, "a list of strings", other.kind())),
        None => Ok(Vec::new()),
    }
}

fn pair(prompt: &str, response: &str) -> Turn {
    let (before, action) = before_action(prompt);
    let state = section(before, &STATES);
    let action = without_fence(action.trim());
    let is_call = matches!(Value::parse(action), Ok(Value::Object(fields)) if fields.contains_key("name"));
    let kind = if is_call { ActionKind::ToolCall } else { ActionKind::Text };
    let observation =
        response.trim_start().strip_prefix(OBSERVATION).map(|rest| rest.strip_prefix('\n').unwrap_or(rest));
    let made = turn(action.into(), kind, observation.unwrap_or(response).into());
    Turn { pre_state: state, ..made }
}

/// The sections before the action, and the action.
fn before_action(prompt: &str) -> (&str, &str) {
    prompt.split_once(ACTION).unwrap_or(("", prompt))
}

/// What stands below one of the headings, up to the next heading that we know.
fn section(text: &str, headings: &[&str]) -> Option<String> {
    let start = headings.iter().find_map(|heading| Some(text.find(heading)? + heading.len()))?;
    let rest = &text[start..];
    let next = STATES.iter().chain([&TASK]).filter_map(|heading| rest.find(heading)).min();
    let said = rest[..next.unwrap_or(rest.len())].trim();
    (!said.is_empty()).then(|| said.to_string())
}

/// The inside of a fenced block, if that is all.
fn without_fence(text: &str) -> &str {
    let inner = text.strip_prefix("```").and_then(|rest| rest.split_once('\n')).map(|(_, body)| body);
    inner.and_then(|body| body.trim_end().strip_suffix("```")).map_or(text, str::trim_end)
}
