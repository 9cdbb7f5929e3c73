//! Chats of the Gemini CLI and of Qwen Code, which grew out of it.
//!
//! A chat is one JSON object with `sessionId` and `messages`, or a file of one record a line: a head with `sessionId`,
//! then messages. Messages of `gemini` have `toolCalls` with call and result in one; messages of `model` (and Qwen
//! Code's `assistant`) have `parts` with `functionCall`, answered by a `functionResponse` part later on. The result is
//! the `output` (else `error`) of the response; the heading that older versions of the shell tool write (`Command: …
//! Directory: … Output: …`) is taken apart, so that the text is what was printed and the exit code a flag. Of Qwen
//! Code's records only those on the path to the last one count (`parentUuid`); others were rewound and are counted.
//! Left out, counted: `info` messages, images, `$set` records.
//!
//! Task group: the project (last part of `cwd`, else `projectHash`), else the hash of the task.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;
use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, RowFormat, folder_name, one};
use super::{Draft, Origin, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "gemini",
    description: "chats of Gemini CLI and Qwen Code, JSON or JSON lines",
    example: r#"{"sessionId": "1", "projectHash": "0f", "messages": [{"id": "1", "type": "user", "content": "List the files."}, {"id": "2", "type": "gemini", "content": "", "toolCalls": [{"id": "a", "name": "run_shell_command", "args": {"command": "ls"}, "result": [{"functionResponse": {"id": "a", "name": "run_shell_command", "response": {"output": "notes.txt"}}}], "status": "success"}]}]}"#,
    detects,
    read,
};

/// The same as a file of lines.
pub(crate) static LINES: FileFormat = FileFormat {
    name: "gemini-lines",
    description: "chats of Gemini CLI and Qwen Code, one record a line",
    example: r#"{"sessionId": "1", "projectHash": "0f", "kind": "main"}
{"id": "1", "type": "user", "content": [{"text": "List the files."}]}
{"id": "2", "type": "gemini", "content": "", "toolCalls": [{"id": "a", "name": "run_shell_command", "args": {"command": "ls"}, "result": [{"functionResponse": {"id": "a", "response": {"output": "notes.txt"}}}], "status": "success"}]}"#,
    detects: detects_lines,
    read: read_lines,
};

/// Whether these are the fields of a chat in one object.
fn detects(fields: &Fields<'_>) -> bool {
    let first = || json::objects(fields, "messages").ok()?.into_iter().next();
    let has_type = || first().is_some_and(|message| message.contains_key("type") && !message.contains_key("role"));
    let has = |name: &str| fields.contains_key(name);
    let is_chat = has("sessionId") && has("messages") && (has("projectHash") || has_type());
    let has_parts = |message: &Fields<'_>| message.contains_key("parts") && message.contains_key("role");
    let history = json::objects(fields, "history").unwrap_or_default();
    is_chat || history.first().is_some_and(has_parts)
}

fn detects_lines(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_record(&fields))
}

/// Whether these are the fields of a record of a chat that is a file of lines.
fn is_record(fields: &Fields<'_>) -> bool {
    let is_head =
        fields.contains_key("sessionId") && fields.contains_key("projectHash") && !fields.contains_key("messages");
    is_head || is_qwen(fields)
}

/// Whether these are the fields of a record of Qwen Code.
fn is_qwen(fields: &Fields<'_>) -> bool {
    let has = |name: &str| fields.contains_key(name);
    let message = json::object(fields, "message").ok().flatten().unwrap_or_default();
    has("uuid") && has("parentUuid") && message.contains_key("parts")
}

/// The one episode of a chat in one object.
fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut chat = Chat::default();
    chat.add_head(fields)?;
    let name = if fields.contains_key("messages") { "messages" } else { "history" };
    for (at, message) in json::objects(fields, name)?.into_iter().enumerate() {
        chat.add(&message, counts).map_err(|refusal| refusal.at(name, at))?;
    }
    Ok(one(chat.draft(counts)))
}

/// The one episode of a file of lines.
fn read_lines(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let path = active_path(file)?;
    let mut chat = Chat::default();
    let mut found = records::read(file, counts, |record, counts| {
        let uuid = json::text(record, "uuid")?;
        if uuid.is_some_and(|uuid| !path.contains(&uuid)) {
            count(counts, "records_on_abandoned_branches", 1);
            return Ok(());
        }
        chat.add_head(record)?;
        chat.add(record, counts)
    })?;
    found.extend(one(chat.draft(counts)));
    Ok(found)
}

/// The ids of the records from the first to the last, where they name their parents.
fn active_path(file: &FilePiece<'_>) -> Result<BTreeSet<String>, Refusal> {
    let mut parents = BTreeMap::new();
    let mut last = None;
    records::read(file, &mut Counts::new(), |record, _| {
        if let Some(uuid) = json::text(record, "uuid")? {
            parents.insert(uuid.clone(), json::text(record, "parentUuid")?);
            last = Some(uuid);
        }
        Ok(())
    })?;
    let mut path = BTreeSet::new();
    while let Some(uuid) = last {
        last = parents.get(&uuid).cloned().flatten();
        if !path.insert(uuid) {
            break;
        }
    }
    Ok(path)
}

#[derive(Default)]
struct Chat {
    episode: Episode,
    folder: Option<String>,
    project: Option<String>,
}

impl Chat {
    fn add_head(&mut self, fields: &Fields<'_>) -> Result<(), Refusal> {
        self.project = self.project.take().or(json::text(fields, "projectHash")?);
        self.folder = self.folder.take().or(json::text(fields, "cwd")?.as_deref().and_then(folder_name));
        Ok(())
    }

    fn draft(self, counts: &mut Counts) -> Draft {
        let task_group = self.folder.or(self.project);
        Draft { domain: Some(Domain::Swe), ..records::draft(self.episode, task_group, counts) }
    }

    fn add(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let kind = json::text(record, "type")?.or(json::text(record, "role")?);
        let message = json::object(record, "message")?;
        let message = message.as_ref().unwrap_or(record);
        match kind.as_deref() {
            Some("user" | "tool_result" | "function") => self.add_parts(message, false, counts)?,
            Some("gemini" | "model" | "assistant" | "qwen") => {
                for thought in json::objects(record, "thoughts")? {
                    let words = [json::text(&thought, "subject")?, json::text(&thought, "description")?];
                    words.into_iter().flatten().for_each(|words| self.episode.thoughts(&words));
                }
                self.add_parts(message, true, counts)?;
                self.add_calls(record, counts)?;
            }
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    /// Words, calls and results in the `parts` or the `content` of a message.
    fn add_parts(&mut self, message: &Fields<'_>, is_agent: bool, counts: &mut Counts) -> Result<(), Refusal> {
        let Some(raw) = message.get("parts").or_else(|| message.get("content")).copied() else { return Ok(()) };
        let mut words = Vec::new();
        if is_agent {
            self.episode.start_batch();
        }
        match Value::of(raw)? {
            Value::Text(text) => words.push(text),
            Value::List(parts) => {
                for part in parts {
                    match Value::of(part)? {
                        Value::Object(part) => words.extend(self.add_part(&part, counts)?),
                        Value::Text(text) => words.push(text),
                        _ => count(counts, "blocks_of_unknown_type", 1),
                    }
                }
            }
            _ => {}
        }
        match (is_agent, words.join("\n")) {
            (true, words) => self.episode.thoughts(&words),
            (false, words) if words.is_empty() => {}
            (false, words) => self.episode.user(words),
        }
        Ok(())
    }

    /// A part; its words, if it has some that are no thought.
    fn add_part(&mut self, part: &Fields<'_>, counts: &mut Counts) -> Result<Option<String>, Refusal> {
        if let Some(call) = json::object(part, "functionCall")? {
            self.call(&call)?;
        } else if let Some(response) = json::object(part, "functionResponse")? {
            self.answer(&response, None)?;
        } else if part.contains_key("inlineData") || part.contains_key("fileData") {
            count(counts, "images_left_out", 1);
            return Ok(Some("[image]".into()));
        } else {
            let text = json::text(part, "text")?.unwrap_or_default();
            if json::boolean(part, "thought")? == Some(true) {
                self.episode.thoughts(&text);
                return Ok(None);
            }
            return Ok(Some(text));
        }
        Ok(None)
    }

    /// Calls that have their results with them.
    fn add_calls(&mut self, record: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let calls = json::objects(record, "toolCalls")?;
        for call in &calls {
            self.call(call)?;
        }
        for call in &calls {
            let status = json::text(call, "status")?;
            let is_error = status.map(|status| status == "error" || status == "cancelled");
            let mut has_result = false;
            for part in results(call)? {
                if let Some(response) = json::object(&part, "functionResponse")? {
                    has_result = true;
                    self.answer(&response, is_error)?;
                } else {
                    count(counts, "blocks_of_unknown_type", 1);
                }
            }
            if let (false, Some(shown)) = (has_result, json::text(call, "resultDisplay").ok().flatten()) {
                let id = json::text(call, "id")?;
                self.episode.answer(Answer { id, text: shown, is_error, ..Answer::default() });
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Fields<'_>) -> Result<(), Refusal> {
        let arguments = call.get("args").map(|raw| raw.get().to_string());
        let name = json::text(call, "name")?.unwrap_or_default();
        self.episode.call(Call { id: json::text(call, "id")?, name, arguments });
        Ok(())
    }

    fn answer(&mut self, response: &Fields<'_>, is_error: Option<bool>) -> Result<(), Refusal> {
        let told = response.get("response").copied();
        let (text, failed) = told.map(printed).transpose()?.unwrap_or_default();
        let name = json::text(response, "name")?;
        let shell = Shell::of(&text).filter(|_| name.as_deref().is_none_or(|name| name == Shell::TOOL));
        let exit_code = shell.as_ref().and_then(|shell| shell.exit_code.clone());
        let by_code = exit_code.as_ref().map(|code| code != "0");
        self.episode.answer(Answer {
            id: json::text(response, "id")?,
            name,
            text: shell.map_or(text, |shell| shell.output),
            is_error: if failed { Some(true) } else { by_code.or(is_error) },
            flags: exit_code.map(|code| format!("exit_code:{code}")).into_iter().collect(),
            ..Answer::default()
        });
        Ok(())
    }
}

/// `result` of a call, a list of parts or one.
fn results<'a>(call: &Fields<'a>) -> Result<Vec<Fields<'a>>, Refusal> {
    match call.get("result").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::List(_)) => json::objects(call, "result"),
        Some(Value::Object(part)) => Ok(vec![part]),
        _ => Ok(Vec::new()),
    }
}

/// The text of a response, and whether it is an error: `output`, else `error`, else the response as it is.
fn printed(raw: &RawValue) -> Result<(String, bool), Refusal> {
    let Value::Object(fields) = Value::of(raw)? else {
        return Ok((super::content::read(Some(raw), &mut Counts::new())?.text, false));
    };
    let output = |name| json::text(&fields, name).ok().flatten();
    Ok(match (output("output"), output("error")) {
        (Some(text), _) => (text, false),
        (None, Some(text)) => (text, true),
        (None, None) => (json::data(raw), false),
    })
}

/// What a command printed, taken out of the report of the shell tool.
struct Shell {
    output: String,
    exit_code: Option<String>,
}

impl Shell {
    /// The tool that reports.
    const TOOL: &str = "run_shell_command";
    /// The lines after what was printed, of which newer versions leave out those that say nothing.
    const TAIL: [&str; 5] = ["Error: ", "Exit Code: ", "Signal: ", "Background PIDs: ", "Process Group PGID: "];

    /// Takes a report apart: `Command` and `Directory` in older versions, `Output`, and the lines of [`Self::TAIL`].
    fn of(report: &str) -> Option<Self> {
        let mut rest = report;
        while let Some((line, after)) = rest.split_once('\n') {
            if !line.starts_with("Command: ") && !line.starts_with("Directory: ") {
                break;
            }
            rest = after;
        }
        let mut output = rest.strip_prefix("Output: ")?;
        let (mut exit_code, mut error) = (None, None);
        while let Some((before, line)) = output.rsplit_once('\n') {
            let Some(name) = Self::TAIL.iter().find(|name| line.starts_with(**name)) else { break };
            let value = Some(&line[name.len()..]).filter(|value| *value != "(none)");
            match *name {
                "Exit Code: " => exit_code = value.map(str::to_string),
                "Error: " => error = value,
                _ => {}
            }
            output = before;
        }
        let output = if output == "(empty)" { "" } else { output };
        let output = [Some(output), error].into_iter().flatten().collect::<Vec<_>>().join("\n");
        Some(Self { output, exit_code })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(report: &str, expected: Option<(&str, Option<&str>)>) {
        let found = Shell::of(report).map(|shell| (shell.output, shell.exit_code));
        assert_eq!(found, expected.map(|(output, code)| (output.to_string(), code.map(str::to_string))), "{report}");
    }

    #[test]
    fn a_report_of_the_shell_tool_is_what_was_printed_and_the_exit_code() {
        let old = "Command: ls\nDirectory: (root)\nOutput: a\nExit Code: 3 is printed\nb\nError: (none)\nExit Code: 1\nSignal: 0";
        check(old, Some(("a\nExit Code: 3 is printed\nb", Some("1"))));
        check("Output: a\nb\nProcess Group PGID: 7", Some(("a\nb", None)));
        check(
            "Command: x\nDirectory: .\nOutput: (empty)\nError: spawn failed\nExit Code: (none)",
            Some(("\nspawn failed", None)),
        );
        check("a\nOutput: b", None);
        check("", None);
    }
}
