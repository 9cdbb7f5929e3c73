//! Wire files of the Kimi CLI.
//!
//! A file is one agent's session, one record a line: `context.append_message` with the user's words and
//! `context.append_loop_event` with `content.part`, `tool.call` and `tool.result`; results answer by `toolCallId`.
//! Taken: `isError`, thoughts, the last `llm.tools_snapshot` before the first call as action space. Left out, counted:
//! requests, usage, permissions, and the copies of prompts in `turn.prompt`. A sub-agent has a file of its own.
//!
//! Task group: the folder that the first command ran in, else the hash of the task.

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, folder_name, one};
use super::{Draft, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "kimi",
    description: "wire files of the Kimi CLI (JSON lines)",
    example: r#"{"type": "metadata", "protocol_version": "1.4", "created_at": 1}
{"type": "context.append_message", "message": {"role": "user", "content": [{"type": "text", "text": "List the files."}], "origin": {"kind": "user"}}}
{"type": "context.append_loop_event", "event": {"type": "step.begin", "turnId": "0", "step": 1}}
{"type": "context.append_loop_event", "event": {"type": "tool.call", "toolCallId": "a", "name": "Bash", "args": {"command": "ls"}}}
{"type": "context.append_loop_event", "event": {"type": "tool.result", "toolCallId": "a", "result": {"output": "notes.txt\n"}}}"#,
    detects,
    read,
};

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| {
        let kind = json::text(&fields, "type").ok().flatten().unwrap_or_default();
        (kind == "metadata" && fields.contains_key("protocol_version")) || kind.starts_with("context.append_")
    })
}

fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut wire = Wire::default();
    let mut found = records::read(file, counts, |record, counts| wire.add(record, counts))?;
    let mut draft = Draft { domain: Some(Domain::Swe), ..records::draft(wire.episode, wire.folder, counts) };
    draft.system.action_space = wire.tools;
    found.extend(one(draft));
    Ok(found)
}

#[derive(Default)]
struct Wire {
    episode: Episode,
    folder: Option<String>,
    tools: Option<String>,
    has_called: bool,
}

impl Wire {
    fn add(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        match json::text(record, "type")?.unwrap_or_default().as_str() {
            "context.append_message" => self.add_message(record, counts)?,
            "context.append_loop_event" => {
                let event = json::object(record, "event")?.unwrap_or_default();
                self.add_event(&event, counts)?;
            }
            "llm.tools_snapshot" if !self.has_called => {
                self.tools = record.get("tools").map(|raw| json::respace(raw.get()));
            }
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    fn add_message(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let message = json::object(record, "message")?.unwrap_or_default();
        let origin = json::object(&message, "origin")?.unwrap_or_default();
        let is_person = json::text(&origin, "kind")?.is_none_or(|kind| kind == "user");
        let text = super::content::read(message.get("content").copied(), counts)?.text;
        match json::text(&message, "role")?.as_deref() {
            Some("user") if is_person => self.episode.user(text),
            Some("assistant") => self.episode.thoughts(&text),
            _ => count(counts, "harness_notes_left_out", 1),
        }
        Ok(())
    }

    fn add_event(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        match json::text(event, "type")?.unwrap_or_default().as_str() {
            "step.begin" => self.episode.start_batch(),
            "content.part" => {
                let part = json::object(event, "part")?.unwrap_or_default();
                for name in ["think", "text"] {
                    self.episode.thoughts(&json::text(&part, name)?.unwrap_or_default());
                }
            }
            "tool.call" => {
                self.has_called = true;
                let display = json::object(event, "display")?.unwrap_or_default();
                self.folder = self.folder.take().or(json::text(&display, "cwd")?.as_deref().and_then(folder_name));
                self.episode.call(Call {
                    id: json::text(event, "toolCallId")?,
                    name: json::text(event, "name")?.unwrap_or_default(),
                    arguments: event.get("args").map(|raw| raw.get().into()),
                });
            }
            "tool.result" => self.add_result(event, counts)?,
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    fn add_result(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let raw = event.get("result").copied();
        let fields = match raw.map(Value::of).transpose()? {
            Some(Value::Object(fields)) if fields.contains_key("output") => Some(fields),
            _ => None,
        };
        let printed = fields.as_ref().and_then(|fields| fields.get("output").copied()).or(raw);
        let content = super::content::read(printed, counts)?;
        let is_error = fields.map(|fields| json::boolean(&fields, "isError")).transpose()?.flatten();
        self.episode.answer(Answer {
            id: json::text(event, "toolCallId")?,
            is_image_only: content.images > 0 && content.text.is_empty(),
            text: content.text,
            is_error,
            ..Answer::default()
        });
        Ok(())
    }
}
