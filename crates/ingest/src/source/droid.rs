//! Sessions of Factory's Droid: its session store, and the stream that `droid exec` prints.
//!
//! A file is one session. In the store a line is `session_start` or `message` with `{role, content: [blocks]}`; in the
//! stream lines are `system`, `message` with `text`, `tool_call` with `parameters`, `tool_result` with `value`. Results
//! answer by id. Left out, counted: reminders of the harness, images, todo state.
//!
//! Task group: the last part of the session's `cwd`, else the hash of the task.

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, folder_name, one};
use super::{Draft, blocks, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "droid",
    description: "sessions of Factory's Droid, stored or streamed (JSON lines)",
    example: r#"{"type": "session_start", "id": "1", "title": "t", "cwd": "/home/user/name"}
{"type": "message", "id": "2", "message": {"role": "user", "content": [{"type": "text", "text": "List the files."}]}}
{"type": "message", "id": "3", "message": {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Execute", "input": {"command": "ls"}}]}}
{"type": "message", "id": "4", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "notes.txt"}]}}"#,
    detects,
    read,
};

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| {
        let kind = json::text(&fields, "type").ok().flatten().unwrap_or_default();
        let is_stream = kind == "system" && ["sessionId", "tools"].iter().all(|name| fields.contains_key(*name));
        (kind == "session_start" && fields.contains_key("id")) || is_stream
    })
}

fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    let mut found = records::read(file, counts, |record, counts| log.add(record, counts))?;
    let mut draft = Draft { domain: Some(Domain::Swe), ..records::draft(log.episode, log.folder, counts) };
    draft.system.action_space = log.tools;
    found.extend(one(draft));
    Ok(found)
}

#[derive(Default)]
struct Log {
    episode: Episode,
    folder: Option<String>,
    tools: Option<String>,
}

impl Log {
    fn add(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        match json::text(record, "type")?.unwrap_or_default().as_str() {
            "session_start" | "system" => {
                self.folder = self.folder.take().or(json::text(record, "cwd")?.as_deref().and_then(folder_name));
                self.tools = self.tools.take().or(record.get("tools").map(|raw| json::respace(raw.get())));
            }
            "message" => self.add_message(record, counts)?,
            "tool_call" => {
                self.episode.start_batch();
                self.episode.call(Call {
                    id: json::text(record, "id")?,
                    name: json::text(record, "toolName")?.or(json::text(record, "toolId")?).unwrap_or_default(),
                    arguments: record.get("parameters").map(|raw| raw.get().into()),
                });
            }
            "tool_result" => {
                let content = super::content::read(record.get("value").copied(), counts)?;
                self.episode.answer(Answer {
                    id: json::text(record, "id")?,
                    is_image_only: content.images > 0 && content.text.is_empty(),
                    text: content.text,
                    is_error: json::boolean(record, "isError")?,
                    ..Answer::default()
                });
            }
            "completion" => self.episode.thoughts(&json::text(record, "finalText")?.unwrap_or_default()),
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    fn add_message(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        if let Some(message) = json::object(record, "message")? {
            return blocks::add(&message, &mut self.episode, counts);
        }
        let text = json::text(record, "text")?.unwrap_or_default();
        match json::text(record, "role")?.as_deref() {
            Some("assistant") => self.episode.thoughts(&text),
            _ => self.episode.user(blocks::without_reminders(&text, counts)),
        }
        Ok(())
    }
}
