//! `train rl`: completions sampled from the model itself, scored by judge and rule, pushed by a policy objective.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worldloom_judge::BuiltinJudge;
use worldloom_render::{Renderer, Templates, Tokenizer};
use worldloom_schema::{PROMPT_FILE, Prompt, read_table};
use worldloom_train::rl::{self, Partners, RlConfig, RlStepMetrics};
use worldloom_train::{Control, Job, Observer};
use worldloom_world::{GeneratorSampler, JudgeScorer, ScorerConfig, rl_prompts};

use super::supervised::stopped;
use super::{Counts, Role, Step, StepContext, copy_tokenizer, model_folder, resolve_as};
use crate::device::open_device;
use crate::progress::Progress;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepConfig {
    /// The loop.
    train: RlConfig,
    /// The reward.
    scorer: ScorerConfig,
}

struct Watch<'a> {
    progress: &'a Progress,
    steps: u64,
}

impl Observer for Watch<'_> {
    fn on_start(&mut self, info: &worldloom_train::StartInfo) {
        self.steps = info.steps;
        if info.done > 0 {
            eprintln!("  goes on after step {} of {}", info.done, info.steps);
        }
    }

    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        self.progress.update_with(metrics.step, self.steps, || {
            let (reward, faults) = (metrics.reward_mean, 100.0 * metrics.fault_share);
            format!("reward {reward:.2} faults {faults:.1} % length {:.0}", metrics.response_length)
        });
    }
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
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<StepConfig>(table, origin)
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let StepConfig { train, scorer } = context.config()?;
        let device = open_device().autodiff();
        let from = model_folder(context.input("model")?);
        let (decoder, model) = worldloom_model::load(&from, &device)?;
        // The scorer only reads completions; no prompt is rendered with these templates.
        let renderer = Renderer::new(Tokenizer::open(&from)?, Templates::bundled("compact")?)?;
        let prompts: Vec<Prompt> = read_table(&context.input("prompts")?.join(PROMPT_FILE))?;
        let ids = rl_prompts(&prompts);
        let stops = renderer.tokenizer().stop_tokens();
        let temperature = train.temperature as f32;
        let mut sampler = GeneratorSampler::new(model.clone(), train.max_completion_tokens, temperature, stops);
        let mut scorer = JudgeScorer::new(scorer, renderer, Box::new(BuiltinJudge), prompts)?;
        let mut partners = Partners { sampler: &mut sampler, scorer: &mut scorer };
        let mut watch = Watch { progress: context.progress, steps: 0 };
        let mut control = Control { observer: &mut watch, stop: context.stop };
        let job = Job { decoder, model, out: &context.out, device: &device };
        let report = rl::run(&train, job, &ids, &mut partners, &mut control)?;
        if report.is_stopped {
            return Err(stopped(report.steps));
        }
        copy_tokenizer(&from, &context.out.join("model"))?;
        Ok(report.counts)
    }
}
