//! A toy sampler and a toy scorer for the RL loop, and runs with them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::module::Module;
use worldloom_model::{Decoder, Layout, LoraConfig, MatmulPrecision, Precision, token_tensor};
use worldloom_schema::{Rollout, read_table};
use worldloom_train::rl::{
    self, Completion, Draw, Failure, Group, Normalisation, Objective, Overlong, Partners, PassRates, RlConfig,
    RlPrompt, RlStepMetrics, RlValidation, Sampler, Score, Scorer,
};
use worldloom_train::{
    CheckpointConfig, Control, Error, Job, Observer, OptimizerConfig, Purpose, Report, Schedule, Shape, split_seed,
};

use crate::common::{decoder, device, model_config};

pub(crate) const STOP: u32 = 0;
pub(crate) const WANTED: u32 = 7;
pub(crate) const LONGEST: usize = 4;

/// Samples by computing the whole sequence anew for each token.
pub(crate) struct ToySampler {
    pub(crate) temperature: f64,
    /// Added to every log-prob it reports.
    pub(crate) error: f32,
}

impl ToySampler {
    fn complete(&self, decoder: &Decoder, prompt: &[u32], seed: u64) -> Completion {
        let device = device();
        let mut tokens = prompt.to_vec();
        let mut completion = Completion { tokens: Vec::new(), log_probs: Vec::new(), stopped: false };
        while completion.tokens.len() < LONGEST && !completion.stopped {
            let layout = Layout::causal(1, tokens.len(), &device);
            let logits = decoder.valid().logits(token_tensor(&tokens, 1, tokens.len(), &device), &layout);
            let all: Vec<f64> = logits.into_data().iter::<f32>().map(f64::from).collect();
            let last = &all[all.len() - model_config().vocab_size..];
            let log_probs = log_softmax(last, self.temperature);
            let draw = split_seed(seed, Purpose::Sampling, tokens.len() as u64) as f64 / u64::MAX as f64;
            let token = pick(&log_probs, draw);
            tokens.push(token);
            completion.tokens.push(token);
            completion.log_probs.push(log_probs[token as usize] as f32 + self.error);
            completion.stopped = token == STOP;
        }
        completion
    }
}

fn log_softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
    let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|logit| ((logit - largest) / temperature).exp()).sum();
    logits.iter().map(|logit| (logit - largest) / temperature - sum.ln()).collect()
}

fn pick(log_probs: &[f64], draw: f64) -> u32 {
    let mut sum = 0.0;
    for (token, log_prob) in log_probs.iter().enumerate() {
        sum += log_prob.exp();
        if draw < sum {
            return token as u32;
        }
    }
    log_probs.len() as u32 - 1
}

impl Sampler for ToySampler {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        let stream = |slot: usize, number: usize| split_seed(draw.seed, Purpose::Mask, (slot * 1000 + number) as u64);
        let group = |(slot, prompt): (usize, &&RlPrompt)| {
            (0..group_size).map(|number| self.complete(decoder, &prompt.tokens, stream(slot, number))).collect()
        };
        Ok(prompts.iter().enumerate().map(group).collect())
    }
}

/// Wants one token; an empty answer is a fault; some samples it cannot judge.
pub(crate) struct ToyScorer {
    pub(crate) is_flat: bool,
}

impl Scorer for ToyScorer {
    fn score(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<Score>>, Failure> {
        let score = |completion: &Completion| match completion.tokens.as_slice() {
            [STOP] => Score::PolicyFault { reason: "empty".into(), parts: Vec::new() },
            [first, ..] if *first == 23 => Score::Unavailable { reason: "silent".into() },
            _ if self.is_flat => Score::Scored { reward: 2.5, parts: Vec::new() },
            tokens => {
                let share = tokens.iter().filter(|&&token| token == WANTED).count() as f64 / LONGEST as f64;
                Score::Scored { reward: 25.0 * share, parts: vec![("share".into(), share)] }
            }
        };
        Ok(groups.iter().map(|group| group.completions.iter().map(score).collect()).collect())
    }

    fn text(&self, tokens: &[u32]) -> Option<String> {
        Some(tokens.iter().map(|token| format!("<{token}>")).collect())
    }
}

/// Adapters on every projection.
pub(crate) fn adapters() -> LoraConfig {
    LoraConfig { rank: 2, alpha: 8.0, dropout: 0.0, targets: "proj".to_owned() }
}

/// Log-probs of the tokens from `start` on, each from the whole sequence before it, at temperature 1.
pub(crate) fn log_probs(decoder: &Decoder, tokens: &[u32], start: usize) -> Vec<f64> {
    let device = device();
    let layout = Layout::causal(1, tokens.len(), &device);
    let logits = decoder.valid().logits(token_tensor(tokens, 1, tokens.len(), &device), &layout);
    let all: Vec<f64> = logits.into_data().iter::<f32>().map(f64::from).collect();
    let rows: Vec<&[f64]> = all.chunks(model_config().vocab_size).collect();
    (start..tokens.len()).map(|at| log_softmax(rows[at - 1], 1.0)[tokens[at] as usize]).collect()
}

pub(crate) fn config(steps: u64) -> RlConfig {
    RlConfig {
        steps,
        prompts_per_step: 4,
        group_size: 6,
        mini_batches: 2,
        rows_per_micro_batch: 8,
        micro_batches_at_once: 1,
        recompute: false,
        share_prompts: true,
        max_completion_tokens: LONGEST,
        temperature: 1.0,
        seed: 3,
        normalisation: Normalisation::Group,
        refills: 0,
        overlong: Overlong::Keep,
        truth_nll: 0.0,
        curriculum: None,
        ahead: false,
        max_staleness: 1,
        correct_stale: true,
        validation: None,
        reference_every: None,
        objective: Objective::default(),
        precision: Precision::F32,
        matmul_precision: MatmulPrecision::F32,
        lora: None,
        optimizer: OptimizerConfig::new(3e-3, 0.0, 1.0),
        schedule: Schedule { shape: Shape::Constant, warmup_steps: 0, floor: None, decay_steps: None },
        checkpoints: CheckpointConfig::new(2, 2),
        max_fault_share_at_start: 0.5,
        max_unavailable_share: 1.0,
        max_log_prob_gap: 1e-4,
    }
}

pub(crate) const RESTING: PassRates = PassRates { pass: 6.0, low: 0.1, high: 0.9, rests: 2 };
pub(crate) const HELD_OUT: RlValidation = RlValidation { every: 3, held_out_prompts: 2, completions: 3 };

pub(crate) fn prompts() -> Vec<RlPrompt> {
    (0..6)
        .map(|at| RlPrompt {
            id: format!("p#{at}"),
            tokens: (1..4 + at).collect(),
            label: ["even", "odd"][at as usize % 2].into(),
            truth: Some(vec![WANTED, 11, STOP]),
        })
        .collect()
}

pub(crate) struct Watcher<'a> {
    pub(crate) steps: Vec<RlStepMetrics>,
    pub(crate) stop_after: Option<u64>,
    pub(crate) stop: &'a AtomicBool,
}

impl Observer for Watcher<'_> {
    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        self.steps.push(metrics.clone());
        if self.stop_after == Some(metrics.step) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

pub(crate) fn sampler(config: &RlConfig) -> ToySampler {
    ToySampler { temperature: config.temperature, error: 0.0 }
}

pub(crate) fn train(
    config: &RlConfig,
    out: &Path,
    stop_after: Option<u64>,
    mut sampler: impl Sampler,
    mut scorer: impl Scorer,
) -> Result<(Report, Vec<RlStepMetrics>), Error> {
    let (stop, device) = (AtomicBool::new(false), device());
    let mut watcher = Watcher { steps: Vec::new(), stop_after, stop: &stop };
    let job = Job { decoder: decoder(), model: model_config(), out, device: &device };
    let mut partners = Partners { sampler: &mut sampler, scorer: &mut scorer };
    let mut control = Control { observer: &mut watcher, stop: &stop };
    let report = rl::run(config, job, &prompts(), &mut partners, &mut control)?;
    Ok((report, watcher.steps))
}

pub(crate) fn run(config: &RlConfig, out: &Path) -> (Report, Vec<RlStepMetrics>) {
    train(config, out, None, sampler(config), ToyScorer { is_flat: false }).unwrap()
}

pub(crate) fn rollouts(out: &Path, step: u64) -> Vec<Rollout> {
    read_table(&out.join(format!("rollouts/step-{step:06}.parquet"))).unwrap()
}
