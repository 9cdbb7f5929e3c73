//! A conversation as data: roles, text, reasoning and tool calls apart from each other.

use serde_json::Value;

use crate::document::Role;
use crate::error::{Error, Result};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// Its arguments: an object; a text where they came as text that is no object.
    pub arguments: Value,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, without reasoning and tool calls.
    pub content: String,
    /// What an assistant thought before.
    pub reasoning: Option<String>,
    /// What an assistant calls.
    pub tool_calls: Vec<ToolCall>,
    /// Whether the text is ours: then tags in it are tags, and a think block at its beginning is its reasoning. Text
    /// from outside never forms a control token.
    pub is_ours: bool,
    /// Whether the model is to learn to say it; assistants only.
    pub is_trained: bool,
}

impl Message {
    /// Text of a role, from outside, not trained.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            is_ours: false,
            is_trained: false,
        }
    }
}

/// Messages, the tools they may call, and how the end is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// The messages in order.
    pub messages: Vec<Message>,
    /// Declared tools, as JSON.
    pub tools: Vec<Value>,
    /// Whether an assistant's turn is opened at the end.
    pub opens_answer: bool,
    /// Whether the answer to come thinks; none: as the format does by itself.
    pub thinking: Option<bool>,
    /// Whether the reasoning of every assistant's turn is written, as training needs it, and not only of the last ones.
    pub keeps_reasoning: bool,
}

impl Conversation {
    /// Reads messages in the form of chat completions: a list, or the JSON text of one.
    ///
    /// # Errors
    /// What is not a list of messages with known roles, by position and field.
    pub fn from_json(messages: &Value) -> Result<Self> {
        let decoded = match messages {
            Value::String(text) => {
                serde_json::from_str(text).map_err(|error| bad(0, "messages", &error.to_string()))?
            }
            other => other.clone(),
        };
        let Value::Array(list) = &decoded else {
            return Err(bad(0, "messages", &format!("{}, expected a list", kind(&decoded))));
        };
        if list.is_empty() {
            return Err(bad(0, "messages", "an empty list"));
        }
        let messages = list.iter().enumerate().map(|(at, message)| read_message(at, message));
        Ok(Self { messages: messages.collect::<Result<_>>()?, ..Self::default() })
    }
}

fn read_message(at: usize, message: &Value) -> Result<Message> {
    let role = match message.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool" | "function") => Role::Tool,
        Some(other) => return Err(bad(at, "role", &format!("`{other}`, expected system, user, assistant or tool"))),
        None => return Err(bad(at, "role", "missing")),
    };
    let content = read_content(at, message.get("content").unwrap_or(&Value::Null))?;
    let reasoning = message.get("reasoning_content").and_then(Value::as_str).map(String::from);
    let calls = match message.get("tool_calls") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(calls)) => calls.iter().map(|call| read_call(at, call)).collect::<Result<_>>()?,
        Some(other) => return Err(bad(at, "tool_calls", &format!("{}, expected a list", kind(other)))),
    };
    Ok(Message { reasoning, tool_calls: calls, ..Message::new(role, content) })
}

/// Nothing, a text, or a list of parts of which the texts are taken.
fn read_content(at: usize, content: &Value) -> Result<String> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let text = |part: &Value| match part {
                Value::String(text) => Ok(text.clone()),
                part => match part.get("text").and_then(Value::as_str) {
                    Some(text) => Ok(text.to_string()),
                    None => Err(bad(at, "content", "a part that is no text")),
                },
            };
            parts.iter().map(text).collect()
        }
        other => Err(bad(at, "content", &format!("{}, expected text", kind(other)))),
    }
}

/// Arguments as an object or as the JSON text of one give the same call.
fn read_call(at: usize, call: &Value) -> Result<ToolCall> {
    let call = call.get("function").filter(|inner| inner.is_object()).unwrap_or(call);
    let name =
        call.get("name").and_then(Value::as_str).ok_or_else(|| bad(at, "tool_calls", "a call without a name"))?;
    let arguments = match call.get("arguments") {
        None | Some(Value::Null) => Value::Object(Default::default()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::String(text.clone()),
        },
        Some(other) => other.clone(),
    };
    Ok(ToolCall { name: name.into(), arguments })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn bad(message: usize, field: &'static str, detail: &str) -> Error {
    Error::Message { message, field, detail: detail.into() }
}
