//! The raw log's line: one episode as a chat with tool calls.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::axis::Axis;
use crate::Error;

/// One line of the raw log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// `terminal-<seed>-<number>`.
    pub id: String,
    /// What recorded it.
    pub source: String,
    /// The licence of the recording.
    pub license: String,
    /// The kind of environment: `terminal`.
    pub domain: String,
    /// The composition of command families, as in `copy+glob`.
    pub task_group: String,
    /// What the user asked for.
    pub task: String,
    /// What holds before the first command; names the home directory.
    pub initial_state: String,
    /// What holds in the environment beyond what is usual, for the world model that will simulate it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation_instruction: Option<String>,
    /// Commands that ran before the first turn and are no part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preparation: Option<String>,
    /// The tools the assistant may call: `bash` alone.
    pub tools: Value,
    /// System, user, then an assistant's call and the tool's answer in turn.
    pub messages: Vec<Message>,
}

/// One message of the chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text; null for an assistant's call.
    pub content: Option<String>,
    /// The assistant's calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// The tool that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What the recorder knows of a tool's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TurnMetadata>,
}

/// A call of the tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// `call_<turn>`.
    pub id: String,
    /// Always `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function and its arguments.
    pub function: FunctionCall,
}

/// Name and arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Always `bash`.
    pub name: String,
    /// A JSON object as text, with the key `command`.
    pub arguments: String,
}

/// What the recorder adds to a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TurnMetadata {
    /// The state before the command, as far as the command depends on it.
    pub note: String,
    /// Which kind of turn it is.
    pub class: TurnClass,
    /// The command family, or `setup`.
    pub family: String,
    /// The exit status; null where the command was killed.
    pub exit_code: Option<i32>,
    /// The rule axis that the turn shows, in a recording for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis: Option<Axis>,
    /// Turns between the setting of what it reads and itself, on the axis `long`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub axis_distance: Option<u64>,
}

/// The kinds of turn, tested in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TurnClass {
    /// The exit status was not 0, something went to stderr, or the command was killed.
    Error,
    /// Nothing but blanks was printed.
    Empty,
    /// A bash that has done nothing, in an empty directory, prints the same.
    Echo,
    /// The output needs earlier turns.
    State,
}

impl TurnClass {
    /// The name in the raw log.
    pub fn name(self) -> &'static str {
        match self {
            TurnClass::Error => "error",
            TurnClass::Empty => "empty",
            TurnClass::Echo => "echo",
            TurnClass::State => "state",
        }
    }
}

/// A command and the answer to it, as an episode holds them.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    /// The assistant's message.
    pub call: &'a ToolCall,
    /// What the tool printed.
    pub observation: &'a str,
    /// What the recorder added.
    pub metadata: &'a TurnMetadata,
}

impl Turn<'_> {
    /// The command line.
    pub fn command(&self) -> Option<String> {
        let arguments: Value = serde_json::from_str(&self.call.function.arguments).ok()?;
        Some(arguments.get("command")?.as_str()?.to_owned())
    }
}

impl Episode {
    /// The turns in order; an error where the messages after the first two are not call and answer in turn.
    pub fn turns(&self) -> Result<Vec<Turn<'_>>, Error> {
        let malformed = |message, problem: &str| {
            let (id, problem) = (self.id.clone(), problem.to_owned());
            Error::Malformed { id, message, problem }
        };
        let mut turns = Vec::new();
        for (index, pair) in self.messages.get(2..).unwrap_or_default().chunks(2).enumerate() {
            let at = 2 + 2 * index;
            let [call, answer] = pair else { return Err(malformed(at, "a call without an answer")) };
            let [call] = call.tool_calls.as_slice() else { return Err(malformed(at, "expected one tool call")) };
            let (Some(observation), Some(metadata)) = (&answer.content, &answer.metadata) else {
                return Err(malformed(at + 1, "expected `content` and `metadata`"));
            };
            if answer.tool_call_id.as_ref() != Some(&call.id) {
                return Err(malformed(at + 1, "it answers another call"));
            }
            turns.push(Turn { call, observation, metadata });
        }
        Ok(turns)
    }
}

/// The messages before the first turn.
pub(crate) fn opening(system: String, task: &str) -> Vec<Message> {
    vec![message("system", Some(system)), message("user", Some(task.to_owned()))]
}

/// The two messages of turn `index`.
pub(crate) fn turn(index: usize, command: &str, observation: String, metadata: TurnMetadata) -> [Message; 2] {
    let id = format!("call_{index}");
    let function = FunctionCall { name: "bash".to_owned(), arguments: json!({ "command": command }).to_string() };
    let mut call = message("assistant", None);
    call.tool_calls.push(ToolCall { id: id.clone(), kind: "function".to_owned(), function });
    let mut answer = message("tool", Some(observation));
    answer.tool_call_id = Some(id);
    answer.name = Some("bash".to_owned());
    answer.metadata = Some(metadata);
    [call, answer]
}

/// The declaration of the one tool.
pub(crate) fn tools() -> Value {
    let command = json!({ "type": "string", "description": "The command line" });
    let parameters = json!({ "type": "object", "properties": { "command": command }, "required": ["command"] });
    let description = "Runs one command line in a bash that keeps its state, and answers what it prints.";
    json!([{ "type": "function", "function": { "name": "bash", "description": description, "parameters": parameters } }])
}

fn message(role: &str, content: Option<String>) -> Message {
    let role = role.to_owned();
    Message { role, content, tool_calls: Vec::new(), tool_call_id: None, name: None, metadata: None }
}
