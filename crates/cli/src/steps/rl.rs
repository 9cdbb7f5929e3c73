//! `train rl`: completions sampled from the model itself, scored by judge and rule, pushed by a policy objective.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worldloom_judge::verify::{VERIFIER_FILE, read_verifiers};
use worldloom_render::Tokenizer;
use worldloom_schema::{PROMPT_FILE, Prompt, read_table};
use worldloom_train::loaded_in;
use worldloom_train::rl::{self, Partners, RlConfig, RlPrompt, Sampler};
use worldloom_world::{
    Generator, GeneratorSampler, JudgePlace, JudgeScorer, PromptConfig, Reference, RemoteConfig, RemoteSampler,
    Sampling, ScorerConfig, add_truths, open_endpoint_without_cache, rl_prompts, select_prompts,
};

use super::form::form_of_prompts;
use super::training::{MicroBatch, train};
use super::{Counts, Role, Step, StepContext, model_folder, variable, without_device};
use crate::config::{resolved, typed};
use crate::device::cpu;
use crate::pipeline::external;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepConfig {
    /// The loop.
    train: RlConfig,
    /// The reward.
    scorer: ScorerConfig,
    /// Which prompts are taken.
    #[serde(default)]
    prompts: PromptConfig,
    /// A server that samples. Default: this process does.
    #[serde(default)]
    sampler: Option<RemoteConfig>,
}

/// The RL stage.
pub(super) struct Rl;

impl Step for Rl {
    fn name(&self) -> &'static str {
        "train rl"
    }

    fn about(&self) -> &'static str {
        "Reinforcement learning on prompts: GSPO with rubric and rule rewards"
    }

    fn artifact(&self) -> &'static str {
        "checkpoint"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("model", None, "artifact of `train sft`, or a folder with `config.json`"),
            Role::required("prompts", Some("rendered"), "artifact of `render` for stage rl"),
            Role::optional("verifiers", Some("verifiers"), "artifact of `verifier build`, for the rule"),
            Role::optional("from-rollouts", None, "run folder of RL: train on its rollouts, sample and score nothing"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: StepConfig = typed(table, origin)?;
        let ScorerConfig { judge, second, .. } = &mut config.scorer;
        *judge = std::mem::take(judge).from_base(base);
        if let Some(second) = second {
            second.judge = std::mem::take(&mut second.judge).from_base(base);
        }
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: StepConfig = without_device(config)?;
        let ScorerConfig { judge, second, .. } = &config.scorer;
        let second = second.iter().flat_map(|second| second.judge.paths());
        let keys: Result<Vec<String>> =
            judge.paths().into_iter().chain(second).map(|path| Ok(external(path)?.key)).collect();
        Ok(json!(keys?))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn trains(&self) -> bool {
        true
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let StepConfig { train: config, scorer, prompts: selection, sampler: remote } = context.config()?;
        let (model, prompts) = (model_folder(context.input("model")?), context.input("prompts")?);
        let tokenizer = Tokenizer::open(&model)?;
        let form = form_of_prompts(&model, prompts, &tokenizer)?;
        let renderer = form.renderer(tokenizer)?;
        let prompts: Vec<Prompt> = read_table(&prompts.join(PROMPT_FILE))?;
        let (prompts, taken) = select_prompts(prompts, &selection)?;
        if taken.too_long + taken.several_turns > 0 {
            tracing::warn!(?taken, "prompts were left out, or share their trajectory");
        }
        let mut ids = rl_prompts(&prompts);
        if config.truth_nll > 0.0 {
            let left_out = add_truths(&mut ids, &prompts, &renderer, config.max_completion_tokens)?;
            tracing::info!(left_out, "true answers that are too long or cannot be written");
        }
        let micro_batch = largest_micro_batch(&config, &ids);
        let precision = loaded_in(config.precision, config.lora.as_ref());
        if let Some(rollouts) = context.optional("from-rollouts") {
            return train(context, precision, Some(&form), micro_batch, |job, control| {
                Ok(rl::replay(&config, job, &ids, rollouts, control)?)
            });
        }
        let stops = renderer.stop_tokens();
        let place = JudgePlace { folder: &context.out, key: &variable, device: &cpu() };
        let (judge, respondent) = scorer.judge.open_with_respondent(&place)?;
        let (second, tries) = (scorer.second.clone(), scorer.judge.tries());
        let mut scorer = JudgeScorer::new(scorer, renderer, judge, prompts)?;
        if let Some(respondent) = respondent {
            scorer = scorer.with_model(respondent, tries);
        }
        scorer.check()?;
        if scorer.wants_reference() {
            let (generator, _) = Generator::load(&model, config.precision, place.device)?;
            let sampling = Sampling::plain(config.max_completion_tokens, config.temperature as f32, stops.clone());
            scorer = scorer.with_reference(Reference::new(generator, sampling, config.seed));
        }
        if let Some(second) = second {
            scorer = scorer.with_second(second.judge.open(&place)?, second.share);
        }
        if let Some(verifiers) = context.optional("verifiers") {
            scorer = scorer.with_verifiers(read_verifiers(&verifiers.join(VERIFIER_FILE))?);
        }
        train(context, precision, Some(&form), micro_batch, |job, control| {
            let (longest, temperature) = (config.max_completion_tokens, config.temperature as f32);
            let mut sampler: Box<dyn Sampler> = match &remote {
                None => Box::new(GeneratorSampler::new(job.model.clone(), longest, temperature, stops)),
                Some(remote) => {
                    let endpoint = open_endpoint_without_cache(&remote.endpoint, &place)?;
                    let sampling = (longest, temperature, stops);
                    let folder = context.out.join("handed-over");
                    Box::new(RemoteSampler::new(remote.clone(), endpoint, job.model.clone(), &folder, sampling)?)
                }
            };
            let mut partners = Partners { sampler: sampler.as_mut(), scorer: &mut scorer };
            Ok(rl::run(&config, job, &ids, &mut partners, control)?)
        })
    }
}

fn largest_micro_batch(config: &RlConfig, prompts: &[RlPrompt]) -> MicroBatch {
    let longest = prompts.iter().map(|prompt| prompt.tokens.len()).max().unwrap_or(0);
    let completions = if config.share_prompts { config.group_size } else { 1 };
    let row_tokens = longest + completions * config.max_completion_tokens;
    MicroBatch { rows: config.rows_per_micro_batch, row_tokens, at_once: config.micro_batches_at_once }
}
