//! Rollout files of the Codex CLI, and the plain session logs of its first versions.
//!
//! A file is one session, one record a line: `{timestamp, type, payload}`, of which `response_item` is what the model
//! and its tools said; before version 0.40 the items stand bare. `event_msg` says the same again for the screen and is
//! left out; so is `compacted` (the turns before stay). Calls are `function_call`, `custom_tool_call`,
//! `local_shell_call`, `tool_search_call` and the `tool_call` of the first versions; results answer by `call_id`, else
//! by order and name. An output is text, JSON text with `output` and `metadata`, content parts, or `{stdout, stderr,
//! exitCode}`; a heading `Exit code: 1 … Output:` becomes a flag and an error mark and the text keeps only what the
//! command printed. A shell call's list of words is one line, of `bash -lc` the script. Left out, counted:
//! `encrypted_content`, images, copied history of a resumed session (items that repeat an id), calls without a recorded
//! result (`web_search_call`); `dynamic_tools`, which are only a part of the tools.
//!
//! Task group: the repository (`git.repository_url`, else the last part of `cwd`), else the hash of the task.

use std::collections::BTreeSet;

use worldloom_schema::Domain;

use super::format::{Drafts, FileFormat, folder_name, one, spoken};
use super::{Draft, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value, quote};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: FileFormat = FileFormat {
    name: "codex",
    description: "Codex CLI rollout files (JSON lines), also of versions before 0.40",
    example: r#"{"timestamp": "2025-01-01T00:00:00Z", "type": "session_meta", "payload": {"id": "1", "cwd": "/home/user/name"}}
{"timestamp": "2025-01-01T00:00:01Z", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]}}
{"timestamp": "2025-01-01T00:00:02Z", "type": "response_item", "payload": {"type": "function_call", "name": "shell", "call_id": "a", "arguments": "{\"command\": [\"bash\", \"-lc\", \"ls\"]}"}}
{"timestamp": "2025-01-01T00:00:03Z", "type": "response_item", "payload": {"type": "function_call_output", "call_id": "a", "output": "{\"output\": \"notes.txt\\n\", \"metadata\": {\"exit_code\": 0, \"duration_seconds\": 0.1}}"}}"#,
    detects,
    read,
};

/// Types of records with a `payload`.
const WRAPPERS: [&str; 7] = [
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "world_state",
    "inter_agent_communication_metadata",
];
/// Types of items that stand bare.
const BARE: [&str; 8] = [
    "function_call",
    "function_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "tool_call",
    "tool_result",
    "function_result",
    "custom_tool_call",
];

fn detects(file: &FilePiece<'_>) -> bool {
    file.first_fields().is_some_and(|fields| is_record(&fields))
}

/// Whether these are the fields of a record.
fn is_record(fields: &Fields<'_>) -> bool {
    let kind = json::text(fields, "type").ok().flatten().unwrap_or_default();
    let is_wrapped = fields.contains_key("payload") && WRAPPERS.contains(&kind.as_str());
    let is_bare = BARE.contains(&kind.as_str())
        && (fields.contains_key("call_id") || fields.contains_key("function") || fields.contains_key("result"));
    let is_head = ["id", "timestamp", "instructions"].iter().all(|name| fields.contains_key(*name));
    let is_message = fields.contains_key("role")
        && !fields.contains_key("type")
        && fields.contains_key("model")
        && (fields.contains_key("timestamp") || fields.contains_key("created_at"));
    is_wrapped || is_bare || is_head || is_message
}

/// The one episode of a file.
fn read(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let mut rollout = Rollout::default();
    let mut found = records::read(file, counts, |fields, counts| rollout.add(fields, counts))?;
    let task_group = rollout.repository.or(rollout.folder);
    found.extend(one(Draft { domain: Some(Domain::Swe), ..records::draft(rollout.episode, task_group, counts) }));
    Ok(found)
}

#[derive(Default)]
struct Rollout {
    episode: Episode,
    repository: Option<String>,
    folder: Option<String>,
    seen: BTreeSet<String>,
    is_in_batch: bool,
}

impl Rollout {
    fn add(&mut self, fields: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let kind = json::text(fields, "type")?.unwrap_or_default();
        match (kind.as_str(), json::object(fields, "payload")?) {
            ("session_meta", Some(payload)) => self.add_head(&payload, counts)?,
            ("response_item", Some(payload)) => self.add_item(&payload, counts)?,
            ("compacted", _) => count(counts, "compactions", 1),
            ("event_msg", _) => count(counts, "screen_events_left_out", 1),
            (_, Some(_)) => count(counts, "records_without_words_or_actions", 1),
            ("", None) if fields.contains_key("instructions") => self.add_head(fields, counts)?,
            (_, None) => self.add_item(fields, counts)?,
        }
        Ok(())
    }

    fn add_head(&mut self, head: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        if self.folder.is_some() {
            count(counts, "sessions_resumed_or_forked", 1);
        }
        let git = json::object(head, "git")?.unwrap_or_default();
        let url = json::text(&git, "repository_url")?.and_then(|url| repository_of(&url));
        self.repository = self.repository.take().or(url);
        self.folder = self.folder.take().or(json::text(head, "cwd")?.as_deref().and_then(folder_name));
        Ok(())
    }

    fn add_item(&mut self, item: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let kind = json::text(item, "type")?.unwrap_or_default();
        if !kind.ends_with("output") && self.is_repeated(item, &kind)? {
            count(counts, "records_repeated", 1);
            return Ok(());
        }
        let is_call = kind.ends_with("_call") && !kind.ends_with("generation_call");
        if is_call && !self.is_in_batch {
            self.episode.start_batch();
        }
        self.is_in_batch = is_call;
        match kind.as_str() {
            "message" => self.add_message(item, counts)?,
            "" if item.contains_key("role") => self.add_message(item, counts)?,
            "reasoning" => self.add_reasoning(item, counts)?,
            "local_shell_call" => self.add_shell_call(item)?,
            "web_search_call" => self.add_call(item, "web_search", "action")?,
            "tool_search_call" => self.add_call(item, "tool_search", "arguments")?,
            "custom_tool_call" => self.add_call(item, "", "input")?,
            "function_call" | "tool_call" => self.add_call(item, "", "arguments")?,
            "tool_search_output" => self.episode.answer(Answer {
                id: json::text(item, "call_id")?,
                text: item.get("tools").map(|raw| json::respace(raw.get())).unwrap_or_default(),
                ..Answer::default()
            }),
            "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" => {
                self.add_output(item, "output", counts)?;
            }
            "tool_result" | "function_result" => self.add_output(item, "result", counts)?,
            _ => count(counts, "records_without_words_or_actions", 1),
        }
        Ok(())
    }

    /// Whether a call of this id was read already, as in the copied history of a fork.
    fn is_repeated(&mut self, item: &Fields<'_>, kind: &str) -> Result<bool, Refusal> {
        let id = json::text(item, "call_id")?.or(json::text(item, "id")?);
        Ok(id.is_some_and(|id| !self.seen.insert(format!("{kind} {id}"))))
    }

    fn add_message(&mut self, item: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let raw = item.get("content").or_else(|| item.get("message")).copied();
        let text = super::content::read(raw, counts)?.text;
        match json::text(item, "role")?.as_deref() {
            Some("assistant") => self.episode.thoughts(&text),
            Some("user") if is_harness_note(&text) => count(counts, "harness_notes_left_out", 1),
            Some("user") => self.episode.user(text),
            _ => count(counts, "agent_prompts_left_out", 1),
        }
        Ok(())
    }

    fn add_reasoning(&mut self, item: &Fields<'_>, counts: &mut Counts) -> Result<(), Refusal> {
        let has_secret = item.get("encrypted_content").is_some_and(|raw| raw.get() != "null");
        count(counts, "encrypted_reasoning_left_out", u64::from(has_secret));
        for name in ["content", "summary"] {
            let text = super::content::read(item.get(name).copied(), counts)?;
            let words: Vec<String> = text.thoughts.into_iter().chain([text.text]).collect();
            if words.iter().any(|words| !words.trim().is_empty()) {
                words.iter().for_each(|words| self.episode.thoughts(words));
                return Ok(());
            }
        }
        Ok(())
    }

    /// A call; one without `call_id`, such as a web search, has an id of its own that no result names.
    fn add_call(&mut self, item: &Fields<'_>, name: &str, arguments: &str) -> Result<(), Refusal> {
        let function = json::object(item, "function")?.unwrap_or_default();
        let named = json::text(item, "name")?.or(json::text(&function, "name")?);
        let arguments = item.get(arguments).map(|raw| raw.get().to_string());
        let name = named.unwrap_or_else(|| name.into());
        let arguments = arguments.map(|text| script(&text).unwrap_or(text));
        let id = json::text(item, "call_id")?.or(json::text(item, "id")?);
        self.episode.call(Call { id, name, arguments });
        Ok(())
    }

    fn add_shell_call(&mut self, item: &Fields<'_>) -> Result<(), Refusal> {
        let action = json::object(item, "action")?.unwrap_or_default();
        let command = action.get("command").map_or("[]", |raw| raw.get());
        let arguments = format!("{{\"command\": {command}}}");
        let arguments = Some(script(&arguments).unwrap_or(arguments));
        let id = json::text(item, "call_id")?.or(json::text(item, "id")?);
        self.episode.call(Call { id, name: "shell".into(), arguments });
        Ok(())
    }

    fn add_output(&mut self, item: &Fields<'_>, field: &str, counts: &mut Counts) -> Result<(), Refusal> {
        let output = Output::read(item.get(field).copied(), counts)?;
        self.episode.answer(Answer {
            id: json::text(item, "call_id")?,
            name: json::text(item, "name")?,
            text: output.text,
            is_image_only: output.is_image_only,
            is_error: output.exit_code.as_ref().map(|code| code != "0"),
            flags: output.exit_code.map(|code| format!("exit_code:{code}")).into_iter().collect(),
            ..Answer::default()
        });
        Ok(())
    }
}

/// What a tool gave back.
#[derive(Default)]
struct Output {
    text: String,
    exit_code: Option<String>,
    is_image_only: bool,
}

impl Output {
    fn read(raw: Option<&serde_json::value::RawValue>, counts: &mut Counts) -> Result<Self, Refusal> {
        let Some(raw) = raw else { return Ok(Self::default()) };
        match Value::of(raw)? {
            Value::Object(fields) if fields.contains_key("stdout") => Self::of_streams(&fields),
            Value::Object(fields) if fields.contains_key("text") => {
                Ok(Self { text: json::text(&fields, "text")?.unwrap_or_default(), ..Self::default() })
            }
            Value::Object(fields) if fields.contains_key("content") => {
                let content = super::content::read(fields.get("content").copied(), counts)?;
                Ok(Self { is_image_only: content.images > 0 && content.text.is_empty(), ..Self::of_text(content.text) })
            }
            _ => {
                let content = super::content::read(Some(raw), counts)?;
                Ok(Self { is_image_only: content.images > 0 && content.text.is_empty(), ..Self::of_text(content.text) })
            }
        }
    }

    fn of_streams(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let stream = |name| Ok::<_, Refusal>(json::text(fields, name)?.unwrap_or_default());
        let exit_code = json::text(fields, "exitCode")?.or(json::text(fields, "exit_code")?);
        Ok(Self { text: stream("stdout")? + &stream("stderr")?, exit_code, is_image_only: false })
    }

    /// Text, JSON text with `output` and `metadata`, or text under a heading with the exit code.
    fn of_text(text: String) -> Self {
        if let Ok(Value::Object(fields)) = Value::parse(&text)
            && let (Ok(Some(output)), Ok(Some(metadata))) =
                (json::text(&fields, "output"), json::object(&fields, "metadata"))
        {
            let exit_code = json::text(&metadata, "exit_code").ok().flatten();
            return Self { text: output, exit_code, is_image_only: false };
        }
        let Some((heading, printed)) = text.split_once("\nOutput:\n").filter(|(heading, _)| is_heading(heading)) else {
            return Self { text, ..Self::default() };
        };
        let code = heading.lines().find_map(|line| {
            line.strip_prefix("Exit code: ").or_else(|| line.strip_prefix("Process exited with code "))
        });
        Self { exit_code: code.map(|code| code.trim().to_string()), text: printed.into(), is_image_only: false }
    }
}

/// The lines that Codex puts above what a command printed.
fn is_heading(heading: &str) -> bool {
    const KNOWN: [&str; 8] = [
        "Exit code: ",
        "Wall time: ",
        "Process exited with code ",
        "Process running with session ID ",
        "Chunk ID: ",
        "Original token count: ",
        "Total output lines: ",
        "Command: ",
    ];
    heading.lines().all(|line| line.is_empty() || KNOWN.iter().any(|known| line.starts_with(known)))
}

/// The arguments of a shell call with a line in place of the list of words: of `["bash", "-lc", script]` the script, else
/// the words as a shell would read them.
fn script(arguments: &str) -> Option<String> {
    let inner = match Value::parse(arguments).ok()? {
        Value::Text(text) => text,
        _ => arguments.to_string(),
    };
    let Value::Object(fields) = Value::parse(&inner).ok()? else { return None };
    let Value::List(words) = Value::of(fields.get("command")?).ok()? else { return None };
    let words: Vec<String> = words.iter().map(|raw| serde_json::from_str(raw.get()).ok()).collect::<Option<_>>()?;
    let script = match words.as_slice() {
        [shell, flag, script] if is_shell(shell) && matches!(flag.as_str(), "-lc" | "-c") => script.clone(),
        words => words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "),
    };
    let rest = fields.iter().filter(|(name, _)| *name != "command");
    let rest: String = rest.map(|(name, raw)| format!(", {}: {}", quote(name), raw.get())).collect();
    Some(format!("{{\"command\": {}{rest}}}", quote(&script)))
}

/// A word as a shell reads it, in quotes where it needs them.
fn shell_word(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./=:@%+,".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

fn is_shell(word: &str) -> bool {
    matches!(word.rsplit('/').next(), Some("bash" | "sh" | "zsh"))
}

/// What Codex itself writes in the user's name.
fn is_harness_note(text: &str) -> bool {
    const NOTES: [&str; 4] =
        ["<environment_context>", "<user_instructions>", "# AGENTS.md instructions", "<turn_aborted>"];
    NOTES.iter().any(|note| text.trim_start().starts_with(note))
}

/// `owner/name` of a repository's address.
fn repository_of(url: &str) -> Option<String> {
    let path = url.trim_end_matches('/').trim_end_matches(".git");
    let parts: Vec<&str> = path.rsplit(['/', ':']).take(2).collect();
    let joined = parts.iter().rev().copied().collect::<Vec<_>>().join("/");
    spoken(Some(joined)).map(|text| text.to_lowercase())
}
