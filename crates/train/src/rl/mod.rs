//! Reinforcement learning on groups of completions, on token ids.
//!
//! Words: a *group* is one prompt with several *completions*; a *step* is one batch of groups, cut into *mini-batches* of
//! whole groups, each of which makes one update. The *sampler* makes completions, the *scorer* judges them; both are the
//! caller's. A sample is *active* if it can push the weights at all.
//!
//! Rollouts come from the policy as it is, from the policy of one batch before (*ahead*), or from another run's dump
//! (*replayed*).
//!
//! A group whose rewards are all equal has advantage 0: it stays in the denominators and pushes nothing (unless a
//! divergence is asked for). A mini-batch in which nothing pushes makes no update and is counted.

mod advantage;
mod alarms;
mod collect;
mod config;
mod drawer;
mod kept;
mod metrics;
mod objective;
mod records;
mod reference;
mod rollout;
mod rows;
mod train;
mod update;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use worldloom_model::ModelConfig;
use worldloom_schema::InputRef;

pub use worldloom_model::generate::Completion;

pub use advantage::{Advantages, Normalisation, advantages, check_group_size};
pub use config::{Overlong, RlConfig, RlValidation};
pub use drawer::PassRates;
pub use metrics::{HeldOut, LabelFigures, RlStepMetrics};
pub use objective::{
    Aggregation, Correction, CorrectionLevel, CorrectionMode, Denominators, Divergence, Name, Objective, PolicyLoss,
    Ratio, Sequence, Surrogate, Totals, policy_loss,
};
pub use rollout::{Draw, Failure, Group, Notes, Partners, RlPrompt, Sampler, Score, Scorer};

use crate::error::{Error, Result};
use crate::metrics::{Clock, Control, StartInfo};
use crate::run::{Job, Report, Run, Settings};
use crate::seeds::{Purpose, split_seed};
use alarms::History;
use collect::{Asked, Next};
use drawer::{Drawer, Seen};
use records::Dumps;
use reference::Reference;
use rollout::Rollouts;
use train::Train;

/// Trains on `prompts`. Called again on the same folder, it goes on; the files it leaves are the same. The starting
/// weights are the reference of the divergence, unless it is reset.
///
/// With `ahead`, step `k + 1`'s rollouts are sampled and scored with the weights that step `k` starts from, while it
/// trains; a checkpoint holds the batch that is waiting.
pub fn run(
    config: &RlConfig,
    job: Job<'_>,
    prompts: &[RlPrompt],
    partners: &mut Partners<'_>,
    control: &mut Control<'_>,
) -> Result<Report> {
    train(config, job, prompts, Source::Sampled { partners, ahead: None }, control)
}

/// Trains on rollouts that another run dumped, in the order of its steps: nothing is sampled and nothing scored. Rewards are
/// as they were; advantages and the trainer's log-probs are computed anew. `rollouts` is that run's folder, or its
/// `rollouts/`. A run repeated on its own rollouts ends with the same weights.
///
/// From the second step on the weights are in general not those that sampled: `sampler_gap` says how far they are, and
/// `objective.correction` weighs for it.
pub fn replay(
    config: &RlConfig,
    job: Job<'_>,
    prompts: &[RlPrompt],
    rollouts: &Path,
    control: &mut Control<'_>,
) -> Result<Report> {
    config.check_replayed()?;
    let dumps = Dumps::open(rollouts)?;
    dumps.check(config.steps)?;
    train(config, job, prompts, Source::Replayed(dumps), control)
}

/// Where rollouts come from.
enum Source<'a, 'b> {
    /// From the policy.
    Sampled {
        partners: &'a mut Partners<'b>,
        /// The next step's, where they are there already.
        ahead: Option<Rollouts>,
    },
    /// From another run.
    Replayed(Dumps),
}

fn train(
    config: &RlConfig,
    job: Job<'_>,
    prompts: &[RlPrompt],
    source: Source<'_, '_>,
    control: &mut Control<'_>,
) -> Result<Report> {
    config.check()?;
    check_prompts(config, &job.model, prompts)?;
    let drawer = Drawer::new(config, prompts.len())?;
    let mut reference = Reference::new(config, &job.decoder, job.out);
    let (out, device) = (job.out.to_path_buf(), job.device.clone());
    let mut run = open(config, job, prompts, &source)?;
    reference.reload(config, run.state.step, &device)?;
    let mut training = Training { config, prompts, reference, drawer, source, out };
    training.read(&run)?;
    control.observer.on_start(&StartInfo {
        steps: config.steps,
        done: run.state.step,
        parameters: run.learner.decoder().num_parameters() as u64,
        rows: prompts.len() as u64,
        untrained_rows: 0,
        validation_rows: training.drawer.held_out.len() as u64,
    });
    let (mut last, mut history) = (None, History::read(&training.out)?);
    while run.state.step < config.steps {
        if control.is_stopped() {
            training.save(&mut run, control)?;
            return Ok(report(&run, prompts, true, last));
        }
        let metrics = match training.step(&mut run, &mut history) {
            // Nothing of the step is done: with the judge back, the same call goes on from here.
            Err(error @ Error::ScorerUnavailable { .. }) => {
                training.save(&mut run, control)?;
                return Err(error);
            }
            outcome => outcome?,
        };
        run.metrics.push(&metrics)?;
        control.observer.on_rl_step(&metrics);
        last = Some(metrics);
        if run.is_due(config.steps) {
            training.save(&mut run, control)?;
        }
    }
    let report = report(&run, prompts, false, last);
    run.finish(&report)?;
    Ok(report)
}

fn check_prompts(config: &RlConfig, model: &ModelConfig, prompts: &[RlPrompt]) -> Result<()> {
    if prompts.is_empty() {
        return Err(Error::NoTargets { rows: 0 });
    }
    for prompt in prompts {
        let wrong = |detail: String| Err(Error::Prompt { prompt: prompt.id.clone(), detail });
        let answer = prompt.truth.as_ref().filter(|_| config.truth_nll > 0.0).map_or(0, Vec::len);
        let longest = prompt.tokens.len() + config.max_completion_tokens.max(answer);
        if prompt.tokens.is_empty() {
            return wrong("it has no tokens".into());
        }
        if longest > model.max_position_embeddings {
            let most = model.max_position_embeddings;
            return wrong(format!("{longest} tokens with its longest completion, but the model has {most} positions"));
        }
        if let Some(token) = prompt.tokens.iter().find(|&&token| token as usize >= model.vocab_size) {
            return wrong(format!("token id {token}, but the model's vocabulary has {}", model.vocab_size));
        }
    }
    Ok(())
}

fn open(config: &RlConfig, job: Job<'_>, prompts: &[RlPrompt], source: &Source<'_, '_>) -> Result<Run<'static>> {
    let mut hasher = blake3::Hasher::new();
    for prompt in prompts {
        hasher.update(prompt.id.as_bytes());
        hasher.update(&(prompt.tokens.len() as u64).to_le_bytes());
        hasher.update(bytemuck::cast_slice(&prompt.tokens));
        if let Some(truth) = prompt.truth.as_ref().filter(|_| config.truth_nll > 0.0) {
            hasher.update(bytemuck::cast_slice(truth));
        }
    }
    let key = hasher.finalize().to_hex()[..32].to_string();
    let mut inputs = BTreeMap::from([("prompts".to_string(), InputRef { path: PathBuf::new(), key })]);
    if let Source::Replayed(dumps) = source {
        inputs.insert("rollouts".into(), InputRef { path: PathBuf::new(), key: dumps.key()? });
    }
    let resolved = serde_json::to_value(config).map_err(|error| Error::config("", error.to_string()))?;
    let settings = Settings {
        optimizer: &config.optimizer,
        checkpoints: config.checkpoints,
        seed: config.seed,
        lora: config.lora.as_ref(),
        precision: config.precision,
        matmul_precision: config.matmul_precision,
        recompute: config.recompute,
        micro_batches_at_once: config.micro_batches_at_once,
    };
    Run::open(job, resolved, inputs, settings)
}

/// What steps work with.
struct Training<'a, 'b> {
    config: &'a RlConfig,
    prompts: &'a [RlPrompt],
    reference: Reference,
    drawer: Drawer,
    source: Source<'a, 'b>,
    out: PathBuf,
}

impl Training<'_, '_> {
    /// What the checkpoint holds that the run goes on from. A batch ahead on which the scorer failed is scored again.
    fn read(&mut self, run: &Run) -> Result<()> {
        let Source::Sampled { partners, ahead } = &mut self.source else { return Ok(()) };
        let Some(folder) = &run.from else { return Ok(()) };
        let resumed = partners.sampler.resume(folder);
        resumed.map_err(|source| Error::Sampler { step: run.state.step + 1, source })?;
        *ahead = kept::read(folder, self.config, self.prompts, &mut self.drawer)?;
        if let Some(rollouts) = ahead.take_if(|ahead| !ahead.is_available(self.config)) {
            let step = run.state.step + 1;
            *ahead = Some(collect::score_again(self.config, self.prompts, step, rollouts, partners.scorer)?);
        }
        Ok(())
    }

    fn save(&self, run: &mut Run, control: &mut Control<'_>) -> Result<()> {
        let version = run.state.step;
        let step = version + 1;
        run.save_with(control, &|folder| {
            let Source::Sampled { partners, ahead } = &self.source else {
                return kept::write(folder, step, self.prompts, None, &self.drawer);
            };
            kept::write(folder, step, self.prompts, ahead.as_ref(), &self.drawer)?;
            partners.sampler.save(version, folder).map_err(|source| Error::Sampler { step, source })
        })
    }

    fn step(&mut self, run: &mut Run, history: &mut History) -> Result<RlStepMetrics> {
        let started = Instant::now();
        let step = run.state.step + 1;
        let reference_reset = self.reference.reset_if_due(run)?;
        let validation_before = if step == 1 { self.validate(run)? } else { None };
        let seen = self.drawer.seen.clone();
        let rollouts = self.rollouts(run)?;
        let drawn = rollouts.drawn;
        let mut metrics = RlStepMetrics::of(&rollouts, self.prompts);
        if let Err(error) = check_available(self.config, step, &metrics) {
            self.put_back(rollouts, seen);
            return Err(error);
        }
        metrics.reference_reset = reference_reset;
        let next = Next { step, cursor: run.state.cursor + drawn, version: run.state.step };
        self.train_beside(run, rollouts, next, &mut metrics)?;
        run.state.step = step;
        run.state.cursor += drawn;
        run.state.tokens += metrics.tokens;
        run.state.trained_tokens += metrics.trained_tokens;
        metrics.step = step;
        metrics.updates = run.learner.optimizer.updates();
        (metrics.validation_before, metrics.validation) = (validation_before, self.validate_if_due(run)?);
        history.look(&mut metrics);
        let seconds = started.elapsed().as_secs_f64();
        metrics.clock = Clock { seconds, tokens_per_s: metrics.tokens as f64 / seconds };
        Ok(metrics)
    }

    /// The step's rollouts: those that wait, or new ones, or another run's.
    fn rollouts(&mut self, run: &Run) -> Result<Rollouts> {
        let (config, prompts) = (self.config, self.prompts);
        let (step, cursor) = (run.state.step, run.state.cursor);
        let next = Next { step, cursor, version: step };
        let rollouts = match &mut self.source {
            Source::Replayed(dumps) => dumps.read(run.state.step, config, prompts)?,
            Source::Sampled { partners, ahead } => match ahead.take() {
                Some(rollouts) => rollouts,
                None => collect::collect(config, run.learner.decoder(), prompts, next, &mut self.drawer, partners)?,
            },
        };
        match rollouts.staleness {
            Some(staleness) if staleness > config.max_staleness => Err(Error::Rollout {
                step: run.state.step + 1,
                detail: format!(
                    "the rollouts are of weights {staleness} batches old, `max_staleness` allows {}",
                    config.max_staleness
                ),
            }),
            _ => Ok(rollouts),
        }
    }

    /// Trains on rollouts, and beside it samples the next ones where that is asked for.
    fn train_beside(
        &mut self,
        run: &mut Run,
        rollouts: Rollouts,
        next: Next,
        metrics: &mut RlStepMetrics,
    ) -> Result<()> {
        let config = self.config.for_staleness(rollouts.staleness);
        let train =
            Train { config: &config, prompts: self.prompts, reference: self.reference.decoder(), out: &self.out };
        let (partners, ahead) = match &mut self.source {
            Source::Sampled { partners, ahead } if config.ahead && next.step < config.steps => (partners, ahead),
            _ => return train.step(run, rollouts, metrics),
        };
        // Later updates make new tensors: the copy stays as it is.
        let decoder = run.learner.decoder().clone();
        let (config, prompts, drawer) = (self.config, self.prompts, &mut self.drawer);
        let (trained, collected) = std::thread::scope(|scope| {
            let sampling = scope.spawn(move || collect::collect(config, &decoder, prompts, next, drawer, partners));
            let trained = train.step(run, rollouts, metrics);
            (trained, sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        trained?;
        let mut collected = collected?;
        collected.staleness = collected.staleness.map(|staleness| staleness + 1);
        *ahead = Some(collected);
        Ok(())
    }

    /// Rollouts that the scorer failed on: they wait for its return, or were never drawn.
    fn put_back(&mut self, rollouts: Rollouts, seen: BTreeMap<usize, Seen>) {
        match &mut self.source {
            Source::Sampled { ahead, .. } if self.config.ahead => *ahead = Some(rollouts),
            _ => self.drawer.seen = seen,
        }
    }

    fn validate_if_due(&mut self, run: &Run) -> Result<Option<HeldOut>> {
        let is_due = |validation: RlValidation| {
            run.state.step.is_multiple_of(validation.every) || run.state.step == self.config.steps
        };
        if self.config.validation.is_some_and(is_due) { self.validate(run) } else { Ok(None) }
    }

    /// Completes the held-out prompts, with the same random streams each time.
    fn validate(&mut self, run: &Run) -> Result<Option<HeldOut>> {
        let (Some(validation), Source::Sampled { partners, .. }) = (self.config.validation, &mut self.source) else {
            return Ok(None);
        };
        let asked = Asked {
            prompts: self.prompts,
            chosen: &self.drawer.held_out,
            group_size: validation.completions,
            seed: split_seed(self.config.seed, Purpose::HeldOut, 1),
            step: run.state.step.max(1),
            version: run.state.step,
            may_be_old: false,
        };
        let scored = collect::sample_and_score(self.config, run.learner.decoder(), &asked, partners)?;
        // They are no part of what is said about the step.
        partners.scorer.take_notes();
        let rollouts = collect::assemble(self.config, self.prompts, scored);
        Ok(Some(HeldOut::of(&rollouts.groups, self.prompts)))
    }
}

fn check_available(config: &RlConfig, step: u64, metrics: &RlStepMetrics) -> Result<()> {
    if config.allows_unavailable(metrics.unavailable, metrics.completions) {
        return Ok(());
    }
    let reasons = metrics.unavailable_reasons.iter().map(|(reason, count)| format!("{reason}: {count}"));
    Err(Error::ScorerUnavailable {
        step,
        unavailable: metrics.unavailable as usize,
        completions: metrics.completions as usize,
        reasons: reasons.collect::<Vec<_>>().join(", "),
        limit: config.max_unavailable_share,
    })
}

fn report(run: &Run, prompts: &[RlPrompt], is_stopped: bool, last: Option<RlStepMetrics>) -> Report {
    let mut figures = BTreeMap::new();
    if let Some(last) = last {
        figures.insert("reward_mean".to_string(), last.reward_mean);
        figures.insert("fault_share".to_string(), last.fault_share);
    }
    let counts = [
        ("steps", run.state.step),
        ("updates", run.learner.optimizer.updates()),
        ("prompts", prompts.len() as u64),
        ("prompts_drawn", run.state.cursor),
        ("tokens", run.state.tokens),
        ("trained_tokens", run.state.trained_tokens),
    ];
    let counts = counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    Report { steps: run.state.step, is_stopped, figures, counts }
}
