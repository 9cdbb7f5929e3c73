//! Conversations as the text a model sees: `<|im_start|>role`, a line end, the content, `<|im_end|>`.
//!
//! As a field of a row (`text`, `prompt`, `chatml`) or as a file, in which every system message begins a new conversation.
//! The messages are read as those of [`chat`](super::chat): calls are `<tool_call>` or `<function=…>` tags.
//! Task group: see [`assemble`](super::assemble).

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::format::{Drafts, FileFormat, RowFormat, numbered, one};
use super::{Draft, Facts, assemble, messages};
use crate::json::{Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal};

const OPEN: &str = "<|im_start|>";
const CLOSE: &str = "<|im_end|>";
/// Fields that may hold such a text.
const TEXTS: [&str; 3] = ["text", "prompt", "chatml"];

/// A row with such a text.
pub(crate) static ROW: RowFormat = RowFormat {
    name: "chatml",
    description: "Rows whose `text` is a conversation as <|im_start|> text with <tool_call> tags",
    example: r#"{"text": "<|im_start|>user\nList the files.<|im_end|>\n<|im_start|>assistant\n<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nnotes.txt\n</tool_response><|im_end|>\n"}"#,
    detects: |fields| conversation(fields).is_some(),
    read: |fields, _, counts| {
        let text = conversation(fields).unwrap_or_default();
        Ok(one(draft("chatml", fields, &spoken(&text), counts)?))
    },
};

/// A file that is one or more such texts.
pub(crate) static FILE: FileFormat = FileFormat {
    name: "chatml-text",
    description: "A file of conversations as <|im_start|> text; each system message begins one",
    example: "<|im_start|>user\nList the files.<|im_end|>\n<|im_start|>assistant\n<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\nnotes.txt\n</tool_response><|im_end|>\n",
    detects: |file| file.bytes.trim_ascii_start().starts_with(OPEN.as_bytes()),
    read: conversations,
};

fn conversation(fields: &Fields<'_>) -> Option<String> {
    let texts = TEXTS.iter().filter_map(|name| Value::of(fields.get(*name)?).ok());
    let mut texts = texts.filter_map(|value| if let Value::Text(text) = value { Some(text) } else { None });
    texts.find(|text| text.trim_start().starts_with(OPEN))
}

fn conversations(file: &FilePiece<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let text = file.text(counts);
    let all = spoken(&text);
    let starts = all.iter().enumerate().filter(|(at, (role, _))| *at == 0 || *role == "system").map(|(at, _)| at);
    let starts: Vec<usize> = starts.chain([all.len()]).collect();
    let parts = starts.windows(2).map(|ends| draft("chatml-text", &Fields::new(), &all[ends[0]..ends[1]], counts));
    Ok(numbered(parts.collect::<Vec<_>>()))
}

/// The messages of a text, role and content; a message that is not closed ends where the next begins.
fn spoken(text: &str) -> Vec<(&str, &str)> {
    let messages = text.split(OPEN).skip(1).map(|message| {
        let message = message.split_once(CLOSE).map_or(message, |(message, _)| message);
        message.split_once('\n').map_or((message.trim(), ""), |(role, content)| (role.trim(), content))
    });
    messages.collect()
}

fn draft(
    name: &'static str,
    fields: &Fields<'_>,
    spoken: &[(&str, &str)],
    counts: &mut Counts,
) -> Result<Draft, Refusal> {
    let raw = spoken.iter().map(|(role, content)| to_raw_value(&json!({ "role": role, "content": content })));
    let raw = raw.collect::<Result<Vec<_>, _>>().map_err(|error| Refusal::json(&error))?;
    let raw: Vec<&RawValue> = raw.iter().map(AsRef::as_ref).collect();
    let log = messages::read(&raw, "messages", counts)?;
    assemble(fields, Facts::of(name, log.agent_prompt), log.finished)
}
