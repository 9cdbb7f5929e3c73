//! A list of chat messages to an episode, whatever convention its calls and results are written in: OpenAI
//! `tool_calls` and `role: tool`, the older `function_call`, Anthropic `tool_use` and `tool_result` blocks, tags in the
//! text. Every chat-like source reads its messages here.

use serde_json::value::RawValue;

use super::content::{self, Content, split_thoughts};
use super::tags;
use crate::episode::{Answer, Call, Episode, Finished};
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal};

/// What a list of messages gave.
pub(crate) struct Log {
    pub(crate) finished: Finished,
    /// The agent's system prompts.
    pub(crate) agent_prompt: String,
}

/// Reads the messages; `name` is their field, for errors.
pub(crate) fn read(messages: &[&RawValue], name: &str, counts: &mut Counts) -> Result<Log, Refusal> {
    let mut reader = Reader { counts, episode: Episode::default(), agent_prompt: Vec::new() };
    for (at, raw) in messages.iter().enumerate() {
        let Value::Object(message) = Value::of(raw)? else {
            return Err(Refusal::new("message_type", format!("{name}[{at}]: expected an object")));
        };
        reader
            .add(&message)
            .map_err(|refusal| Refusal { detail: format!("{name}[{at}]: {}", refusal.detail), ..refusal })?;
    }
    Ok(reader.finish())
}

/// Reads messages one by one.
pub(crate) struct Reader<'c> {
    pub(crate) counts: &'c mut Counts,
    pub(crate) episode: Episode,
    pub(crate) agent_prompt: Vec<String>,
}

impl Reader<'_> {
    pub(crate) fn finish(self) -> Log {
        let finished = self.episode.finish();
        finished.counts.iter().for_each(|(name, number)| crate::refusal::count(self.counts, name, *number));
        Log { finished, agent_prompt: self.agent_prompt.join("\n\n") }
    }

    pub(crate) fn add(&mut self, message: &Fields<'_>) -> Result<(), Refusal> {
        let role = json::text(message, "role")?.unwrap_or_default();
        let content = message.get("content").copied();
        match role.as_str() {
            "system" | "developer" => {
                let content = content::read(content, self.counts)?;
                self.agent_prompt.push(content.text);
            }
            "user" | "human" => self.add_user(content)?,
            "assistant" | "model" => self.add_assistant(message, content)?,
            "tool" | "function" => {
                let content = content::read(content, self.counts)?;
                self.episode.answer(answer(message, content)?);
            }
            _ => return Err(Refusal::new("role", format!("unknown role `{role}`"))),
        }
        Ok(())
    }

    /// Words of the user, and the results that come as blocks or as text among them.
    fn add_user(&mut self, content: Option<&RawValue>) -> Result<(), Refusal> {
        let blocks = blocks(content)?;
        for block in blocks.iter().filter(|block| is_result(block)) {
            self.add_result(block)?;
        }
        let rest: Vec<&RawValue> = blocks.iter().filter(|block| !is_result(block)).map(|block| block.raw).collect();
        let content = match blocks.iter().any(is_result) {
            false => content::read(content, self.counts)?,
            true => content::read_list(&rest, self.counts)?,
        };
        let answers = if self.episode.has_calls() { tags::answers(&content.text) } else { Vec::new() };
        if !answers.is_empty() {
            answers.into_iter().for_each(|answer| self.episode.answer(answer));
        } else if !content.text.is_empty() {
            self.episode.user(content.text);
        }
        Ok(())
    }

    fn add_result(&mut self, block: &Block<'_>) -> Result<(), Refusal> {
        let content = content::read(block.fields.get("content").copied(), self.counts)?;
        self.episode.answer(Answer {
            id: json::text(&block.fields, "tool_use_id")?,
            name: json::text(&block.fields, "name")?,
            is_image_only: content.images > 0 && content.text.is_empty(),
            text: content.text,
            is_error: json::boolean(&block.fields, "is_error")?,
            ..Answer::default()
        });
        Ok(())
    }

    fn add_assistant(&mut self, message: &Fields<'_>, content: Option<&RawValue>) -> Result<(), Refusal> {
        for name in ["reasoning_content", "reasoning", "thinking"] {
            if let Some(Value::Text(text)) = message.get(name).map(|raw| Value::of(raw)).transpose()? {
                self.episode.thoughts(&text);
            }
        }
        let blocks = blocks(content)?;
        if blocks.iter().any(|block| is_call(block) || is_result(block)) {
            return self.add_blocks(&blocks);
        }
        let content = content::read(content, self.counts)?;
        content.thoughts.iter().for_each(|text| self.episode.thoughts(text));
        let (thoughts, words) = split_thoughts(&content.text);
        thoughts.iter().for_each(|text| self.episode.thoughts(text));
        let mut calls = calls(message)?;
        let words = match calls.is_empty() {
            true => {
                let (tagged, words) = tags::calls(&words)?;
                calls = tagged;
                words
            }
            false => words,
        };
        self.episode.thoughts(&words);
        if !calls.is_empty() {
            self.episode.start_batch();
        }
        calls.into_iter().for_each(|call| self.episode.call(call));
        Ok(())
    }

    /// Thoughts, words, calls and results of server-side tools as they stand in the message.
    fn add_blocks(&mut self, blocks: &[Block<'_>]) -> Result<(), Refusal> {
        self.episode.start_batch();
        for block in blocks {
            if is_result(block) {
                self.add_result(block)?;
            } else if is_call(block) {
                let id = json::text(&block.fields, "id")?.filter(|id| !id.is_empty());
                let input = block.fields.get("input").or_else(|| block.fields.get("arguments"));
                self.episode.call(named_call(id, &block.fields, input.copied())?);
            } else {
                let content = content::read_list(&[block.raw], self.counts)?;
                content.thoughts.iter().chain([&content.text]).for_each(|text| self.episode.thoughts(text));
            }
        }
        Ok(())
    }
}

/// A typed part of a message.
struct Block<'a> {
    kind: String,
    fields: Fields<'a>,
    raw: &'a RawValue,
}

fn is_call(block: &Block<'_>) -> bool {
    matches!(block.kind.as_str(), "tool_use" | "server_tool_use" | "mcp_tool_use" | "toolCall")
}

fn is_result(block: &Block<'_>) -> bool {
    block.kind.ends_with("tool_result")
}

/// The parts that say their type; none where the content is a string or data.
fn blocks(content: Option<&RawValue>) -> Result<Vec<Block<'_>>, Refusal> {
    let Some(Value::List(items)) = content.map(Value::of).transpose()? else { return Ok(Vec::new()) };
    let mut blocks = Vec::new();
    for raw in items {
        if let Value::Object(fields) = Value::of(raw)?
            && let Some(kind) = json::text(&fields, "type").ok().flatten()
        {
            blocks.push(Block { kind, fields, raw });
        }
    }
    Ok(blocks)
}

/// The calls of a message: `tool_calls`, or the older `function_call`.
fn calls(message: &Fields<'_>) -> Result<Vec<Call>, Refusal> {
    let mut calls = Vec::new();
    match message.get("tool_calls").map(|raw| Value::of(raw)).transpose()? {
        None | Some(Value::Null) => {}
        Some(Value::List(items)) => {
            for item in items {
                calls.push(call(item)?);
            }
        }
        Some(other) => return Err(Refusal::field_type("tool_calls", "a list", other.kind())),
    }
    if calls.is_empty()
        && let Some(function) = json::object(message, "function_call")?
    {
        calls.push(named_call(None, &function, None)?);
    }
    Ok(calls)
}

fn call(raw: &RawValue) -> Result<Call, Refusal> {
    let Value::Object(fields) = Value::of(raw)? else {
        return Err(Refusal::new("field_type", "`tool_calls`: expected a list of objects"));
    };
    let id = json::text(&fields, "id")?.filter(|id| !id.is_empty());
    match json::object(&fields, "function")? {
        Some(function) => named_call(id, &function, None),
        None => named_call(id, &fields, None),
    }
}

fn named_call(id: Option<String>, function: &Fields<'_>, input: Option<&RawValue>) -> Result<Call, Refusal> {
    let name = json::text(function, "name")?.unwrap_or_default();
    if name.is_empty() {
        return Err(Refusal::new("call_name", "a call without the name of its tool"));
    }
    let arguments = input.or(function.get("arguments").copied()).or(function.get("parameters").copied());
    Ok(Call { id, name, arguments: arguments.map(|raw| raw.get().to_string()) })
}

fn answer(message: &Fields<'_>, content: Content) -> Result<Answer, Refusal> {
    let metadata = json::object(message, "metadata")?.unwrap_or_default();
    let mut flags = Vec::new();
    for name in ["class", "family", "exit_code", "axis", "axis_distance"] {
        flags.extend(json::text(&metadata, name)?.map(|value| format!("{name}:{value}")));
    }
    let exit_code = json::text(&metadata, "exit_code")?;
    let is_error = match exit_code {
        Some(code) => Some(code != "0"),
        None => json::boolean(&metadata, "is_error")?.or(json::boolean(message, "is_error")?),
    };
    Ok(Answer {
        id: result_id(message)?,
        name: json::text(message, "name")?,
        is_image_only: content.images > 0 && content.text.is_empty(),
        text: content.text,
        is_error,
        is_truncated: json::boolean(&metadata, "truncated")?.unwrap_or(false),
        trace: json::text(&metadata, "note")?,
        flags,
    })
}

/// `tool_call_id`, or the first of `tool_call_ids`.
fn result_id(message: &Fields<'_>) -> Result<Option<String>, Refusal> {
    let id = match message.get("tool_call_ids").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::List(ids)) => match ids.first().map(|raw| Value::of(raw)).transpose()? {
            Some(Value::Text(id)) => Some(id),
            _ => None,
        },
        _ => json::text(message, "tool_call_id")?,
    };
    Ok(id.filter(|id| !id.is_empty()))
}
