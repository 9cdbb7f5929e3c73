//! Peak memory and speed of training with and without block recompute and the chunked head, against the estimate:
//! `just bench-train`. A vocabulary of 151,936 and rows of 8,192 tokens on a small model, which must fit in 6 GiB.
//!
//! Every cell runs in a process of its own, since a peak never falls. The head that keeps all logits is measured at
//! 1,024 tokens: at 8,192 its logits and their gradients alone are 10 GB.

use std::io::Write;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use worldloom_model::ops::{self, RowTargets};
use worldloom_model::{Decoder, Gradients, Layout, ModelConfig, Precision, token_tensor};
use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{
    CheckpointConfig, Control, Data, GuardConfig, Job, Memory, Observer, Optimizer, OptimizerConfig, Schedule, Shape,
    StepMetrics,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VOCABULARY: u32 = 151_936;
const LONG: usize = 8192;
const SHORT: usize = 1024;
const STEPS: u64 = 2;
/// What the long rows may take, in GiB.
const LIMIT: f64 = 6.0;
/// What the program itself takes, in GiB: its code, the runtime's threads, the rows.
const PROGRAM: f64 = 0.06;
const GIB: f64 = (1u64 << 30) as f64;

/// Head, blocks, context.
const CELLS: [(&str, &str, usize); 5] = [
    ("chunked", "kept", LONG),
    ("chunked", "again", LONG),
    ("chunked", "kept", SHORT),
    ("chunked", "again", SHORT),
    ("whole", "kept", SHORT),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout();
    if let [head, blocks, context] = &arguments[..] {
        let context = context.parse().expect("the parent gives a number");
        let (estimate, speed) = match head.as_str() {
            "whole" => (0, whole_head(context)),
            _ => chunked_head(context, blocks == "again"),
        };
        return done(writeln!(out, "{estimate} {} {speed}", peak_bytes()));
    }
    let mut is_good = true;
    let titles = "| head | blocks | context | estimate, GiB | peak, GiB | tokens/s |\n|---|---|---|---|---|---|";
    let mut lines = vec![titles.to_string()];
    for (head, blocks, context) in CELLS {
        let program = std::env::current_exe().expect("this program has a path");
        let child = Command::new(program)
            .args([head, blocks, &context.to_string()])
            .env("MIMALLOC_PURGE_DELAY", "-1")
            .output()
            .expect("this program runs");
        let text = String::from_utf8_lossy(&child.stdout);
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [estimate, peak, speed] = numbers[..] else {
            lines.push(format!("| {head} | {blocks} | {context} | | died: {} | |", child.status));
            is_good = false;
            continue;
        };
        let (estimate, peak) = (estimate / GIB + PROGRAM, peak / GIB);
        if head == "chunked" && context == LONG {
            is_good &= peak < LIMIT && (estimate / peak - 1.0).abs() < 0.2;
        }
        let estimate = if head == "whole" { String::new() } else { format!("{estimate:.2}") };
        lines.push(format!("| {head} | {blocks} | {context} | {estimate} | {peak:.2} | {speed:.0} |"));
    }
    lines.push(match is_good {
        true => format!("rows of {LONG} tokens fit in {LIMIT} GiB and the estimates are within 20 %"),
        false => format!("rows of {LONG} tokens do not fit in {LIMIT} GiB, or an estimate is off by more than 20 %"),
    });
    let code = done(writeln!(out, "{}", lines.join("\n")));
    if is_good { code } else { ExitCode::FAILURE }
}

fn done(written: std::io::Result<()>) -> ExitCode {
    // A closed pipe ends the report, not the measurement.
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn model() -> ModelConfig {
    let text = format!(
        r#"{{"model_type": "qwen3", "vocab_size": {VOCABULARY}, "hidden_size": 256, "intermediate_size": 768,
            "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": {LONG}, "tie_word_embeddings": true,
            "initializer_range": 0.02}}"#
    );
    ModelConfig::from_json(&text).expect("the config above is valid")
}

fn tokens(context: usize) -> Vec<u32> {
    (0..context as u64).map(|at| ((at * 2_654_435_761) >> 7) as u32 % VOCABULARY).collect()
}

/// Two steps of the real loop on one row; the estimate in bytes and the speed of the second step.
fn chunked_head(context: usize, recompute: bool) -> (u64, f64) {
    struct Watch(u64, f64);
    impl Observer for Watch {
        fn on_memory(&mut self, memory: &Memory) {
            self.0 = memory.estimate.total();
        }
        fn on_step(&mut self, metrics: &StepMetrics) {
            self.1 = metrics.clock.tokens_per_s;
        }
    }
    let row = Row {
        tokens: tokens(context),
        weights: (0..context).map(|at| if at == 0 { 0.0 } else { 1.0 }).collect(),
        positions: (0..context as u32).collect(),
        segments: vec![0; context],
        continues: vec![-1],
        sources: vec!["row".into()],
    };
    let config = StageConfig {
        steps: Some(STEPS),
        epochs: None,
        rows_per_step: 1,
        rows_per_micro_batch: 1,
        micro_batches_at_once: 1,
        recompute,
        mixture: None,
        curriculum: None,
        guards: GuardConfig::default(),
        seed: 1,
        precision: Precision::F32,
        routers: None,
        lora: None,
        optimizer: OptimizerConfig::new(1e-4, 0.1, 1.0),
        schedule: Schedule { shape: Shape::Constant, warmup_steps: 0, floor: None, decay_steps: None },
        checkpoints: CheckpointConfig::new(STEPS, 1),
        validation: None,
    };
    let (device, model, stop) = (Device::flex().autodiff(), model(), AtomicBool::new(false));
    let decoder = Decoder::init(&model, 1, &device);
    let out = tempfile::tempdir().expect("a temporary folder");
    let job = Job { decoder, model, out: out.path(), device: &device };
    let mut watch = Watch(0, 0.0);
    let mut control = Control { observer: &mut watch, stop: &stop };
    supervised::run(&config, job, &Data::from_rows(vec![row]), None, &mut control).expect("the run ends");
    (watch.0, watch.1)
}

/// The same steps with a head that keeps all logits.
fn whole_head(context: usize) -> f64 {
    let device = Device::flex().autodiff();
    let mut decoder = Decoder::init(&model(), 1, &device);
    let (ids, weight) = (tokens(context), 1.0 / context as f32);
    let mut gradients = Gradients::zeros(&decoder);
    let mut optimizer = Optimizer::new(&OptimizerConfig::new(1e-4, 0.1, 1.0), &decoder);
    let mut speed = 0.0;
    for _ in 0..STEPS {
        let started = Instant::now();
        let layout = Layout::causal(1, context, &device);
        let hidden = decoder.hidden(token_tensor(&ids, 1, context, &device), &layout);
        let [_, _, width] = hidden.dims();
        let targets = RowTargets {
            tokens: Tensor::from_data(
                TensorData::new(ids.iter().map(|&id| id as i32).collect::<Vec<_>>(), [context]),
                &device,
            ),
            weights: Tensor::from_data(TensorData::new(vec![weight; context], [context]), &device),
            temperature: 1.0,
        };
        let head = decoder.model.embed_tokens.weight.val();
        let loss = ops::plain::linear_cross_entropy(hidden.reshape([context, width]), head, targets).total;
        gradients.reset();
        gradients.accumulate(&decoder, loss);
        let norm = gradients.squared_norm().sqrt();
        decoder = optimizer.update(decoder, &mut gradients, norm, 1e-4);
        speed = context as f64 / started.elapsed().as_secs_f64();
    }
    speed
}

/// The most memory that this process had; 0 where the system does not say.
fn peak_bytes() -> u64 {
    let status = fs_err::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
