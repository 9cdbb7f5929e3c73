//! Checkpoints that are there whole or not at all, and that say what run they belong to.
//!
//! `checkpoints/step-000123/` holds the model's files, `optimizer.safetensors`, `state.json` and a `manifest.json` with
//! their hashes, the resolved config and the keys of the inputs. It is written beside its place, synced and renamed; only
//! then an older one goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use worldloom_model::{Decoder, ModelConfig};
use worldloom_schema::{Artifact, ArtifactWriter, InputRef, Manifest};

use crate::error::{Error, Result};
use crate::learner::Learner;
use crate::run::{BASE, save_weights};

const FOLDER: &str = "checkpoints";
const KIND: &str = "checkpoint";
const VERSION: u32 = 1;
const STATE: &str = "state.json";
/// What the run's data, template, tokenizer and model came from: written by whoever starts the run, copied as it is.
pub const LINEAGE: &str = "lineage.json";
pub(crate) const OPTIMIZER: &str = "optimizer.safetensors";
/// Config sections that decide nothing about the result.
const FREE_KEYS: [&str; 1] = ["checkpoints"];

/// When checkpoints are made and how many stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Steps between two.
    pub every: u64,
    /// How many of the newest stay.
    pub keep: usize,
    /// Those of every so many steps stay too. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_every: Option<u64>,
    /// Whether the one with the lowest validation loss stays too; it is made when the loss is measured. Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_best: bool,
}

impl CheckpointConfig {
    /// One after every so many steps, of which the newest `keep` stay.
    pub fn new(every: u64, keep: usize) -> Self {
        Self { every, keep, keep_every: None, keep_best: false }
    }

    /// Whether the policy keeps the `rank`-th newest, from 0.
    fn keeps(&self, rank: usize, step: u64, best: Option<Best>) -> bool {
        rank < self.keep
            || self.keep_every.is_some_and(|every| step.is_multiple_of(every))
            || (self.keep_best && best.is_some_and(|best| best.step == step))
    }

    pub(crate) fn check(&self) -> Result<()> {
        if self.every == 0 {
            return Err(Error::config("checkpoints.every", "0, expected at least 1"));
        }
        if self.keep == 0 {
            return Err(Error::config("checkpoints.keep", "0, expected at least 1"));
        }
        if let Some(kept) = self.keep_every.filter(|&kept| kept == 0 || !kept.is_multiple_of(self.every)) {
            let detail = format!("{kept}, expected a multiple of `every`, {}", self.every);
            return Err(Error::config("checkpoints.keep_every", detail));
        }
        Ok(())
    }
}

/// What makes two runs the same.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) config: Value,
    pub(crate) inputs: BTreeMap<String, InputRef>,
}

impl Identity {
    /// What differs from a manifest, in words; empty if nothing does.
    fn changes(&self, manifest: &Manifest) -> Vec<String> {
        let mut changes = Vec::new();
        differences("", &manifest.config, &as_read_back(&self.config), &mut changes);
        for (role, input) in &self.inputs {
            let before = manifest.inputs.get(role).map_or("none", |input| input.key.as_str());
            if before != input.key {
                changes.push(format!("the {role} has other content ({before}, now {})", input.key));
            }
        }
        for role in manifest.inputs.keys().filter(|role| !self.inputs.contains_key(*role)) {
            changes.push(format!("the {role} is missing"));
        }
        changes
    }

    /// What differs from another process of the job, in words; empty if nothing does.
    pub(crate) fn differences_from(&self, other: Identity) -> Vec<String> {
        let Identity { config, inputs } = other;
        self.changes(&Manifest { config, inputs, ..Manifest::new(KIND, VERSION) })
    }
}

/// What a manifest says after writing and reading: JSON numbers may come back with another last bit.
fn as_read_back(config: &Value) -> Value {
    serde_json::from_str(&config.to_string()).unwrap_or_else(|_| config.clone())
}

fn differences(path: &str, before: &Value, now: &Value, changes: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (before, now) else {
        if before != now {
            changes.push(format!("`{path}` was {before}, now {now}"));
        }
        return;
    };
    let mut keys: Vec<&String> = old.keys().chain(new.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys.into_iter().filter(|key| !(path.is_empty() && FREE_KEYS.contains(&key.as_str()))) {
        let inner = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        let side = |object: &serde_json::Map<String, Value>| object.get(key).cloned().unwrap_or(Value::Null);
        differences(&inner, &side(old), &side(new), changes);
    }
}

/// Where a run stands between two steps. Order and seeds are functions of the step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct State {
    /// Steps made.
    pub(crate) step: u64,
    /// Rows or prompts drawn.
    pub(crate) cursor: u64,
    /// Tokens seen.
    pub(crate) tokens: u64,
    /// Tokens trained on.
    pub(crate) trained_tokens: u64,
    /// Seed of the run.
    pub(crate) seed: u64,
    /// Steps that changed nothing because they were not finite.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) skipped: u64,
    /// The lowest validation loss so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) best: Option<Best>,
}

pub(crate) fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The lowest validation loss of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Best {
    pub(crate) step: u64,
    pub(crate) value: f64,
}

/// A checkpoint that was read and found whole.
pub(crate) struct Loaded {
    pub(crate) folder: PathBuf,
    pub(crate) decoder: Decoder,
    pub(crate) state: State,
}

/// Writes further files into a checkpoint's folder.
pub(crate) type Further<'a> = &'a dyn Fn(&Path) -> Result<()>;

/// The checkpoints of one run.
pub(crate) struct Checkpoints {
    run: PathBuf,
    folder: PathBuf,
    config: CheckpointConfig,
    identity: Identity,
    /// Held while the run is open; the system lets go of it when the process ends, however it ends. None: only read.
    _lock: Option<fs_err::File>,
}

impl Checkpoints {
    /// Opens the run's folder for one process; what a killed one left unfinished is removed.
    pub(crate) fn open(run: &Path, config: CheckpointConfig, identity: Identity) -> Result<Self> {
        let folder = run.join(FOLDER);
        fs_err::create_dir_all(&folder)?;
        let lock = fs_err::File::open(&folder)?;
        match rustix::fs::flock(lock.file(), rustix::fs::FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(Error::Busy { path: run.into() }),
            Err(error) => return Err(Error::file(&folder, std::io::Error::from(error))),
        }
        for entry in fs_err::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.ends_with(".partial") || name.ends_with(".replaced") {
                fs_err::remove_dir_all(&path)?;
            }
        }
        Ok(Self { _lock: Some(lock), ..Self::to_read(run, config, identity) })
    }

    /// Those of a run that another process of the same job has opened.
    pub(crate) fn to_read(run: &Path, config: CheckpointConfig, identity: Identity) -> Self {
        Self { run: run.into(), folder: run.join(FOLDER), config, identity, _lock: None }
    }

    /// Whether a checkpoint belongs after this step.
    pub(crate) fn is_due(&self, step: u64, last: u64) -> bool {
        step == last || step.is_multiple_of(self.config.every)
    }

    /// Refuses a folder with too little space for a checkpoint of so many parameters.
    pub(crate) fn check_space(&self, parameters: u64) -> Result<()> {
        check_space(&self.folder, parameters, free_space(&self.folder)?)
    }

    /// Writes one and removes those that the policy does not keep. Weights that are not numbers are refused.
    /// `further` writes what else a stage wants to find again.
    pub(crate) fn save(
        &self,
        learner: &Learner,
        model: &ModelConfig,
        state: &State,
        further: Further<'_>,
    ) -> Result<PathBuf> {
        learner.check_weights(state.step)?;
        self.check_space(learner.decoder().num_trained() as u64)?;
        let target = self.folder.join(name_of(state.step));
        let writer = ArtifactWriter::create(&target)?;
        match learner.decoder().is_adapted() {
            true => learner.decoder().save_adapter(writer.path(), BASE)?,
            false => save_weights(learner, model, writer.path())?,
        }
        learner.optimizer.save(&writer.path().join(OPTIMIZER))?;
        write_json(&writer.path().join(STATE), state)?;
        further(writer.path())?;
        let mut manifest = Manifest::new(KIND, VERSION);
        manifest.config = self.identity.config.clone();
        manifest.inputs = self.identity.inputs.clone();
        manifest.counts = [("step".to_string(), state.step), ("tokens".to_string(), state.tokens)].into();
        let lineage = self.run.join(LINEAGE);
        if lineage.exists() {
            fs_err::copy(&lineage, writer.path().join(LINEAGE))?;
        }
        writer.finish(manifest)?;
        fs_err::File::open(&target)?.sync_all()?;
        self.prune(state.best)?;
        Ok(target)
    }

    fn prune(&self, best: Option<Best>) -> Result<()> {
        for (rank, (step, folder)) in self.list()?.into_iter().enumerate() {
            if !self.config.keeps(rank, step, best) {
                fs_err::remove_dir_all(folder)?;
            }
        }
        Ok(())
    }

    /// Whether the lowest validation loss asks for a checkpoint of its own.
    pub(crate) fn keeps_best(&self) -> bool {
        self.config.keep_best
    }

    /// Steps and folders, newest first.
    fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in fs_err::read_dir(&self.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(step) = name.strip_prefix("step-").and_then(|digits| digits.parse().ok()) {
                found.push((step, path));
            }
        }
        found.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
        Ok(found)
    }

    /// The newest one that is whole; damaged ones are put aside with a warning. Another run's is refused.
    /// Adapters are put beside the weights of `base`.
    pub(crate) fn latest(&self, base: Option<&Decoder>, device: &Device) -> Result<Option<Loaded>> {
        let mut damaged: Vec<(PathBuf, Error)> = Vec::new();
        for (_, folder) in self.list()? {
            match self.read(&folder, base, device) {
                Ok(loaded) => {
                    for (folder, error) in damaged {
                        tracing::warn!(folder = %folder.display(), %error, "damaged checkpoint put aside");
                        put_aside(&folder)?;
                    }
                    return Ok(Some(loaded));
                }
                Err(error @ Error::ChangedRun { .. }) => return Err(error),
                Err(error) => damaged.push((folder, error)),
            }
        }
        match damaged.into_iter().next() {
            None => Ok(None),
            Some((path, error)) => {
                let detail = format!("{error}; no earlier one is whole: remove `{}` to start over", self.run.display());
                Err(Error::Checkpoint { path, detail })
            }
        }
    }

    /// Reads the one after a step.
    pub(crate) fn at(&self, step: u64, base: Option<&Decoder>, device: &Device) -> Result<Loaded> {
        self.read(&self.folder.join(name_of(step)), base, device)
    }

    fn read(&self, folder: &Path, base: Option<&Decoder>, device: &Device) -> Result<Loaded> {
        let artifact = Artifact::open(folder, KIND)?;
        artifact.verify(true)?;
        let changes = self.identity.changes(&artifact.manifest);
        if !changes.is_empty() {
            return Err(Error::ChangedRun { path: self.run.clone(), changes: changes.join("; ") });
        }
        let path = folder.join(STATE);
        let state = serde_json::from_str(&fs_err::read_to_string(&path)?).map_err(|error| Error::file(&path, error))?;
        let decoder = match base {
            Some(base) => base.clone().with_adapter(folder, device)?,
            None => worldloom_model::load(folder, device)?.0,
        };
        Ok(Loaded { folder: folder.into(), decoder, state })
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:06}")
}

fn put_aside(folder: &Path) -> Result<()> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let aside = folder.with_file_name(format!("damaged-{name}"));
    if aside.exists() {
        fs_err::remove_dir_all(&aside)?;
    }
    Ok(fs_err::rename(folder, aside)?)
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::file(path, error))?;
    Ok(fs_err::write(path, text + "\n")?)
}

/// Weights and two moments in float32, and a little for the rest.
fn check_space(folder: &Path, parameters: u64, free: u64) -> Result<()> {
    let needed = parameters * 12 + (1 << 20);
    if free < needed {
        return Err(Error::DiskSpace { path: folder.into(), needed, free });
    }
    Ok(())
}

fn free_space(folder: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(folder).map_err(|error| Error::file(folder, std::io::Error::from(error)))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn changes_are_named_with_their_path_and_free_sections_are_not() {
        let key = |key: &str| InputRef { path: PathBuf::new(), key: key.into() };
        let mut manifest = Manifest::new(KIND, VERSION);
        manifest.config = json!({"optimizer": {"learning_rate": 0.1}, "checkpoints": {"every": 5}, "seed": 1});
        manifest.inputs = [("data".to_string(), key("aa")), ("model".to_string(), key("bb"))].into();
        let identity = Identity {
            config: json!({"optimizer": {"learning_rate": 0.2}, "checkpoints": {"every": 9}, "seed": 1, "steps": 4}),
            inputs: [("data".to_string(), key("cc")), ("model".to_string(), key("bb"))].into(),
        };
        let expected = [
            "`optimizer.learning_rate` was 0.1, now 0.2",
            "`steps` was null, now 4",
            "the data has other content (aa, now cc)",
        ];
        assert_eq!(identity.changes(&manifest), expected);
    }

    proptest::proptest! {
        #[test]
        fn any_number_in_a_config_is_the_same_after_reading_it_back(rate: f64, seed: u64) {
            let config = json!({"learning_rate": rate, "seed": seed});
            let identity = Identity { config: config.clone(), inputs: BTreeMap::new() };
            let manifest = Manifest { config, ..Manifest::new(KIND, VERSION) };
            let read: Manifest = serde_json::from_str(&serde_json::to_string_pretty(&manifest).unwrap()).unwrap();
            proptest::prop_assert!(identity.changes(&read).is_empty());
        }
    }

    #[test]
    fn too_little_space_is_an_error_with_both_figures() {
        let error = check_space(Path::new("run"), 1_000_000, 4096).unwrap_err().to_string();
        assert_eq!(error, "`run`: a checkpoint takes 13048576 bytes, 4096 are free");
        assert!(check_space(Path::new("run"), 10, 2 << 20).is_ok());
        assert!(free_space(tempfile::tempdir().unwrap().path()).unwrap() > 0);
    }
}
