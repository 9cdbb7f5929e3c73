//! What clients ask, checked and turned into asks of the engine.

use rand::Rng;
use serde::Deserialize;
use serde_json::Value;
use worldloom_world::engine::Ask;
use worldloom_world::{Request, Role, Sampling, refusal_text};

use crate::app::App;
use crate::error::ApiError;

/// Most alternatives of a token.
const MAX_TOP_LOG_PROBS: usize = 20;
/// Most stop texts.
const MAX_STOPS: usize = 16;

/// One request as work: asks, and how their answer is written.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) asks: Vec<Ask>,
    pub(super) kind: Kind,
    pub(super) streams: bool,
    pub(super) includes_usage: bool,
    /// Whether log-probs are written.
    pub(super) log_probs: bool,
    pub(super) returns_ids: bool,
}

/// Which of the two APIs is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Chat { splits_reasoning: bool },
    Completion,
}

/// What both APIs have.
#[derive(Debug, Deserialize)]
pub(super) struct Common {
    pub(super) model: Option<String>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<i64>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    n: Option<i64>,
    stop: Option<OneOrMany<String>>,
    seed: Option<i64>,
    max_tokens: Option<i64>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    /// Token ids beside the text.
    return_token_ids: Option<bool>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    logit_bias: Option<Value>,
    response_format: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

impl Common {
    /// Refuses what would otherwise be passed over in silence.
    fn check(&self) -> Result<(), ApiError> {
        let is_set = |value: &Option<f64>| value.is_some_and(|value| value != 0.0);
        let is_empty = |value: &Value| value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
        let format = self.response_format.as_ref().and_then(|format| format.get("type")).and_then(Value::as_str);
        let unsupported = [
            ("presence_penalty", is_set(&self.presence_penalty)),
            ("frequency_penalty", is_set(&self.frequency_penalty)),
            ("logit_bias", self.logit_bias.as_ref().is_some_and(|bias| !is_empty(bias))),
            ("response_format", format.is_some_and(|format| format != "text")),
        ];
        match unsupported.into_iter().find(|(_, is_set)| *is_set) {
            Some((param, _)) => {
                Err(ApiError::invalid(param, format!("`{param}` is not supported")).code("unsupported"))
            }
            None => Ok(()),
        }
    }

    /// The ask of one prompt.
    fn ask(
        &self,
        app: &App,
        (field, prompt): (&'static str, Vec<u32>),
        stops: &[String],
        max_tokens: (&'static str, Option<i64>),
        num_most_probable: usize,
    ) -> Result<Ask, ApiError> {
        let model = app.engine.model();
        let num_completions = in_range("n", self.n.unwrap_or(1), 1, app.config.max_completions)?;
        if stops.len() > MAX_STOPS {
            return Err(ApiError::invalid("stop", format!("{} stop texts, at most {MAX_STOPS}", stops.len())));
        }
        let positions = model.generator().longest();
        let Some(room) = positions.checked_sub(prompt.len()).filter(|room| *room > 0) else {
            let message = format!("the prompt has {} tokens, and the context is {positions}", prompt.len());
            return Err(ApiError::invalid(field, message).code("context_length_exceeded"));
        };
        // A limit beyond the context means "as much as there is room", as scripts for larger models ask.
        let (name, limit) = max_tokens;
        let wanted = match limit {
            None => app.config.default_max_tokens,
            Some(limit) => in_range(name, limit, 1, usize::MAX)?,
        };
        let sampling = Sampling {
            max_new_tokens: wanted.min(room),
            temperature: self.temperature.unwrap_or(1.0),
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            // -1 is vLLM's word for all.
            top_k: self.top_k.filter(|k| *k != -1).map(|k| in_range("top_k", k, 1, usize::MAX)).transpose()?,
            top_p: self.top_p,
            min_p: self.min_p,
            stop_ids: model.renderer().stop_tokens(),
        };
        let seed = self.seed.map_or_else(|| rand::rng().random(), |seed| seed as u64);
        let request = Request { prompt, num_completions, seed, sampling };
        model.generator().check(&request).map_err(|error| ApiError::of(&error.into(), field))?;
        Ok(Ask { request, num_most_probable, stop_texts: stops.to_vec() })
    }

    fn job(&self, asks: Vec<Ask>, kind: Kind, log_probs: bool) -> Job {
        Job {
            asks,
            kind,
            streams: self.stream.unwrap_or(false),
            includes_usage: self.stream_options.as_ref().is_some_and(|options| options.include_usage),
            log_probs,
            returns_ids: self.return_token_ids.unwrap_or(false),
        }
    }
}

fn in_range(param: &'static str, value: i64, least: usize, most: usize) -> Result<usize, ApiError> {
    let found = usize::try_from(value).ok().filter(|value| (least..=most).contains(value));
    found.ok_or_else(|| {
        let expected = if most == usize::MAX { format!("at least {least}") } else { format!("{least} to {most}") };
        ApiError::invalid(param, format!("`{param}` is {value}, expected {expected}"))
    })
}

/// `POST /v1/chat/completions`
#[derive(Debug, Deserialize)]
pub(super) struct ChatRequest {
    #[serde(flatten)]
    pub(super) common: Common,
    messages: Vec<ChatMessage>,
    max_completion_tokens: Option<i64>,
    logprobs: Option<bool>,
    top_logprobs: Option<i64>,
    tools: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
struct ChatMessage {
    role: String,
    content: Option<Content>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl ChatRequest {
    pub(super) fn prepare(mut self, app: &App) -> Result<Job, ApiError> {
        self.common.check()?;
        if self.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
            let message = "`tools` is not supported: a world model answers calls, it makes none";
            return Err(ApiError::invalid("tools", message).code("unsupported"));
        }
        let messages: Vec<(Role, String)> =
            self.messages.iter().enumerate().map(|(at, message)| message.read(at)).collect::<Result<_, _>>()?;
        if messages.is_empty() {
            return Err(ApiError::invalid("messages", "there are no messages"));
        }
        let borrowed: Vec<(Role, &str)> = messages.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let prompt = app.engine.model().chat_prompt(&borrowed, app.config.asked);
        let prompt = prompt.map_err(|error| ApiError::of(&error, "messages"))?;
        let prompt = prompt.map_err(|refusal| ApiError::invalid("messages", refusal_text(refusal)))?;
        let log_probs = self.logprobs.unwrap_or(false);
        let most_probable = in_range("top_logprobs", self.top_logprobs.unwrap_or(0), 0, MAX_TOP_LOG_PROBS)?;
        if most_probable > 0 && !log_probs {
            return Err(ApiError::invalid("top_logprobs", "`top_logprobs` needs `logprobs`"));
        }
        let limit = match self.max_completion_tokens {
            Some(limit) => ("max_completion_tokens", Some(limit)),
            None => ("max_tokens", self.common.max_tokens),
        };
        let stops = self.common.stop.take().map(OneOrMany::into_vec).unwrap_or_default();
        let ask = self.common.ask(app, ("messages", prompt), &stops, limit, most_probable)?;
        Ok(self.common.job(vec![ask], Kind::Chat { splits_reasoning: app.config.splits_reasoning }, log_probs))
    }
}

impl ChatMessage {
    fn read(&self, at: usize) -> Result<(Role, String), ApiError> {
        let param = |field: &str| format!("messages[{at}].{field}");
        let role = match self.role.as_str() {
            "system" | "developer" => Role::System,
            "user" => Role::User,
            "assistant" => Role::Assistant,
            other => {
                let message = format!("role `{other}` is not supported; known: system, developer, user, assistant");
                return Err(ApiError::invalid(&param("role"), message));
            }
        };
        let text = match &self.content {
            None if role == Role::Assistant => String::new(),
            None => return Err(ApiError::invalid(&param("content"), "the message has no content")),
            Some(Content::Text(text)) => text.clone(),
            Some(Content::Parts(parts)) => {
                let text = |part: &Part| part.text.clone().filter(|_| part.kind == "text");
                let texts: Option<Vec<String>> = parts.iter().map(text).collect();
                texts.map(|texts| texts.concat()).ok_or_else(|| {
                    ApiError::invalid(&param("content"), "only parts of type `text` are supported").code("unsupported")
                })?
            }
        };
        Ok((role, text))
    }
}

/// `POST /v1/completions`
#[derive(Debug, Deserialize)]
pub(super) struct CompletionRequest {
    #[serde(flatten)]
    pub(super) common: Common,
    prompt: Prompt,
    logprobs: Option<i64>,
    echo: Option<bool>,
    best_of: Option<i64>,
    suffix: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl CompletionRequest {
    pub(super) fn prepare(mut self, app: &App) -> Result<Job, ApiError> {
        self.common.check()?;
        let unsupported = [
            ("echo", self.echo.unwrap_or(false)),
            ("best_of", self.best_of.is_some_and(|best| best != self.common.n.unwrap_or(1))),
            ("suffix", self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty())),
        ];
        if let Some((param, _)) = unsupported.into_iter().find(|(_, is_set)| *is_set) {
            return Err(ApiError::invalid(param, format!("`{param}` is not supported")).code("unsupported"));
        }
        let tokenizer = app.engine.model().renderer().tokenizer().clone();
        // A whole prompt is the caller's to write: markers of turns in it are markers.
        let encode =
            |text: String| tokenizer.encode_trusted(&text).map_err(|error| ApiError::of(&error.into(), "prompt"));
        let prompts = match self.prompt {
            Prompt::Text(text) => vec![encode(text)?],
            Prompt::Tokens(tokens) => vec![tokens],
            Prompt::Texts(texts) => texts.into_iter().map(encode).collect::<Result<_, _>>()?,
            Prompt::TokenLists(lists) => lists,
        };
        if prompts.is_empty() {
            return Err(ApiError::invalid("prompt", "there is no prompt"));
        }
        if prompts.len() > app.config.max_completions {
            let message = format!("{} prompts, at most {}", prompts.len(), app.config.max_completions);
            return Err(ApiError::invalid("prompt", message));
        }
        let log_probs = self.logprobs.map(|count| in_range("logprobs", count, 0, MAX_TOP_LOG_PROBS)).transpose()?;
        let stops = self.common.stop.take().map(OneOrMany::into_vec).unwrap_or_default();
        let limit = ("max_tokens", self.common.max_tokens);
        let seed = self.common.seed;
        let mut asks = Vec::new();
        for (place, prompt) in prompts.into_iter().enumerate() {
            self.common.seed = seed.map(|seed| seed.wrapping_add(place as i64));
            asks.push(self.common.ask(app, ("prompt", prompt), &stops, limit, log_probs.unwrap_or(0))?);
        }
        Ok(self.common.job(asks, Kind::Completion, log_probs.is_some()))
    }
}
