//! Judges by configuration: code, a model behind an endpoint, a checkpoint in process, several as one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use worldloom_judge::asked::{EndpointRespondent, JudgePrompts, ModelJudge, Respondent, Said, Shown};
use worldloom_judge::endpoint::{BlockingEndpoint, Endpoint, EndpointConfig, Message, Parameters, Role};
use worldloom_judge::{BuiltinJudge, Combination, EnsembleJudge, Judge};
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{ModelConfig, Precision};
use worldloom_render::{ChatForm, FormSettings, PromptForm, Renderer, Role as ChatRole, Tokenizer};
use worldloom_train::{Purpose, split_seed};

use crate::chat::refusal_text;
use crate::error::{Error, Result};

/// Who judges.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum JudgeConfig {
    /// Deterministic code.
    Builtin {},
    /// A model behind an OpenAI-compatible endpoint.
    Http {
        /// The endpoint and the bounds on asking it.
        endpoint: Box<EndpointConfig>,
        /// How it answers. Default: temperature 0, at most 4,096 tokens.
        #[serde(default = "plain_answer")]
        parameters: Box<Parameters>,
        /// How it is asked.
        #[serde(default)]
        asking: Asking,
    },
    /// A checkpoint loaded in process: a folder with `config.json`, weights and `tokenizer.json`.
    Local {
        /// The folder.
        model: PathBuf,
        /// Longest answer.
        #[serde(default = "longest_answer")]
        max_new_tokens: usize,
        /// 0 is greedy. Default: 0.
        #[serde(default)]
        temperature: f32,
        /// The chat format. Default: that of its training, or of its chat template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat: Option<ChatForm>,
        /// How it is asked.
        #[serde(default)]
        asking: Asking,
    },
    /// Several judges as one.
    Ensemble {
        /// All are asked.
        judges: Vec<JudgeConfig>,
        /// What their scores become. Default: the median.
        #[serde(default)]
        combination: Combination,
        /// How many must have scored. Default: all.
        #[serde(default)]
        quorum: Option<usize>,
    },
}

impl Default for JudgeConfig {
    fn default() -> Self {
        JudgeConfig::Builtin {}
    }
}

/// How a model is asked for scores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Asking {
    /// Times it is asked where there is nothing to read. Default: 3.
    pub tries: u32,
    /// A folder of other prompts. Default: ours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompts: Option<PathBuf>,
    /// Characters of earlier turns that it is shown at most. Default: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub history_chars: Option<usize>,
}

impl Default for Asking {
    fn default() -> Self {
        Self { tries: 3, prompts: None, history_chars: None }
    }
}

fn plain_answer() -> Box<Parameters> {
    Box::new(Parameters { temperature: Some(0.0), max_tokens: Some(4096), ..Parameters::default() })
}

fn longest_answer() -> usize {
    1024
}

impl Asking {
    fn judge(&self, respondent: Arc<dyn Respondent>) -> Result<ModelJudge> {
        let prompts = match &self.prompts {
            Some(folder) => JudgePrompts::open(folder)?,
            None => JudgePrompts::bundled(),
        };
        let prompts = prompts.showing(Shown { history_chars: self.history_chars });
        Ok(ModelJudge::new(respondent, prompts, self.tries))
    }
}

/// What judges are opened with.
pub struct JudgePlace<'a> {
    /// Where answers are cached (`judge-cache/`) and requests logged (`judge.jsonl`).
    pub folder: &'a Path,
    /// The value of a variable that a configuration names as its key.
    pub key: &'a dyn Fn(&str) -> Option<String>,
    /// Where a checkpoint is loaded.
    pub device: &'a Device,
}

/// A judge, and the model behind it where there is one.
pub type Opened = (Box<dyn Judge>, Option<Arc<dyn Respondent>>);

impl JudgeConfig {
    /// The same with relative paths from `base`.
    pub fn from_base(mut self, base: &Path) -> Self {
        match &mut self {
            JudgeConfig::Builtin {} => {}
            JudgeConfig::Http { asking, .. } => anchor(&mut asking.prompts, base),
            JudgeConfig::Local { model, asking, .. } => {
                *model = base.join(&*model);
                anchor(&mut asking.prompts, base);
            }
            JudgeConfig::Ensemble { judges, .. } => {
                *judges = std::mem::take(judges).into_iter().map(|judge| judge.from_base(base)).collect();
            }
        }
        self
    }

    /// Files and folders that decide its scores.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            JudgeConfig::Builtin {} => Vec::new(),
            JudgeConfig::Http { asking, .. } => asking.prompts.as_deref().into_iter().collect(),
            JudgeConfig::Local { model, asking, .. } => {
                [model.as_path()].into_iter().chain(asking.prompts.as_deref()).collect()
            }
            JudgeConfig::Ensemble { judges, .. } => judges.iter().flat_map(JudgeConfig::paths).collect(),
        }
    }

    /// Times that a model is asked where its answer cannot be read.
    pub fn tries(&self) -> u32 {
        match self {
            JudgeConfig::Http { asking, .. } | JudgeConfig::Local { asking, .. } => asking.tries,
            JudgeConfig::Builtin {} | JudgeConfig::Ensemble { .. } => 1,
        }
    }

    /// Makes the judge.
    pub fn open(&self, place: &JudgePlace<'_>) -> Result<Box<dyn Judge>> {
        Ok(self.open_with_respondent(place)?.0)
    }

    /// Makes the judge, and shows the model behind it, to be asked other questions too; none where code or several judge.
    pub fn open_with_respondent(&self, place: &JudgePlace<'_>) -> Result<Opened> {
        let (respondent, asking): (Arc<dyn Respondent>, &Asking) = match self {
            JudgeConfig::Builtin {} => return Ok((Box::new(BuiltinJudge), None)),
            JudgeConfig::Http { endpoint, parameters, asking } => {
                let client = open_endpoint(endpoint, place)?;
                (Arc::new(EndpointRespondent::new(client, *parameters.clone())), asking)
            }
            JudgeConfig::Local { model, max_new_tokens, temperature, chat, asking } => {
                let local = LocalRespondent::load(model, *chat, *max_new_tokens, *temperature, place.device)?;
                (Arc::new(local), asking)
            }
            JudgeConfig::Ensemble { judges, combination, quorum } => {
                if judges.is_empty() || quorum.is_some_and(|quorum| quorum == 0 || quorum > judges.len()) {
                    let detail = format!("{} judges with a quorum of {quorum:?}", judges.len());
                    return Err(Error::config("judge.judges", detail));
                }
                let opened = judges.iter().map(|judge| judge.open(place)).collect::<Result<Vec<_>>>()?;
                let ensemble = EnsembleJudge::new(opened, *combination, quorum.unwrap_or(judges.len()));
                return Ok((Box::new(ensemble), None));
            }
        };
        Ok((Box::new(asking.judge(Arc::clone(&respondent))?), Some(respondent)))
    }
}

fn anchor(path: &mut Option<PathBuf>, base: &Path) {
    *path = path.take().map(|path| base.join(path));
}

/// A judge's client.
pub fn open_endpoint(config: &EndpointConfig, place: &JudgePlace<'_>) -> Result<BlockingEndpoint> {
    endpoint_in(config, place, "judge")
}

/// A client with cache and log, `NAME-cache/` and `NAME.jsonl`, in the place's folder.
pub(crate) fn endpoint_in(config: &EndpointConfig, place: &JudgePlace<'_>, name: &str) -> Result<BlockingEndpoint> {
    let endpoint = with_key(config, place)?.with_cache(&place.folder.join(format!("{name}-cache")))?;
    Ok(BlockingEndpoint::new(endpoint.with_log(&place.folder.join(format!("{name}.jsonl")))?)?)
}

/// The same without a cache, for what is drawn anew each time.
pub fn open_endpoint_without_cache(config: &EndpointConfig, place: &JudgePlace<'_>) -> Result<BlockingEndpoint> {
    Ok(BlockingEndpoint::new(with_key(config, place)?.with_log(&place.folder.join("sampler.jsonl"))?)?)
}

fn with_key(config: &EndpointConfig, place: &JudgePlace<'_>) -> Result<Endpoint> {
    let key = match &config.api_key_env {
        Some(name) => Some((place.key)(name).ok_or_else(|| {
            Error::config("endpoint.api_key_env", format!("the environment has no variable `{name}`"))
        })?),
        None => None,
    };
    Ok(Endpoint::new(config.clone(), key)?)
}

/// A checkpoint that answers chats.
pub struct LocalRespondent {
    generator: Generator,
    config: ModelConfig,
    renderer: Renderer,
    max_new_tokens: usize,
    temperature: f32,
}

impl LocalRespondent {
    pub(crate) fn load(
        folder: &Path,
        chat: Option<ChatForm>,
        max_new_tokens: usize,
        temperature: f32,
        device: &Device,
    ) -> Result<Self> {
        let form = PromptForm::of_model(folder, &FormSettings { chat, ..FormSettings::default() })?;
        let renderer = form.renderer(Tokenizer::open(folder)?)?;
        let (generator, config) = Generator::load(folder, Precision::F32, device)?;
        Ok(Self { generator, config, renderer, max_new_tokens, temperature })
    }

    /// None where the conversation cannot be written, or the model has no room for an answer.
    fn request(&self, conversation: &[Message], seed: u64) -> Result<Option<Request>> {
        let role = |role| match role {
            Role::System => ChatRole::System,
            Role::User => ChatRole::User,
            Role::Assistant => ChatRole::Assistant,
        };
        let messages: Vec<(ChatRole, &str)> =
            conversation.iter().map(|message| (role(message.role), message.content.as_str())).collect();
        let prompt = match self.renderer.render_messages(&messages, false)? {
            Ok(prompt) => prompt,
            Err(refusal) => {
                tracing::debug!("a question to the judge cannot be asked: {}", refusal_text(refusal));
                return Ok(None);
            }
        };
        let room = self.config.max_position_embeddings.saturating_sub(prompt.len());
        let longest = self.max_new_tokens.min(room);
        let stops = self.renderer.stop_tokens();
        Ok((longest > 0).then(|| Request {
            prompt,
            num_completions: 1,
            seed,
            sampling: Sampling::plain(longest, self.temperature, stops),
        }))
    }

    /// An answer to each conversation; nothing where it did not end by itself.
    pub(crate) fn answers(&self, conversations: &[Vec<Message>], draw: u32) -> Result<Vec<Said>> {
        let mut said = vec![Said::Nothing; conversations.len()];
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        for (place, conversation) in conversations.iter().enumerate() {
            let seed = split_seed(u64::from(draw), Purpose::Sampling, place as u64);
            if let Some(request) = self.request(conversation, seed)? {
                requests.push(request);
                places.push(place);
            }
        }
        let groups = self.generator.generate(&requests, &mut |_, _| {})?;
        for (place, group) in places.into_iter().zip(groups) {
            if let Some(completion) = group.into_iter().next().filter(|completion| completion.stopped) {
                said[place] = Said::Text(self.renderer.completion_text(&completion.tokens)?);
            }
        }
        Ok(said)
    }
}

impl Respondent for LocalRespondent {
    fn respond(&self, conversations: &[Vec<Message>], draw: u32) -> Vec<Said> {
        self.answers(conversations, draw).unwrap_or_else(|error| {
            tracing::warn!(%error, "the judge could not answer");
            vec![Said::Nothing; conversations.len()]
        })
    }
}
