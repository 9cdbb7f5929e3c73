//! OpenHands' event histories (V0): evaluation outputs, exported lists of events, and the older lists of `[action,
//! observation]` pairs.
//!
//! A row is an object with `history`, a list of events, or such a list alone. An event has `action` and `args`, or
//! `observation` and `content`. An observation answers the action whose `id` is its `cause`; without a cause it answers
//! nothing, but in the older lists of pairs it answers the action beside it. Taken: commands, else the call as the
//! model wrote it (`tool_call_metadata`), else the action with its arguments; `thought` as reasoning; `success` and the
//! exit code; the receipt of a thought under the flag `skip:harness_text`; the tools of the `system` event as action
//! space; the instruction, else the user's words, as task. Left out, counted: what passes between harness and agent
//! (`recall`, state changes), observations without a cause, the prose that repeats an observation (`message`).
//!
//! Task group: the repository (`instance.repo`, else the one `instance_id` names), else the hash of the task.

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, HARNESS_TEXT, RowFormat, is_clipped, one, repository, spoken};
use super::{Draft, Origin, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value, quote};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "openhands",
    description: "OpenHands event histories (V0), such as the output.jsonl of an evaluation",
    example: r#"{"instance_id": "owner__name-7", "instruction": "Fix it.", "history": [{"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": "Look."}}, {"id": 2, "source": "agent", "observation": "run", "cause": 1, "content": "main.c", "extras": {"metadata": {"exit_code": 0}}}]}"#,
    detects,
    read,
};

/// The same as a bare list of events, which a conversation is exported as.
pub(crate) static EVENTS: FileFormat = FileFormat {
    name: "openhands-events",
    description: "OpenHands events of one conversation: a JSON array, or one event a line",
    example: r#"[{"id": 0, "source": "user", "action": "message", "args": {"content": "List the files."}}, {"id": 1, "source": "agent", "action": "run", "args": {"command": "ls", "thought": ""}}, {"id": 2, "source": "agent", "observation": "run", "cause": 1, "content": "main.c", "extras": {"metadata": {"exit_code": 0}}}]"#,
    detects: detects_events,
    read: read_events,
};

/// Events between harness and agent that no environment answers or wrote.
const HARNESS_EVENTS: [&str; 7] = [
    "recall",
    "agent_state_changed",
    "change_agent_state",
    "null",
    "condensation",
    "condensation_request",
    "user_rejected",
];

/// Whether these are the fields of an event.
fn is_event(fields: &Fields<'_>) -> bool {
    let is_text = |name: &str| fields.get(name).is_some_and(|raw| raw.get().starts_with('"'));
    (is_text("action") && fields.contains_key("args")) || (is_text("observation") && fields.contains_key("content"))
}

/// Whether a row has a list of events.
fn detects(fields: &Fields<'_>) -> bool {
    let first = json::list(fields, "history").ok().flatten().and_then(|events| events.first().copied());
    let first = first.and_then(|raw| Value::of(raw).ok());
    match first {
        Some(Value::Object(event)) => is_event(&event),
        Some(Value::List(pair)) => {
            pair.first().is_some_and(|raw| matches!(Value::of(raw), Ok(Value::Object(event)) if is_event(&event)))
        }
        _ => false,
    }
}

/// The one episode of a row.
fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    for (at, raw) in json::list(fields, "history")?.unwrap_or_default().into_iter().enumerate() {
        log.add_item(raw, counts).map_err(|refusal| refusal.at("history", at))?;
    }
    Ok(one(draft(log.episode, log.tools, Told::read(fields)?, counts)))
}

fn detects_events(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_event(&fields) && fields.contains_key("source"))
}

/// The one episode of a file of events.
fn read_events(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    let mut found = records::read(file, counts, |event, counts| log.add(event, None, counts))?;
    found.extend(one(draft(log.episode, log.tools, Told::default(), counts)));
    Ok(found)
}

#[derive(Default)]
struct Log {
    episode: Episode,
    tools: Option<String>,
    /// The response that the last calls came in; calls of one response are a batch.
    response: Option<String>,
    calls: u64,
}

/// The episode of a conversation; `told` is what the log says of it beside its events.
pub(super) fn draft(episode: Episode, tools: Option<String>, told: Told, counts: &mut Counts) -> Draft {
    let mut draft = records::draft(episode, told.task_group, counts);
    draft.domain = Some(Domain::Swe);
    draft.turns.iter_mut().for_each(|turn| turn.truncated |= is_clipped(&turn.observation));
    draft.system.task_description = told.instruction.unwrap_or(draft.system.task_description);
    draft.system.action_space = tools;
    draft
}

/// What the row of an evaluation says of its conversation.
#[derive(Default)]
pub(super) struct Told {
    instruction: Option<String>,
    task_group: Option<String>,
}

impl Told {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let instance = json::object(fields, "instance")?.unwrap_or_default();
        let id = json::text(fields, "instance_id")?.or(json::text(&instance, "instance_id")?);
        let repo = json::text(&instance, "repo")?.or(id.as_deref().and_then(repository));
        Ok(Self { instruction: spoken(json::text(fields, "instruction")?), task_group: repo.or(id) })
    }
}

impl Log {
    /// An event, or an action with its observation.
    fn add_item(&mut self, raw: &serde_json::value::RawValue, counts: &mut Counts) -> Result<(), Refusal> {
        match Value::of(raw)? {
            Value::Object(event) => self.add(&event, None, counts),
            Value::List(pair) => {
                self.calls += 1;
                let id = format!("pair {}", self.calls);
                for raw in pair {
                    let Value::Object(event) = Value::of(raw)? else {
                        return Err(Refusal::new("field_type", "expected a pair of events"));
                    };
                    self.add(&event, Some(&id), counts)?;
                }
                Ok(())
            }
            other => Err(Refusal::field_type("event", "an object or a pair", other.kind())),
        }
    }

    fn add(&mut self, event: &Fields<'_>, pair: Option<&str>, counts: &mut Counts) -> Result<(), Refusal> {
        let id = pair.map(str::to_string).or(json::text(event, "id")?);
        if let Some(observation) = json::text(event, "observation")? {
            let cause = pair.map(str::to_string).or(json::text(event, "cause")?);
            return self.add_observation(event, &observation, cause, counts);
        }
        let action = json::text(event, "action")?.unwrap_or_default();
        let arguments = json::object(event, "args")?.unwrap_or_default();
        match action.as_str() {
            "system" => self.tools = arguments.get("tools").map(|raw| raw.get().into()).filter(|text| text != "null"),
            "message" => self.add_message(event, &arguments)?,
            _ if HARNESS_EVENTS.contains(&action.as_str()) => count(counts, "harness_events_left_out", 1),
            _ => self.add_action(event, id, &action, &arguments)?,
        }
        Ok(())
    }

    fn add_message(&mut self, event: &Fields<'_>, arguments: &Fields<'_>) -> Result<(), Refusal> {
        let content = json::text(arguments, "content")?.unwrap_or_default();
        match json::text(event, "source")?.as_deref() {
            Some("agent") => self.episode.thoughts(&content),
            _ => self.episode.user(content),
        }
        Ok(())
    }

    fn add_action(
        &mut self,
        event: &Fields<'_>,
        id: Option<String>,
        action: &str,
        arguments: &Fields<'_>,
    ) -> Result<(), Refusal> {
        let written = WrittenCall::read(event)?;
        if written.response.is_none() || written.response != self.response {
            self.episode.start_batch();
        }
        self.response = written.response;
        if action != "think" {
            self.episode.thoughts(&json::text(arguments, "thought")?.unwrap_or_default());
        }
        let is_input = arguments.get("is_input").is_some_and(|raw| matches!(raw.get(), "true" | "\"true\""));
        let command = arguments.get("command").filter(|_| action == "run" && !is_input);
        let (name, arguments) = match (command, written.name) {
            (Some(raw), _) => ("execute_bash".into(), Some(format!("{{\"command\": {}}}", raw.get()))),
            (None, Some(name)) => (name, written.arguments),
            (None, None) => (action.to_string(), Some(told_arguments(arguments))),
        };
        self.episode.call(Call { id, name, arguments });
        Ok(())
    }

    fn add_observation(
        &mut self,
        event: &Fields<'_>,
        kind: &str,
        cause: Option<String>,
        counts: &mut Counts,
    ) -> Result<(), Refusal> {
        if HARNESS_EVENTS.contains(&kind) {
            count(counts, "harness_events_left_out", 1);
            return Ok(());
        }
        let Some(cause) = cause else {
            count(counts, "results_without_a_call", 1);
            return Ok(());
        };
        let content = super::content::read(event.get("content").copied(), counts)?;
        let extras = json::object(event, "extras")?.unwrap_or_default();
        let metadata = json::object(&extras, "metadata")?.unwrap_or_default();
        let exit_code = json::text(&metadata, "exit_code")?.or(json::text(&extras, "exit_code")?);
        let is_error = match exit_code.as_deref() {
            Some(code) => Some(code != "0"),
            None if kind == "error" => Some(true),
            None => json::boolean(event, "success")?.map(|success| !success),
        };
        let mut flags: Vec<String> = exit_code.map(|code| format!("exit_code:{code}")).into_iter().collect();
        flags.extend((kind == "think").then(|| HARNESS_TEXT.into()));
        self.episode.answer(Answer {
            id: Some(cause),
            is_image_only: content.images > 0 && content.text.is_empty(),
            text: content.text,
            is_error,
            flags,
            ..Answer::default()
        });
        Ok(())
    }
}

/// The call as the model wrote it.
#[derive(Default)]
struct WrittenCall {
    name: Option<String>,
    arguments: Option<String>,
    response: Option<String>,
}

impl WrittenCall {
    fn read(event: &Fields<'_>) -> Result<Self, Refusal> {
        let Some(metadata) = json::object(event, "tool_call_metadata")? else { return Ok(Self::default()) };
        let response = json::object(&metadata, "model_response")?.unwrap_or_default();
        let id = json::text(&metadata, "tool_call_id")?;
        let mut written = Self {
            name: json::text(&metadata, "function_name")?,
            arguments: None,
            response: json::text(&response, "id")?,
        };
        for choice in json::objects(&response, "choices")? {
            let message = json::object(&choice, "message")?.unwrap_or_default();
            for call in json::objects(&message, "tool_calls")? {
                if json::text(&call, "id")? == id
                    && let Some(function) = json::object(&call, "function")?
                {
                    written.arguments = function.get("arguments").map(|raw| raw.get().into());
                }
            }
        }
        Ok(written)
    }
}

/// The arguments of an action but for what the agent thought.
fn told_arguments(arguments: &Fields<'_>) -> String {
    let is_told = |name: &str, value: &str| {
        !matches!(name, "thought" | "security_risk" | "confirmation_state") && value != "null"
    };
    let told = arguments.iter().filter(|(name, raw)| is_told(name, raw.get()));
    let told: Vec<String> = told.map(|(name, raw)| format!("{}: {}", quote(name), raw.get())).collect();
    format!("{{{}}}", told.join(", "))
}
