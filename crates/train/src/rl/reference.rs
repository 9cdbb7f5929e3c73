//! The policy that the divergence is measured from: the starting weights, or those of the last reset.
//!
//! Where adapters are trained it is the starting weights with the adapters of the reset: the weights are there once.

use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::tensor::Device;
use worldloom_model::Decoder;

use super::config::RlConfig;
use crate::error::{Error, Result};
use crate::run::{BASE, Run};

const FOLDER: &str = "reference";
/// Resets that stay on disk: a run that goes on from the checkpoint before a reset needs the one before.
const KEPT: usize = 2;

/// None where nothing is measured from it.
pub(super) struct Reference {
    decoder: Option<Decoder>,
    /// The starting weights, where adapters are trained.
    base: Option<Decoder>,
    every: Option<u64>,
    folder: PathBuf,
}

impl Reference {
    /// The starting weights, as the policy starts with them, that nothing trains.
    pub(super) fn new(config: &RlConfig, decoder: &Decoder, out: &Path) -> Self {
        let decoder =
            (config.objective.kl > 0.0).then(|| Self::computed_as(config, decoder.clone().held_in(config.precision)));
        let base = decoder.clone().filter(|_| config.lora.is_some());
        Self { decoder, base, every: config.reference_every, folder: out.join(FOLDER) }
    }

    /// As the policy computes, without a graph.
    fn computed_as(config: &RlConfig, decoder: Decoder) -> Decoder {
        decoder.multiplied_in(config.matmul_precision).no_grad()
    }

    pub(super) fn decoder(&self) -> Option<&Decoder> {
        self.decoder.as_ref()
    }

    /// What a run that goes on after `step` was measured from.
    pub(super) fn reload(&mut self, config: &RlConfig, step: u64, device: &Device) -> Result<()> {
        let (Some(every), Some(_)) = (self.every, &self.decoder) else { return Ok(()) };
        // The reset after this very step is made, or made again, as the next step starts.
        let reset = step.saturating_sub(1) / every * every;
        if reset == 0 {
            return Ok(());
        }
        let folder = self.folder.join(name_of(reset));
        if !folder.is_dir() {
            let detail = format!("the reference of step {reset} is not there; remove the run to start over");
            return Err(Error::file(&folder, detail));
        }
        let decoder = match &self.base {
            Some(base) => base.clone().with_adapter(&folder, device)?,
            None => worldloom_model::load(&folder, device)?.0.held_in(config.precision),
        };
        self.decoder = Some(Self::computed_as(config, decoder));
        Ok(())
    }

    /// Makes the policy the reference where that is due, before a step.
    pub(super) fn reset_if_due(&mut self, run: &Run) -> Result<bool> {
        let step = run.state.step;
        let (Some(every), Some(_)) = (self.every, &self.decoder) else { return Ok(false) };
        if step == 0 || !step.is_multiple_of(every) {
            return Ok(false);
        }
        fs_err::create_dir_all(&self.folder)?;
        let (folder, partial) = (self.folder.join(name_of(step)), self.folder.join("partial"));
        for old in [&folder, &partial] {
            if old.exists() {
                fs_err::remove_dir_all(old)?;
            }
        }
        fs_err::create_dir(&partial)?;
        let policy = run.learner.decoder();
        match policy.is_adapted() {
            true => policy.save_adapter(&partial, BASE)?,
            false => run.save_weights(&partial)?,
        }
        fs_err::rename(&partial, &folder)?;
        self.prune()?;
        // What is trained is held in this precision already, adapters in their own. Later updates make new tensors.
        self.decoder = Some(policy.clone().no_grad());
        Ok(true)
    }

    fn prune(&self) -> Result<()> {
        let mut folders: Vec<PathBuf> =
            fs_err::read_dir(&self.folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        folders.sort();
        for old in folders.iter().rev().skip(KEPT) {
            fs_err::remove_dir_all(old)?;
        }
        Ok(())
    }
}

fn name_of(step: u64) -> String {
    format!("step-{step:06}")
}
