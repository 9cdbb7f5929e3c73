//! Samples RL's completions from a server: any OpenAI-compatible completions endpoint that takes token ids and returns
//! token ids and log-probs (vLLM, SGLang).
//!
//! The policy's weights are handed over as a folder of safetensors and a call that makes the server load it. Tokens in,
//! tokens out: nothing is tokenised again. The server must sample from the whole distribution and return log-probs of
//! what it sampled at the sampling temperature (vLLM: `--logprobs-mode processed_logprobs`); the trainer checks it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use worldloom_judge::endpoint::{
    BlockingEndpoint, CompletionChoice, CompletionPrompt, CompletionReply, CompletionRequest, EndpointConfig, Finish,
    Parameters,
};
use worldloom_model::{Decoder, ModelConfig, SaveDType};
use worldloom_train::rl::{Completion, Draw, Failure, RlPrompt, Sampler};
use worldloom_train::{Purpose, split_seed};

use crate::error::{Error, Result};

/// How the server takes new weights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReloadConfig {
    /// Path of the call; from the root of the host where it begins with `/` (SGLang: `/update_weights_from_disk`).
    pub path: String,
    /// Field of its body that takes the folder (SGLang: `model_path`).
    pub field: String,
    /// Further fields of its body.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub body: Map<String, Value>,
    /// Steps between two calls: with 2, every second batch comes from weights that are one step old. Held-out prompts are
    /// always completed with the weights of then. Default: 1.
    #[serde(default = "one")]
    pub every: u64,
}

fn one() -> u64 {
    1
}

/// A remote engine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteConfig {
    /// The endpoint.
    pub endpoint: EndpointConfig,
    /// How it takes new weights. Without it, it must be the caller who keeps them current.
    #[serde(default)]
    pub reload: Option<ReloadConfig>,
    /// Further fields of each request. Default: vLLM's `return_token_ids`, and sampling from the whole distribution.
    #[serde(default = "vllm_fields")]
    pub extra: Map<String, Value>,
}

fn vllm_fields() -> Map<String, Value> {
    let fields =
        json!({"return_token_ids": true, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "skip_special_tokens": false});
    fields.as_object().cloned().unwrap_or_default()
}

/// The server as RL's sampler.
pub struct RemoteSampler {
    endpoint: BlockingEndpoint,
    config: RemoteConfig,
    model: ModelConfig,
    folder: PathBuf,
    sampling: (usize, f32, Vec<u32>),
    /// Steps that made the weights which the server has.
    held: Option<u64>,
    /// Steps between those weights and the ones that were given, as of the last answer.
    age: u64,
}

impl RemoteSampler {
    /// `endpoint` without a cache: the same request is another draw. Weights are handed over in `folder`, beside which
    /// `tokenizer` files are copied by the caller if the server needs them.
    pub fn new(
        config: RemoteConfig,
        endpoint: BlockingEndpoint,
        model: ModelConfig,
        folder: &Path,
        (max_new_tokens, temperature, stop_ids): (usize, f32, Vec<u32>),
    ) -> Result<Self> {
        for (name, value) in &config.extra {
            let is_whole = match (name.as_str(), value.as_f64()) {
                ("top_p" | "typical_p" | "repetition_penalty", Some(value)) => value == 1.0,
                ("top_k" | "min_p", Some(value)) => value <= 0.0,
                ("presence_penalty" | "frequency_penalty" | "min_tokens", Some(value)) => value == 0.0,
                ("use_beam_search" | "ignore_eos", _) => value == &Value::Bool(false),
                // What the run itself sets, and what moves single tokens.
                ("temperature" | "seed" | "n" | "max_tokens" | "stop_token_ids" | "logit_bias", _) => false,
                _ => true,
            };
            if !is_whole {
                let detail = format!("`{name}` is {value}: rollouts must come from the whole distribution, as it is");
                return Err(Error::config("sampler.extra", detail));
            }
        }
        if config.reload.as_ref().is_some_and(|reload| reload.every == 0) {
            return Err(Error::config("sampler.reload.every", "0, expected at least 1"));
        }
        let sampling = (max_new_tokens, temperature, stop_ids);
        Ok(Self { endpoint, config, model, folder: folder.into(), sampling, held: None, age: 0 })
    }

    /// Gives the server the weights where it is their turn: those of every `every`th step, and those that are measured.
    fn hand_over(&mut self, decoder: &Decoder, draw: Draw) -> std::result::Result<(), Failure> {
        let Some(reload) = &self.config.reload else { return Ok(()) };
        let is_due = !draw.may_be_old || draw.version.is_multiple_of(reload.every);
        match self.held {
            Some(held) if held == draw.version || !is_due => self.age = draw.version - held,
            _ => {
                self.write(decoder)?;
                self.load()?;
                (self.held, self.age) = (Some(draw.version), 0);
            }
        }
        Ok(())
    }

    fn write(&self, decoder: &Decoder) -> std::result::Result<(), Failure> {
        let partial = self.folder.with_extension("partial");
        for folder in [&partial, &self.folder] {
            if folder.exists() {
                fs_err::remove_dir_all(folder)?;
            }
        }
        worldloom_model::save(decoder, &self.model, &partial, SaveDType::F32)?;
        Ok(fs_err::rename(&partial, &self.folder)?)
    }

    /// Makes the server load what lies in the folder.
    fn load(&self) -> std::result::Result<(), Failure> {
        let Some(reload) = &self.config.reload else { return Ok(()) };
        let mut body = reload.body.clone();
        body.insert(reload.field.clone(), json!(std::path::absolute(&self.folder)?));
        Ok(self.endpoint.post(&reload.path, &Value::Object(body)).map(|_| ())?)
    }
}

impl Sampler for RemoteSampler {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> std::result::Result<Vec<Vec<Completion>>, Failure> {
        self.hand_over(decoder, draw)?;
        let (max_new_tokens, temperature, stop_ids) = &self.sampling;
        let request = |(place, prompt): (usize, &&RlPrompt)| {
            // Servers read seeds as signed numbers.
            let seed = split_seed(draw.seed, Purpose::Sampling, place as u64) >> 1;
            let parameters = Parameters {
                temperature: Some(f64::from(*temperature)),
                max_tokens: Some(*max_new_tokens as u32),
                n: Some(group_size as u32),
                seed: Some(seed),
                extra: self.config.extra.clone(),
                ..Parameters::default()
            };
            CompletionRequest {
                log_probs: Some(0),
                stop_token_ids: stop_ids.clone(),
                ..CompletionRequest::new(CompletionPrompt::Tokens(prompt.tokens.clone()), parameters)
            }
        };
        let requests: Vec<CompletionRequest> = prompts.iter().enumerate().map(request).collect();
        let replies = self.endpoint.complete_all(&requests);
        prompts
            .iter()
            .zip(replies)
            .map(|(prompt, reply)| {
                group(prompt, reply?, stop_ids).map_err(|detail| format!("prompt `{}`: {detail}", prompt.id).into())
            })
            .collect()
    }

    fn staleness(&self) -> u64 {
        self.age
    }

    /// The weights that the server has, where the next batch may be theirs.
    fn save(&self, version: u64, folder: &Path) -> std::result::Result<(), Failure> {
        let every = self.config.reload.as_ref().map_or(1, |reload| reload.every);
        let Some(held) = self.held.filter(|_| !version.is_multiple_of(every)) else { return Ok(()) };
        let kept = folder.join(KEPT);
        link_files(&self.folder, &kept)?;
        Ok(fs_err::write(kept.join(HELD), held.to_string())?)
    }

    fn resume(&mut self, folder: &Path) -> std::result::Result<(), Failure> {
        let kept = folder.join(KEPT);
        if !kept.is_dir() {
            return Ok(());
        }
        let held = fs_err::read_to_string(kept.join(HELD))?;
        let held = held.parse().map_err(|error| format!("`{}`: `{held}`: {error}", kept.join(HELD).display()))?;
        if self.folder.exists() {
            fs_err::remove_dir_all(&self.folder)?;
        }
        link_files(&kept, &self.folder)?;
        self.load()?;
        self.held = Some(held);
        Ok(())
    }
}

/// What a checkpoint has of the sampler: the weights that were handed over last, and the steps that made them.
const KEPT: &str = "handed-over";
const HELD: &str = "steps";

/// The files of a folder in another one, the same on the disk where it can be; nobody writes into them.
fn link_files(from: &Path, to: &Path) -> std::io::Result<()> {
    fs_err::create_dir_all(to)?;
    for entry in fs_err::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if fs_err::hard_link(entry.path(), &target).is_err() {
            fs_err::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn group(prompt: &RlPrompt, reply: CompletionReply, stops: &[u32]) -> std::result::Result<Vec<Completion>, String> {
    if reply.prompt_token_ids.as_ref().is_some_and(|found| *found != prompt.tokens) {
        return Err("the server says that it was given other tokens".into());
    }
    reply.choices.into_iter().map(|choice| completion(choice, stops)).collect()
}

/// A completion as the trainer has it: with its stop token. Where the server leaves that out, its log-prob is not known,
/// and the trainer's own takes its place.
fn completion(choice: CompletionChoice, stops: &[u32]) -> std::result::Result<Completion, String> {
    let mut tokens = choice.token_ids.ok_or("no token ids (vLLM: `return_token_ids`, version 0.10.2 or newer)")?;
    let log_probs = choice.log_probs.ok_or("no log-probs")?;
    if tokens.len() != log_probs.len() {
        return Err(format!("{} tokens and {} log-probs", tokens.len(), log_probs.len()));
    }
    let mut log_probs: Vec<f32> = log_probs.into_iter().map(|value| value as f32).collect();
    let stopped = match choice.finish {
        Finish::Stop => true,
        Finish::Length => false,
        other => return Err(format!("it ended with {other:?}, expected `stop` or `length`")),
    };
    if stopped && tokens.last().is_none_or(|last| !stops.contains(last)) {
        let named = choice.stop_reason.as_ref().and_then(Value::as_u64).map(|id| id as u32);
        let stop = named.filter(|id| stops.contains(id)).or(stops.first().copied());
        tokens.push(stop.ok_or("it stopped, and there is no stop token")?);
        log_probs.push(f32::NAN);
    }
    Ok(Completion { tokens, log_probs, stopped })
}
