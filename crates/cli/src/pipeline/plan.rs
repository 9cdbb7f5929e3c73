//! What would run, and why. Keys are computed without running anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use worldloom_render::{TEMPLATE_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE};
use worldloom_schema::{Artifact, InputRef, hash_file, hash_json};

use super::Pipeline;
use crate::config::{UserError, merge, nearest, read_toml};
use crate::device::Place;
use crate::steps::{Step, find_step, resolve};

/// A step with everything resolved.
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) step: &'static dyn Step,
    pub(crate) config: Value,
    pub(crate) inputs: BTreeMap<String, InputRef>,
    pub(crate) key: String,
    pub(crate) folder: PathBuf,
    /// Why it runs; none: it is done.
    pub(crate) reason: Option<Reason>,
}

/// What happens where an input is missing that no step makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It is an error.
    Refused,
    /// The step waits for it.
    Shown,
}

/// Why a step runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reason {
    /// These inputs are not there, and no step makes them.
    Waits(Vec<String>),
    /// Nothing of this step is there.
    New,
    /// A run of it was interrupted.
    Unfinished,
    /// The config or inputs differ from the last time, in these places.
    Changed(Vec<String>),
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Reason::Waits(inputs) => write!(f, "waits: {}", inputs.join(", ")),
            Reason::New => f.write_str("not made yet"),
            Reason::Unfinished => f.write_str("interrupted, continues"),
            Reason::Changed(what) => write!(f, "changed: {}", what.join(", ")),
        }
    }
}

/// Resolves all steps of a pipeline; `device` is where its trainings compute, in place of their configs' `device`.
pub(crate) fn plan(
    pipeline: &Pipeline,
    pipeline_file: &Path,
    runs: &Path,
    missing: Missing,
    device: Option<Place>,
) -> Result<Vec<Planned>> {
    let base = pipeline_file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut planned: Vec<Planned> = Vec::new();
    for spec in &pipeline.step {
        let origin = format!("`{}`, step `{}`", pipeline_file.display(), spec.name);
        let step = find_step(&spec.uses).map_err(|error| error.context(origin.clone()))?;
        let mut table = match &spec.config_file {
            Some(file) => read_toml(&base.join(file))?,
            None => toml::Table::new(),
        };
        merge(&mut table, spec.config.clone());
        let config = resolve(step, &table, base, &origin, device)?;
        let (mut inputs, mut absent) = (BTreeMap::new(), Vec::new());
        for (role, input) in &spec.inputs {
            check_role(step, role, &origin)?;
            let earlier = planned.iter().find(|planned| planned.name == *input);
            let reference = match earlier {
                Some(made) => {
                    let key = with_template_beside(&made.folder, made.key.clone())?;
                    InputRef { path: made.folder.clone(), key }
                }
                None if missing == Missing::Shown && !base.join(input).exists() => {
                    absent.push(format!("`{input}` is not there"));
                    InputRef { path: base.join(input), key: "missing".into() }
                }
                None => external(&base.join(input)).with_context(|| format!("{origin}, input `{role}`"))?,
            };
            inputs.insert(role.clone(), reference);
        }
        if let Err(error) = step.external_inputs(&config)
            && missing == Missing::Shown
        {
            absent.push(error.to_string());
        }
        let folder = runs.join(&pipeline.name);
        let mut made = match absent.is_empty() {
            true => planned_step(&spec.name, step, config, inputs, &folder, &origin)?,
            // Nothing that has this key can be there.
            false => {
                let (key, reason) = (hash_json(&json!([spec.name, config])), None);
                let folder = folder.join(format!("{}-waits", spec.name));
                Planned { name: spec.name.clone(), step, config, inputs, key, folder, reason }
            }
        };
        if !absent.is_empty() {
            made.reason = Some(Reason::Waits(absent));
        }
        planned.push(made);
    }
    Ok(planned)
}

fn planned_step(
    name: &str,
    step: &'static dyn Step,
    config: Value,
    inputs: BTreeMap<String, InputRef>,
    folder: &Path,
    origin: &str,
) -> Result<Planned> {
    for role in step.roles() {
        if role.required && !inputs.contains_key(role.name) {
            let error = UserError::new(format!("{origin}: input `{}` is missing ({})", role.name, role.help));
            return Err(error.hint(format!("add inputs.{} = \"name of an earlier step or a path\"", role.name)).into());
        }
    }
    let key = step_key(step, &config, &inputs)?;
    let folder = folder.join(format!("{name}-{}", &key[..8]));
    let mut planned = Planned { name: name.into(), step, config, inputs, key, folder, reason: None };
    planned.reason = reason(&planned)?;
    Ok(planned)
}

/// The hash of everything that decides a step's output.
pub(crate) fn step_key(step: &dyn Step, config: &Value, inputs: &BTreeMap<String, InputRef>) -> Result<String> {
    let keys: BTreeMap<&String, &String> = inputs.iter().map(|(role, input)| (role, &input.key)).collect();
    let files = step.external_inputs(config)?;
    let (name, version) = (step.name(), step.version());
    Ok(hash_json(&json!({ "step": name, "version": version, "config": config, "inputs": keys, "files": files })))
}

fn check_role(step: &dyn Step, role: &str, origin: &str) -> Result<()> {
    if step.roles().iter().any(|known| known.name == role) {
        return Ok(());
    }
    let known: Vec<&str> = step.roles().iter().map(|role| role.name).collect();
    let error =
        UserError::new(format!("{origin}: `{}` has no input `{role}`; it has: {}", step.name(), known.join(", ")));
    Err(match nearest(role, known.iter().copied()) {
        Some(near) => error.hint(format!("did you mean `{near}`?")).into(),
        None => error.into(),
    })
}

/// The key of something that no step of the pipeline makes: an artifact, a file, or a folder of files.
pub(crate) fn external(path: &Path) -> Result<InputRef> {
    if !path.exists() {
        let error = UserError::new(format!("`{}` does not exist", path.display()));
        return Err(error.hint("it names neither an earlier step nor a path from the pipeline's folder").into());
    }
    let key = match Artifact::open_any(path) {
        Ok(artifact) => artifact.manifest.key,
        Err(_) if path.is_file() => hash_file(path)?,
        Err(_) => hash_folder(path)?,
    };
    Ok(InputRef { path: path.into(), key: with_template_beside(path, key)? })
}

/// The key of an input and of what lies beside it and says how a model is spoken to: a chat template that somebody put
/// into an artifact, and what stands beside a tokenizer's file.
fn with_template_beside(path: &Path, key: String) -> Result<String> {
    let mut beside: Vec<PathBuf> = Vec::new();
    if path.file_name().is_some_and(|name| name == TOKENIZER_FILE) && path.is_file() {
        beside = [TEMPLATE_FILE, TOKENIZER_CONFIG_FILE].map(|name| path.with_file_name(name)).into();
    } else if let Ok(artifact) = Artifact::open_any(path)
        && !artifact.manifest.files.contains_key(TEMPLATE_FILE)
    {
        beside.push(path.join(TEMPLATE_FILE));
    }
    let hashes = beside.iter().filter(|path| path.exists()).map(|path| hash_file(path));
    match hashes.collect::<worldloom_schema::Result<Vec<_>>>()? {
        hashes if hashes.is_empty() => Ok(key),
        hashes => Ok(hash_json(&json!([key, hashes]))),
    }
}

fn hash_folder(folder: &Path) -> Result<String> {
    let mut entries = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        let key = if path.is_dir() { hash_folder(&path)? } else { hash_file(&path)? };
        entries.push(json!([path.file_name().map(|name| name.to_string_lossy()), key]));
    }
    entries.sort_by_key(Value::to_string);
    Ok(hash_json(&Value::Array(entries)))
}

fn reason(planned: &Planned) -> Result<Option<Reason>> {
    if let Ok(artifact) = Artifact::open(&planned.folder, planned.step.artifact()) {
        if artifact.manifest.key == planned.key && artifact.verify(false).is_ok() {
            return Ok(None);
        }
        return Ok(Some(Reason::Changed(vec!["files of the artifact".into()])));
    }
    if planned.folder.exists() {
        return Ok(Some(Reason::Unfinished));
    }
    let Some(last) = last_made(planned)? else { return Ok(Some(Reason::New)) };
    let mut changed = Vec::new();
    differences("", &last.manifest.config, &planned.config, &mut changed);
    for (role, input) in &planned.inputs {
        if last.manifest.inputs.get(role).is_none_or(|before| before.key != input.key) {
            changed.push(format!("input {role}"));
        }
    }
    if changed.is_empty() {
        changed.push("input files or the step's version".into());
    }
    Ok(Some(Reason::Changed(changed)))
}

/// The newest finished artifact of this step's name with another key.
fn last_made(planned: &Planned) -> Result<Option<Artifact>> {
    let Some(parent) = planned.folder.parent().filter(|parent| parent.exists()) else { return Ok(None) };
    let mut newest = None;
    for entry in fs_err::read_dir(parent)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.rsplit_once('-').is_none_or(|(step, _)| step != planned.name) {
            continue;
        }
        let Ok(artifact) = Artifact::open(&entry.path(), planned.step.artifact()) else { continue };
        let time = entry.metadata()?.modified()?;
        if newest.as_ref().is_none_or(|(newest, _)| time > *newest) {
            newest = Some((time, artifact));
        }
    }
    Ok(newest.map(|(_, artifact)| artifact))
}

/// Paths at which two JSON values differ.
fn differences(path: &str, before: &Value, now: &Value, out: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                differences(&path, a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null), out);
            }
        }
        (a, b) if a != b => {
            let short = |value: &Value| {
                let text = value.to_string();
                if text.chars().count() > 24 { text.chars().take(23).chain(['…']).collect() } else { text }
            };
            out.push(format!("{path} {} → {}", short(a), short(b)));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use worldloom_schema::{ArtifactWriter, Manifest};

    use super::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn a_chat_template_beside_a_tokenizer_is_part_of_its_key() {
        let folder = folder();
        let artifact = folder.path().join("tokenizer");
        let writer = ArtifactWriter::create(&artifact).unwrap();
        fs_err::write(writer.path().join(TOKENIZER_FILE), "{}").unwrap();
        fs_err::write(writer.path().join(TOKENIZER_CONFIG_FILE), "{}").unwrap();
        let manifest = Manifest { key: "made".into(), ..Manifest::new("tokenizer", 1) };
        writer.finish(manifest).unwrap();
        let key = |path: &Path| external(path).unwrap().key;
        let file = artifact.join(TOKENIZER_FILE);
        assert_eq!(key(&artifact), "made");
        let alone = key(&file);
        fs_err::write(artifact.join(TEMPLATE_FILE), "{{ messages }}").unwrap();
        let (beside, of_file) = (key(&artifact), key(&file));
        assert!(beside != "made" && of_file != alone);
        fs_err::write(artifact.join(TEMPLATE_FILE), "{{ messages }}!").unwrap();
        assert!(key(&artifact) != beside && key(&file) != of_file);
        fs_err::remove_file(artifact.join(TEMPLATE_FILE)).unwrap();
        assert_eq!((key(&artifact).as_str(), key(&file)), ("made", alone.clone()));
        fs_err::write(artifact.join(TOKENIZER_CONFIG_FILE), r#"{"eos_token": "</s>"}"#).unwrap();
        assert_ne!(key(&file), alone);
    }

    #[test]
    fn rows_are_made_again_for_another_tokenizer_mask_or_policy() {
        let render = find_step("render").unwrap();
        let settings = "stage = 'sft'\nfamily = 'compact'\nversions = [2]\nrow_tokens = 64\nlong = 'drop'\npack = true\nseed = 1\nmax_empty_share = 0.1";
        let inputs = |pools: &str, tokenizer: &str| {
            let input = |key: &str| InputRef { path: "x".into(), key: key.into() };
            BTreeMap::from([("pools".to_string(), input(pools)), ("tokenizer".to_string(), input(tokenizer))])
        };
        let key = |more: &str, pools: &str, tokenizer: &str| {
            let mut table: toml::Table = settings.parse().unwrap();
            merge(&mut table, more.parse().unwrap());
            let config = render.resolve(&table, Path::new("."), "test").unwrap();
            step_key(render, &config, &inputs(pools, tokenizer)).unwrap()
        };
        let plain = key("", "a", "b");
        assert_eq!(plain, key("", "a", "b"));
        // The turn mask is in the pools.
        let mut keys = vec![plain, key("", "other pools", "b"), key("", "a", "other tokenizer")];
        let settings = [
            "seed = 2",
            "long = 'cut_turns'",
            "pack = false",
            "thinking = 'mixed'",
            "thinking = 'off'",
            "row_tokens = 65",
            "versions = [3]",
            "family = 'full'",
            "chat = 'qwen3'",
            "share_history = true",
            "history_weight = 0.5",
            "instruction_share = 0.5",
            "max_empty_share = 0.2",
            "max_lost_share = 0.2",
        ];
        keys.extend(settings.iter().map(|setting| key(setting, "a", "b")));
        let count = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), count, "each gives a key of its own");
    }
}
