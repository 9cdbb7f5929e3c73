//! A step as a command of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use clap::ArgMatches;
use worldloom_schema::{Artifact, InputRef};
use worldloom_train::agree;

use crate::config::{UserError, apply_set, read_toml};
use crate::device::Place;
use crate::job::Job;
use crate::pipeline::{external, run_step, step_key};
use crate::steps::{Curate, Step, find_step, resolve};

pub(super) fn run_command(step: &'static dyn Step, matches: &ArgMatches, job: &Job, stop: &AtomicBool) -> Result<()> {
    let step = match matches.try_get_one::<String>("as") {
        Ok(Some(kind)) if kind == "corpus" => find_step("corpus")?,
        _ => step,
    };
    if let Ok(Some(file)) = matches.try_get_one::<PathBuf>("explain") {
        return super::explain::explain(file, matches);
    }
    let Some(Prepared { config, inputs, out, key }) = agree(job.ranks(), prepare(step, matches, job))? else {
        return Ok(());
    };
    let on_cluster;
    let step = match matches.try_get_one::<String>("cluster") {
        Ok(Some(address)) => {
            on_cluster = Curate { cluster: Some(address.clone()) };
            &on_cluster
        }
        _ => step,
    };
    let manifest = run_step(step, &config, &inputs, &key, &out, (job.ranks(), stop))?;
    if !job.is_first() {
        return Ok(());
    }
    for (name, count) in &manifest.counts {
        println!("{name:24} {count}");
    }
    for line in step.summary(&out)? {
        println!("{line}");
    }
    println!("{:24} {}", "written to", out.display());
    Ok(())
}

/// A step that is to be run.
struct Prepared {
    config: serde_json::Value,
    inputs: BTreeMap<String, InputRef>,
    out: PathBuf,
    key: String,
}

/// Resolves config and inputs; none where nothing is to be run.
fn prepare(step: &'static dyn Step, matches: &ArgMatches, job: &Job) -> Result<Option<Prepared>> {
    let file = matches.get_one::<PathBuf>("config");
    let mut table = file.map_or(Ok(toml::Table::new()), |file| read_toml(file))?;
    let mut base =
        file.and_then(|file| file.parent()).filter(|base| !base.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(Some(paths)) = matches.try_get_many::<PathBuf>("PATH") {
        let paths = paths.map(|path| toml::Value::String(path.to_string_lossy().into_owned()));
        table.insert("inputs".into(), toml::Value::Array(paths.collect()));
        table.entry("max_reject_share").or_insert(toml::Value::Float(0.05));
        table.entry("strict").or_insert(toml::Value::Boolean(false));
        base = Path::new(".");
    }
    add_ingest_flags(&mut table, matches);
    for setting in matches.get_many::<String>("set").unwrap_or_default() {
        apply_set(&mut table, setting)?;
    }
    let origin = file.map_or("config".to_string(), |file| format!("`{}`", file.display()));
    let device = matches.get_one::<Place>("device").copied();
    let config = resolve(step, &table, base, &origin, device).map_err(|error| match file {
        Some(_) => error,
        None => error.context("no --config given, so every key comes from --set"),
    })?;
    if matches.get_flag("dry-run") {
        if job.is_first() {
            print!("{}", toml::to_string_pretty(&without_nulls(&config)).context("print the config")?);
        }
        return Ok(None);
    }
    let mut inputs = BTreeMap::new();
    for role in step.roles() {
        match matches.get_one::<PathBuf>(role.name) {
            Some(path) => {
                let input = external(path).with_context(|| format!("--{}", role.name))?;
                inputs.insert(role.name.to_string(), input);
            }
            None if role.required => {
                let error = UserError::new(format!("`{}` needs --{} DIR", step.name(), role.name));
                return Err(error.hint(role.help).into());
            }
            None => {}
        }
    }
    let out = matches.get_one::<PathBuf>("out").cloned().unwrap_or_default();
    let key = step_key(step, &config, &inputs)?;
    if let Ok(artifact) = Artifact::open_any(&out) {
        if artifact.manifest.key == key && artifact.verify(false).is_ok() {
            if job.is_first() {
                eprintln!("`{}` is done already", out.display());
            }
            return Ok(None);
        }
        if artifact.manifest.kind != step.artifact() || step.works_in_place() {
            let message = format!("`{}` holds {} made in another way", out.display(), artifact.manifest.kind);
            return Err(UserError::new(message).hint("choose another --out, or remove it first").into());
        }
    } else if out.exists() && !step.works_in_place() && fs_err::read_dir(&out)?.next().is_some() {
        let error = UserError::new(format!("`{}` exists and is no artifact of worldloom", out.display()));
        return Err(error.hint("choose another --out: it would be replaced").into());
    }
    Ok(Some(Prepared { config, inputs, out, key }))
}

/// The flags of `ingest` as keys of its config.
fn add_ingest_flags(table: &mut toml::Table, matches: &ArgMatches) {
    for (flag, key) in [("format", "format"), ("text-field", "text_field")] {
        if let Ok(Some(value)) = matches.try_get_one::<String>(flag) {
            table.insert(key.into(), toml::Value::String(value.clone()));
        }
    }
    if let Ok(Some(map)) = matches.try_get_one::<PathBuf>("map") {
        let absolute = std::path::absolute(map).unwrap_or_else(|_| map.clone());
        table.insert("map".into(), toml::Value::String(absolute.to_string_lossy().into_owned()));
    }
    if let Ok(Some(share)) = matches.try_get_one::<f64>("max-reject-share") {
        table.insert("max_reject_share".into(), toml::Value::Float(*share));
    }
    if let Ok(Some(true)) = matches.try_get_one::<bool>("strict") {
        table.insert("strict".into(), toml::Value::Boolean(true));
    }
}

/// TOML has no null: keys without a value are left out.
fn without_nulls(value: &serde_json::Value) -> serde_json::Value {
    match value {
        serde_json::Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        serde_json::Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}
