//! A model that answers turns: prompt in, completion out, prediction read from it.

use std::ops::Range;
use std::path::Path;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use worldloom_judge::{CLOSE_TAG, Extraction, OPEN_TAG, extract, extract_untagged};
use worldloom_model::generate::{Generator, Limits, Request, Sampling};
use worldloom_model::{Decoder, ModelConfig, Precision};
use worldloom_render::{
    CPT_VERSION, FormSettings, PromptForm, PromptStyle, RL_VERSION, Refusal, Renderer, Tokenizer, plain_observation,
};
use worldloom_schema::Trajectory;
use worldloom_train::{Purpose, split_seed};

use crate::error::{Error, Result};
use crate::stream::tokens_within;

/// How a model is asked: as it was trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// With the template of CPT; the completion is the observation.
    Plain,
    /// With the template of RL; thinking, then the observation in tags.
    Tagged,
}

impl Asked {
    /// The style of a renderer's prompts.
    pub fn style(self, renderer: &Renderer) -> PromptStyle {
        match self {
            Asked::Plain => PromptStyle::Plain { version: CPT_VERSION },
            Asked::Tagged => renderer.tagged(RL_VERSION),
        }
    }

    /// In words, for tables.
    pub fn describe(self) -> String {
        match self {
            Asked::Plain => format!("v{CPT_VERSION}, no thinking"),
            Asked::Tagged => format!("v{RL_VERSION}, thinking and tags"),
        }
    }
}

/// A turn whose observation is to be predicted. The turn's own observation is not looked at.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The episode.
    pub trajectory: &'a Trajectory,
    /// The turn, from 0.
    pub turn: usize,
}

/// How completions are decoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decoding {
    /// Longest completion, the stop token included.
    pub max_new_tokens: usize,
    /// 0 is greedy.
    pub temperature: f32,
    /// Question `i` draws from the seed `(seed, i)`.
    pub seed: u64,
}

/// Why there is no prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The completion holds none.
    Completion(worldloom_judge::Fault),
    /// The prompt leaves no room for a completion within the model's positions.
    PromptTooLong,
    /// The prompt cannot be written.
    Prompt(Refusal),
}

impl Fault {
    /// The name in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Fault::Completion(fault) => fault.as_str(),
            Fault::PromptTooLong => "prompt_too_long",
            Fault::Prompt(refusal) => refusal.as_str(),
        }
    }
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The completion as it came, without the stop token; empty where there was none.
    pub completion: String,
    /// The predicted observation, or why there is none.
    pub prediction: std::result::Result<String, Fault>,
    /// `exp` of the mean log-prob of the predicted observation's tokens: without thinking, tags and the stop token. Of an
    /// empty observation, of the tokens that close it. None where there is no prediction.
    pub confidence: Option<f64>,
    /// Tokens of the completion, the stop token included; none where there was no completion.
    pub tokens: Option<u64>,
    /// Whether the completion ended by itself, rather than at the longest length.
    pub stopped: bool,
}

impl Answer {
    /// What was written before the prediction's tag, without the think tags.
    pub fn thinking(&self) -> Option<&str> {
        thinking_of(&self.completion)
    }
}

/// What stands before the prediction's tag, without the think tags.
pub(crate) fn thinking_of(completion: &str) -> Option<&str> {
    let (before, _) = completion.split_once(OPEN_TAG)?;
    let before = before.trim();
    let thinking = before.strip_prefix("<think>").unwrap_or(before);
    let thinking = thinking.strip_suffix("</think>").unwrap_or(thinking).trim();
    (!thinking.is_empty()).then_some(thinking)
}

/// A model with its tokenizer and templates.
pub struct WorldModel {
    config: ModelConfig,
    generator: Generator,
    renderer: Renderer,
}

impl WorldModel {
    /// Reads a folder with `config.json`, the weights and `tokenizer.json`. It is asked as it was trained, but for what
    /// the settings say; its matrices are held in `precision`.
    pub fn load(folder: &Path, settings: &FormSettings, precision: Precision, device: &Device) -> Result<Self> {
        let renderer = PromptForm::of_model(folder, settings)?.renderer(Tokenizer::open(folder)?)?;
        let (generator, config) = Generator::load(folder, precision, device)?;
        check_vocabulary(renderer.tokenizer(), &config)?;
        Ok(Self { config, generator, renderer })
    }

    /// Packs the weights of a decoder. Refuses a tokenizer with tokens that the model does not have.
    pub fn new(decoder: &Decoder, config: ModelConfig, renderer: Renderer) -> Result<Self> {
        check_vocabulary(renderer.tokenizer(), &config)?;
        let generator = Generator::new(decoder, &config)?;
        Ok(Self { config, generator, renderer })
    }

    /// The same model with other bounds on its work in progress; they change no answer.
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { generator: self.generator.with_limits(limits), ..self }
    }

    /// The renderer of its prompts.
    pub fn renderer(&self) -> &Renderer {
        &self.renderer
    }

    /// The model's shape.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// What completes token ids.
    pub fn generator(&self) -> &Generator {
        &self.generator
    }

    /// The request of one question by itself, drawing from `decoding.seed`, or why it cannot be asked.
    pub fn request_of(
        &self,
        question: &Question<'_>,
        asked: Asked,
        decoding: &Decoding,
    ) -> Result<std::result::Result<Request, Fault>> {
        self.request(question, asked, decoding, &self.renderer.stop_tokens(), 0)
    }

    /// Answers every question, in their order. `progress` hears how many are answered, and of how many.
    pub fn answer(
        &self,
        questions: &[Question<'_>],
        asked: Asked,
        decoding: &Decoding,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Vec<Answer>> {
        let stop_ids = self.renderer.stop_tokens();
        let mut answers: Vec<Option<Answer>> = vec![None; questions.len()];
        let (mut requests, mut places) = (Vec::new(), Vec::new());
        for (place, question) in questions.iter().enumerate() {
            match self.request(question, asked, decoding, &stop_ids, place)? {
                Ok(request) => {
                    requests.push(request);
                    places.push(place);
                }
                Err(fault) => answers[place] = Some(Answer::none(fault)),
            }
        }
        let failed = questions.len() - requests.len();
        let total = questions.len();
        let groups = self.generator.generate(&requests, &mut |done, _| progress(failed + done, total))?;
        for (place, group) in places.into_iter().zip(groups) {
            let completion = group.into_iter().next().expect("one completion is asked for");
            let log_probs = (&completion.tokens[..], &completion.log_probs[..]);
            answers[place] = Some(Answer::of_tokens(&self.renderer, log_probs, completion.stopped, asked)?);
        }
        progress(total, total);
        Ok(answers.into_iter().map(|answer| answer.expect("every question has a fault or a completion")).collect())
    }

    /// The request of a question, or why it cannot be asked.
    fn request(
        &self,
        question: &Question<'_>,
        asked: Asked,
        decoding: &Decoding,
        stop_ids: &[u32],
        place: usize,
    ) -> Result<std::result::Result<Request, Fault>> {
        let style = asked.style(&self.renderer);
        let rendered = match self.renderer.render_prompt(question.trajectory, question.turn, style) {
            Ok(rendered) => rendered,
            Err(worldloom_render::Error::Refused { refusal, .. }) => return Ok(Err(Fault::Prompt(refusal))),
            Err(error) => return Err(error.into()),
        };
        let room = self.config.max_position_embeddings.saturating_sub(rendered.tokens.len());
        if room == 0 {
            return Ok(Err(Fault::PromptTooLong));
        }
        let max_new_tokens = decoding.max_new_tokens.min(room);
        Ok(Ok(Request {
            prompt: rendered.tokens,
            num_completions: 1,
            seed: split_seed(decoding.seed, Purpose::Sampling, place as u64),
            sampling: Sampling::plain(max_new_tokens, decoding.temperature, stop_ids.to_vec()),
        }))
    }
}

impl Answer {
    /// Reads the prediction out of a completion's text; `stopped` says that it ended by itself.
    pub fn read(completion: String, stopped: bool, asked: Asked) -> Self {
        let extraction = match asked {
            Asked::Plain => extract_untagged(plain_observation(&completion), stopped),
            Asked::Tagged => extract(&completion, stopped),
        };
        let prediction = match extraction {
            Extraction::Observation(observation) => Ok(observation),
            Extraction::Fault(fault) => Err(Fault::Completion(fault)),
        };
        Answer { completion, prediction, confidence: None, tokens: None, stopped }
    }

    /// Reads a completion of tokens and their log-probs, and how sure the model was of its prediction.
    pub fn of_tokens(
        renderer: &Renderer,
        (tokens, log_probs): (&[u32], &[f32]),
        stopped: bool,
        asked: Asked,
    ) -> Result<Self> {
        let answer = Answer::read(renderer.completion_text(tokens)?, stopped, asked);
        let answer = Answer { tokens: Some(tokens.len() as u64), ..answer };
        let Ok(observation) = &answer.prediction else { return Ok(answer) };
        let range = observation_range(&answer.completion, observation, asked);
        let places = tokens_within(renderer.tokenizer(), tokens, &renderer.stop_tokens(), &range)?;
        let chosen = places.iter().filter_map(|place| log_probs.get(*place));
        let mean = chosen.map(|log_prob| f64::from(*log_prob)).sum::<f64>() / places.len() as f64;
        Ok(Answer { confidence: Some(mean.exp()).filter(|confidence| confidence.is_finite()), ..answer })
    }

    /// No completion, and why.
    pub fn none(fault: Fault) -> Self {
        let (completion, prediction) = (String::new(), Err(fault));
        Answer { completion, prediction, confidence: None, tokens: None, stopped: false }
    }
}

/// Where the observation stands in its completion, in bytes; of an empty one, what closes it. The byte after the text
/// stands for the stop token.
fn observation_range(completion: &str, observation: &str, asked: Asked) -> Range<usize> {
    let opened = match asked {
        Asked::Plain => completion.len() - plain_observation(completion).len(),
        Asked::Tagged => completion.rfind(OPEN_TAG).map_or(0, |open| open + OPEN_TAG.len()),
    };
    let inner = &completion[opened..];
    match (asked, observation.is_empty()) {
        (Asked::Plain, false) => opened..completion.len(),
        (Asked::Plain, true) => completion.len()..completion.len() + 1,
        (Asked::Tagged, false) => {
            let start = opened + usize::from(inner.starts_with('\n'));
            start..start + observation.len()
        }
        (Asked::Tagged, true) => {
            opened..inner.find(CLOSE_TAG).map_or(completion.len(), |close| opened + close + CLOSE_TAG.len())
        }
    }
}

fn check_vocabulary(tokenizer: &Tokenizer, config: &ModelConfig) -> Result<()> {
    let (tokens, vocab_size) = (tokenizer.vocab_size(), config.vocab_size);
    if tokens > vocab_size {
        return Err(Error::Vocabulary { tokenizer: tokenizer.path().into(), tokens, vocab_size });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_what_stands_before_the_tag() {
        let answer = |completion: &str| Answer::read(completion.into(), true, Asked::Tagged);
        let tagged = "<think>\ncwd: ~\n</think>\n<predicted_observation>\nfig\n</predicted_observation>";
        assert_eq!(answer(tagged).thinking(), Some("cwd: ~"));
        assert_eq!(answer("<predicted_observation>\n</predicted_observation>").thinking(), None);
        assert_eq!(answer("<think>never ends").thinking(), None);
    }
}
