//! Transcripts of the Cursor agent.
//!
//! A file is one session, one `{role, message: {content: [blocks]}}` a line; `tool_use` blocks may have no id and are
//! then answered by order. Left out, counted: images, reminders of the harness. Calls that no transcript answers (newer
//! versions leave results out) are counted, and a transcript without results is refused.
//!
//! Task group: the hash of the task; a transcript does not name its project.

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, one};
use super::{Draft, blocks, records};
use crate::episode::Episode;
use crate::json;
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "cursor",
    description: "transcripts of the Cursor agent (JSON lines)",
    example: r#"{"role": "user", "message": {"content": [{"type": "text", "text": "List the files."}]}}
{"role": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}]}}
{"role": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "notes.txt"}]}]}}"#,
    detects,
    read,
};

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| {
        let has_message = json::object(&fields, "message").is_ok_and(|message| message.is_some());
        fields.contains_key("role") && !fields.contains_key("type") && !fields.contains_key("uuid") && has_message
    })
}

fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut episode = Episode::default();
    let mut found = records::read(file, counts, |record, counts| {
        let mut message = json::object(record, "message")?.unwrap_or_default();
        if let Some(role) = record.get("role") {
            message.insert("role".into(), role);
        }
        blocks::add(&message, &mut episode, counts)
    })?;
    found.extend(one(Draft { domain: Some(Domain::Swe), ..records::draft(episode, None, counts) }));
    Ok(found)
}
