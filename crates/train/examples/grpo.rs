//! One GRPO step, generation and training, with a long prompt: the completions of a prompt in one row against a row for
//! each, `just bench-grpo`. `bench/peers/grpo.py` runs single cells beside TRL's on the same weights.
//!
//! ```text
//! cargo run --release --example grpo                                     all cells, each in a process of its own
//! cargo run --release --example grpo -- MODEL_FOLDER 4096 shared 3       one cell: shared or separate, 3 steps
//! ```
//!
//! The model is of 12.6 million parameters unless a folder is given (`-` for none). Each step takes one prompt, samples 8
//! completions of 128 tokens at temperature 1, and makes one update by GRPO. Rewards follow from the completions' tokens
//! and differ inside a group. Run it with `MIMALLOC_PURGE_DELAY=-1`, as the program sets for itself when it trains, and
//! `RAYON_NUM_THREADS` for the threads.

use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{Decoder, MatmulPrecision, ModelConfig, Precision, load};
use worldloom_train::rl::{
    self, Completion, Draw, Failure, Group, Name, Normalisation, Objective, Overlong, Partners, RlConfig, RlPrompt,
    RlStepMetrics, Sampler, Score, Scorer,
};
use worldloom_train::{
    CheckpointConfig, Control, Job, Observer, OptimizerConfig, Purpose, Schedule, Shape, split_seed,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const GROUP: usize = 8;
const NEW_TOKENS: usize = 128;
const STEPS: u64 = 3;
const PROMPTS: [usize; 2] = [1024, 4096];
const ROWS: [&str; 2] = ["shared", "separate"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout();
    let result = match &arguments[..] {
        [] => all(&mut out),
        [folder, prompt, rows, steps] => match (prompt.parse(), steps.parse()) {
            (Ok(prompt), Ok(steps)) if ROWS.contains(&rows.as_str()) => cell(folder, prompt, rows, steps, &mut out),
            _ => Err("expected MODEL_FOLDER PROMPT_TOKENS shared|separate STEPS".into()),
        },
        _ => Err("expected no arguments, or MODEL_FOLDER PROMPT_TOKENS shared|separate STEPS".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(out, "{error}");
            ExitCode::FAILURE
        }
    }
}

/// All cells, and the ratios of separate rows to shared ones.
fn all(out: &mut impl Write) -> Result<(), Failure> {
    writeln!(
        out,
        "| prompt | rows | generation, ms | training, ms | step, ms | peak, MiB |\n|---|---|---|---|---|---|"
    )?;
    let mut ratios = Vec::new();
    for prompt in PROMPTS {
        let mut measured = Vec::new();
        for rows in ROWS {
            let [generation, training, step, peak] = measure(prompt, rows)?;
            writeln!(out, "| {prompt} | {rows} | {generation:.0} | {training:.0} | {step:.0} | {peak:.0} |")?;
            measured.push((step, peak));
        }
        let (shared, separate) = (measured[0], measured[1]);
        ratios.push(format!(
            "{prompt} tokens: separate rows take {:.2} times as long and {:.2} times the memory",
            separate.0 / shared.0,
            separate.1 / shared.1
        ));
    }
    Ok(writeln!(out, "{}", ratios.join("\n"))?)
}

/// Medians of the steps after the first, and the peak, of a cell in a process of its own.
fn measure(prompt: usize, rows: &str) -> Result<[f64; 4], Failure> {
    let child = Command::new(std::env::current_exe()?)
        .args(["-", &prompt.to_string(), rows, &STEPS.to_string()])
        .env("MIMALLOC_PURGE_DELAY", "-1")
        .output()?;
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let after = |line: &str, word: &str| -> Option<f64> {
        line.split_once(word)?.1.split_whitespace().next()?.parse::<f64>().ok()
    };
    let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("step ")).skip(1).collect();
    let median = |word: &str| {
        let mut values: Vec<f64> = steps.iter().filter_map(|line| after(line, word)).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied()
    };
    let peak = text.lines().find_map(|line| after(line, "peak ")).map(|kilobytes| kilobytes / 1024.0);
    let figures = [median("generation "), median("training "), median("all "), peak];
    match figures {
        [Some(generation), Some(training), Some(step), Some(peak)] => Ok([generation, training, step, peak]),
        _ => Err(format!("{rows} rows of {prompt} tokens: the process ended without figures:\n{text}").into()),
    }
}

/// Steps of one cell, as lines.
fn cell(folder: &str, prompt: usize, rows: &str, steps: u64, out: &mut impl Write) -> Result<(), Failure> {
    let device = Device::flex().autodiff();
    let (decoder, model) = match folder {
        "-" => {
            let model = model(prompt + NEW_TOKENS)?;
            (Decoder::init(&model, 1, &device), model)
        }
        folder => load(Path::new(folder), &device)?,
    };
    let is_shared = rows == "shared";
    let folder = tempfile::tempdir()?;
    let mut sampler = TimedSampler { model: model.clone(), is_shared, taken: Arc::default() };
    let mut watch = Watch { generation: sampler.taken.clone(), out };
    let stop = AtomicBool::new(false);
    let prompts: Vec<RlPrompt> = (0..steps).map(|number| rl_prompt(number, prompt, model.vocab_size)).collect();
    let job = Job { decoder, model, out: folder.path(), device: &device };
    let mut partners = Partners { sampler: &mut sampler, scorer: &mut ByTokens };
    let mut control = Control { observer: &mut watch, stop: &stop };
    rl::run(&config(steps, is_shared), job, &prompts, &mut partners, &mut control)?;
    Ok(writeln!(out, "peak {}", peak_kilobytes().unwrap_or(0))?)
}

fn config(steps: u64, is_shared: bool) -> RlConfig {
    RlConfig {
        steps,
        prompts_per_step: 1,
        group_size: GROUP,
        mini_batches: 1,
        rows_per_micro_batch: if is_shared { 1 } else { GROUP },
        micro_batches_at_once: 1,
        recompute: false,
        share_prompts: is_shared,
        max_completion_tokens: NEW_TOKENS,
        temperature: 1.0,
        seed: 1,
        normalisation: Normalisation::Group,
        refills: 0,
        overlong: Overlong::Keep,
        curriculum: None,
        ahead: false,
        max_staleness: 1,
        correct_stale: true,
        validation: None,
        reference_every: None,
        objective: Objective::published(Name::Grpo),
        truth_nll: 0.0,
        precision: Precision::F32,
        matmul_precision: MatmulPrecision::F32,
        lora: None,
        optimizer: OptimizerConfig::new(1e-5, 0.0, 1.0),
        schedule: Schedule { shape: Shape::Constant, warmup_steps: 0, floor: None, decay_steps: None },
        checkpoints: CheckpointConfig::new(steps, 1),
        max_fault_share_at_start: 1.0,
        max_unavailable_share: 1.0,
        max_log_prob_gap: 1e-3,
    }
}

/// 12.6 million parameters: the shape of `bench/models.py`.
fn model(longest: usize) -> Result<ModelConfig, Failure> {
    let text = format!(
        r#"{{"model_type": "qwen3", "vocab_size": 4096, "hidden_size": 384, "intermediate_size": 1024,
            "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": {longest},
            "tie_word_embeddings": false, "initializer_range": 0.02}}"#
    );
    Ok(ModelConfig::from_json(&text)?)
}

fn rl_prompt(number: u64, length: usize, vocabulary: usize) -> RlPrompt {
    let token = |at: u64| (((number * length as u64 + at) * 2_654_435_761) >> 7) as u32 % vocabulary as u32;
    let tokens = (0..length as u64).map(token).collect();
    RlPrompt { id: format!("prompt-{number}"), tokens, label: String::new(), truth: None }
}

/// The generation engine, which takes every completion to its full length, and the time it took.
struct TimedSampler {
    model: ModelConfig,
    is_shared: bool,
    taken: Arc<Mutex<Duration>>,
}

impl Sampler for TimedSampler {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        let started = Instant::now();
        // Apart, each completion is a request with a prompt of its own to compute.
        let (requests_each, num_completions) = if self.is_shared { (1, group_size) } else { (group_size, 1) };
        let request = |(place, prompt): (usize, &RlPrompt)| Request {
            prompt: prompt.tokens.clone(),
            num_completions,
            seed: split_seed(draw.seed, Purpose::Sampling, place as u64),
            sampling: Sampling::plain(NEW_TOKENS, 1.0, Vec::new()),
        };
        let requests: Vec<Request> = prompts
            .iter()
            .flat_map(|&prompt| std::iter::repeat_n(prompt, requests_each))
            .enumerate()
            .map(request)
            .collect();
        let groups = Generator::new(decoder, &self.model)?.generate(&requests, &mut |_, _| {})?;
        let groups = groups.chunks(requests_each).map(<[Vec<Completion>]>::concat).collect();
        *self.taken.lock().unwrap_or_else(PoisonError::into_inner) = started.elapsed();
        Ok(groups)
    }
}

/// A reward that follows from the tokens.
struct ByTokens;

impl Scorer for ByTokens {
    fn score(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<Score>>, Failure> {
        let reward = |completion: &Completion| f64::from(completion.tokens.iter().sum::<u32>() % 1000) / 40.0;
        let score = |completion: &Completion| Score::Scored { reward: reward(completion), parts: Vec::new() };
        Ok(groups.iter().map(|group| group.completions.iter().map(score).collect()).collect())
    }
}

/// Prints each step as it ends: the bench reads the processor's time when a line comes.
struct Watch<'a, W: Write> {
    generation: Arc<Mutex<Duration>>,
    out: &'a mut W,
}

impl<W: Write> Observer for Watch<'_, W> {
    fn on_rl_step(&mut self, metrics: &RlStepMetrics) {
        let (generation, all) = (
            self.generation.lock().unwrap_or_else(PoisonError::into_inner).as_secs_f64() * 1e3,
            metrics.clock.seconds * 1e3,
        );
        // A closed pipe ends the report, not the measurement.
        let _ = writeln!(
            self.out,
            "step {}: generation {generation:.0} ms, training {:.0} ms, all {all:.0} ms, norm {:.4}, length {:.0}",
            metrics.step,
            all - generation,
            metrics.grad_norm,
            metrics.response_length
        );
    }
}

/// The most memory this process had, where the system says.
fn peak_kilobytes() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
