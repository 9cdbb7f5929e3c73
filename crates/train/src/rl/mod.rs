//! Reinforcement learning on groups of completions, on token ids.
//!
//! Words: a *group* is one prompt with several *completions*; a *step* is one batch of groups, cut into *mini-batches* of
//! whole groups, each of which makes one update. The *sampler* makes completions, the *scorer* judges them; both are the
//! caller's. A sample is *active* if it can push the weights at all.
//!
//! A group whose rewards are all equal has advantage 0: it stays in the denominators and pushes nothing (unless a
//! divergence is asked for). A mini-batch in which nothing pushes makes no update and is counted.

mod advantage;
mod alarms;
mod collect;
mod config;
mod metrics;
mod objective;
mod rollout;
mod rows;
mod update;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use worldloom_model::{Decoder, ModelConfig};
use worldloom_schema::InputRef;

pub use worldloom_model::generate::Completion;

pub use advantage::{Advantages, Normalisation, advantages, check_group_size};
pub use config::{Overlong, RlConfig};
pub use metrics::{LabelFigures, RlStepMetrics};
pub use objective::{
    Aggregation, Correction, CorrectionLevel, CorrectionMode, Denominators, Divergence, Name, Objective, PolicyLoss,
    Ratio, Sequence, Surrogate, Totals, policy_loss,
};
pub use rollout::{Failure, Group, Notes, Partners, RlPrompt, Sampler, Score, Scorer};

use crate::error::{Error, Result};
use crate::learner::Place;
use crate::metrics::{Clock, Control, StartInfo};
use crate::run::{Job, Report, Run, Settings};
use alarms::History;
use rollout::{Rollouts, Sample};

const ROLLOUTS: &str = "rollouts";

/// Trains on `prompts`. Called again on the same folder, it goes on; the files it leaves are the same. The starting
/// weights are the reference of the divergence.
pub fn run(
    config: &RlConfig,
    job: Job<'_>,
    prompts: &[RlPrompt],
    partners: &mut Partners<'_>,
    control: &mut Control<'_>,
) -> Result<Report> {
    config.check()?;
    check_prompts(config, &job.model, prompts)?;
    let reference = update::reference_of(config, &job.decoder);
    let out = job.out.to_path_buf();
    let mut run = open(config, job, prompts)?;
    control.observer.on_start(&StartInfo {
        steps: config.steps,
        done: run.state.step,
        parameters: run.learner.decoder().num_parameters() as u64,
        rows: prompts.len() as u64,
        untrained_rows: 0,
        validation_rows: 0,
    });
    let (mut last, mut history) = (None, History::read(&out)?);
    while run.state.step < config.steps {
        if control.is_stopped() {
            run.save(control)?;
            return Ok(report(&run, prompts, true, last));
        }
        let mut step = Step { config, prompts, reference: reference.as_ref(), rollouts: out.join(ROLLOUTS) };
        let metrics = match step.run(&mut run, &mut history, partners) {
            // Nothing of the step is done: with the judge back, the same call goes on from here.
            Err(error @ Error::ScorerUnavailable { .. }) => {
                run.save(control)?;
                return Err(error);
            }
            outcome => outcome?,
        };
        run.metrics.push(&metrics)?;
        control.observer.on_rl_step(&metrics);
        last = Some(metrics);
        run.save_if_due(config.steps, control)?;
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

fn open(config: &RlConfig, job: Job<'_>, prompts: &[RlPrompt]) -> Result<Run> {
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
    let inputs = BTreeMap::from([("prompts".to_string(), InputRef { path: PathBuf::new(), key })]);
    let resolved = serde_json::to_value(config).map_err(|error| Error::config("", error.to_string()))?;
    let settings = Settings {
        optimizer: &config.optimizer,
        checkpoints: config.checkpoints,
        seed: config.seed,
        lora: config.lora.as_ref(),
        precision: config.precision,
        recompute: config.recompute,
        micro_batches_at_once: config.micro_batches_at_once,
    };
    Run::open(job, resolved, inputs, settings)
}

/// What a step works with.
struct Step<'a> {
    config: &'a RlConfig,
    prompts: &'a [RlPrompt],
    reference: Option<&'a Decoder>,
    rollouts: PathBuf,
}

impl Step<'_> {
    fn run(&mut self, run: &mut Run, history: &mut History, partners: &mut Partners<'_>) -> Result<RlStepMetrics> {
        let started = Instant::now();
        let (config, step) = (self.config, run.state.step + 1);
        let place = (run.state.step, run.state.cursor);
        let rollouts = collect::collect(config, run.learner.decoder(), self.prompts, place, partners)?;
        let drawn = rollouts.drawn;
        let mut metrics = RlStepMetrics::of(&rollouts, self.prompts);
        let Notes { figures, alarms } = partners.scorer.take_notes();
        (metrics.scorer, metrics.alarms) = (figures.into_iter().collect(), alarms);
        check_available(config, step, &metrics)?;
        let mut mini_batches = into_mini_batches(rollouts, config.mini_batches);
        let truths: Vec<Vec<Sample>> =
            mini_batches.iter().map(|samples| update::truths(config, self.prompts, samples)).collect();
        for (samples, truths) in mini_batches.iter_mut().zip(&truths) {
            update::add_old_log_probs(config, &run.learner, self.reference, samples, truths);
        }
        rollout::dump(&self.rollouts, step, self.prompts, &mini_batches, partners.scorer)?;
        for samples in &mini_batches {
            update::check_sampler(config, self.prompts, step, samples, &mut metrics)?;
        }
        if step == 1 {
            check_faults(config, &metrics)?;
        }
        self.train(run, &mini_batches, &truths, &mut metrics)?;
        run.state.step = step;
        run.state.cursor += drawn;
        run.state.tokens += metrics.tokens;
        run.state.trained_tokens += metrics.trained_tokens;
        metrics.step = step;
        metrics.updates = run.learner.optimizer.updates();
        history.look(&mut metrics);
        let seconds = started.elapsed().as_secs_f64();
        metrics.clock = Clock { seconds, tokens_per_s: metrics.tokens as f64 / seconds };
        Ok(metrics)
    }

    /// One update for each mini-batch.
    fn train(
        &self,
        run: &mut Run,
        mini_batches: &[Vec<Sample>],
        truths: &[Vec<Sample>],
        metrics: &mut RlStepMetrics,
    ) -> Result<()> {
        let config = self.config;
        let (mut totals, mut losses) = (Totals::default(), Vec::new());
        for (at, (samples, truths)) in mini_batches.iter().zip(truths).enumerate() {
            let place = self.place(run.state.step + 1, samples);
            let number = run.state.step * config.mini_batches as u64 + at as u64;
            let rate = config.schedule.rate(config.optimizer.learning_rate, number, config.updates());
            metrics.learning_rate = rate;
            let of = (samples.as_slice(), truths.as_slice());
            let Some(update) = update::update(config, &mut run.learner, of, rate, &place, &mut totals)? else {
                metrics.skipped_updates += 1;
                continue;
            };
            if losses.is_empty() {
                metrics.first_log_ratio = update.log_ratio_max;
                metrics.truth_nll = update.truth_nll;
                update.check_first(run.state.step + 1)?;
            }
            losses.push(update.loss);
            metrics.grad_norm = metrics.grad_norm.max(update.grad_norm);
        }
        let tokens = totals.tokens.max(1) as f64;
        metrics.loss = losses.iter().sum::<f64>() / losses.len().max(1) as f64;
        metrics.clip_low = totals.clipped_low as f64 / tokens;
        metrics.clip_high = totals.clipped_high as f64 / tokens;
        metrics.ratio_max = totals.ratio_max;
        metrics.kl = totals.kl / tokens;
        metrics.entropy = totals.entropy / tokens;
        Ok(())
    }

    fn place(&self, step: u64, samples: &[Sample]) -> Place<'static> {
        let mut ids: Vec<&str> = samples.iter().map(|sample| self.prompts[sample.prompt].id.as_str()).collect();
        ids.dedup();
        Place { step, rows: format!("prompts {}", ids.join(", ")).into() }
    }
}

/// Whole groups, in their order, in parts of nearly equal number.
fn into_mini_batches(rollouts: Rollouts, count: usize) -> Vec<Vec<Sample>> {
    let total = rollouts.groups.len();
    let mut parts: Vec<Vec<Sample>> = (0..count).map(|_| Vec::new()).collect();
    for (at, group) in rollouts.groups.into_iter().enumerate() {
        parts[at * count / total].extend(group);
    }
    parts
}

fn check_available(config: &RlConfig, step: u64, metrics: &RlStepMetrics) -> Result<()> {
    if metrics.unavailable as f64 <= config.max_unavailable_share * metrics.completions as f64 {
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

fn check_faults(config: &RlConfig, metrics: &RlStepMetrics) -> Result<()> {
    if metrics.fault_share <= config.max_fault_share_at_start {
        return Ok(());
    }
    let reasons: Vec<String> = metrics.faults.iter().map(|(reason, count)| format!("{reason}: {count}")).collect();
    Err(Error::FaultsAtStart {
        faults: metrics.faults.values().sum::<u64>() as usize,
        completions: metrics.completions as usize,
        reasons: reasons.join(", "),
        limit: config.max_fault_share_at_start,
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
