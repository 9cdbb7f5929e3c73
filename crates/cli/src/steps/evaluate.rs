//! `evaluate pool`: every stage and the trivial baselines on the evaluation pool.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use worldloom_judge::BuiltinJudge;
use worldloom_world::Asked;
use worldloom_world::evaluate::{self, EvaluateConfig, Inputs, Stage};

use super::{Counts, Role, Step, StepContext, model_folder, rebase, templates_key};
use crate::config::{UserError, resolved, typed};
use crate::device::cpu;

/// The checkpoints that can be given, how each was trained to be asked, and whether it went past stages.
const STAGES: &[(&str, Asked, bool)] = &[
    ("base", Asked::Plain, false),
    ("cpt", Asked::Plain, false),
    ("sft", Asked::Tagged, false),
    ("rl", Asked::Tagged, false),
    ("sft-only", Asked::Tagged, true),
    ("rl-only", Asked::Tagged, true),
];

/// Measures predictions on the evaluation pool.
pub(super) struct EvaluatePool;

impl Step for EvaluatePool {
    fn name(&self) -> &'static str {
        "evaluate pool"
    }

    fn about(&self) -> &'static str {
        "Measure checkpoints and trivial baselines on the evaluation pool, with intervals"
    }

    fn version(&self) -> u32 {
        3
    }

    fn artifact(&self) -> &'static str {
        "evaluation"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("pools", Some("pools"), "artifact of `curate`"),
            Role::optional("base", None, "untrained model, asked without thinking"),
            Role::optional("cpt", None, "checkpoint of CPT, asked without thinking"),
            Role::optional("sft", None, "checkpoint of SFT, asked with thinking and tags"),
            Role::optional("rl", None, "checkpoint of RL, asked with thinking and tags"),
            Role::optional("sft-only", None, "ablation: checkpoint of SFT on the untrained model"),
            Role::optional("rl-only", None, "ablation: checkpoint of RL on the untrained model"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: EvaluateConfig = typed(table, origin)?;
        config.templates = config.templates.map(|path| rebase(base, &path));
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: EvaluateConfig = serde_json::from_value(config.clone())?;
        templates_key(config.family.as_deref(), config.templates.as_deref())
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let stage = |&(name, asked, is_ablation): &(&str, Asked, bool)| {
            let model = model_folder(context.optional(name)?);
            Some(Stage { name: name.into(), model, asked, is_ablation })
        };
        let stages: Vec<Stage> = STAGES.iter().filter_map(stage).collect();
        if stages.is_empty() {
            let error = UserError::new("no checkpoint to evaluate");
            return Err(error.hint("give at least one of: base, cpt, sft, rl").into());
        }
        let pools = context.input("pools")?;
        let device = cpu();
        let inputs = Inputs {
            stages: &stages,
            eval_pool: &pools.join("eval.parquet"),
            training_pool: &pools.join("cpt.parquet"),
            judge: &BuiltinJudge,
            device: &device,
        };
        Ok(evaluate::run(&context.config()?, &inputs, &context.out, &context.advance())?.counts)
    }
}
