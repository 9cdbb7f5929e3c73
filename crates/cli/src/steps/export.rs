//! `export`: a Hugging Face folder, read back and compared before it is called done.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worldloom_model::{SaveDType, SaveOptions};
use worldloom_render::PromptForm;

use super::labels::stop_tokens;
use super::{Counts, Role, Step, StepContext, StoredType, copy_tokenizer, model_folder, resolve_as};
use crate::device::cpu;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExportConfig {
    /// Name for the model card.
    name: String,
    /// Type of the written weights.
    dtype: StoredType,
    /// Bytes of a file of weights; what is more goes into several, with an index. Default: 5 GB, as is usual.
    #[serde(default = "max_shard_bytes")]
    max_shard_bytes: u64,
}

fn max_shard_bytes() -> u64 {
    SaveOptions::new(SaveDType::F32).max_shard_bytes
}

/// Writes the folder that other programs load.
pub(super) struct Export;

impl Step for Export {
    fn name(&self) -> &'static str {
        "export"
    }

    fn about(&self) -> &'static str {
        "Write a Hugging Face folder, read it back and compare"
    }

    fn artifact(&self) -> &'static str {
        "export"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("model", None, "artifact of a training, or a folder with `config.json`"),
            Role::optional(
                "other-parts",
                None,
                "published folder whose vision and multi-token tensors are copied along",
            ),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<ExportConfig>(table, origin)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config: ExportConfig = context.config()?;
        let device = cpu();
        let from = model_folder(context.input("model")?);
        let options = SaveOptions {
            max_shard_bytes: config.max_shard_bytes,
            other_parts: context.optional("other-parts").map(Path::to_owned),
            ..SaveOptions::new(config.dtype.save_dtype())
        };
        let parameters = worldloom_model::export(&from, &context.out, &options, &device)?;
        copy_tokenizer(&from, &context.out)?;
        write_generation_config(&from, &context.out)?;
        fs_err::write(context.out.join("README.md"), card(&config, context))?;
        Ok([("parameters".to_string(), parameters)].into())
    }
}

fn write_generation_config(from: &Path, out: &Path) -> Result<()> {
    let mut generation = json!({ "do_sample": true, "temperature": 1.0 });
    let path = from.join("tokenizer.json");
    if path.exists() {
        let stops = stop_tokens(from, PromptForm::read(from)?.as_ref())?;
        generation["pad_token_id"] = json!(stops.last());
        generation["eos_token_id"] = json!(stops);
    }
    Ok(fs_err::write(out.join("generation_config.json"), serde_json::to_string_pretty(&generation)? + "\n")?)
}

fn card(config: &ExportConfig, context: &StepContext<'_>) -> String {
    let lineage: String = context.inputs.iter().map(|(role, input)| format!("- {role}: `{}`\n", input.key)).collect();
    format!(
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags: [world-model]\n---\n\n# {}\n\n\
         A language world model trained with worldloom: it predicts what an environment answers to an agent's \
         action. The system message describes the environment, user messages are actions, the assistant answers \
         with the observation.\n\nLineage (keys of the artifacts it was made from):\n\n{lineage}",
        config.name
    )
}
