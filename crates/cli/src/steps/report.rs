//! `report`: what the steps left behind, on one page.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;
use worldloom_report::{ReportConfig, ReportInput};

use super::{Counts, Role, Step, StepContext, resolve_as};

/// Roles whose folders hold `metrics.jsonl`.
const TRAININGS: &[&str] = &["cpt", "sft", "rl", "sft-only", "rl-only"];

/// Writes the page.
pub(super) struct Report;

impl Step for Report {
    fn name(&self) -> &'static str {
        "report"
    }

    fn about(&self) -> &'static str {
        "Write one self-contained HTML page: curves, tables, examples, lineage"
    }

    fn artifact(&self) -> &'static str {
        "report"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::optional("evaluation", Some("evaluation"), "artifact of `evaluate pool`"),
            Role::optional("cpt", Some("checkpoint"), "artifact of `train cpt`"),
            Role::optional("sft", Some("checkpoint"), "artifact of `train sft`"),
            Role::optional("rl", Some("checkpoint"), "artifact of `train rl`"),
            Role::optional("sft-only", Some("checkpoint"), "ablation: SFT on the untrained model"),
            Role::optional("rl-only", Some("checkpoint"), "ablation: RL on the untrained model"),
            Role::optional("trajectories", Some("trajectories"), "artifact of `ingest`, for the lineage"),
            Role::optional("pools", Some("pools"), "artifact of `curate`, for the lineage"),
            Role::optional("tokenizer", Some("tokenizer"), "artifact of `tokenizer train`, for the lineage"),
            Role::optional("rows-cpt", Some("rendered"), "artifact of `render`, for the lineage"),
            Role::optional("rows-sft", Some("rendered"), "artifact of `render`, for the lineage"),
            Role::optional("prompts", Some("rendered"), "artifact of `render`, for the lineage"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<ReportConfig>(table, origin)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let named = |role: &&str| context.optional(role).map(|folder| (role.to_string(), folder.to_path_buf()));
        let lineage = ["trajectories", "pools", "tokenizer", "rows-cpt", "rows-sft", "prompts", "cpt", "sft", "rl"];
        let reports = lineage.iter().filter_map(named).map(|(name, folder)| (name, folder.join("report.json")));
        let input = ReportInput {
            evaluation: context.optional("evaluation"),
            stages: TRAININGS.iter().filter_map(named).collect(),
            reports: reports.collect(),
        };
        Ok(worldloom_report::run(&context.config()?, &input, &context.out)?.counts)
    }
}
