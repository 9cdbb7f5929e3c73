//! Logs of Inspect (`inspect_ai`): the JSON of a log, or the samples in an `.eval` archive.
//!
//! A row is a log (`eval`, `samples`) or one sample of it (`id`, `epoch`, `messages`); an archive has its samples as files beside the head. Each sample is an episode. Calls
//! name their tool as a string in `function`; results (`role: tool`) answer them by `tool_call_id`, and their `error`
//! is an error of the environment. Newer logs keep long strings in `attachments` (`attachment://…` in their place),
//! which are put back. Taken: tools of the first model event as action space, `scores` as outcome. Left out, counted:
//! images, results whose call is not among the messages; events and their `message_pool`, which repeat the messages.
//!
//! Task group: the site of the first address the task names where the tools are a browser, else `eval.task` and the
//! sample's id.

use std::collections::BTreeMap;

use worldloom_schema::{ActionKind, Domain, ObservationKind, Outcome, Turn};

use super::content::split_thoughts;
use super::format::{Drafts, RowFormat, give, numbered, one, site, texts};
use super::{Draft, FormatInfo, Origin, Source, records};
use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{FolderPiece, Piece, Shape, Sink};
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "inspect",
    description: "Inspect evaluation logs, .json or .eval",
    example: r#"{"version": 2, "status": "success", "eval": {"task": "files"}, "samples": [{"id": 1, "epoch": 1, "input": "List them.", "messages": [{"role": "user", "content": "List them."}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}]}, {"role": "tool", "tool_call_id": "a", "function": "bash", "content": "notes.txt"}], "scores": {}}]}"#,
    detects,
    read,
};

/// The archive `.eval`, unpacked: a file for each sample beside the head of the log.
pub(crate) struct Archive;

/// Where an archive has the head of its log; without the first, the run was not finished.
const HEADS: [&str; 2] = ["header.json", "_journal/start.json"];
/// What else is in it: copies and sums of the samples.
const COMPANIONS: [&str; 2] = ["summaries.json", "reductions.json"];

impl Source for Archive {
    fn name(&self) -> &'static str {
        "inspect-eval"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A folder: Inspect's .eval archive with header.json and samples/".into(),
            example: r#"{"id": 1, "epoch": 1, "input": "List them.", "messages": [{"role": "user", "content": "List them."}, {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": "bash", "arguments": {"cmd": "ls"}, "type": "function"}]}, {"role": "tool", "tool_call_id": "a", "function": "bash", "content": "notes.txt"}]}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Folder
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(folder) = piece.folder() else { return false };
        let has_samples = folder.entries.iter().any(|entry| is_sample_entry(entry));
        has_samples && head(folder, |head| head.contains_key("eval")).unwrap_or(false)
    }

    fn takes(&self, entry: &str) -> bool {
        entry.starts_with("_journal/")
            || is_sample_entry(entry)
            || HEADS.contains(&entry)
            || COMPANIONS.contains(&entry)
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(folder) = piece.folder() else { return Err(Refusal::new("no_folder", "the format is a folder")) };
        let task = head(folder, |head| json::text(&json::object(head, "eval").ok()??, "task").ok()?).flatten();
        let beside = folder.entries.iter().filter(|entry| !is_sample_entry(entry)).count();
        out.count("files_beside_the_samples", beside as u64);
        let mut samples = Vec::new();
        for (entry, text) in texts(folder, is_sample_entry, out.counts)? {
            let read = match Value::parse(&text) {
                Ok(Value::Object(fields)) => sample(&fields, task.as_deref(), out.counts),
                Ok(other) => Err(Refusal::field_type("sample", "an object", other.kind())),
                Err(error) => Err(Refusal::json(&error)),
            };
            samples.push(read.map_err(|refusal| refusal.of(&entry)));
        }
        give(numbered(samples), self.name(), origin, out)
    }
}

fn is_sample_entry(entry: &str) -> bool {
    entry.starts_with("samples/") && entry.ends_with(".json")
}

/// Asks the head of an archive's log, if it has one.
fn head<T>(folder: &FolderPiece<'_>, ask: impl Fn(&Fields<'_>) -> T) -> Option<T> {
    let entry = HEADS.into_iter().find(|entry| folder.has(entry))?;
    let text = String::from_utf8(folder.read(entry).ok()?).ok()?;
    match Value::parse(&text).ok()? {
        Value::Object(fields) => Some(ask(&fields)),
        _ => None,
    }
}

/// How a reference to an attachment begins.
const ATTACHMENT: &str = "attachment://";

/// Whether these are the fields of a log or of a sample.
fn detects(fields: &Fields<'_>) -> bool {
    let has = |names: &[&str]| names.iter().all(|name| fields.contains_key(*name));
    has(&["eval", "status", "version"]) || is_sample(fields)
}

fn is_sample(fields: &Fields<'_>) -> bool {
    ["id", "epoch", "input", "messages"].iter().all(|name| fields.contains_key(*name))
}

/// The episodes of a log or of one sample.
fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    if is_sample(fields) {
        return Ok(one(sample(fields, None, counts)?));
    }
    let eval = json::object(fields, "eval")?.unwrap_or_default();
    let task = json::text(&eval, "task")?;
    let samples = json::objects(fields, "samples")?;
    Ok(numbered(samples.iter().map(|fields| sample(fields, task.as_deref(), counts))))
}

fn sample(fields: &Fields<'_>, task: Option<&str>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let attachments = Attachments::read(fields)?;
    let mut episode = Episode::default();
    for (at, message) in json::objects(fields, "messages")?.into_iter().enumerate() {
        add_message(&message, &attachments, &mut episode, counts).map_err(|refusal| refusal.at("messages", at))?;
    }
    let mut draft = records::draft(episode, None, counts);
    let domain = domain(&draft.turns);
    let id = json::text(fields, "id")?.unwrap_or_default();
    let site = site(&draft.system.task_description).filter(|_| domain == Domain::Web);
    draft.domain = Some(domain);
    draft
        .turns
        .iter_mut()
        .filter(|turn| shows_tree(turn))
        .for_each(|turn| turn.observation_kind = ObservationKind::Tree);
    draft.task_group = site.or_else(|| Some(format!("{}/{id}", task?)));
    draft.system.action_space = tools(fields, &attachments)?;
    draft.outcome = outcome(fields)?;
    Ok(draft)
}

/// Long strings by the name they are referred to.
struct Attachments(BTreeMap<String, String>);

impl Attachments {
    fn read(fields: &Fields<'_>) -> Result<Self, Refusal> {
        let mut found = BTreeMap::new();
        let transcript = json::object(fields, "transcript")?.unwrap_or_default();
        for (holder, name) in [(fields, "attachments"), (&transcript, "content")] {
            for (key, raw) in json::object(holder, name)?.unwrap_or_default() {
                if let Value::Text(text) = Value::of(raw)? {
                    found.insert(key, text);
                }
            }
        }
        Ok(Self(found))
    }

    /// The text, with what it refers to put in its place.
    fn resolve(&self, text: String) -> Result<String, Refusal> {
        let Some(name) = text.strip_prefix(ATTACHMENT) else { return Ok(text) };
        let missing = || Refusal::new("attachment", format!("`{text}` is not among the attachments"));
        self.0.get(name).cloned().ok_or_else(missing)
    }
}

fn add_message(
    message: &Fields<'_>,
    attachments: &Attachments,
    episode: &mut Episode,
    counts: &mut Counts,
) -> Result<(), Refusal> {
    let content = super::content::read(message.get("content").copied(), counts)?;
    let text = attachments.resolve(content.text)?;
    match json::text(message, "role")?.unwrap_or_default().as_str() {
        "system" => count(counts, "agent_prompts_left_out", 1),
        "user" => episode.user(text),
        "assistant" => {
            let (thoughts, words) = split_thoughts(&text);
            content.thoughts.iter().chain(&thoughts).chain([&words]).for_each(|text| episode.thoughts(text));
            add_calls(message, episode)?;
        }
        "tool" => {
            let error = json::object(message, "error")?;
            let message_of = error.as_ref().map(|error| json::text(error, "message")).transpose()?.flatten();
            episode.answer(Answer {
                id: json::text(message, "tool_call_id")?,
                name: json::text(message, "function")?,
                is_image_only: content.images > 0 && text.is_empty(),
                text: if text.is_empty() { message_of.unwrap_or(text) } else { text },
                is_error: Some(error.is_some()),
                ..Answer::default()
            });
        }
        role => return Err(Refusal::new("role", format!("unknown role `{role}`"))),
    }
    Ok(())
}

fn add_calls(message: &Fields<'_>, episode: &mut Episode) -> Result<(), Refusal> {
    episode.start_batch();
    for call in json::objects(message, "tool_calls")? {
        let arguments = call.get("arguments").map(|raw| raw.get().to_string());
        episode.call(Call {
            id: json::text(&call, "id")?,
            name: json::text(&call, "function")?.unwrap_or_default(),
            arguments,
        });
    }
    Ok(())
}

fn domain(turns: &[Turn]) -> Domain {
    let calls = |name: &str| turns.iter().any(|turn| turn.action.contains(&format!("\"name\": \"{name}")));
    let commands = turns.iter().filter(|turn| turn.action_kind == ActionKind::Command).count();
    match () {
        () if calls("web_browser") => Domain::Web,
        () if calls("web_search") => Domain::Search,
        () if 2 * commands >= turns.len() => Domain::Terminal,
        () => Domain::Mcp,
    }
}

/// Whether a turn shows a page as the browser tool does: `[12] link "Home"`, indented by depth.
fn shows_tree(turn: &Turn) -> bool {
    let number = turn.observation.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("] "));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    turn.action.starts_with("{\"name\": \"web_browser") && number.is_some_and(|(number, _)| is_number(number))
}

/// The tools that the first call of the model was given.
fn tools(fields: &Fields<'_>, attachments: &Attachments) -> Result<Option<String>, Refusal> {
    for event in json::objects(fields, "events")? {
        if json::text(&event, "event")?.as_deref() == Some("model")
            && let Some(tools) = event.get("tools").filter(|raw| raw.get() != "[]")
        {
            return attachments.resolve_inside(&json::respace(tools.get())).map(Some);
        }
    }
    Ok(None)
}

/// The value of the first score: a number, or `C` for correct and `I` for incorrect.
fn outcome(fields: &Fields<'_>) -> Result<Outcome, Refusal> {
    let mut outcome = Outcome::default();
    let scores = json::object(fields, "scores")?.unwrap_or_default();
    let Some((_, raw)) = scores.first_key_value() else { return Ok(outcome) };
    let Value::Object(score) = Value::of(raw)? else { return Ok(outcome) };
    match score.get("value").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::Text(letter)) if letter == "C" => outcome.success = Some(true),
        Some(Value::Text(letter)) if letter == "I" => outcome.success = Some(false),
        Some(Value::Number(digits)) => outcome.reward = digits.parse().ok(),
        Some(Value::Bool(is_success)) => outcome.success = Some(is_success),
        _ => {}
    }
    Ok(outcome)
}

impl Attachments {
    /// JSON text in which each string that refers to an attachment is the attachment.
    fn resolve_inside(&self, text: &str) -> Result<String, Refusal> {
        let mut resolved = String::with_capacity(text.len());
        let mut rest = text;
        let mark = format!("\"{ATTACHMENT}");
        while let Some(start) = rest.find(&mark) {
            let inner = &rest[start + 1..];
            let end = inner.find('"').unwrap_or(inner.len());
            resolved.push_str(&rest[..start]);
            resolved.push_str(&json::quote(&self.resolve(inner[..end].to_string())?));
            rest = inner.get(end + 1..).unwrap_or_default();
        }
        resolved.push_str(rest);
        Ok(resolved)
    }
}
