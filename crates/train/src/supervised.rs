//! The loop of continued pretraining and supervised fine-tuning: rows with a loss weight per token.
//!
//! The loss of a step is `Σ w·nll / Σ w` over all its rows. The denominator is known before the first backward pass, so
//! micro-batches and a shorter last step change nothing but rounding.

use std::time::Instant;

use serde::{Deserialize, Serialize};
use worldloom_model::{LoraConfig, ModelConfig};
use worldloom_schema::{InputRef, Row};

use crate::batch::{Batch, micro_batches};
use crate::checkpoint::CheckpointConfig;
use crate::data::{Data, scan};
use crate::error::{Error, Result};
use crate::learner::Place;
use crate::metrics::{Clock, Control, StartInfo, StepMetrics};
use crate::optimizer::OptimizerConfig;
use crate::order::Order;
use crate::run::{Job, Report, Run, Settings};
use crate::schedule::Schedule;
use crate::seeds::{Purpose, split_seed};

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
        if self.validation.is_some_and(|validation| validation.every == 0) {
            return Err(Error::config("validation.every", "0, expected at least 1"));
        }
        self.optimizer.check()?;
        self.checkpoints.check()
    }
}

/// Which rows are drawn when.
struct Plan {
    /// Numbers of the rows that are trained on.
    trained: Vec<usize>,
    untrained_rows: usize,
    held_out: Vec<usize>,
    order: Order,
    /// Rows drawn over the whole run.
    draws: u64,
    rows_per_step: u64,
    steps: u64,
}

impl Plan {
    fn new(config: &StageConfig, model: &ModelConfig, data: &Data, has_validation_data: bool) -> Result<Self> {
        let found = scan(data.rows.as_ref(), model)?;
        let wanted = config.validation.and_then(|validation| validation.held_out_rows).unwrap_or(0);
        if config.validation.is_some() && (wanted > 0) == has_validation_data {
            let detail = "give either validation data or a number of rows above 0";
            return Err(Error::config("validation.held_out_rows", detail));
        }
        if wanted >= found.trained.len() {
            let detail = format!("{wanted} of {} rows with targets: none is left to train on", found.trained.len());
            return Err(Error::config("validation.held_out_rows", detail));
        }
        let pick = Order::new(found.trained.len(), split_seed(config.seed, Purpose::HeldOut, 0));
        let mut held_out: Vec<usize> = (0..wanted as u64).map(|at| found.trained[pick.at(at)]).collect();
        held_out.sort_unstable();
        let trained: Vec<usize> =
            found.trained.into_iter().filter(|number| held_out.binary_search(number).is_err()).collect();
        let rows_per_step = config.rows_per_step as u64;
        let draws = match (config.steps, config.epochs) {
            (Some(steps), None) if steps > 0 => steps * rows_per_step,
            (None, Some(epochs)) if epochs > 0.0 && epochs.is_finite() => {
                ((epochs * trained.len() as f64).round() as u64).max(1)
            }
            _ => return Err(Error::config("steps", "give either `steps` or `epochs`, above 0")),
        };
        let steps = draws.div_ceil(rows_per_step);
        config.schedule.check(steps)?;
        let order = Order::new(trained.len(), config.seed);
        Ok(Self { trained, untrained_rows: found.untrained, held_out, order, draws, rows_per_step, steps })
    }

    /// Numbers of the rows of a step, from 0.
    fn rows_of(&self, step: u64) -> Vec<usize> {
        let from = step * self.rows_per_step;
        let to = (from + self.rows_per_step).min(self.draws);
        (from..to).map(|position| self.trained[self.order.at(position)]).collect()
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
    config.check()?;
    let plan = Plan::new(config, &job.model, data, validation.is_some())?;
    let (validation_data, validation_rows) = match validation {
        Some(other) => (other, scan(other.rows.as_ref(), &job.model)?.trained),
        None => (data, plan.held_out.clone()),
    };
    let mut run = open(config, job, data, validation)?;
    control.observer.on_start(&StartInfo {
        steps: plan.steps,
        done: run.state.step,
        parameters: run.learner.decoder().num_parameters() as u64,
        rows: plan.trained.len() as u64,
        untrained_rows: plan.untrained_rows as u64,
        validation_rows: validation_rows.len() as u64,
    });
    let mut last = None;
    while run.state.step < plan.steps {
        if control.is_stopped() {
            run.save(control)?;
            return Ok(report(&run, &plan, true, last));
        }
        let mut metrics = train_step(config, &mut run, &plan, data)?;
        let is_measured = |every: u64| metrics.step.is_multiple_of(every) || metrics.step == plan.steps;
        if config.validation.is_some_and(|validation| is_measured(validation.every)) {
            metrics.validation_loss = Some(validation_loss(config, &run, validation_data, &validation_rows)?);
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

fn open(config: &StageConfig, job: Job<'_>, data: &Data, validation: Option<&Data>) -> Result<Run> {
    let resolved = serde_json::to_value(config).map_err(|error| Error::config("", error.to_string()))?;
    let input = |data: &Data| InputRef { path: data.path.clone(), key: data.key.clone() };
    let mut inputs = std::collections::BTreeMap::from([("data".to_string(), input(data))]);
    if let Some(validation) = validation {
        inputs.insert("validation data".into(), input(validation));
    }
    let settings = Settings {
        optimizer: &config.optimizer,
        checkpoints: config.checkpoints,
        seed: config.seed,
        lora: config.lora.as_ref(),
    };
    Run::open(job, resolved, inputs, settings)
}

fn train_step(config: &StageConfig, run: &mut Run, plan: &Plan, data: &Data) -> Result<StepMetrics> {
    let started = Instant::now();
    let numbers = plan.rows_of(run.state.step);
    let rows = numbers.iter().map(|&number| data.rows.row(number)).collect::<Result<Vec<Row>>>()?;
    let denominator: f64 = rows.iter().map(Row::total_weight).sum();
    let place = Place::rows(run.state.step + 1, &numbers);
    run.learner.start_step();
    let mut loss = 0.0;
    for micro_batch in micro_batches(&rows, config.rows_per_micro_batch) {
        let rows: Vec<&Row> = micro_batch.iter().map(|&at| &rows[at]).collect();
        loss += run.learner.add(&Batch::new(&rows, denominator), 1.0, &place)?;
    }
    let learning_rate = config.schedule.rate(config.optimizer.learning_rate, run.state.step, plan.steps);
    let grad_norm = run.learner.update(learning_rate, &place)?;
    let tokens = rows.iter().map(|row| row.tokens.len() as u64).sum();
    let trained_tokens = rows.iter().flat_map(|row| &row.weights).filter(|&&weight| weight > 0.0).count() as u64;
    run.state.step += 1;
    run.state.cursor += rows.len() as u64;
    run.state.tokens += tokens;
    run.state.trained_tokens += trained_tokens;
    let seconds = started.elapsed().as_secs_f64();
    Ok(StepMetrics {
        step: run.state.step,
        loss,
        learning_rate,
        grad_norm,
        rows: rows.len() as u64,
        tokens,
        trained_tokens,
        validation_loss: None,
        clock: Clock { seconds, tokens_per_s: tokens as f64 / seconds },
    })
}

/// `Σ w·nll / Σ w` over rows, weighted by tokens and not by batches.
fn validation_loss(config: &StageConfig, run: &Run, data: &Data, numbers: &[usize]) -> Result<f64> {
    let rows = numbers.iter().map(|&number| data.rows.row(number)).collect::<Result<Vec<Row>>>()?;
    let (mut sum, mut denominator) = (0.0, 0.0);
    for micro_batch in micro_batches(&rows, config.rows_per_micro_batch) {
        let rows: Vec<&Row> = micro_batch.iter().map(|&at| &rows[at]).collect();
        let log_probs = Batch::new(&rows, 1.0).log_probs(run.learner.decoder(), 1.0, &run.learner.device);
        for (row, log_probs) in rows.iter().zip(log_probs) {
            let weights = row.weights.iter().filter(|&&weight| weight != 0.0);
            sum -= weights.zip(log_probs).map(|(&w, log_prob)| f64::from(w) * f64::from(log_prob)).sum::<f64>();
            denominator += row.total_weight();
        }
    }
    Ok(sum / denominator)
}

fn report(run: &Run, plan: &Plan, is_stopped: bool, last: Option<StepMetrics>) -> Report {
    let mut figures = std::collections::BTreeMap::new();
    if let Some(last) = last {
        figures.insert("loss".to_string(), last.loss);
        figures.extend(last.validation_loss.map(|loss| ("validation_loss".to_string(), loss)));
    }
    let counts = [
        ("steps", run.state.step),
        ("rows", plan.trained.len() as u64),
        ("untrained_rows", plan.untrained_rows as u64),
        ("held_out_rows", plan.held_out.len() as u64),
        ("rows_drawn", run.state.cursor),
        ("tokens", run.state.tokens),
        ("trained_tokens", run.state.trained_tokens),
    ];
    let counts = counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    Report { steps: run.state.step, is_stopped, figures, counts }
}
