//! Session files of the pi coding agent.
//!
//! A file is one session: JSON lines, `{"type": "session", …}` first, then messages (`user`, `assistant` with
//! `toolCall` blocks, `toolResult`, `bashExecution`) and changes of settings. A result answers the call of its
//! `toolCallId`. Taken: `isError` of results, exit codes and cuts of the commands that the user ran (flag `by:user`),
//! thinking and words as reasoning. Left out, counted: images, calls of aborted turns, compactions (the turns before
//! stay, though the model no longer saw them).
//!
//! Task group: the repository, by the last part of the session's `cwd`.

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, folder_name, one};
use super::{Draft, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, quote};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "pi",
    description: "session files of the pi coding agent (JSON lines)",
    example: r#"{"type": "session", "id": "1", "cwd": "/home/user/name", "provider": "p", "modelId": "m"}
{"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": "List the files."}]}}
{"type": "message", "message": {"role": "assistant", "content": [{"type": "toolCall", "id": "a", "name": "bash", "arguments": {"command": "ls"}}]}}
{"type": "message", "message": {"role": "toolResult", "toolCallId": "a", "toolName": "bash", "content": [{"type": "text", "text": "notes.txt"}], "isError": false}}"#,
    detects,
    read,
};

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_record(&fields))
}

/// Whether these are the fields of the first line of a session, or of a message in it.
fn is_record(fields: &Fields<'_>) -> bool {
    let kind = json::text(fields, "type").ok().flatten();
    let has_message = || {
        let message = json::object(fields, "message").ok().flatten()?;
        let role = json::text(&message, "role").ok()??;
        Some(role == "toolResult" || role == "bashExecution")
    };
    match kind.as_deref() {
        Some("session") => fields.contains_key("cwd") && !fields.contains_key("payload"),
        Some("message") => has_message() == Some(true),
        _ => false,
    }
}

/// The one episode of a file.
fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let (mut episode, mut group) = (Episode::default(), None);
    let mut found = records::read(file, counts, |fields, counts| {
        match json::text(fields, "type")?.as_deref() {
            Some("session") => {
                let folder = json::text(fields, "cwd")?.as_deref().and_then(folder_name);
                group = group.take().or(folder);
            }
            Some("message") => {
                let message = json::object(fields, "message")?.unwrap_or_default();
                add_message(&message, &mut episode, counts)?;
            }
            Some("compaction") => count(counts, "compactions", 1),
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    })?;
    found.extend(one(Draft { domain: Some(Domain::Swe), ..records::draft(episode, group, counts) }));
    Ok(found)
}

fn add_message(message: &Fields<'_>, episode: &mut Episode, counts: &mut Counts) -> Result<(), Refusal> {
    match json::text(message, "role")?.as_deref() {
        Some("user") => episode.user(super::content::read(message.get("content").copied(), counts)?.text),
        Some("assistant") => add_assistant(message, episode, counts)?,
        Some("toolResult") => add_result(message, episode, counts)?,
        Some("bashExecution") => add_command(message, episode)?,
        _ => count(counts, "records_without_words_or_actions", 1),
    }
    Ok(())
}

fn add_assistant(message: &Fields<'_>, episode: &mut Episode, counts: &mut Counts) -> Result<(), Refusal> {
    episode.start_batch();
    for block in json::objects(message, "content")? {
        match json::text(&block, "type")?.as_deref() {
            Some("text") => episode.thoughts(&json::text(&block, "text")?.unwrap_or_default()),
            Some("thinking") => episode.thoughts(&json::text(&block, "thinking")?.unwrap_or_default()),
            Some("toolCall") => episode.call(Call {
                id: json::text(&block, "id")?,
                name: json::text(&block, "name")?.unwrap_or_default(),
                arguments: block.get("arguments").map(|raw| raw.get().into()),
            }),
            _ => count(counts, "blocks_of_unknown_type", 1),
        }
    }
    Ok(())
}

fn add_result(message: &Fields<'_>, episode: &mut Episode, counts: &mut Counts) -> Result<(), Refusal> {
    let content = super::content::read(message.get("content").copied(), counts)?;
    let details = message.get("details").and_then(|raw| match json::Value::of(raw) {
        Ok(json::Value::Object(details)) => Some(details),
        _ => None,
    });
    let is_truncated = details.is_some_and(|details| is_truncated(&details));
    episode.answer(Answer {
        id: json::text(message, "toolCallId")?,
        name: json::text(message, "toolName")?,
        is_image_only: content.images > 0 && content.text.is_empty(),
        text: content.text,
        is_error: json::boolean(message, "isError")?,
        is_truncated,
        ..Answer::default()
    });
    Ok(())
}

/// `truncation` of a result's details: an object with `truncated`.
fn is_truncated(details: &Fields<'_>) -> bool {
    let truncation = json::object(details, "truncation").ok().flatten();
    truncation.and_then(|fields| json::boolean(&fields, "truncated").ok().flatten()).unwrap_or(false)
}

/// A command that the user ran and what it printed, in one record.
fn add_command(message: &Fields<'_>, episode: &mut Episode) -> Result<(), Refusal> {
    let command = json::text(message, "command")?.unwrap_or_default();
    let exit_code = json::text(message, "exitCode")?;
    let mut flags = vec!["by:user".to_string()];
    flags.extend(exit_code.as_ref().map(|code| format!("exit_code:{code}")));
    episode.start_batch();
    let arguments = Some(format!("{{\"command\": {}}}", quote(&command)));
    episode.call(Call { id: None, name: "bash".into(), arguments });
    episode.answer(Answer {
        text: json::text(message, "output")?.unwrap_or_default(),
        is_error: exit_code.map(|code| code != "0").or(json::boolean(message, "cancelled")?.filter(|is| *is)),
        is_truncated: json::boolean(message, "truncated")?.unwrap_or(false),
        flags,
        ..Answer::default()
    });
    Ok(())
}
