//! Events of OpenHands' SDK (V1): a conversation's folder, exported lists of events, and evaluation outputs.
//!
//! Each event is an object with a `kind`. An `ActionEvent` has the call as the model wrote it (`tool_call`, its arguments
//! a JSON string) and the parsed `action`; an `ObservationEvent` answers it by `tool_call_id`, and so does an
//! `AgentErrorEvent`. Calls with one `llm_response_id` are a batch. Taken: `thought` and `reasoning_content` as reasoning,
//! `content` (or the older `output`) as observation, `is_error` and the exit code, the tools of the `SystemPromptEvent` as
//! action space, the user's `MessageEvent`s as task. A folder keeps one event a file in `events/`, beside
//! `base_state.json`; an evaluation's row has them in `history`. Left out, counted: actions that the user rejected, and
//! what passes between harness and agent (condensations, states, tokens).
//!
//! Task group: the repository (`instance.repo`, else the one `instance_id` names), else the hash of the task.

use super::format::{Drafts, FileFormat, RowFormat, give, one, texts};
use super::openhands::{Told, draft};
use super::{FormatInfo, Origin, Source, content, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{FilePiece, Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal, count};

const EXAMPLE: &str = r#"[{"kind": "MessageEvent", "source": "user", "llm_message": {"role": "user", "content": [{"type": "text", "text": "List the files."}]}}, {"kind": "ActionEvent", "thought": [], "tool_name": "terminal", "tool_call_id": "a", "tool_call": {"id": "a", "name": "terminal", "arguments": "{\"command\": \"ls\"}"}}, {"kind": "ObservationEvent", "tool_name": "terminal", "tool_call_id": "a", "observation": {"content": [{"type": "text", "text": "main.c"}], "exit_code": 0}}]"#;

/// A list of events, or one event a line.
pub(crate) static LIST: FileFormat = FileFormat {
    name: "openhands-sdk-events",
    description: "Events of an OpenHands SDK conversation (V1): a JSON array, or one event a line",
    example: EXAMPLE,
    detects: detects_list,
    read: read_list,
};

/// A row of an evaluation.
pub(crate) static ROW: RowFormat = RowFormat {
    name: "openhands-sdk-history",
    description: "OpenHands evaluations with events of the SDK (V1) in `history`, such as an output.jsonl",
    example: r#"{"instance_id": "owner__name-7", "history": [{"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"type": "text", "text": "Fix it."}]}}, {"kind": "ActionEvent", "tool_name": "terminal", "tool_call_id": "a", "action": {"command": "ls"}}, {"kind": "ObservationEvent", "tool_call_id": "a", "observation": {"content": [{"type": "text", "text": "main.c"}]}}]}"#,
    detects: detects_row,
    read: read_row,
};

/// The folder of a conversation.
pub(crate) struct Folder;

impl Source for Folder {
    fn name(&self) -> &'static str {
        "openhands-sdk"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A folder: an OpenHands SDK conversation (V1) with base_state.json and events/event-*.json".into(),
            example: r#"{"kind": "ObservationEvent", "tool_name": "terminal", "tool_call_id": "a", "observation": {"content": [{"type": "text", "text": "main.c"}], "exit_code": 0}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder() else { return false };
        folder.entries.iter().any(|entry| entry == STATE) && folder.entries.iter().any(|entry| is_event_file(entry))
    }

    fn takes(&self, entry: &str) -> bool {
        entry == STATE || is_event_file(entry)
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Err(Refusal::new("no_folder", "the format is a folder")) };
        let mut log = Log::default();
        // The names of the files are numbered: their order is that of the events.
        for (entry, text) in texts(folder, is_event_file, out.counts)? {
            let event = Value::parse(&text).map_err(|error| Refusal::json(&error).of(&entry))?;
            let Value::Object(event) = event else {
                return Err(Refusal::field_type("event", "an object", event.kind()).of(&entry));
            };
            log.add(&event, out.counts).map_err(|refusal| refusal.of(&entry))?;
        }
        let found = one(draft(log.episode, log.tools, Told::default(), out.counts));
        give(found, self.name(), origin, out)
    }
}

/// The file beside the events.
const STATE: &str = "base_state.json";

fn is_event_file(entry: &str) -> bool {
    entry.strip_prefix("events/event-").is_some_and(|rest| rest.ends_with(".json") && !rest.contains('/'))
}

/// Whether these are the fields of an event.
fn is_event(fields: &Fields<'_>) -> bool {
    const KINDS: [&str; 7] = [
        "\"SystemPromptEvent\"",
        "\"MessageEvent\"",
        "\"ActionEvent\"",
        "\"ObservationEvent\"",
        "\"AgentErrorEvent\"",
        "\"ConversationStateUpdateEvent\"",
        "\"TokenEvent\"",
    ];
    fields.get("kind").is_some_and(|raw| KINDS.contains(&raw.get()))
}

fn detects_list(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_event(&fields))
}

fn read_list(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    let mut found = records::read(file, counts, |event, counts| log.add(event, counts))?;
    found.extend(one(draft(log.episode, log.tools, Told::default(), counts)));
    Ok(found)
}

fn detects_row(fields: &Fields<'_>) -> bool {
    let first = json::list(fields, "history").ok().flatten().and_then(|events| events.first().copied());
    matches!(first.map(Value::of), Some(Ok(Value::Object(event))) if is_event(&event))
}

fn read_row(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    for (at, event) in json::objects(fields, "history")?.into_iter().enumerate() {
        log.add(&event, counts).map_err(|refusal| refusal.at("history", at))?;
    }
    Ok(one(draft(log.episode, log.tools, Told::read(fields)?, counts)))
}

#[derive(Default)]
struct Log {
    episode: Episode,
    tools: Option<String>,
    /// The response that the last calls came in.
    response: Option<String>,
}

impl Log {
    fn add(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        match json::text(event, "kind")?.unwrap_or_default().as_str() {
            "SystemPromptEvent" => {
                let tools = event.get("tools").map(|raw| raw.get().to_string());
                self.tools = tools.filter(|text| text != "null" && text != "[]");
            }
            "MessageEvent" => self.add_message(event, counts)?,
            "ActionEvent" => self.add_action(event, counts)?,
            "ObservationEvent" => self.add_observation(event, counts)?,
            "AgentErrorEvent" => self.episode.answer(Answer {
                id: json::text(event, "tool_call_id")?,
                text: json::text(event, "error")?.unwrap_or_default(),
                is_error: Some(true),
                ..Answer::default()
            }),
            _ => count(counts, "harness_events_left_out", 1),
        }
        Ok(())
    }

    fn add_message(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let message = json::object(event, "llm_message")?.unwrap_or_default();
        let said = content::read(message.get("content").copied(), counts)?;
        match json::text(event, "source")?.as_deref() {
            Some("agent") => self.episode.thoughts(&said.text),
            Some("user") => self.episode.user(said.text),
            _ => count(counts, "harness_notes_left_out", 1),
        }
        Ok(())
    }

    fn add_action(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let response = json::text(event, "llm_response_id")?;
        if response.is_none() || response != self.response {
            self.episode.start_batch();
        }
        self.response = response;
        self.episode.thoughts(&json::text(event, "reasoning_content")?.unwrap_or_default());
        self.episode.thoughts(&content::read(event.get("thought").copied(), counts)?.text);
        let call = json::object(event, "tool_call")?.unwrap_or_default();
        // Older versions keep the call as the endpoint sent it.
        let call = json::object(&call, "function")?.unwrap_or(call);
        let name = json::text(event, "tool_name")?.or(json::text(&call, "name")?).unwrap_or_default();
        let arguments = match (call.get("arguments"), json::object(event, "action")?) {
            (Some(written), _) => Some(written.get().to_string()),
            (None, Some(parsed)) => Some(told(&parsed)),
            (None, None) => None,
        };
        self.episode.call(Call { id: json::text(event, "tool_call_id")?, name, arguments });
        Ok(())
    }

    fn add_observation(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let observation = json::object(event, "observation")?.unwrap_or_default();
        let said = ["content", "output"].into_iter().find_map(|name| observation.get(name).copied());
        let said = content::read(said, counts)?;
        let metadata = json::object(&observation, "metadata")?.unwrap_or_default();
        let exit_code = json::text(&observation, "exit_code")?.or(json::text(&metadata, "exit_code")?);
        // -1: the command had not ended.
        let exit_code = exit_code.filter(|code| code != "-1");
        let is_error = match json::boolean(&observation, "is_error")? {
            Some(true) => Some(true),
            told => exit_code.as_ref().map(|code| code != "0").or(told),
        };
        self.episode.answer(Answer {
            id: json::text(event, "tool_call_id")?,
            name: json::text(event, "tool_name")?,
            is_image_only: said.images > 0 && said.text.is_empty(),
            text: said.text,
            is_error,
            flags: exit_code.map(|code| format!("exit_code:{code}")).into_iter().collect(),
            ..Answer::default()
        });
        Ok(())
    }
}

/// The fields of a parsed action that the model gave.
fn told(action: &Fields<'_>) -> String {
    let given = action.iter().filter(|(name, raw)| *name != "kind" && raw.get() != "null");
    let given: Vec<String> = given.map(|(name, raw)| format!("{}: {}", json::quote(name), raw.get())).collect();
    format!("{{{}}}", given.join(", "))
}
