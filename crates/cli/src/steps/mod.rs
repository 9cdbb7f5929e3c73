//! The steps: where the stages of the other crates become commands and parts of pipelines.
//!
//! A step is a name, a config and inputs by role; it writes one artifact. A new step is one file and one line below.

mod calibrate;
mod data;
mod evaluate;
mod export;
mod extend;
mod form;
mod import;
mod ingest;
mod labels;
mod lineage;
mod live;
mod model;
mod report;
mod rl;
mod supervised;
mod trace;
mod training;
mod verifier;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use worldloom_model::SaveDType;
use worldloom_render::Templates;
use worldloom_schema::InputRef;
use worldloom_train::Ranks;

pub(crate) use data::{Curate, lengths};
pub(crate) use ingest::store_access;
pub(crate) use model::planned_shape;

use crate::config::{UserError, nearest};
use crate::device::Place;
use crate::progress::Progress;

/// Counts for the manifest and the transcript.
pub(crate) type Counts = BTreeMap<String, u64>;

/// An input of a step.
pub(crate) struct Role {
    pub(crate) name: &'static str,
    /// The kind of artifact it must be; none: checked by the step.
    pub(crate) artifact: Option<&'static str>,
    pub(crate) required: bool,
    /// Whether the command takes it as an argument of its own, without a flag.
    pub(crate) positional: bool,
    pub(crate) help: &'static str,
}

impl Role {
    const fn required(name: &'static str, artifact: Option<&'static str>, help: &'static str) -> Self {
        Self { name, artifact, required: true, positional: false, help }
    }

    /// The file that a command is about: `import gguf FILE`.
    const fn file(name: &'static str, help: &'static str) -> Self {
        Self { name, artifact: None, required: true, positional: true, help }
    }

    const fn optional(name: &'static str, artifact: Option<&'static str>, help: &'static str) -> Self {
        Self { name, artifact, required: false, positional: false, help }
    }
}

/// What a running step is given.
pub(crate) struct StepContext<'a> {
    pub(crate) config: &'a Value,
    pub(crate) inputs: &'a BTreeMap<String, InputRef>,
    pub(crate) out: PathBuf,
    pub(crate) progress: &'a Progress,
    pub(crate) stop: &'a AtomicBool,
    /// The processes that share the step: one for most.
    pub(crate) ranks: &'a dyn Ranks,
}

impl StepContext<'_> {
    /// The step's config as its own type.
    pub(crate) fn config<T: DeserializeOwned>(&self) -> Result<T> {
        without_device(self.config)
    }

    /// The folder or file of an input.
    pub(crate) fn input(&self, role: &str) -> Result<&Path> {
        self.optional(role).ok_or_else(|| UserError::new(format!("input `{role}` is missing")).into())
    }

    pub(crate) fn optional(&self, role: &str) -> Option<&Path> {
        self.inputs.get(role).map(|input| input.path.as_path())
    }

    /// Whether this is the process that writes.
    pub(crate) fn is_first(&self) -> bool {
        self.ranks.rank() == 0
    }

    pub(crate) fn advance(&self) -> impl Fn(u64, u64) + Sync {
        |done, total| self.progress.update(done, total)
    }
}

/// One kind of step.
pub(crate) trait Step: Sync {
    /// The command, such as `train cpt`.
    fn name(&self) -> &'static str;
    /// One line of help.
    fn about(&self) -> &'static str;
    /// Moves when the step's output changes for the same config and inputs.
    fn version(&self) -> u32 {
        1
    }
    /// Kind of the artifact it writes.
    fn artifact(&self) -> &'static str;
    /// Its inputs.
    fn roles(&self) -> &'static [Role];
    /// The config with every default filled in and paths made relative to `base`.
    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value>;
    /// Hashes of files that the config itself names.
    fn external_inputs(&self, _config: &Value) -> Result<Value> {
        Ok(Value::Null)
    }
    /// Whether it resumes in its folder, and so is not written beside it first.
    fn works_in_place(&self) -> bool {
        false
    }
    /// Whether it computes on a device of the user's choice: its config has the key `device`.
    fn trains(&self) -> bool {
        false
    }
    /// Lines for a person about what a finished run wrote.
    fn summary(&self, _out: &Path) -> Result<Vec<String>> {
        Ok(Vec::new())
    }
    /// Does the work.
    fn run(&self, context: &StepContext<'_>) -> Result<Counts>;
}

/// All steps, in the order of the road.
pub(crate) const STEPS: &[&dyn Step] = &[
    &ingest::Ingest,
    &ingest::Corpus,
    &data::Curate { cluster: None },
    &trace::Instruct,
    &trace::Trace,
    &data::TokenizerTrain,
    &data::Render,
    &model::Init,
    &extend::Extend,
    &import::ImportGguf,
    &supervised::Supervised { name: "train cpt", about: "Continued pretraining on token shards" },
    &supervised::Supervised { name: "train sft", about: "Supervised fine-tuning on token shards" },
    &verifier::VerifierBuild,
    &rl::Rl,
    &export::Export,
    &evaluate::EvaluatePool,
    &calibrate::JudgeCalibrate,
    &report::Report,
];

/// The step with this name.
pub(crate) fn find_step(name: &str) -> Result<&'static dyn Step> {
    if let Some(step) = STEPS.iter().find(|step| step.name() == name) {
        return Ok(*step);
    }
    let names: Vec<&str> = STEPS.iter().map(|step| step.name()).collect();
    let error = UserError::new(format!("unknown step `{name}`"));
    Err(match nearest(name, names.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")).into(),
        None => error.hint(format!("steps: {}", names.join(", "))).into(),
    })
}

/// A step's config with every default in it. Where a training computes is a key of its config unless it is the CPU, so that
/// its key is another one there; `device` is what the command line says, which wins.
pub(crate) fn resolve(
    step: &dyn Step,
    table: &toml::Table,
    base: &Path,
    origin: &str,
    device: Option<Place>,
) -> Result<Value> {
    if !step.trains() {
        return step.resolve(table, base, origin);
    }
    let mut table = table.clone();
    let written = table.remove(DEVICE).map(|value| match &value {
        toml::Value::String(text) => text.parse::<Place>(),
        other => Err(format!("`{other}`, expected a text such as \"wgpu\"")),
    });
    let written = written.transpose().map_err(|error| UserError::new(format!("{origin}: `{DEVICE}`: {error}")))?;
    let place = device.or(written).unwrap_or(Place::CPU);
    let mut config = step.resolve(&table, base, origin)?;
    if !place.is_cpu() {
        config[DEVICE] = json!(place.to_string());
    }
    Ok(config)
}

/// Where a step with this config computes.
pub(crate) fn place_of(config: &Value) -> Result<Place> {
    let place = config.get(DEVICE).and_then(Value::as_str).map(str::parse);
    Ok(place.transpose().map_err(UserError::new)?.unwrap_or(Place::CPU))
}

/// A step's own part of its config.
pub(crate) fn without_device<T: DeserializeOwned>(config: &Value) -> Result<T> {
    let mut config = config.clone();
    if let Value::Object(keys) = &mut config {
        keys.remove(DEVICE);
    }
    Ok(serde_json::from_value(config)?)
}

/// The key of trainings that says where they compute.
const DEVICE: &str = "device";

/// Parses a table as `T` and gives it back as JSON with every default in it.
fn resolve_as<T: DeserializeOwned + Serialize>(table: &toml::Table, origin: &str) -> Result<Value> {
    crate::config::resolved(&crate::config::typed::<T>(table, origin)?)
}

/// A path as it stands in a config, from the folder of that config.
fn rebase(base: &Path, path: &Path) -> PathBuf {
    if path.is_absolute() || base == Path::new(".") { path.into() } else { base.join(path) }
}

/// The value of a variable that a config names as a key.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The texts of `compact` that keys were first made with; they add nothing to a key.
const FIRST_TEXTS: &str = "6beccedd829061893be20eee0d8ec626";

/// What templates add to a step's key: the hash of all that a folder or a bundled family says. What a folder does not
/// say itself it has from `compact`, so that is part of it too.
fn templates_key(family: Option<&str>, folder: Option<&Path>) -> Result<Value> {
    match (family, folder) {
        (_, Some(folder)) => Ok(json!(Templates::from_folder(folder)?.hash_of_all())),
        (None, None) => Ok(Value::Null),
        (Some(family), None) => {
            let hash = Templates::bundled(family)?.hash_of_all();
            Ok(if hash == FIRST_TEXTS { Value::Null } else { json!(hash) })
        }
    }
}

/// The folder with `config.json` inside an artifact: training leaves it in `model/`.
pub(crate) fn model_folder(artifact: &Path) -> PathBuf {
    let inner = artifact.join("model");
    if inner.join("config.json").exists() { inner } else { artifact.into() }
}

/// Type of written weights: `f32` is exact, `bf16` and `f16` round to nearest.
#[derive(Debug, Clone, Copy, Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredType {
    F32,
    Bf16,
    F16,
}

impl StoredType {
    fn save_dtype(self) -> SaveDType {
        match self {
            StoredType::F32 => SaveDType::F32,
            StoredType::Bf16 => SaveDType::BF16,
            StoredType::F16 => SaveDType::F16,
        }
    }
}

/// Puts the tokenizer's files beside a model.
fn copy_tokenizer(tokenizer: &Path, model: &Path) -> Result<()> {
    for name in TOKENIZER_FILES {
        let from = tokenizer.join(name);
        if from.exists() {
            fs_err::copy(&from, model.join(name))?;
        }
    }
    Ok(())
}

const TOKENIZER_FILES: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    worldloom_render::FORM_FILE,
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
];

#[cfg(test)]
mod tests {
    use super::{find_step, place_of, resolve, templates_key, without_device};
    use crate::device::Place;
    use std::path::Path;

    #[test]
    fn where_a_training_computes_is_in_its_config_unless_it_is_the_cpu() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../configs/cpt/smollm2.toml");
        let table = crate::config::read_toml(&file).unwrap();
        let step = find_step("train cpt").unwrap();
        let resolved = |text: &str, device: Option<&str>| {
            let mut table = table.clone();
            if !text.is_empty() {
                crate::config::apply_set(&mut table, &format!("device={text}")).unwrap();
            }
            let device = device.map(|device| device.parse::<Place>().unwrap());
            resolve(step, &table, Path::new("."), "test", device)
        };
        let plain = resolved("", None).unwrap();
        assert_eq!(resolved("cpu", None).unwrap(), plain);
        assert_eq!(resolved("wgpu", Some("cpu")).unwrap(), plain, "the command line wins");
        let elsewhere = resolved("", Some("wgpu:1")).unwrap();
        assert_eq!(elsewhere["device"], "wgpu:1");
        assert_eq!(place_of(&elsewhere).unwrap().to_string(), "wgpu:1");
        assert_eq!(without_device::<serde_json::Value>(&elsewhere).unwrap(), plain);
        assert!(resolved("gpu", None).unwrap_err().to_string().contains("test: `device`: `gpu`, expected cpu"));
        let other = find_step("curate").unwrap();
        let table = "device = 'wgpu'".parse().unwrap();
        assert!(resolve(other, &table, Path::new("."), "test", None).is_err(), "only trainings have it");
    }

    #[test]
    fn a_key_follows_the_texts_of_templates() {
        let folder = tempfile::tempdir().unwrap();
        let key = |family| templates_key(family, None).unwrap();
        let own = || templates_key(None, Some(folder.path())).unwrap();
        assert!(key(None).is_null() && key(Some("compact")).is_null() && key(Some("full")).is_string());
        fs_err::write(folder.path().join("v1.jinja"), "one").unwrap();
        let before = own();
        fs_err::write(folder.path().join("v1.jinja"), "two").unwrap();
        assert_ne!(own(), before);
        let texts = worldloom_render::Templates::from_folder(folder.path()).unwrap();
        assert_eq!(own(), texts.hash_of_all(), "what the folder has from `compact` is in its key");
        let before = own();
        fs_err::write(folder.path().join("tag_instruction.txt"), "Answer in <predicted_observation>.").unwrap();
        assert_ne!(own(), before);
        let before = own();
        fs_err::write(folder.path().join("notes.md"), "says nothing to a model").unwrap();
        assert_eq!(own(), before);
        assert!(templates_key(None, Some(&folder.path().join("none"))).is_err());
        assert!(templates_key(Some("nothing"), None).is_err());
    }
}
