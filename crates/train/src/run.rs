//! What every stage's run has in common: it opens or goes on, saves, and finishes with the model and a report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use worldloom_model::{Decoder, LoraConfig, MatmulPrecision, ModelConfig, Precision, SaveDType, SaveOptions, ops};
use worldloom_schema::InputRef;

use crate::checkpoint::{Best, CheckpointConfig, Checkpoints, Further, Identity, Loaded, OPTIMIZER, State, write_json};
use crate::error::{Error, Result};
use crate::lanes::Lanes;
use crate::learner::Learner;
use crate::metrics::{Control, MetricsFile};
use crate::optimizer::{Optimizer, OptimizerConfig};
use crate::ranks::{Alone, Ranks, agree, check_same, is_first};
use crate::seeds::{Purpose, split_seed};

/// Name of the folder with the trained model.
const MODEL: &str = "model";
/// Name of the folder with the adapters alone.
const ADAPTER: &str = "adapter";
/// What the adapters' config calls the model they belong to: the run's input.
pub(crate) const BASE: &str = "the model that the run started from";
const REPORT: &str = "report.json";

/// What a run starts from and where it works.
pub struct Job<'a> {
    /// The starting weights, on `device`.
    pub decoder: Decoder,
    /// Their config.
    pub model: ModelConfig,
    /// The run's folder; it must be the same after a kill.
    pub out: &'a Path,
    /// A device with automatic differentiation.
    pub device: &'a Device,
}

/// How a run ended; `report.json` in its folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Steps made.
    pub steps: u64,
    /// Whether it was stopped before its end: call again to go on.
    pub is_stopped: bool,
    /// Last figures worth knowing, by name.
    pub figures: BTreeMap<String, f64>,
    /// Counts.
    pub counts: BTreeMap<String, u64>,
}

/// What a run is made with.
pub(crate) struct Settings<'a> {
    pub(crate) optimizer: &'a OptimizerConfig,
    pub(crate) checkpoints: CheckpointConfig,
    pub(crate) seed: u64,
    pub(crate) lora: Option<&'a LoraConfig>,
    pub(crate) precision: Precision,
    pub(crate) matmul_precision: MatmulPrecision,
    pub(crate) recompute: bool,
    pub(crate) micro_batches_at_once: usize,
}

/// What the weights of a run are loaded in: one that trains all of them needs all their bits, and makes its masters of
/// them; a base that stays as it is is never there in more than it is held in.
pub fn loaded_in(precision: Precision, lora: Option<&LoraConfig>) -> Precision {
    if lora.is_some() { precision } else { Precision::F32 }
}

/// Refuses products that this processor or device does not compute.
fn check_matmul(precision: MatmulPrecision, device: &Device) -> Result<()> {
    let detail = if !precision.is_single() && !ops::has_kernels(device) {
        "products of bfloat16 are for the CPU; leave it out: f32"
    } else if !precision.is_available() {
        "bf16, but this processor has neither AMX tiles nor AVX512-BF16; leave it out (f32 is the fastest here), or take \
         bf16_emulated to see what the rounding does"
    } else {
        return Ok(());
    };
    Err(Error::config("matmul_precision", detail))
}

/// An open run.
pub(crate) struct Run<'a> {
    pub(crate) ranks: &'a dyn Ranks,
    pub(crate) learner: Learner,
    pub(crate) state: State,
    pub(crate) metrics: MetricsFile,
    pub(crate) model: ModelConfig,
    checkpoints: Checkpoints,
    out: PathBuf,
    saved: Option<u64>,
    /// The checkpoint that this call goes on from.
    pub(crate) from: Option<PathBuf>,
}

impl<'a> Run<'a> {
    /// Goes on from the newest whole checkpoint, or starts; in one process.
    pub(crate) fn open(
        job: Job<'_>,
        config: serde_json::Value,
        inputs: BTreeMap<String, InputRef>,
        settings: Settings<'_>,
    ) -> Result<Self> {
        Self::open_on(&Alone, job, config, inputs, settings)
    }

    /// The same on every rank of a job: the first one holds the folder, the others read what it goes on from.
    pub(crate) fn open_on(
        ranks: &'a dyn Ranks,
        job: Job<'_>,
        config: serde_json::Value,
        mut inputs: BTreeMap<String, InputRef>,
        settings: Settings<'_>,
    ) -> Result<Self> {
        let Settings { optimizer, checkpoints, seed, lora, precision, matmul_precision, .. } = settings;
        precision.check(job.device)?;
        check_matmul(matmul_precision, job.device)?;
        job.decoder.check_dtypes()?;
        fs_err::create_dir_all(job.out)?;
        inputs.insert("model".into(), InputRef { path: PathBuf::new(), key: fingerprint(&job.decoder) });
        let identity = Identity { config, inputs };
        check_same_run(ranks, &identity)?;
        let opened = match is_first(ranks) {
            true => Checkpoints::open(job.out, checkpoints, identity),
            false => Ok(Checkpoints::to_read(job.out, checkpoints, identity)),
        };
        let checkpoints = agree(ranks, opened)?;
        let start = job.decoder.held_in(loaded_in(precision, lora));
        let base = lora.map(|_| start.clone());
        let (decoder, optimizer, state, from) = match latest(ranks, &checkpoints, base.as_ref(), job.device)? {
            Some(loaded) => {
                let optimizer = Optimizer::load(optimizer, &loaded.decoder, &loaded.folder.join(OPTIMIZER))?;
                (loaded.decoder, optimizer, loaded.state, Some(loaded.folder))
            }
            None => {
                let decoder = match lora {
                    Some(lora) => start.with_lora(lora, split_seed(seed, Purpose::Init, 0), job.device)?,
                    None => start,
                };
                optimizer.check_groups(&decoder)?;
                let optimizer = Optimizer::new(optimizer, &decoder);
                (decoder, optimizer, State { seed, ..State::default() }, None)
            }
        };
        // What is trained in full is updated in its masters; a frozen base has none.
        let (decoder, optimizer) = match lora.is_none() && !precision.is_single() {
            true => (decoder.clone().held_in(precision), optimizer.with_masters(&decoder)),
            false => (decoder, optimizer),
        };
        let metrics = match is_first(ranks) {
            true => checkpoints
                .check_space(decoder.num_trained() as u64)
                .and_then(|()| MetricsFile::resume(job.out, state.step)),
            false => Ok(MetricsFile::of_others()),
        };
        let metrics = agree(ranks, metrics)?;
        let mut learner = Learner::new(decoder.multiplied_in(matmul_precision), optimizer, job.device, seed);
        (learner.recompute, learner.lanes) = (settings.recompute, Lanes::new(settings.micro_batches_at_once));
        let saved = from.as_ref().map(|_| state.step);
        Ok(Self { ranks, learner, state, metrics, model: job.model, checkpoints, out: job.out.into(), saved, from })
    }

    /// Saves after a step if one is due, or if it is the best so far and such a one is kept.
    pub(crate) fn save_if_due(&mut self, last: u64, control: &mut Control<'_>) -> Result<()> {
        let is_best = self.state.best.is_some_and(|best| best.step == self.state.step);
        let is_due = self.is_due(last) || (is_best && self.checkpoints.keeps_best());
        if is_due { self.save(control) } else { Ok(()) }
    }

    /// Whether a checkpoint belongs after the last step made.
    pub(crate) fn is_due(&self, last: u64) -> bool {
        self.checkpoints.is_due(self.state.step, last)
    }

    /// Remembers the step if its validation loss is the lowest so far; one that is not finite never is.
    pub(crate) fn note_measured(&mut self, loss: f64) {
        if loss.is_finite() && self.state.best.is_none_or(|best| loss < best.value) {
            self.state.best = Some(Best { step: self.state.step, value: loss });
        }
    }

    /// Saves unless this step is saved already. Ranks whose weights have come apart are refused.
    pub(crate) fn save(&mut self, control: &mut Control<'_>) -> Result<()> {
        self.save_with(control, &|_| Ok(()))
    }

    /// The same with further files in the checkpoint's folder.
    pub(crate) fn save_with(&mut self, control: &mut Control<'_>, further: Further<'_>) -> Result<()> {
        if self.saved == Some(self.state.step) {
            return Ok(());
        }
        if self.ranks.count() > 1 {
            check_same(self.ranks, &format!("after step {} weights", self.state.step), &self.learner.fingerprint())?;
        }
        let written = if is_first(self.ranks) { self.write(control, further) } else { Ok(()) };
        agree(self.ranks, written)?;
        self.saved = Some(self.state.step);
        Ok(())
    }

    fn write(&self, control: &mut Control<'_>, further: Further<'_>) -> Result<()> {
        self.metrics.sync()?;
        let folder = self.checkpoints.save(&self.learner, &self.model, &self.state, further)?;
        control.observer.on_checkpoint(self.state.step, &folder);
        Ok(())
    }

    /// Writes the weights as training has them into a folder that is there.
    pub(crate) fn save_weights(&self, folder: &Path) -> Result<()> {
        save_weights(&self.learner, &self.model, folder)
    }

    /// Writes `model/` whole, with the adapters folded in and beside it where there are any, and the report.
    pub(crate) fn finish(&self, report: &Report) -> Result<()> {
        let finished = if is_first(self.ranks) { self.write_model(report) } else { Ok(()) };
        agree(self.ranks, finished)
    }

    fn write_model(&self, report: &Report) -> Result<()> {
        self.checkpoints.check_space(self.learner.decoder().num_parameters() as u64 / 3)?;
        let adapter = self.out.join(ADAPTER);
        if self.learner.decoder().is_adapted() {
            self.learner.decoder().save_adapter(&adapter, BASE)?;
        }
        let partial = self.out.join(".model.partial");
        if partial.exists() {
            fs_err::remove_dir_all(&partial)?;
        }
        fs_err::create_dir_all(&partial)?;
        save_weights(&self.learner, &self.model, &partial)?;
        let target = self.out.join(MODEL);
        if target.exists() {
            fs_err::remove_dir_all(&target)?;
        }
        fs_err::rename(&partial, &target)?;
        write_json(&self.out.join(REPORT), report)
    }
}

/// Refuses ranks that were started otherwise than the first one.
fn check_same_run(ranks: &dyn Ranks, identity: &Identity) -> Result<()> {
    if ranks.count() == 1 {
        return Ok(());
    }
    let wrong = |error: serde_json::Error| Error::config("", error.to_string());
    let mut first = serde_json::to_vec(identity).map_err(wrong)?;
    ranks.broadcast(0, &mut first)?;
    let differences = identity.differences_from(serde_json::from_slice(&first).map_err(wrong)?);
    let detail = format!("it was started otherwise than rank 0: {}", differences.join("; "));
    agree(ranks, if differences.is_empty() { Ok(()) } else { Err(Error::Rank { rank: ranks.rank(), detail }) })
}

/// What the first rank found to go on from, on every rank.
fn latest(
    ranks: &dyn Ranks,
    checkpoints: &Checkpoints,
    base: Option<&Decoder>,
    device: &Device,
) -> Result<Option<Loaded>> {
    let found = if is_first(ranks) { checkpoints.latest(base, device) } else { Ok(None) };
    let found = agree(ranks, found)?;
    let mut step = found.iter().flat_map(|loaded| loaded.state.step.to_le_bytes()).collect();
    ranks.broadcast(0, &mut step)?;
    match (found, <[u8; 8]>::try_from(step.as_slice())) {
        (None, Ok(step)) => agree(ranks, checkpoints.at(u64::from_le_bytes(step), base, device).map(Some)),
        (Some(loaded), _) => agree(ranks, Ok(Some(loaded))),
        (None, Err(_)) => Ok(None),
    }
}

/// Writes the weights as training has them.
pub(crate) fn save_weights(learner: &Learner, model: &ModelConfig, dir: &Path) -> Result<()> {
    let options = SaveOptions::new(SaveDType::F32);
    worldloom_model::save_parameters(&|read| learner.for_each_weight(read), model, dir, &options)?;
    Ok(())
}

/// Hash of all weights, in the decoder's order.
fn fingerprint(decoder: &Decoder) -> String {
    let mut hasher = blake3::Hasher::new();
    decoder.for_each_parameter(&mut |path, _, values| {
        hasher.update(path.as_bytes());
        hasher.update(bytemuck::cast_slice(values));
    });
    hasher.finalize().to_hex()[..32].into()
}
