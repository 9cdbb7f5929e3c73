//! `import gguf`: a model folder out of a GGUF file, tokenizer and chat template included.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worldloom_model::{Gguf, import_gguf, parameter_shapes};
use worldloom_render::{GgufVocabulary, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};

use super::{Counts, Role, Step, StepContext, StoredType, resolve_as};
use crate::device::cpu;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportConfig {
    /// Type of the written weights. Default: f32, which holds every block's numbers exactly.
    #[serde(default = "exact")]
    dtype: StoredType,
}

fn exact() -> StoredType {
    StoredType::F32
}

/// Reads a GGUF.
pub(super) struct ImportGguf;

impl Step for ImportGguf {
    fn name(&self) -> &'static str {
        "import gguf"
    }

    fn about(&self) -> &'static str {
        "Make a model folder of a GGUF file: weights, config, tokenizer and chat template"
    }

    fn artifact(&self) -> &'static str {
        "model"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[Role::file("gguf", "GGUF file of a Llama, Qwen2 or Qwen3 model")];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, _base: &Path, origin: &str) -> Result<Value> {
        resolve_as::<ImportConfig>(table, origin)
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let config: ImportConfig = context.config()?;
        let device = cpu();
        let gguf = Gguf::open(context.input("gguf")?)?;
        let vocabulary = vocabulary(&gguf);
        let (tokenizer, tokenizer_config) = (vocabulary.tokenizer_json()?, vocabulary.tokenizer_config());
        let model = import_gguf(&gguf, &context.out, config.dtype.save_dtype(), &device)?;
        fs_err::write(context.out.join(TOKENIZER_FILE), tokenizer)?;
        fs_err::write(context.out.join(TOKENIZER_CONFIG_FILE), tokenizer_config)?;
        let parameters =
            parameter_shapes(&model, &device).iter().map(|parameter| parameter.num_elements() as u64).sum();
        let tokens = vocabulary.tokens.len() as u64;
        Ok([("parameters".to_string(), parameters), ("tokens".to_string(), tokens)].into())
    }
}

fn vocabulary(gguf: &Gguf) -> GgufVocabulary<'_> {
    let key = |key: &str| format!("tokenizer.ggml.{key}");
    let context_length =
        gguf.text("general.architecture").and_then(|name| gguf.integer(&format!("{name}.context_length")));
    GgufVocabulary {
        path: gguf.path().to_owned(),
        model: gguf.text(&key("model")).unwrap_or_default(),
        pre: gguf.text(&key("pre")).unwrap_or_default(),
        tokens: gguf.texts(&key("tokens")).unwrap_or_default(),
        kinds: gguf.integers(&key("token_type")).unwrap_or_default(),
        merges: gguf.texts(&key("merges")).unwrap_or_default(),
        bos: gguf.integer(&key("bos_token_id")),
        eos: gguf.integer(&key("eos_token_id")),
        unknown: gguf.integer(&key("unknown_token_id")),
        padding: gguf.integer(&key("padding_token_id")),
        chat_template: gguf.text("tokenizer.chat_template"),
        max_length: context_length.unwrap_or_default(),
    }
}
