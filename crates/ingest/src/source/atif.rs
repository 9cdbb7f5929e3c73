//! ATIF, Harbor's interchange format: steps of system, user and agent, calls and their results in the same step.
//!
//! A result that names no call answers the whole step: several calls of it become one action, a line each. A step
//! without calls whose observation answers its message has the message as action. Steps copied from another trajectory
//! (`is_copied_context`) are left out and counted; the trajectories of sub-agents are trajectories of their own.
//! Task group: the hash of the task, shared by sub-agents.

use worldloom_schema::ActionKind;

use super::{Draft, FormatInfo, Origin, Source, content, hash_task};
use crate::episode::{Answer, Call, Episode, action};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal, count};

/// How deep sub-agents of sub-agents are read.
const MAX_DEPTH: u32 = 16;

/// The format.
pub(crate) struct Atif;

impl Source for Atif {
    fn name(&self) -> &'static str {
        "atif"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "ATIF v1 trajectories of Harbor: `schema_version`, `agent` and `steps`".into(),
            example: r#"{"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "user", "message": "Open the page."}, {"step_id": 2, "source": "agent", "message": "", "tool_calls": [{"tool_call_id": "c", "function_name": "navigate", "arguments": {"target": "/pie"}}], "observation": {"results": [{"source_call_id": "c", "content": "ok: /pie"}]}}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        let version = json::text(&fields, "schema_version").ok().flatten().unwrap_or_default();
        version.starts_with("ATIF-") && fields.contains_key("steps")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        match Value::parse(piece.row().unwrap_or_default()).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => read_trajectory(&fields, None, MAX_DEPTH, origin, out),
            other => Err(Refusal::field_type("row", "an object", other.kind())),
        }
    }
}

/// Reads one trajectory, then those of its sub-agents.
fn read_trajectory(
    fields: &Fields<'_>,
    group: Option<String>,
    depth: u32,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    let steps = match fields.get("steps").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::List(steps)) => steps,
        _ => return Err(Refusal::new("no_steps", "no list in field steps")),
    };
    let (mut episode, mut prompt) = (Episode::default(), Vec::new());
    for (at, raw) in steps.iter().enumerate() {
        let Value::Object(step) = Value::of(raw)? else {
            return Err(Refusal::new("step_type", format!("steps[{at}]: expected an object")));
        };
        if json::boolean(&step, "is_copied_context")?.unwrap_or(false) {
            out.count("copied_steps_left_out", 1);
            continue;
        }
        add_step(&step, &mut episode, &mut prompt, out.counts)
            .map_err(|refusal| Refusal { detail: format!("steps[{at}]: {}", refusal.detail), ..refusal })?;
    }
    let finished = episode.finish();
    out.add_counts(&finished.counts);
    let agent = json::object(fields, "agent")?.unwrap_or_default();
    let tools = agent.get("tool_definitions").map(|raw| raw.get().to_string()).filter(|tools| tools != "null");
    let prompt = Some(prompt.join("\n\n")).filter(|prompt| !prompt.is_empty());
    let mut draft = Draft { format: "atif", turns: finished.turns, ..Draft::default() };
    draft.system.task_description = finished.task;
    draft.system.action_space = tools.or(prompt);
    let group = group.unwrap_or_else(|| hash_task(&draft.system.task_description));
    draft.task_group = Some(group.clone());
    match draft.finish(origin) {
        Ok(trajectory) => out.push(trajectory),
        Err(refusal) => out.refuse(origin.row, origin.offset, refusal),
    }
    let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
    if let Some(Value::List(others)) = fields.get("subagent_trajectories").map(|raw| Value::of(raw)).transpose()? {
        for other in others {
            if let Value::Object(other) = Value::of(other)? {
                read_trajectory(&other, Some(group.clone()), depth, origin, out)?;
            }
        }
    }
    Ok(())
}

fn add_step(
    step: &Fields<'_>,
    episode: &mut Episode,
    prompt: &mut Vec<String>,
    counts: &mut Counts,
) -> Result<(), Refusal> {
    let message = content::read(step.get("message").copied(), counts)?.text;
    match json::text(step, "source")?.unwrap_or_default().as_str() {
        "system" => prompt.push(message),
        "user" => episode.user(message),
        "agent" => add_agent_step(step, message, episode, counts)?,
        other => return Err(Refusal::new("role", format!("unknown source `{other}`"))),
    }
    Ok(())
}

fn add_agent_step(
    step: &Fields<'_>,
    message: String,
    episode: &mut Episode,
    counts: &mut Counts,
) -> Result<(), Refusal> {
    if let Some(reasoning) = json::text(step, "reasoning_content")? {
        episode.thoughts(&reasoning);
    }
    let calls = calls(step)?;
    let answers = answers(step, counts)?;
    episode.start_batch();
    let is_whole_step = !answers.is_empty() && answers.iter().all(|answer| answer.id.is_none());
    if calls.is_empty() && is_whole_step {
        episode.act(None, String::new(), message, ActionKind::Text, Vec::new());
    } else {
        episode.thoughts(&message);
        if calls.len() > 1 && is_whole_step {
            let parts: Vec<_> = calls.iter().map(|call| action(call, counts)).collect();
            let text = parts.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join("\n");
            episode.act(None, String::new(), text, parts[0].1, Vec::new());
        } else {
            calls.into_iter().for_each(|call| episode.call(call));
        }
    }
    answers.into_iter().for_each(|answer| episode.answer(answer));
    Ok(())
}

fn calls(step: &Fields<'_>) -> Result<Vec<Call>, Refusal> {
    let Some(Value::List(items)) = step.get("tool_calls").map(|raw| Value::of(raw)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut calls = Vec::new();
    for item in items {
        let Value::Object(call) = Value::of(item)? else {
            return Err(Refusal::new("field_type", "`tool_calls`: expected a list of objects"));
        };
        let name = json::text(&call, "function_name")?.unwrap_or_default();
        if name.is_empty() {
            return Err(Refusal::new("call_name", "a call without the name of its tool"));
        }
        let arguments = call.get("arguments").map(|raw| raw.get().to_string());
        calls.push(Call { id: json::text(&call, "tool_call_id")?, name, arguments });
    }
    Ok(calls)
}

fn answers(step: &Fields<'_>, counts: &mut Counts) -> Result<Vec<Answer>, Refusal> {
    let observation = json::object(step, "observation")?.unwrap_or_default();
    let Some(Value::List(results)) = observation.get("results").map(|raw| Value::of(raw)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut answers = Vec::new();
    for result in results {
        let Value::Object(result) = Value::of(result)? else { continue };
        let content = content::read(result.get("content").copied(), counts)?;
        let is_delegated = result.get("subagent_trajectory_ref").is_some_and(|raw| raw.get() != "null");
        count(counts, "results_of_sub_agents", u64::from(is_delegated));
        answers.push(Answer {
            id: json::text(&result, "source_call_id")?,
            is_image_only: content.images > 0 && content.text.is_empty(),
            text: content.text,
            ..Answer::default()
        });
    }
    Ok(answers)
}
