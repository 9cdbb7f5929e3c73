//! What is asked.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Who speaks in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The instructions.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: String,
}

impl Message {
    /// Instructions.
    pub fn system(content: impl Into<String>) -> Self {
        Self { role: Role::System, content: content.into() }
    }

    /// A question.
    pub fn user(content: impl Into<String>) -> Self {
        Self { role: Role::User, content: content.into() }
    }

    /// An answer.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self { role: Role::Assistant, content: content.into() }
    }
}

/// How the answer is sampled. What is not given is not sent: the server's defaults hold.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Parameters {
    /// Temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Longest answer in tokens, the thinking included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Answers to one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u32>,
    /// Texts that end an answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed of the sampling, where the server knows one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Further fields of the body (`reasoning_effort`, `top_k`, `chat_template_kwargs`); they win over the above.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
}

impl Parameters {
    fn write_into(&self, body: &mut Map<String, Value>) {
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.into(), value);
            }
        };
        put("temperature", self.temperature.map(Value::from));
        put("top_p", self.top_p.map(Value::from));
        put("max_tokens", self.max_tokens.map(Value::from));
        put("n", self.n.map(Value::from));
        put("stop", (!self.stop.is_empty()).then(|| json!(self.stop)));
        put("seed", self.seed.map(Value::from));
        self.extra.iter().for_each(|(name, value)| put(name, Some(value.clone())));
    }
}

/// A request to `/chat/completions`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChatRequest {
    /// The conversation so far.
    pub messages: Vec<Message>,
    /// How the answer is sampled.
    pub parameters: Parameters,
    /// Asks for log-probs of the answer's tokens, with so many alternatives each.
    pub top_log_probs: Option<u32>,
    /// Number of the draw. It is not sent: another number asks again where the cache has an answer.
    pub draw: u32,
}

impl ChatRequest {
    /// Of a conversation.
    pub fn new(messages: Vec<Message>, parameters: Parameters) -> Self {
        Self { messages, parameters, top_log_probs: None, draw: 0 }
    }

    pub(super) fn body(&self, model: &str) -> Value {
        let mut body = Map::new();
        body.insert("model".into(), json!(model));
        body.insert("messages".into(), json!(self.messages));
        if let Some(count) = self.top_log_probs {
            body.insert("logprobs".into(), json!(true));
            body.insert("top_logprobs".into(), json!(count));
        }
        self.parameters.write_into(&mut body);
        Value::Object(body)
    }
}

/// What a completion continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionPrompt {
    /// Text, tokenised by the server.
    Text(String),
    /// Token ids, taken as they are.
    Tokens(Vec<u32>),
}

/// A request to `/completions`.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// What is continued.
    pub prompt: CompletionPrompt,
    /// How it is sampled. Servers with token ids are asked for them by `extra`: vLLM by `return_token_ids`.
    pub parameters: Parameters,
    /// Asks for log-probs of the answer's tokens, with so many alternatives each.
    pub log_probs: Option<u32>,
    /// Token ids that end an answer (vLLM, SGLang).
    pub stop_token_ids: Vec<u32>,
    /// As in [`ChatRequest`].
    pub draw: u32,
}

impl CompletionRequest {
    /// Of a prompt.
    pub fn new(prompt: CompletionPrompt, parameters: Parameters) -> Self {
        Self { prompt, parameters, log_probs: None, stop_token_ids: Vec::new(), draw: 0 }
    }

    pub(super) fn body(&self, model: &str) -> Value {
        let prompt = match &self.prompt {
            CompletionPrompt::Text(text) => json!(text),
            CompletionPrompt::Tokens(tokens) => json!(tokens),
        };
        let mut body = Map::new();
        body.insert("model".into(), json!(model));
        body.insert("prompt".into(), prompt);
        if let Some(count) = self.log_probs {
            body.insert("logprobs".into(), json!(count));
        }
        if !self.stop_token_ids.is_empty() {
            body.insert("stop_token_ids".into(), json!(self.stop_token_ids));
        }
        self.parameters.write_into(&mut body);
        Value::Object(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_given_is_sent_and_extra_fields_win() {
        let mut parameters = Parameters { temperature: Some(0.5), max_tokens: Some(64), ..Parameters::default() };
        parameters.extra.insert("top_k".into(), json!(20));
        parameters.extra.insert("max_tokens".into(), json!(32));
        let request = ChatRequest::new(vec![Message::system("s"), Message::user("u")], parameters);
        let expected = json!({
            "model": "m",
            "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],
            "temperature": 0.5, "max_tokens": 32, "top_k": 20,
        });
        assert_eq!(request.body("m"), expected);
    }

    #[test]
    fn a_prompt_of_tokens_is_sent_as_numbers() {
        let prompt = CompletionPrompt::Tokens(vec![5, 6]);
        let request = CompletionRequest {
            log_probs: Some(0),
            stop_token_ids: vec![9],
            ..CompletionRequest::new(prompt, Parameters::default())
        };
        let expected = json!({"model": "m", "prompt": [5, 6], "logprobs": 0, "stop_token_ids": [9]});
        assert_eq!(request.body("m"), expected);
    }
}
