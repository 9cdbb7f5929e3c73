//! Event streams of Tarko (Agent TARS, UI-TARS-desktop).
//!
//! A file is one session: a JSON array of events `{id, type, timestamp, …}`, also where its name ends in `.jsonl`.
//! Calls are the `toolCalls` of an `assistant_message`; a `tool_call` event repeats one once it could be parsed, and is
//! a call of its own only where no message had it. A result answers the first waiting call of its `toolCallId` (ids are
//! used again in one session). Taken: `error` of a result, thinking, the `tool` descriptions as action space. Left out,
//! counted: images, the start and end of runs, environment input that is an image only.
//!
//! Task group: the site that the task names, else the hash of the task.

use std::collections::BTreeMap;

use worldloom_schema::Domain;

use super::content::split_thoughts;
use super::format::{Drafts, FileFormat, one, site};
use super::records;
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "tarko",
    description: "event streams of Tarko (Agent TARS, UI-TARS-desktop), a JSON array of events",
    example: r#"[{"id": "1", "type": "user_message", "timestamp": 1, "content": "Open example.org"}, {"id": "2", "type": "assistant_message", "timestamp": 2, "content": "", "toolCalls": [{"id": "a", "type": "function", "function": {"name": "browser_navigate", "arguments": "{\"url\": \"https://example.org\"}"}}]}, {"id": "3", "type": "tool_result", "timestamp": 3, "toolCallId": "a", "name": "browser_navigate", "content": [{"type": "text", "text": "Example Domain"}]}]"#,
    detects,
    read,
};

const EVENTS: [&str; 8] = [
    "agent_run_start",
    "agent_run_end",
    "user_message",
    "assistant_message",
    "assistant_thinking_message",
    "tool_call",
    "tool_result",
    "environment_input",
];

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_event(&fields))
}

/// Whether these are the fields of an event.
fn is_event(fields: &Fields<'_>) -> bool {
    let kind = json::text(fields, "type").ok().flatten();
    fields.contains_key("timestamp")
        && kind.is_some_and(|kind| {
            EVENTS.contains(&kind.as_str()) && !fields.contains_key("payload") && fields.contains_key("id")
        })
}

/// The one episode of a list of events.
fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut stream = Stream::default();
    let mut found = records::read(file, counts, |event, counts| stream.add(event, counts))?;
    let mut draft = records::draft(stream.episode, None, counts);
    let is_browser = draft.turns.iter().any(|turn| turn.action.contains("\"name\": \"browser_"));
    draft.domain = Some(if is_browser { Domain::Web } else { Domain::Mcp });
    draft.task_group = site(&draft.system.task_description);
    let tools: Vec<String> = stream.tools.into_values().collect();
    draft.system.action_space = (!tools.is_empty()).then(|| format!("[{}]", tools.join(", ")));
    found.extend(one(draft));
    Ok(found)
}

#[derive(Default)]
struct Stream {
    episode: Episode,
    /// Calls of messages that no `tool_call` event has repeated yet, by id.
    written: BTreeMap<String, u64>,
    /// The tools by name, each with the description it had first.
    tools: BTreeMap<String, String>,
}

impl Stream {
    fn add(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        match json::text(event, "type")?.unwrap_or_default().as_str() {
            "user_message" => self.episode.user(content(event, counts)?.0),
            "assistant_thinking_message" => self.episode.thoughts(&content(event, counts)?.0),
            "assistant_message" => self.add_message(event, counts)?,
            "tool_call" => self.add_call(event)?,
            "tool_result" => self.add_result(event, counts)?,
            "environment_input" => match content(event, counts)? {
                (text, _) if text.trim().is_empty() => count(counts, "environment_input_of_images_only", 1),
                (text, _) => self.episode.user(text),
            },
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    fn add_message(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let (thoughts, words) = split_thoughts(&content(event, counts)?.0);
        thoughts.iter().chain([&words]).for_each(|text| self.episode.thoughts(text));
        self.episode.start_batch();
        for call in json::objects(event, "toolCalls")? {
            let function = json::object(&call, "function")?.unwrap_or_default();
            let id = json::text(&call, "id")?;
            *self.written.entry(id.clone().unwrap_or_default()).or_default() += 1;
            self.call(id, &function)?;
        }
        Ok(())
    }

    /// A call in its own event: what a message said already, or a call that only stood in its text.
    fn add_call(&mut self, event: &Fields<'_>) -> Result<(), Refusal> {
        let id = json::text(event, "toolCallId")?;
        let name = json::text(event, "name")?.unwrap_or_default();
        if let Some(tool) = event.get("tool") {
            self.tools.entry(name).or_insert_with(|| json::respace(tool.get()));
        }
        match self.written.get_mut(id.as_deref().unwrap_or_default()).filter(|calls| **calls > 0) {
            Some(calls) => *calls -= 1,
            None => {
                self.episode.start_batch();
                self.call(id, event)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, id: Option<String>, function: &Fields<'_>) -> Result<(), Refusal> {
        let name = json::text(function, "name")?.unwrap_or_default();
        let arguments = function.get("arguments").map(|raw| raw.get().into());
        self.episode.call(Call { id, name, arguments });
        Ok(())
    }

    fn add_result(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let (text, is_image_only) = content(event, counts)?;
        let error = event.get("error").filter(|raw| !matches!(raw.get(), "null" | "false" | "\"\""));
        self.episode.answer(Answer {
            id: json::text(event, "toolCallId")?,
            name: json::text(event, "name")?,
            text,
            is_image_only,
            is_error: error.map(|_| true),
            ..Answer::default()
        });
        Ok(())
    }
}

fn content(event: &Fields<'_>, counts: &mut Counts) -> Result<(String, bool), Refusal> {
    let content = super::content::read(event.get("content").copied(), counts)?;
    Ok((content.text.clone(), content.images > 0 && content.text.is_empty()))
}
