//! Session events of the GitHub Copilot CLI.
//!
//! A file is one session, one event `{type, data, id, parentId}` a line. Calls are the `toolRequests` of an
//! `assistant.message`; `tool.execution_start` repeats one and is a call of its own only where no message had it; the
//! result is `tool.execution_complete`, by `toolCallId`, with `success`. Left out, counted: notices, settings,
//! truncations and compactions (the turns before stay), the detailed copy of a result.
//!
//! Task group: the repository or folder of `session.start` (`context`), else the hash of the task.

use std::collections::BTreeSet;

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, folder_name, one};
use super::{Draft, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "copilot",
    description: "session events of the GitHub Copilot CLI (JSON lines)",
    example: r#"{"type": "session.start", "data": {"sessionId": "1", "producer": "copilot-agent"}, "id": "1", "parentId": null}
{"type": "user.message", "data": {"content": "List the files."}, "id": "2", "parentId": "1"}
{"type": "assistant.message", "data": {"content": "", "toolRequests": [{"toolCallId": "a", "name": "bash", "arguments": {"command": "ls"}}]}, "id": "3", "parentId": "2"}
{"type": "tool.execution_complete", "data": {"toolCallId": "a", "success": true, "result": {"content": "notes.txt\n"}}, "id": "4", "parentId": "3"}"#,
    detects,
    read,
};

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| {
        let kind = json::text(&fields, "type").ok().flatten().unwrap_or_default();
        let areas = ["session.", "user.", "assistant.", "tool.", "system."];
        fields.contains_key("data") && areas.iter().any(|area| kind.starts_with(area))
    })
}

fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut log = Log::default();
    let mut found = records::read(file, counts, |event, counts| log.add(event, counts))?;
    found.extend(one(Draft { domain: Some(Domain::Swe), ..records::draft(log.episode, log.group, counts) }));
    Ok(found)
}

#[derive(Default)]
struct Log {
    episode: Episode,
    group: Option<String>,
    called: BTreeSet<String>,
}

impl Log {
    fn add(&mut self, event: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let data = json::object(event, "data")?.unwrap_or_default();
        match json::text(event, "type")?.unwrap_or_default().as_str() {
            "session.start" | "session.resume" => self.add_head(&data)?,
            "user.message" => self.episode.user(json::text(&data, "content")?.unwrap_or_default()),
            "assistant.reasoning" => self.episode.thoughts(&json::text(&data, "content")?.unwrap_or_default()),
            "assistant.message" => self.add_message(&data)?,
            "tool.execution_start" => self.add_start(&data)?,
            "tool.execution_complete" => self.add_result(&data, counts)?,
            "session.truncation" | "session.compaction_complete" => count(counts, "compactions", 1),
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    fn add_head(&mut self, data: &Fields<'_>) -> Result<(), Refusal> {
        let context = json::object(data, "context")?.unwrap_or_default();
        let folder = json::text(&context, "cwd")?.as_deref().and_then(folder_name);
        self.group = self.group.take().or(json::text(&context, "repository")?).or(folder);
        Ok(())
    }

    fn add_message(&mut self, data: &Fields<'_>) -> Result<(), Refusal> {
        for name in ["reasoningText", "content"] {
            self.episode.thoughts(&json::text(data, name)?.unwrap_or_default());
        }
        self.episode.start_batch();
        for request in json::objects(data, "toolRequests")? {
            self.call(&request, "name")?;
        }
        Ok(())
    }

    fn add_start(&mut self, data: &Fields<'_>) -> Result<(), Refusal> {
        let id = json::text(data, "toolCallId")?.unwrap_or_default();
        if !self.called.contains(&id) {
            self.episode.start_batch();
            self.call(data, "toolName")?;
        }
        Ok(())
    }

    fn call(&mut self, request: &Fields<'_>, name: &str) -> Result<(), Refusal> {
        let id = json::text(request, "toolCallId")?;
        self.called.extend(id.clone());
        let arguments = request.get("arguments").map(|raw| raw.get().into());
        self.episode.call(Call { id, name: json::text(request, name)?.unwrap_or_default(), arguments });
        Ok(())
    }

    fn add_result(&mut self, data: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let result = match data.get("result").map(|raw| Value::of(raw)).transpose()? {
            Some(Value::Object(result)) => super::content::read(result.get("content").copied(), counts)?,
            _ => super::content::read(data.get("result").copied(), counts)?,
        };
        let error = json::object(data, "error")?.unwrap_or_default();
        let message = json::text(&error, "message")?;
        self.episode.answer(Answer {
            id: json::text(data, "toolCallId")?,
            is_image_only: result.images > 0 && result.text.is_empty(),
            text: if result.text.is_empty() { message.unwrap_or_default() } else { result.text },
            is_error: json::boolean(data, "success")?.map(|is_success| !is_success),
            ..Answer::default()
        });
        Ok(())
    }
}
