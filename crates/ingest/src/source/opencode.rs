//! OpenCode's storage folder, and the sessions it exports.
//!
//! A storage folder has `session/<project>/ses_*.json`, `message/<session>/*.json` and the parts of a message in
//! `part/<message>/*.json` (older versions: all in `part/`, each with its `messageID`). Each session is an episode; an
//! export is one session as `{info, messages: [{info, parts}]}`. A message of the user without parts has its words in
//! `summary`. Messages are ordered by `time.created`, parts by the names of their files. A `tool` part is a call with
//! its result: `state.output`, on `status: error` the `error`; `metadata.exit` is the exit code. Left out, counted:
//! synthetic words, files, patches, steps, compactions.
//!
//! Task group: the last part of the session's `directory`, else its project.

use std::collections::BTreeMap;

use worldloom_schema::Domain;

use super::format::{Drafts, Found, RowFormat, folder_name, give, one, texts};
use super::{Draft, FormatInfo, Origin, Source, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal, count};

/// The folder.
pub(crate) struct Storage;

/// The export.
pub(crate) static EXPORT: RowFormat = RowFormat {
    name: "opencode",
    description: "a session exported by OpenCode",
    example: r#"{"info": {"id": "s", "directory": "/home/user/name"}, "messages": [{"info": {"id": "1", "role": "user"}, "parts": [{"type": "text", "text": "List the files."}]}, {"info": {"id": "2", "role": "assistant"}, "parts": [{"type": "tool", "callID": "a", "tool": "bash", "state": {"status": "completed", "input": {"command": "ls"}, "output": "notes.txt\n"}}]}]}"#,
    detects: detects_export,
    read: read_export,
};

/// Where a storage folder keeps what.
const FOLDERS: [&str; 3] = ["session/", "message/", "part/"];

impl Source for Storage {
    fn name(&self) -> &'static str {
        "opencode-storage"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A folder: OpenCode's storage with session/, message/ and part/".into(),
            example: r#"{"id": "prt_1", "messageID": "msg_2", "type": "tool", "callID": "a", "tool": "bash", "state": {"status": "completed", "input": {"command": "ls"}, "output": "notes.txt\n"}}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder() else { return false };
        FOLDERS.iter().all(|name| folder.entries.iter().any(|entry| entry.starts_with(name)))
    }

    fn takes(&self, entry: &str) -> bool {
        FOLDERS.iter().any(|name| entry.starts_with(name)) && entry.ends_with(".json")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Err(Refusal::new("no_folder", "the format is a folder")) };
        let texts = texts(folder, |entry| self.takes(entry), out.counts)?;
        let mut storage = Records::default();
        for (entry, text) in &texts {
            storage.add(entry, text).map_err(|refusal| refusal.of(entry))?;
        }
        let sessions: Vec<&String> = storage.messages.keys().collect();
        let found =
            (0..).zip(sessions).map(|(row, id)| Found { row, offset: 0, draft: storage.session(id, out.counts) });
        let found: Drafts = found.collect();
        give(found, self.name(), origin, out)
    }
}

/// The records of a storage folder.
#[derive(Default)]
struct Records<'a> {
    sessions: BTreeMap<String, Fields<'a>>,
    /// Messages by session.
    messages: BTreeMap<String, Vec<Fields<'a>>>,
    /// Parts by message, in the order of their files.
    parts: BTreeMap<String, Vec<Fields<'a>>>,
}

impl<'a> Records<'a> {
    fn add(&mut self, entry: &str, text: &'a str) -> Result<(), Refusal> {
        let Value::Object(fields) = Value::parse(text).map_err(|error| Refusal::json(&error))? else {
            return Err(Refusal::new("field_type", "expected an object"));
        };
        let folder = entry.split('/').nth(1).filter(|_| entry.split('/').count() > 2).map(str::to_string);
        match entry.split('/').next() {
            Some("session") => {
                self.sessions.insert(json::text(&fields, "id")?.unwrap_or_default(), fields);
            }
            Some("message") => {
                let session = json::text(&fields, "sessionID")?.or(folder).unwrap_or_default();
                self.messages.entry(session).or_default().push(fields);
            }
            _ => {
                let message = json::text(&fields, "messageID")?.or(folder).unwrap_or_default();
                self.parts.entry(message).or_default().push(fields);
            }
        }
        Ok(())
    }

    fn session(&self, id: &str, counts: &mut Counts) -> Result<Draft, Refusal> {
        let mut messages: Vec<(u64, String, &Fields<'a>)> = Vec::new();
        for message in self.messages.get(id).into_iter().flatten() {
            let time = json::object(message, "time")?.unwrap_or_default();
            let created = json::text(&time, "created")?.and_then(|digits| digits.parse().ok());
            messages.push((created.unwrap_or(u64::MAX), json::text(message, "id")?.unwrap_or_default(), message));
        }
        messages.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
        let mut episode = Episode::default();
        for (_, id, message) in messages {
            let parts = self.parts.get(&id).map(Vec::as_slice).unwrap_or_default();
            add_message(message, parts, &mut episode, counts)?;
        }
        let info = self.sessions.get(id).cloned().unwrap_or_default();
        draft(episode, &info, counts)
    }
}

fn detects_export(fields: &Fields<'_>) -> bool {
    let first = json::objects(fields, "messages").unwrap_or_default().into_iter().next();
    let is_message = first.is_some_and(|message| message.contains_key("info") && message.contains_key("parts"));
    fields.contains_key("info") && is_message
}

fn read_export(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut episode = Episode::default();
    for (at, message) in json::objects(fields, "messages")?.into_iter().enumerate() {
        let info = json::object(&message, "info")?.unwrap_or_default();
        let parts = json::objects(&message, "parts")?;
        add_message(&info, &parts, &mut episode, counts).map_err(|refusal| refusal.at("messages", at))?;
    }
    let info = json::object(fields, "info")?.unwrap_or_default();
    Ok(one(draft(episode, &info, counts)?))
}

fn draft(episode: Episode, info: &Fields<'_>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let folder = json::text(info, "directory")?.as_deref().and_then(folder_name);
    let task_group = folder.or(json::text(info, "projectID")?);
    Ok(Draft { domain: Some(Domain::Swe), ..records::draft(episode, task_group, counts) })
}

fn add_message(
    message: &Fields<'_>,
    parts: &[Fields<'_>],
    episode: &mut Episode,
    counts: &mut Counts,
) -> Result<(), Refusal> {
    let is_agent = json::text(message, "role")?.as_deref() == Some("assistant");
    let mut words = Vec::new();
    if is_agent {
        episode.start_batch();
    }
    for part in parts {
        let text = || Ok::<_, Refusal>(json::text(part, "text")?.unwrap_or_default());
        match json::text(part, "type")?.unwrap_or_default().as_str() {
            "text" if json::boolean(part, "synthetic")? == Some(true) => count(counts, "harness_notes_left_out", 1),
            "text" if is_agent => episode.thoughts(&text()?),
            "text" => words.push(text()?),
            "reasoning" => episode.thoughts(&text()?),
            "tool" => add_tool(part, episode)?,
            _ => count(counts, "records_without_words_or_actions", 1),
        }
    }
    if !is_agent && words.is_empty() {
        let summary = json::object(message, "summary").ok().flatten().unwrap_or_default();
        words.extend(json::text(&summary, "body")?.or(json::text(&summary, "title")?));
    }
    if !is_agent && !words.is_empty() {
        episode.user(words.join("\n"));
    }
    Ok(())
}

fn add_tool(part: &Fields<'_>, episode: &mut Episode) -> Result<(), Refusal> {
    let id = json::text(part, "callID")?;
    let state = json::object(part, "state")?.unwrap_or_default();
    let arguments = state.get("input").map(|raw| raw.get().into());
    episode.call(Call { id: id.clone(), name: json::text(part, "tool")?.unwrap_or_default(), arguments });
    let is_failed = json::text(&state, "status")?.as_deref() == Some("error");
    let Some(text) = json::text(&state, if is_failed { "error" } else { "output" })? else { return Ok(()) };
    let metadata = json::object(&state, "metadata")?.unwrap_or_default();
    let exit_code = json::text(&metadata, "exit")?;
    let by_code = exit_code.as_ref().map(|code| code != "0");
    episode.answer(Answer {
        id,
        text,
        is_error: if is_failed { Some(true) } else { by_code.or(Some(false)) },
        is_truncated: json::boolean(&metadata, "truncated")?.unwrap_or(false),
        flags: exit_code.map(|code| format!("exit_code:{code}")).into_iter().collect(),
        ..Answer::default()
    });
    Ok(())
}
