//! Runs planned steps and publishes their artifacts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result};
use worldloom_schema::{Artifact, ArtifactWriter, InputRef, Manifest, seal};
use worldloom_train::{Alone, Ranks, agree};

use super::Planned;
use crate::config::UserError;
use crate::progress::{Progress, duration};
use crate::steps::{Step, StepContext};

/// What a pipeline run did.
pub(crate) struct Made {
    pub(crate) ran: usize,
    pub(crate) skipped: usize,
}

/// Runs what is not done yet, in order.
pub(crate) fn run(planned: &[Planned], stop: &AtomicBool) -> Result<Made> {
    let mut made = Made { ran: 0, skipped: 0 };
    let width = planned.iter().map(|step| step.name.len()).max().unwrap_or(0);
    for step in planned {
        let Some(reason) = &step.reason else {
            eprintln!("{:width$}  done before ({})", step.name, step.folder.display());
            made.skipped += 1;
            continue;
        };
        eprintln!("{:width$}  {reason}", step.name);
        let started = Instant::now();
        let manifest = run_step(step.step, &step.config, &step.inputs, &step.key, &step.folder, (&Alone, stop))
            .with_context(|| format!("step `{}`", step.name))?;
        let counts: Vec<String> = manifest.counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
        eprintln!("{:width$}  {} in {}", "", counts.join(", "), duration(started.elapsed().as_secs_f64()));
        step.step.summary(&step.folder)?.iter().for_each(|line| eprintln!("{:width$}  {line}", ""));
        made.ran += 1;
    }
    Ok(made)
}

/// Runs one step into `folder` and writes its manifest last. Where several processes share a step, the first one writes.
pub(crate) fn run_step(
    step: &dyn Step,
    config: &serde_json::Value,
    inputs: &BTreeMap<String, InputRef>,
    key: &str,
    folder: &Path,
    (ranks, stop): (&dyn Ranks, &AtomicBool),
) -> Result<Manifest> {
    agree(ranks, check_inputs(step, inputs))?;
    let mut manifest = Manifest::new(step.artifact(), step.version());
    manifest.key = key.into();
    manifest.config = config.clone();
    manifest.inputs = inputs.clone();
    manifest.code = code_revision();
    let is_first = ranks.rank() == 0;
    let progress = if is_first { Progress::new(step.name()) } else { Progress::silent(step.name()) };
    let context = |out: &Path| StepContext { config, inputs, out: out.into(), progress: &progress, stop, ranks };
    if !is_first {
        manifest.counts = step.run(&context(folder))?;
        return Ok(manifest);
    }
    if step.works_in_place() {
        fs_err::create_dir_all(folder)?;
        let lock = lock(folder)?;
        let counts = step.run(&context(folder));
        if counts.is_err() {
            drop(lock);
            remove_if_empty(folder)?;
        }
        manifest.counts = counts?;
        return Ok(seal(folder, manifest)?);
    }
    let writer = ArtifactWriter::create(folder)?;
    manifest.counts = step.run(&context(writer.path()))?;
    Ok(writer.finish(manifest)?)
}

/// Refuses inputs that are not of the kinds that the step takes.
fn check_inputs(step: &dyn Step, inputs: &BTreeMap<String, InputRef>) -> Result<()> {
    for (role, input) in inputs {
        let known = step.roles().iter().find(|known| known.name == role);
        if let Some(kind) = known.and_then(|role| role.artifact) {
            Artifact::open(&input.path, kind).with_context(|| format!("input `{role}`"))?;
        }
    }
    Ok(())
}

/// Removes a folder in which a failed step left nothing but its lock.
fn remove_if_empty(folder: &Path) -> Result<()> {
    let names = fs_err::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    if names.iter().all(|name| name == ".lock") {
        fs_err::remove_dir_all(folder)?;
    }
    Ok(())
}

/// Holds a folder for one process; the lock goes with the process, however it ends.
fn lock(folder: &Path) -> Result<fs_err::File> {
    let file = fs_err::File::create(folder.join(".lock"))?;
    if file.file().try_lock().is_err() {
        let error = UserError::new(format!("`{}` is in use by another worldloom process", folder.display()));
        return Err(error.hint("wait for it to end, or choose another --runs folder").into());
    }
    Ok(file)
}

/// Version and revision of the program, recorded in manifests.
pub(crate) fn code_revision() -> String {
    format!("{} {}", env!("CARGO_PKG_VERSION"), env!("WORLDLOOM_REVISION")).trim().into()
}
