//! mini-SWE-agent runs: one shell command a turn in a fenced block, results as `<returncode>` and `<output>`.
//!
//! A bare list of messages (v1) or an object with `messages`, `info` and `trajectory_format`. The action is the block's
//! content, or `extra.actions` where the message has it; the words around it are the reasoning. A message without an
//! action and the harness's answer to it are no turn, and counted. Task group: `info.instance_id` or `instance_id`,
//! else the hash of the task.

use worldloom_schema::{ActionKind, Domain};

use super::{Facts, FormatInfo, Origin, Source, assemble, chat, content};
use crate::episode::{Answer, Episode};
use crate::json::{self, Fields, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Heads of a block that holds the action.
const FENCES: [&str; 2] = ["```mswea_bash_command\n", "```bash\n"];

/// The format.
pub(crate) struct MiniSwe;

impl Source for MiniSwe {
    fn name(&self) -> &'static str {
        "mini-swe-agent"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "mini-SWE-agent messages: a fenced bash command, then `<returncode>` and `<output>`".into(),
            example: r#"[{"role": "system", "content": "You are an assistant with a shell."}, {"role": "user", "content": "Fix the pie."}, {"role": "assistant", "content": "I look.\n\n```mswea_bash_command\nls\n```"}, {"role": "user", "content": "<returncode>0</returncode>\n<output>\npie.py\n</output>"}]"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(row) = piece.row() else { return false };
        let has_blocks = || FENCES.iter().any(|fence| row.contains(&fence.trim_end().replace('\n', "\\n")));
        let is_named = || row.contains("\"trajectory_format\"") && row.contains("\"mini-swe-agent");
        (row.trim_start().starts_with('[') && row.contains("<returncode>") && has_blocks()) || is_named()
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (fields, messages) = chat::parts(piece.row().unwrap_or_default())?;
        let (mut episode, mut agent_prompt, mut waits) = (Episode::default(), String::new(), false);
        for (at, raw) in messages.iter().enumerate() {
            let Value::Object(message) = Value::of(raw)? else {
                return Err(Refusal::new("message_type", format!("messages[{at}]: expected an object")));
            };
            let content = content::read(message.get("content").copied(), out.counts)?;
            match json::text(&message, "role")?.unwrap_or_default().as_str() {
                "system" => agent_prompt = content.text,
                "assistant" => waits = add_actions(&message, &content.text, &mut episode)?,
                "user" | "tool" if waits => episode.answer(observation(content.text)),
                "user" => episode.user(content.text),
                _ => out.count("messages_of_other_roles", 1),
            }
        }
        let finished = episode.finish();
        out.add_counts(&finished.counts);
        let mut draft = assemble(&fields, Facts::of(self.name(), agent_prompt), finished)?;
        draft.domain = Some(Domain::Swe);
        let info = json::object(&fields, "info").ok().flatten().unwrap_or_default();
        draft.task_group = draft.task_group.or(json::text(&info, "instance_id").ok().flatten());
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// Adds the actions of a message; says whether there were any.
fn add_actions(message: &Fields<'_>, text: &str, episode: &mut Episode) -> Result<bool, Refusal> {
    let (block, words) = split_block(text);
    let mut actions = extra_actions(message)?;
    if actions.is_empty() {
        actions.extend(block);
    }
    episode.thoughts(&words);
    episode.start_batch();
    let has_actions = !actions.is_empty();
    for action in actions {
        episode.act(None, "bash".into(), action, ActionKind::Command, Vec::new());
    }
    Ok(has_actions)
}

/// The commands of `extra.actions`, of which each is a string or an object.
fn extra_actions(message: &Fields<'_>) -> Result<Vec<String>, Refusal> {
    let extra = json::object(message, "extra").ok().flatten().unwrap_or_default();
    let Some(Value::List(items)) = extra.get("actions").map(|raw| Value::of(raw)).transpose()? else {
        return Ok(Vec::new());
    };
    let mut actions = Vec::new();
    for item in items {
        actions.extend(match Value::of(item)? {
            Value::Text(command) => Some(command),
            Value::Object(fields) => json::text(&fields, "command")?.or(json::text(&fields, "action")?),
            _ => None,
        });
    }
    Ok(actions)
}

/// The first fenced command and the words around it.
fn split_block(text: &str) -> (Option<String>, String) {
    let unified = text.replace("\r\n", "\n");
    let found = FENCES.iter().find_map(|fence| Some((unified.find(fence)?, fence.len())));
    let Some((start, head)) = found else { return (None, text.into()) };
    let body = &unified[start + head..];
    let end = body.find("\n```").unwrap_or(body.len());
    let after = body[end..].strip_prefix("\n```").unwrap_or("");
    (Some(body[..end].to_string()), format!("{}{after}", &unified[..start]))
}

fn observation(text: String) -> Answer {
    let code = text.strip_prefix("<returncode>").and_then(|rest| rest.split_once("</returncode>"));
    let code = code.map(|(code, _)| code.trim().to_string());
    Answer {
        is_error: code.as_ref().map(|code| code != "0"),
        is_truncated: text.contains("<output_head>") || text.contains("<elided_chars>"),
        flags: code.map(|code| format!("exit_code:{code}")).into_iter().collect(),
        text,
        ..Answer::default()
    }
}
