//! The native formats: conversations as documents, equal to what the published templates write.
//!
//! Departures: text from outside is never split at think tags, and the line break after a stop token is not trained
//! (the published training templates count it, though nothing predicts anything from it).

use super::{ChatForm, Conversation, Message, ToolCall};
use crate::document::{ContextReason, Control, Document, Reason, Role, TrainReason};
use crate::values::{python_json, python_str};

const GREETING: &str = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
const JSON_TOOLS: [&str; 2] = [
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>",
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>",
];
const XML_TOOLS: [&str; 2] = [
    "# Tools\n\nYou have access to the following functions:\n\n<tools>",
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n- Required parameters MUST be specified\n- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after\n- If there is no function call available, answer the question like normal with your current knowledge and do not tell the user about function calls\n</IMPORTANT>",
];
const PROMPT: Reason = Reason::Context(ContextReason::Prompt);
const ACTION: Reason = Reason::Context(ContextReason::Action);
const OPENING: Reason = Reason::Context(ContextReason::Opening);

impl Document {
    /// A conversation in a native format; none where the format is the model's own.
    pub fn conversation(form: ChatForm, conversation: &Conversation) -> Option<Document> {
        let mut writer = Writer { form, conversation, document: Document::default() };
        match form {
            ChatForm::Own => None,
            _ => {
                writer.write();
                Some(writer.document)
            }
        }
    }
}

struct Writer<'a> {
    form: ChatForm,
    conversation: &'a Conversation,
    document: Document,
}

impl Writer<'_> {
    fn write(&mut self) {
        let messages = &self.conversation.messages;
        let first = messages.first().filter(|message| message.role == Role::System);
        self.system(first);
        for (at, message) in messages.iter().enumerate().skip(usize::from(first.is_some())) {
            match message.role {
                Role::System | Role::User => self.said(message),
                Role::Assistant => self.assistant(at, message),
                Role::Tool => self.tool(at, message),
            }
        }
        if self.conversation.opens_answer {
            self.document.open_answer();
            self.document.opening_of(self.form, self.conversation.thinking);
        }
    }

    /// What is said, as the format writes it.
    fn text<'m>(&self, message: &'m Message) -> &'m str {
        if self.form.trims() { message.content.trim() } else { &message.content }
    }

    fn add(&mut self, text: &str, is_ours: bool, reason: Reason) {
        match is_ours {
            true => self.document.words(text, reason),
            false => self.document.continue_text(text, reason),
        }
    }

    fn system(&mut self, message: Option<&Message>) {
        let said = message.map(|message| self.text(message)).unwrap_or_default();
        let is_ours = message.is_some_and(|message| message.is_ours);
        let tools = &self.conversation.tools;
        let greets = message.is_none() && self.form == ChatForm::Qwen2_5;
        if message.is_none() && tools.is_empty() && !greets {
            return;
        }
        self.document.control(Control::TurnStart, PROMPT);
        self.document.text("system\n", PROMPT);
        let said = if greets { GREETING } else { said };
        if tools.is_empty() {
            self.add(said, is_ours, PROMPT);
        } else if self.form.trims() {
            self.tools(XML_TOOLS);
            if !said.is_empty() {
                self.document.words("\n\n", PROMPT);
                self.add(said, is_ours, PROMPT);
            }
        } else {
            if message.is_some() || greets {
                self.add(said, is_ours, PROMPT);
                self.document.words("\n\n", PROMPT);
            }
            self.tools(JSON_TOOLS);
        }
        self.document.close(PROMPT);
    }

    fn tools(&mut self, [before, after]: [&str; 2]) {
        self.document.words(before, PROMPT);
        for tool in &self.conversation.tools {
            self.document.continue_text(&format!("\n{}", python_json(tool)), PROMPT);
        }
        self.document.words(after, PROMPT);
    }

    fn said(&mut self, message: &Message) {
        let text = self.text(message);
        self.document.control(Control::TurnStart, ACTION);
        self.document.text(format!("{}\n", message.role.as_str()), ACTION);
        self.add(text, message.is_ours, ACTION);
        self.document.close(ACTION);
    }

    /// Consecutive results share one user turn.
    fn tool(&mut self, at: usize, message: &Message) {
        let messages = &self.conversation.messages;
        let is_tool = |at: usize| messages.get(at).is_some_and(|message| message.role == Role::Tool);
        if at == 0 || !is_tool(at - 1) {
            self.document.control(Control::TurnStart, ACTION);
            self.document.text("user", ACTION);
        }
        self.document.continue_text("\n", ACTION);
        self.document.control(Control::ToolResponseOpen, ACTION);
        self.document.text("\n", ACTION);
        let text = self.text(message);
        self.add(text, message.is_ours, ACTION);
        self.document.continue_text("\n", ACTION);
        self.document.control(Control::ToolResponseClose, ACTION);
        if !is_tool(at + 1) {
            self.document.close(ACTION);
        }
    }

    fn assistant(&mut self, at: usize, message: &Message) {
        let (reasoning, content) = self.split(message);
        let reason = |trained| match message.is_trained {
            true => Reason::Trained(trained),
            false => Reason::Context(ContextReason::History),
        };
        self.document.control(Control::TurnStart, OPENING);
        // Qwen2.5 breaks the line only where something follows on it.
        let is_bare = self.form == ChatForm::Qwen2_5 && content.is_empty() && !message.tool_calls.is_empty();
        self.document.text(if is_bare { "assistant" } else { "assistant\n" }, OPENING);
        // A published template asks this before it takes off the line breaks.
        let says_something = !content.is_empty();
        let content = match self.writes_thinking(at, reasoning) {
            true => {
                let strip: fn(&str) -> &str =
                    if self.form.trims() { str::trim } else { |text| text.trim_matches('\n') };
                self.document.control(Control::ThinkOpen, reason(TrainReason::Format));
                let thought = format!("\n{}\n", strip(reasoning.unwrap_or_default()));
                self.document.text(thought, reason(TrainReason::Thinking));
                self.document.control(Control::ThinkClose, reason(TrainReason::Format));
                self.document.text(self.form.after_thinking(), reason(TrainReason::Format));
                content.trim_start_matches('\n')
            }
            false => content,
        };
        match message.is_ours {
            true => self.document.words_apart(content, reason(TrainReason::Observation)),
            false => self.document.text(content, reason(TrainReason::Observation)),
        }
        for (number, call) in message.tool_calls.iter().enumerate() {
            let gap = match (number, self.form) {
                (0, ChatForm::Qwen2_5) => "\n",
                (0, _) if !says_something => "",
                (0, form) if form.trims() => "\n\n",
                _ => "\n",
            };
            self.document.continue_text(gap, reason(TrainReason::Observation));
            self.call(call, reason(TrainReason::Observation));
        }
        self.document.close(reason(TrainReason::Stop));
    }

    fn call(&mut self, call: &ToolCall, reason: Reason) {
        self.document.control(Control::ToolCallOpen, reason);
        if self.form.trims() {
            let mut text = format!("\n<function={}>\n", call.name);
            for (name, value) in call.arguments.as_object().into_iter().flatten() {
                let value = match self.form {
                    ChatForm::Qwen3_6 if !value.is_string() => python_json(value),
                    _ => python_str(value),
                };
                text += &format!("<parameter={name}>\n{value}\n</parameter>\n");
            }
            self.document.text(text + "</function>\n", reason);
        } else {
            let arguments = match &call.arguments {
                serde_json::Value::String(text) if self.form != ChatForm::Qwen2_5 => text.clone(),
                other => python_json(other),
            };
            let text = format!("\n{{\"name\": \"{}\", \"arguments\": {arguments}}}\n", call.name);
            self.document.text(text, reason);
        }
        self.document.control(Control::ToolCallClose, reason);
    }

    /// Reasoning and content; a think block in a text of ours is its reasoning.
    fn split<'m>(&self, message: &'m Message) -> (Option<&'m str>, &'m str) {
        let content = self.text(message);
        if message.reasoning.is_some() || !message.is_ours || !self.form.thinks() {
            return (message.reasoning.as_deref(), content);
        }
        let (Some(first), Some(last)) = (content.find("</think>"), content.rfind("</think>")) else {
            return (None, content);
        };
        let before = content[..first].trim_end_matches('\n');
        let before = before.rsplit("<think>").next().unwrap_or_default().trim_start_matches('\n');
        (Some(before), content[last + "</think>".len()..].trim_start_matches('\n'))
    }

    /// Whether the answer at this place is written with its thinking, be it empty.
    fn writes_thinking(&self, at: usize, reasoning: Option<&str>) -> bool {
        if !self.form.thinks() {
            return self.form == ChatForm::Chatml && reasoning.is_some();
        }
        let messages = &self.conversation.messages;
        let is_question = |message: &Message| message.role == Role::User && !is_tool_result(message);
        let last_question = messages.iter().rposition(is_question).unwrap_or(messages.len());
        let is_after = at > last_question;
        let counts = self.form.trims() || at + 1 == messages.len() || reasoning.is_some_and(|text| !text.is_empty());
        self.conversation.keeps_reasoning || (is_after && counts)
    }
}

/// A user's message of ours that is a tool's answer.
fn is_tool_result(message: &Message) -> bool {
    let text = message.content.trim();
    message.is_ours && text.starts_with("<tool_response>") && text.ends_with("</tool_response>")
}

impl Document {
    /// What the caller writes after `assistant` for an answer that thinks, does not, or does as the format by itself.
    pub(crate) fn opening_of(&mut self, form: ChatForm, thinking: Option<bool>) {
        let closes = match (form, thinking) {
            (form, _) if !form.thinks() => return,
            (ChatForm::Qwen3, None | Some(true)) => return,
            (ChatForm::Qwen3_5NoThink, None) | (_, Some(false)) => true,
            _ => false,
        };
        self.control(Control::ThinkOpen, OPENING);
        match closes {
            false => self.text("\n", OPENING),
            true => {
                self.text("\n\n", OPENING);
                self.control(Control::ThinkClose, OPENING);
                self.text("\n\n", OPENING);
            }
        }
    }
}
