//! The loop of continued pretraining and supervised fine-tuning: rows with a loss weight per token.
//!
//! The loss of a step is `Σ w·nll / Σ w` over all its rows. The denominator is known before the first backward pass, so
//! micro-batches and a shorter last step change nothing but rounding.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use worldloom_model::{ExpertLoad, LoraConfig, MatmulPrecision, ModelConfig, Precision, RouterLoss, training_memory};
use worldloom_schema::Row;

use crate::batch::{Batch, batches, micro_batches};
use crate::checkpoint::CheckpointConfig;
use crate::data::{Data, scan};
use crate::error::{Error, Result};
use crate::guard::{GuardConfig, Recent};
use crate::lanes::{check_lanes, is_one, one};
use crate::learner::Place;
use crate::memory::{Memory, device_bytes, resident_bytes};
use crate::metrics::{Control, RouterMetrics, StartInfo, StepClock, StepMetrics};
use crate::optimizer::OptimizerConfig;
use crate::plan::{Curriculum, MicroBatch, Plan, read};
use crate::ranks::{Alone, Ranks, agree, any, dealt};
use crate::run::{Job, Report, Run, Settings};
use crate::schedule::Schedule;
use crate::validation::measure;

/// A supervised stage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StageConfig {
    /// Number of steps; either this or `epochs`.
    pub steps: Option<u64>,
    /// Passes over the rows; the last step takes what is left.
    pub epochs: Option<f64>,
    /// Rows of a step.
    pub rows_per_step: usize,
    /// Rows that go through the decoder at once: memory, not results.
    pub rows_per_micro_batch: usize,
    /// Micro-batches that are computed side by side, each on its part of the threads: faster for small models, at the
    /// price of so many times the activations and gradients. Default: 1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub micro_batches_at_once: usize,
    /// Whether blocks are computed again in the backward pass: a quarter more time, far less memory, the same results.
    /// Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recompute: bool,
    /// What the matrices are held in; updates are made in float32 either way. Default: f32.
    #[serde(default, skip_serializing_if = "Precision::is_single")]
    pub precision: Precision,
    /// What the operands of matrix products are rounded to: `bf16` on a processor with AMX tiles or AVX512-BF16 (sums,
    /// masters and all else stay float32), `bf16_emulated` for its numbers on any processor. Default: f32.
    #[serde(default, skip_serializing_if = "MatmulPrecision::is_single")]
    pub matmul_precision: MatmulPrecision,
    /// Losses of the routers beside the loss, for models with experts; they cost a forward pass. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routers: Option<RouterConfig>,
    /// Share of the run's tokens (context and targets) by the names of the rows, where there are several; they need not
    /// add up to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixture: Option<BTreeMap<String, f64>>,
    /// Sorted epochs first. Default: every epoch at random.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curriculum: Option<Curriculum>,
    /// What is refused, flagged and let pass.
    #[serde(default, skip_serializing_if = "GuardConfig::is_default")]
    pub guards: GuardConfig,
    /// Seed of order and held-out rows.
    pub seed: u64,
    /// Adapters in place of the weights; without it, every weight is trained.
    #[serde(default)]
    pub lora: Option<LoraConfig>,
    /// How weights are updated.
    pub optimizer: OptimizerConfig,
    /// How the learning rate moves.
    pub schedule: Schedule,
    /// When checkpoints are made.
    pub checkpoints: CheckpointConfig,
    /// Measuring on rows that are not trained on.
    pub validation: Option<ValidationConfig>,
}

/// Losses of the routers, as multiples of what `worldloom_model::RouterLoss` says.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouterConfig {
    /// Factor of the balance of the experts' load, `router_aux_loss_coef` of transformers.
    pub balance: f64,
    /// Factor of the z-loss. Default: 0.
    #[serde(default)]
    pub z: f64,
}

impl RouterConfig {
    fn check(&self, model: &ModelConfig) -> Result<()> {
        for (field, value) in [("routers.balance", self.balance), ("routers.z", self.z)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(Error::config(field, format!("{value}, expected 0 or more")));
            }
        }
        if model.design.experts.is_none() {
            let detail = format!("given, but a `{}` has no experts: leave the table out", model.model_type);
            return Err(Error::config("routers", detail));
        }
        Ok(())
    }
}

/// Measuring on rows that are not trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationConfig {
    /// Steps between two measurements; the last step is always measured.
    pub every: u64,
    /// Rows held out of the training rows by the seed; not where validation data of its own is given. Rows are held
    /// out, not trajectories: one that lies in several rows may be on both sides.
    pub held_out_rows: Option<usize>,
}

impl StageConfig {
    fn check(&self) -> Result<()> {
        for (field, value) in
            [("rows_per_step", self.rows_per_step), ("rows_per_micro_batch", self.rows_per_micro_batch)]
        {
            if value == 0 {
                return Err(Error::config(field, "0, expected at least 1"));
            }
        }
        check_lanes(self.micro_batches_at_once, self.lora.as_ref())?;
        if self.validation.is_some_and(|validation| validation.every == 0) {
            return Err(Error::config("validation.every", "0, expected at least 1"));
        }
        self.optimizer.check()?;
        self.guards.check()?;
        self.checkpoints.check()?;
        if self.checkpoints.keep_best && self.validation.is_none() {
            return Err(Error::config("checkpoints.keep_best", "true, but nothing is measured without `validation`"));
        }
        Ok(())
    }
}

/// Trains on `data`. Called again on the same folder, it goes on; the files it leaves are the same.
pub fn run(
    config: &StageConfig,
    job: Job<'_>,
    data: &Data,
    validation: Option<&Data>,
    control: &mut Control<'_>,
) -> Result<Report> {
    run_on(&Alone, config, job, data, validation, control)
}

/// The same with the work of every step shared by the ranks of a job, each of which calls this with the same arguments
/// and gets the same report. The result is that of one process up to the rounding of sums; a run may go on with another
/// number of ranks.
pub fn run_on(
    ranks: &dyn Ranks,
    config: &StageConfig,
    job: Job<'_>,
    data: &Data,
    validation: Option<&Data>,
    control: &mut Control<'_>,
) -> Result<Report> {
    let (plan, validation_rows) = agree(ranks, prepare(config, &job.model, data, validation))?;
    let validation_data = validation.unwrap_or(data);
    let mut run = open(ranks, config, job, data, validation)?;
    control.observer.on_start(&StartInfo {
        steps: plan.steps,
        done: run.state.step,
        parameters: run.learner.decoder().num_parameters() as u64,
        rows: plan.trained.len() as u64,
        untrained_rows: plan.untrained_rows as u64,
        validation_rows: validation_rows.len() as u64,
    });
    if run.state.step < plan.steps {
        rehearse(config, &mut run, &plan, data, control)?;
    }
    let mut watch = Watch::resume(&run);
    let mut last = None;
    while run.state.step < plan.steps {
        if any(ranks, control.is_stopped())? {
            run.save(control)?;
            return Ok(report(&run, &plan, true, last));
        }
        let measured =
            |run: &Run| measure(ranks, &run.learner, validation_data, &validation_rows, config.rows_per_micro_batch);
        let is_first = run.state.step == 0 && config.validation.is_some();
        let validation_before = if is_first { Some(measured(&run)?) } else { None };
        let mut metrics = StepMetrics { validation_before, ..train_step(config, &mut run, &plan, data)? };
        watch.flag(&mut metrics, config.guards.spike);
        let is_measured = |every: u64| metrics.step.is_multiple_of(every) || metrics.step == plan.steps;
        if config.validation.is_some_and(|validation| is_measured(validation.every)) {
            let measured = measured(&run)?;
            metrics.validation_loss = Some(measured.all.loss);
            run.note_measured(measured.all.loss);
            metrics.validation = Some(measured);
        }
        run.metrics.push(&metrics)?;
        control.observer.on_step(&metrics);
        last = Some(metrics);
        run.save_if_due(plan.steps, control)?;
    }
    let report = report(&run, &plan, false, last);
    run.finish(&report)?;
    Ok(report)
}

/// Looks at everything that is refused before a run is opened: its plan and the rows to measure on.
fn prepare(
    config: &StageConfig,
    model: &ModelConfig,
    data: &Data,
    validation: Option<&Data>,
) -> Result<(Plan, Vec<usize>)> {
    config.check()?;
    if let Some(routers) = &config.routers {
        routers.check(model)?;
    }
    let found = scan(data, model)?;
    config.guards.check_data(data, &found)?;
    let plan = Plan::new(config, data, found, validation.is_some())?;
    let validation_rows = match validation {
        Some(other) => scan(other, model)?.trained,
        None => plan.held_out.clone(),
    };
    Ok((plan, validation_rows))
}

fn open<'a>(
    ranks: &'a dyn Ranks,
    config: &StageConfig,
    job: Job<'_>,
    data: &Data,
    validation: Option<&Data>,
) -> Result<Run<'a>> {
    let resolved = serde_json::to_value(config).map_err(|error| Error::config("", error.to_string()))?;
    let mut inputs: BTreeMap<_, _> = data.inputs("data").into_iter().collect();
    inputs.extend(validation.iter().flat_map(|data| data.inputs("validation data")));
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
    Run::open_on(ranks, job, resolved, inputs, settings)
}

/// The largest micro-batches once forward and backward, thrown away: what does not fit fails now and not in an hour. What is
/// expected is told before.
fn rehearse(
    config: &StageConfig,
    run: &mut Run<'_>,
    plan: &Plan,
    data: &Data,
    control: &mut Control<'_>,
) -> Result<()> {
    let rows = read(data, &plan.longest_rows(config.rows_per_micro_batch * config.micro_batches_at_once))?;
    let denominator: f64 = rows.iter().map(Row::total_weight).sum();
    let batches = batches(&rows, &micro_batches(&rows, config.rows_per_micro_batch), denominator);
    let (lora, tokens) = (config.lora.as_ref(), batches[0].tokens.len());
    let estimate = training_memory(&run.model, lora, tokens, config.recompute, config.precision, &run.learner.device)?;
    let estimate = estimate.side_by_side(batches.len() as u64);
    let expected = Memory { estimate, tokens: tokens as u64, resident: None };
    control.observer.on_memory(&expected);
    run.learner.rehearse(&batches, 1.0);
    control.observer.on_memory(&Memory { resident: resident_bytes(), ..expected });
    Ok(())
}

/// The guards of a run on the way.
#[derive(Default)]
struct Watch {
    losses: Recent,
    norms: Recent,
}

impl Watch {
    /// As it was after the steps that the metrics file holds.
    fn resume(run: &Run<'_>) -> Self {
        let mut watch = Self::default();
        for step in run.metrics.lines() {
            let value = |name: &str| step[name].as_f64().unwrap_or(f64::NAN);
            watch.losses.is_spike(value("loss"), f64::INFINITY);
            watch.norms.is_spike(value("grad_norm"), f64::INFINITY);
        }
        watch
    }

    fn flag(&mut self, metrics: &mut StepMetrics, deviations: f64) {
        let (loss, norm) = (metrics.loss, metrics.grad_norm);
        for (name, value, recent) in [("loss", loss, &mut self.losses), ("gradient norm", norm, &mut self.norms)] {
            if recent.is_spike(value, deviations) {
                tracing::warn!(step = metrics.step, value, rows = ?metrics.row_numbers, "the {name} jumped");
                metrics.flags.push(name.into());
            }
        }
    }
}

fn train_step(config: &StageConfig, run: &mut Run<'_>, plan: &Plan, data: &Data) -> Result<StepMetrics> {
    let started = Instant::now();
    let numbers = plan.rows_of(run.state.step);
    let micro_batches = plan.micro_batches(&numbers, config.rows_per_micro_batch);
    let batches = agree(run.ranks, my_batches(run.ranks, data, &micro_batches, plan.weight(&numbers)))?;
    let place = Place::rows(run.state.step + 1, &numbers);
    let learning_rate = config.schedule.rate(config.optimizer.learning_rate, run.state.step, plan.steps);
    let (figures, skipped) = match try_step(config, run, &batches, learning_rate, &place) {
        Ok(figures) => (figures, false),
        Err(error @ Error::NonFinite { .. }) if run.state.skipped < config.guards.skip_steps => {
            tracing::warn!(%error, skipped = run.state.skipped + 1, budget = config.guards.skip_steps, "step skipped");
            (Figures { loss: f64::NAN, grad_norm: f64::NAN, routers: None, exchange_seconds: None }, true)
        }
        Err(error) => return Err(error),
    };
    let (tokens, trained_tokens) = plan.tokens(&numbers);
    run.state.step += 1;
    run.state.cursor += numbers.len() as u64;
    run.state.tokens += tokens;
    run.state.trained_tokens += trained_tokens;
    run.state.skipped += u64::from(skipped);
    let seconds = started.elapsed().as_secs_f64();
    Ok(StepMetrics {
        step: run.state.step,
        loss: figures.loss,
        learning_rate,
        grad_norm: figures.grad_norm,
        routers: figures.routers,
        rows: numbers.len() as u64,
        tokens,
        trained_tokens,
        padding: plan.padding(&micro_batches),
        parts: plan.tokens_by_part(numbers.iter().copied()),
        skipped,
        flags: Vec::new(),
        validation_before: None,
        validation_loss: None,
        validation: None,
        clock: StepClock {
            seconds,
            tokens_per_s: tokens as f64 / seconds,
            memory_bytes: resident_bytes(),
            device_bytes: device_bytes(&run.learner.device),
            exchange_seconds: figures.exchange_seconds,
        },
        row_numbers: numbers,
    })
}

/// What an update says of itself.
struct Figures {
    loss: f64,
    grad_norm: f64,
    routers: Option<RouterMetrics>,
    exchange_seconds: Option<f64>,
}

/// This rank's micro-batches of a step, of which all rows weigh `denominator` together.
fn my_batches(ranks: &dyn Ranks, data: &Data, micro_batches: &[MicroBatch], denominator: f64) -> Result<Vec<Batch>> {
    let places: Vec<usize> = micro_batches.iter().map(|batch| batch.places).collect();
    let batch = |number: usize| {
        let rows = read(data, &micro_batches[number].rows)?;
        let batch = Batch::new(&rows.iter().collect::<Vec<_>>(), denominator);
        Ok(Batch { number: number as u64, ..batch })
    };
    dealt(ranks, &places).into_iter().map(batch).collect()
}

/// Makes an update; no weight has changed where its loss or its gradient is not finite.
fn try_step(
    config: &StageConfig,
    run: &mut Run<'_>,
    batches: &[Batch],
    learning_rate: f64,
    place: &Place<'_>,
) -> Result<Figures> {
    run.learner.start_step();
    let load = config.routers.map(|routers| balance(routers, run, batches)).transpose()?;
    // A loss that is not finite on one rank is so for all of them.
    let (loss, is_finite) = match run.learner.add(batches, 1.0, place) {
        Err(Error::NonFinite { .. }) => (0.0, false),
        loss => (loss?, true),
    };
    if any(run.ranks, !is_finite)? {
        return Err(place.not_finite("loss"));
    }
    let started = Instant::now();
    let mut losses = [loss, run.learner.router_loss()];
    run.ranks.sum_f64(&mut losses)?;
    run.learner.sum_gradients(run.ranks)?;
    let exchange_seconds = (run.ranks.count() > 1).then(|| started.elapsed().as_secs_f64());
    let routers = load.map(|load| RouterMetrics { loss: losses[1], busiest: load.busiest() });
    let grad_norm = run.learner.update(learning_rate, place)?;
    Ok(Figures { loss: losses[0], grad_norm, routers, exchange_seconds })
}

/// Counts what the routers choose in the whole step, on all ranks and before the first backward pass, and gives them
/// their loss of it.
fn balance(routers: RouterConfig, run: &mut Run<'_>, batches: &[Batch]) -> Result<ExpertLoad> {
    let mut load = ExpertLoad::default();
    for batch in batches {
        load.add(&batch.expert_load(run.learner.decoder(), &run.learner.device));
    }
    let experts = run.model.design.experts.as_ref().map_or(0, |experts| experts.num_experts);
    let mut counts = load.counts(experts);
    run.ranks.sum_f64(&mut counts)?;
    let load = ExpertLoad::of_counts(&counts);
    run.learner.balance(RouterLoss::new(&load, routers.balance, routers.z));
    Ok(load)
}

fn report(run: &Run<'_>, plan: &Plan, is_stopped: bool, last: Option<StepMetrics>) -> Report {
    let mut figures = BTreeMap::new();
    if let Some(last) = last {
        figures.insert("loss".to_string(), last.loss);
        figures.extend(last.validation_loss.map(|loss| ("validation_loss".to_string(), loss)));
        if let Some(measured) = last.validation {
            figures.extend(measured.all.bits_per_byte.map(|bits| ("validation_bits_per_byte".to_string(), bits)));
            figures.insert("validation_exact".into(), measured.all.exact);
        }
    }
    let mut counts: BTreeMap<String, u64> = [
        ("steps", run.state.step),
        ("rows", plan.trained.len() as u64),
        ("untrained_rows", plan.untrained_rows as u64),
        ("held_out_rows", plan.held_out.len() as u64),
        ("rows_drawn", run.state.cursor),
        ("tokens", run.state.tokens),
        ("trained_tokens", run.state.trained_tokens),
    ]
    .into_iter()
    .map(|(name, count)| (name.to_string(), count))
    .collect();
    if run.state.skipped > 0 {
        counts.insert("skipped_steps".into(), run.state.skipped);
    }
    for (name, tokens) in plan.realised(run.state.cursor) {
        figures.insert(format!("mixture.{name}"), tokens as f64 / run.state.tokens.max(1) as f64);
        counts.insert(format!("tokens of {name}"), tokens);
    }
    if let Some(best) = run.state.best {
        figures.insert("best_validation_loss".into(), best.value);
        counts.insert("best_step".into(), best.step);
    }
    Report { steps: run.state.step, is_stopped, figures, counts }
}
