//! Calls and results to turns: pairing by id, else by order. Every source of chat-like rows feeds the same builder.
//!
//! Words: a *batch* is the calls of one assistant message. A call waits until a result answers it; a call that none
//! answers makes no turn, since nobody knows what the environment said, and is counted.

use worldloom_schema::{ActionKind, ObservationKind, Turn};

use crate::json::{Value, quote, respace};
use crate::refusal::{Counts, count};

/// Tools whose only argument is a command line.
const SHELLS: [&str; 19] = [
    "bash",
    "sh",
    "zsh",
    "shell",
    "terminal",
    "cmd",
    "powershell",
    "execute_bash",
    "bash_command",
    "run_bash",
    "run_command",
    "run_shell_command",
    "run_terminal_cmd",
    "run_in_terminal",
    "execute_command",
    "execute_shell",
    "sandbox_run",
    "exec_command",
    "local_shell",
];
/// What that argument is called.
const COMMAND_ARGUMENTS: [&str; 5] = ["command", "cmd", "input", "code", "script"];

/// An action as the agent sent it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Call {
    pub(crate) id: Option<String>,
    pub(crate) name: String,
    /// JSON text, as an object or as a string that holds one.
    pub(crate) arguments: Option<String>,
}

/// What the environment answered.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) id: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) text: String,
    pub(crate) is_image_only: bool,
    pub(crate) is_error: Option<bool>,
    pub(crate) is_truncated: bool,
    pub(crate) trace: Option<String>,
    pub(crate) flags: Vec<String>,
}

struct Waiting {
    id: Option<String>,
    name: String,
    batch: u64,
    is_answered: bool,
    turn: Turn,
}

/// Builds the turns of one trajectory from its messages in order.
#[derive(Default)]
pub(crate) struct Episode {
    calls: Vec<Waiting>,
    batch: u64,
    reasoning: Vec<String>,
    after_user: bool,
    task: Vec<String>,
    counts: Counts,
}

/// What came out of an episode.
pub(crate) struct Finished {
    /// The user's words before the first action.
    pub(crate) task: String,
    pub(crate) turns: Vec<Turn>,
    pub(crate) counts: Counts,
}

impl Episode {
    /// Words of the user: the task before the first action, else a remark on the next turn.
    pub(crate) fn user(&mut self, text: String) {
        if self.calls.is_empty() {
            self.task.extend(Some(text).filter(|text| !text.trim().is_empty()));
        } else {
            count(&mut self.counts, "user_messages_in_the_middle", 1);
            self.after_user = true;
        }
    }

    /// Thoughts or words of the agent: the reasoning of its next action.
    pub(crate) fn thoughts(&mut self, text: &str) {
        self.reasoning.extend(Some(text.trim().to_string()).filter(|text| !text.is_empty()));
    }

    /// Whether there was an action.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Starts the calls of one message.
    pub(crate) fn start_batch(&mut self) {
        self.batch += 1;
    }

    /// A call of a tool.
    pub(crate) fn call(&mut self, call: Call) {
        let (action, kind, flags) = action(&call, &mut self.counts);
        self.act(call.id, call.name, action, kind, flags);
    }

    /// An action as text of any kind; `name` pairs it with results that say the name only.
    pub(crate) fn act(
        &mut self,
        id: Option<String>,
        name: String,
        action: String,
        action_kind: ActionKind,
        mut flags: Vec<String>,
    ) {
        if std::mem::take(&mut self.after_user) {
            flags.push("after:user".into());
        }
        let reasoning = Some(std::mem::take(&mut self.reasoning).join("\n\n")).filter(|text| !text.is_empty());
        let turn = Turn { reasoning, flags, ..turn(action, action_kind, String::new()) };
        self.calls.push(Waiting { id, name, batch: self.batch, is_answered: false, turn });
    }

    /// A result; one that answers no call is counted and left out.
    pub(crate) fn answer(&mut self, answer: Answer) {
        let Some(at) = self.find(&answer) else {
            count(&mut self.counts, "results_without_a_call", 1);
            return;
        };
        if self.calls[at].is_answered {
            count(&mut self.counts, "further_results_of_a_call", 1);
        }
        let waiting = &mut self.calls[at];
        add_answer(&mut waiting.turn, answer, waiting.is_answered);
        waiting.is_answered = true;
    }

    /// The call a result belongs to. An id may be used again: the first call of the batch that waits for it is meant,
    /// else the latest that waits, else the latest.
    fn find(&self, answer: &Answer) -> Option<usize> {
        let indices = || 0..self.calls.len();
        if let Some(id) = &answer.id {
            let has_id = |at: &usize| self.calls[*at].id.as_ref() == Some(id);
            let waits = |at: &usize| has_id(at) && !self.calls[*at].is_answered;
            let in_batch = indices().find(|at| waits(at) && self.calls[*at].batch == self.batch);
            let latest = || indices().rev().find(waits).or_else(|| indices().rev().find(has_id));
            if let Some(at) = in_batch.or_else(latest) {
                return Some(at);
            }
        }
        let is_free = |at: &usize| {
            let call = &self.calls[*at];
            call.batch == self.batch && !call.is_answered && (answer.id.is_none() || call.id.is_none())
        };
        let has_name = |at: &usize| answer.name.as_ref() == Some(&self.calls[*at].name);
        let free = indices().filter(is_free).find(has_name).or_else(|| indices().find(is_free));
        let last = self.calls.len().checked_sub(1).filter(|_| answer.id.is_none());
        free.or(last.filter(|at| self.calls[*at].batch == self.batch))
    }

    /// The turns in the order of their calls.
    pub(crate) fn finish(mut self) -> Finished {
        count(&mut self.counts, "words_after_the_last_action", self.reasoning.len() as u64);
        let unanswered = self.calls.iter().filter(|call| !call.is_answered).count();
        count(&mut self.counts, "calls_without_a_result", unanswered as u64);
        let mut turns: Vec<Turn> =
            self.calls.into_iter().filter(|call| call.is_answered).map(|call| call.turn).collect();
        for (index, turn) in turns.iter_mut().enumerate() {
            turn.index = index as u32;
            turn.observation_kind = observation_kind(turn);
        }
        Finished { task: self.task.join("\n\n"), turns, counts: self.counts }
    }
}

/// A turn that says nothing but its action and observation; its index is set when the trajectory is finished.
pub(crate) fn turn(action: String, action_kind: ActionKind, observation: String) -> Turn {
    let mut turn = Turn {
        index: 0,
        action,
        action_kind,
        observation,
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: None,
        trace: None,
        is_error: None,
        truncated: false,
        flags: Vec::new(),
        keep_class: None,
        keep: None,
    };
    turn.observation_kind = observation_kind(&turn);
    turn
}

fn add_answer(turn: &mut Turn, answer: Answer, is_further: bool) {
    if is_further && !answer.text.is_empty() && !turn.observation.is_empty() {
        turn.observation.push('\n');
    }
    if turn.observation.is_empty() {
        turn.observation = answer.text
    } else {
        turn.observation += &answer.text
    }
    if answer.is_image_only && turn.observation.is_empty() {
        turn.observation_kind = ObservationKind::Image;
    }
    turn.is_error = match (turn.is_error, answer.is_error) {
        (Some(before), Some(now)) => Some(before || now),
        (before, now) => before.or(now),
    };
    turn.truncated |= answer.is_truncated;
    turn.trace = turn.trace.take().or(answer.trace);
    for flag in answer.flags {
        if !turn.flags.contains(&flag) {
            turn.flags.push(flag);
        }
    }
}

/// What the text of a turn's observation is; an image stays one.
pub(crate) fn observation_kind(turn: &Turn) -> ObservationKind {
    let text = turn.observation.trim();
    if text.is_empty() {
        return turn.observation_kind;
    }
    if text.starts_with(['{', '[']) && serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() {
        return ObservationKind::Json;
    }
    let is_diff = text.starts_with("diff --git ") || (text.starts_with("--- ") && text.contains("\n+++ "));
    if is_diff { ObservationKind::Diff } else { ObservationKind::Text }
}

/// The action as text. `arguments` as object, as string and as string of a string give the same text.
pub(crate) fn action(call: &Call, counts: &mut Counts) -> (String, ActionKind, Vec<String>) {
    let (arguments, shape) = arguments(call.arguments.as_deref());
    if let Some((command, kind)) = command(&call.name, &arguments) {
        return (command, kind, Vec::new());
    }
    let mut flags = Vec::new();
    if let Some(shape) = shape {
        count(counts, "arguments_that_are_no_object", 1);
        flags.push(format!("arguments:{shape}"));
    }
    let text = format!("{{\"name\": {}, \"arguments\": {arguments}}}", quote(&call.name));
    (text, ActionKind::ToolCall, flags)
}

/// The arguments as JSON text, and what they are if they are no object.
fn arguments(raw: Option<&str>) -> (String, Option<&'static str>) {
    let mut text = raw.unwrap_or("null").trim().to_string();
    loop {
        match Value::parse(&text) {
            Ok(Value::Text(inner)) => match Value::parse(&inner) {
                Ok(Value::Null) | Err(_) if inner.trim().is_empty() => return ("{}".into(), None),
                Ok(Value::Object(_) | Value::List(_) | Value::Text(_) | Value::Null) => text = inner,
                _ => return (respace(&text), Some("text")),
            },
            Ok(Value::Object(_)) => return (respace(&text), None),
            Ok(Value::Null) => return ("{}".into(), None),
            Ok(Value::List(_)) => return (respace(&text), Some("list")),
            Ok(Value::Bool(_) | Value::Number(_)) => return (text, Some("scalar")),
            Err(_) => return (quote(&text), Some("invalid")),
        }
    }
}

/// Whether a tool runs command lines, by its name without that of its server.
pub(crate) fn is_shell(name: &str) -> bool {
    let bare = name.rsplit(['.', '/', ':']).next().unwrap_or(name);
    let bare = bare.rsplit("__").next().unwrap_or(bare).to_lowercase();
    SHELLS.contains(&bare.as_str())
}

/// The command line, if the tool is a shell and that is all it was given; or the keystrokes it sends to a terminal.
fn command(name: &str, arguments: &str) -> Option<(String, ActionKind)> {
    if !is_shell(name) {
        return None;
    }
    let text = |raw: &&serde_json::value::RawValue| match Value::of(raw) {
        Ok(Value::Text(text)) => Some(text),
        _ => None,
    };
    match Value::parse(arguments).ok()? {
        Value::Object(fields) if fields.contains_key("keystrokes") => {
            Some((fields.get("keystrokes").and_then(text)?, ActionKind::Keystrokes))
        }
        Value::Object(fields) if fields.len() == 1 => {
            let (key, raw) = fields.first_key_value()?;
            let command = text(raw)?;
            COMMAND_ARGUMENTS.contains(&key.as_str()).then_some((command, ActionKind::Command))
        }
        Value::Text(command) => Some((command, ActionKind::Command)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(name: &str, arguments: &str) -> (String, ActionKind, Vec<String>) {
        let call = Call { id: None, name: name.into(), arguments: Some(arguments.into()) };
        action(&call, &mut Counts::new())
    }

    #[test]
    fn arguments_as_object_string_and_double_encoded_give_the_same_action() {
        let object = "{\n \"path\":\"a\\\"b\",\"id\": 18446744073709551615}";
        let once = quote(object);
        let twice = quote(&once);
        let expected = "{\"name\": \"read\", \"arguments\": {\"path\": \"a\\\"b\", \"id\": 18446744073709551615}}";
        for arguments in [object, &once, &twice] {
            assert_eq!(act("read", arguments), (expected.into(), ActionKind::ToolCall, Vec::new()));
        }
    }

    #[test]
    fn arguments_that_are_no_object_keep_their_text_and_say_so() {
        for (arguments, expected, flag) in [
            ("[1, 2]", "[1, 2]", Some("arguments:list")),
            ("\"[1,2]\"", "[1, 2]", Some("arguments:list")),
            ("7", "7", Some("arguments:scalar")),
            ("null", "{}", None),
            ("\"\"", "{}", None),
            ("\"null\"", "{}", None),
            ("\"{\\\"a\\\": \"", "\"{\\\"a\\\": \"", Some("arguments:text")),
            ("\"5\"", "\"5\"", Some("arguments:text")),
        ] {
            let (action, _, flags) = act("tool", arguments);
            assert_eq!(action, format!("{{\"name\": \"tool\", \"arguments\": {expected}}}"), "{arguments}");
            assert_eq!(flags.first().map(String::as_str), flag, "{arguments}");
        }
    }

    #[test]
    fn a_shell_with_only_a_command_line_is_a_command() {
        assert_eq!(act("bash", "{\"command\": \"ls -l\"}"), ("ls -l".into(), ActionKind::Command, Vec::new()));
        assert_eq!(act("functions.shell", "\"{\\\"cmd\\\": \\\"ls\\\"}\"").1, ActionKind::Command);
        assert_eq!(act("bash", "{\"command\": \"ls\", \"timeout\": 3}").1, ActionKind::ToolCall);
        assert_eq!(act("bash", "{\"command\": [\"ls\"]}").1, ActionKind::ToolCall);
        assert_eq!(act("read", "{\"command\": \"ls\"}").1, ActionKind::ToolCall);
    }
}
