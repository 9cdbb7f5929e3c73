//! What is answered. Bodies are read as they come: fields that servers leave out or add change nothing.

use serde_json::Value;

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    Stop,
    /// The length limit did.
    Length,
    /// A filter of the provider did.
    ContentFilter,
    /// The model called a tool.
    ToolCalls,
    /// Any other word, or none.
    Other(String),
}

impl Finish {
    fn of(value: &Value) -> Self {
        match value.as_str() {
            Some("stop") => Finish::Stop,
            Some("length") => Finish::Length,
            Some("content_filter") => Finish::ContentFilter,
            Some("tool_calls" | "function_call") => Finish::ToolCalls,
            other => Finish::Other(other.unwrap_or_default().into()),
        }
    }
}

/// Tokens as the server counted them; 0 where it did not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: u64,
    /// Of all answers.
    pub completion_tokens: u64,
}

impl Usage {
    pub(super) fn of(body: &Value) -> Self {
        let count = |name: &str| body["usage"][name].as_u64().unwrap_or(0);
        Self { prompt_tokens: count("prompt_tokens"), completion_tokens: count("completion_tokens") }
    }
}

/// A token of an answer with its log-prob.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogProb {
    /// The token's text.
    pub token: String,
    /// Its log-prob.
    pub log_prob: f64,
}

/// One answer of a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatChoice {
    /// What was said; none where the server sent null.
    pub content: Option<String>,
    /// The thinking, where the server keeps it apart (`reasoning_content`, `reasoning`).
    pub reasoning: Option<String>,
    /// The provider's own refusal.
    pub refusal: Option<String>,
    /// Why it ended.
    pub finish: Finish,
    /// Log-probs, if they were asked for.
    pub log_probs: Option<Vec<TokenLogProb>>,
}

/// What a chat request came to; one choice at least.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatReply {
    /// The answers, in the order of their numbers.
    pub choices: Vec<ChatChoice>,
    /// Tokens.
    pub usage: Usage,
    /// Whether it comes from the cache.
    pub is_cached: bool,
}

/// One completion.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionChoice {
    /// The text.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Its token ids, where the server returns them (`token_ids`, or tokens of the form `token_id:5`).
    pub token_ids: Option<Vec<u32>>,
    /// Log-probs of its tokens, if they were asked for. A null becomes NaN.
    pub log_probs: Option<Vec<f64>>,
    /// What ended it, as the server says: the text or id of a stop.
    pub stop_reason: Option<Value>,
}

/// What a completion request came to; one choice at least.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionReply {
    /// The completions, in the order of their numbers.
    pub choices: Vec<CompletionChoice>,
    /// The prompt's token ids, where the server returns them.
    pub prompt_token_ids: Option<Vec<u32>>,
    /// Tokens.
    pub usage: Usage,
    /// Whether it comes from the cache.
    pub is_cached: bool,
}

/// A reply that can be read out of a body.
pub(super) trait Reply: Sized {
    /// What is wrong, as a sentence, where it cannot.
    fn read(body: &Value, is_cached: bool) -> Result<Self, String>;
}

impl Reply for ChatReply {
    fn read(body: &Value, is_cached: bool) -> Result<Self, String> {
        let choices = choices(body)?.into_iter().map(chat_choice).collect::<Result<_, _>>()?;
        Ok(Self { choices, usage: Usage::of(body), is_cached })
    }
}

impl Reply for CompletionReply {
    fn read(body: &Value, is_cached: bool) -> Result<Self, String> {
        let found = choices(body)?;
        // vLLM has the prompt's ids in each choice.
        let prompt_token_ids = found.iter().find_map(|choice| ids(&choice["prompt_token_ids"]));
        let choices = found.into_iter().map(completion_choice).collect::<Result<_, _>>()?;
        Ok(Self { choices, prompt_token_ids, usage: Usage::of(body), is_cached })
    }
}

fn choices(body: &Value) -> Result<Vec<&Value>, String> {
    let Some(found) = body["choices"].as_array().filter(|found| !found.is_empty()) else {
        return Err(match body["error"]["message"].as_str() {
            Some(message) => format!("an error in place of choices: {message}"),
            None => "no `choices`".into(),
        });
    };
    let mut choices: Vec<&Value> = found.iter().collect();
    choices.sort_by_key(|choice| choice["index"].as_u64().unwrap_or(0));
    Ok(choices)
}

fn chat_choice(choice: &Value) -> Result<ChatChoice, String> {
    let message = choice["message"].as_object().ok_or("a choice without `message`")?;
    let text = |name: &str| message.get(name).and_then(Value::as_str).map(str::to_string);
    let content = match message.get("content") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        // Some servers answer in parts.
        Some(Value::Array(parts)) => Some(parts.iter().filter_map(|part| part["text"].as_str()).collect()),
        Some(other) => return Err(format!("`message.content` is {other}, expected text")),
    };
    let log_probs = choice["logprobs"]["content"].as_array().map(|tokens| {
        let token = |token: &Value| TokenLogProb {
            token: token["token"].as_str().unwrap_or_default().into(),
            log_prob: token["logprob"].as_f64().unwrap_or(f64::NAN),
        };
        tokens.iter().map(token).collect()
    });
    Ok(ChatChoice {
        content,
        reasoning: text("reasoning_content").or_else(|| text("reasoning")),
        refusal: text("refusal"),
        finish: Finish::of(&choice["finish_reason"]),
        log_probs,
    })
}

fn completion_choice(choice: &Value) -> Result<CompletionChoice, String> {
    let text = choice["text"].as_str().ok_or("a choice without `text`")?.to_string();
    let tokens = &choice["logprobs"]["tokens"];
    let log_probs = choice["logprobs"]["token_logprobs"].as_array();
    Ok(CompletionChoice {
        text,
        finish: Finish::of(&choice["finish_reason"]),
        token_ids: ids(&choice["token_ids"]).or_else(|| ids(tokens).filter(|ids| !ids.is_empty())),
        log_probs: log_probs.map(|values| values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()),
        stop_reason: choice.get("stop_reason").filter(|reason| !reason.is_null()).cloned(),
    })
}

/// Numbers, or texts of the form `token_id:5`; none where one of them is neither.
fn ids(value: &Value) -> Option<Vec<u32>> {
    let id = |value: &Value| match value {
        Value::String(text) => text.strip_prefix("token_id:").and_then(|id| id.parse().ok()),
        value => value.as_u64().and_then(|id| u32::try_from(id).ok()),
    };
    value.as_array()?.iter().map(id).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_chat_reply_is_read_whatever_the_server_adds() {
        let body = json!({
            "choices": [
                {"index": 1, "message": {"content": null, "refusal": "no"}, "finish_reason": "content_filter"},
                {"index": 0, "message": {"role": "assistant", "content": "a", "reasoning_content": "r"},
                 "finish_reason": "stop", "logprobs": {"content": [{"token": "a", "logprob": -0.5, "bytes": [97]}]}},
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5},
        });
        let reply = ChatReply::read(&body, false).unwrap();
        assert_eq!(reply.usage, Usage { prompt_tokens: 3, completion_tokens: 2 });
        let [first, second] = &reply.choices[..] else { panic!() };
        assert_eq!((first.content.as_deref(), first.reasoning.as_deref()), (Some("a"), Some("r")));
        assert_eq!(first.log_probs.as_ref().unwrap()[0].log_prob, -0.5);
        assert_eq!((second.content.as_deref(), second.refusal.as_deref()), (None, Some("no")));
        assert_eq!(second.finish, Finish::ContentFilter);
    }

    #[test]
    fn a_completion_has_ids_and_log_probs_in_both_forms_of_vllm() {
        let logprobs = json!({"tokens": ["token_id:7", "token_id:9"], "token_logprobs": [-0.1, null]});
        let body = json!({"choices": [
            {"index": 0, "text": "x", "finish_reason": "length", "logprobs": logprobs, "stop_reason": null},
            {"index": 1, "text": "y", "finish_reason": "stop", "token_ids": [1, 2], "prompt_token_ids": [5],
             "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]}, "stop_reason": 2},
        ]});
        let reply = CompletionReply::read(&body, true).unwrap();
        assert_eq!(reply.choices[0].token_ids, Some(vec![7, 9]));
        assert!(reply.choices[0].log_probs.as_ref().unwrap()[1].is_nan());
        assert_eq!((reply.choices[1].token_ids.clone(), reply.prompt_token_ids), (Some(vec![1, 2]), Some(vec![5])));
        assert_eq!(reply.choices[1].stop_reason, Some(json!(2)));
    }

    #[test]
    fn what_is_no_reply_is_said() {
        for (body, expected) in [
            (json!({}), "no `choices`"),
            (json!({"choices": []}), "no `choices`"),
            (json!([1]), "no `choices`"),
            (json!({"error": {"message": "overloaded"}}), "an error in place of choices: overloaded"),
            (json!({"choices": [{"text": "a"}]}), "a choice without `message`"),
            (json!({"choices": [{"message": {"content": 3}}]}), "`message.content` is 3, expected text"),
        ] {
            assert_eq!(ChatReply::read(&body, false).unwrap_err(), expected);
        }
    }
}
