//! Peak memory and speed of training with and without block recompute and the chunked head, against the estimate:
//! `just bench-train`. A vocabulary of 151,936 and rows of 8,192 tokens on a small model, which must fit in 6 GiB. With
//! `lora`, adapters of rank 16 on every projection against all weights, of a dense model and of one with experts.
//!
//! Every cell runs in a process of its own, since a peak never falls. The head that keeps all logits is measured at
//! 1,024 tokens: at 8,192 its logits and their gradients alone are 10 GB.

use std::io::Write;
use std::process::{Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use worldloom_model::ops::{self, RowTargets};
use worldloom_model::{Decoder, Gradients, Layout, LoraConfig, MatmulPrecision, ModelConfig, Precision, token_tensor};
use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{
    CheckpointConfig, Control, Data, GuardConfig, Job, Memory, Observer, Optimizer, OptimizerConfig, Schedule, Shape,
    StepMetrics,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VOCABULARY: u32 = 151_936;
const SMALL_VOCABULARY: u32 = 32_768;
const LONG: usize = 8192;
const SHORT: usize = 1024;
const STEPS: u64 = 2;
/// What the long rows may take, in GiB.
const LIMIT: f64 = 6.0;
/// What the program itself takes, in GiB: its code, the runtime's threads, the rows.
const PROGRAM: f64 = 0.06;
const GIB: f64 = (1u64 << 30) as f64;

/// What is trained how: one process, one line of the report.
#[derive(Clone, Copy)]
struct Cell {
    model: &'static str,
    trained: &'static str,
    head: &'static str,
    blocks: &'static str,
    context: usize,
}

const PLAIN: Cell = Cell { model: "dense", trained: "all", head: "chunked", blocks: "kept", context: SHORT };

const CELLS: [Cell; 5] = [
    Cell { context: LONG, ..PLAIN },
    Cell { context: LONG, blocks: "again", ..PLAIN },
    PLAIN,
    Cell { blocks: "again", ..PLAIN },
    Cell { head: "whole", ..PLAIN },
];

/// All weights and then adapters, of a model each.
const PAIRS: [Cell; 4] = [
    Cell { model: "small dense", ..PLAIN },
    Cell { model: "small dense", trained: "adapters", ..PLAIN },
    Cell { model: "small experts", ..PLAIN },
    Cell { model: "small experts", trained: "adapters", ..PLAIN },
];

/// Estimate and peak in GiB, tokens per second.
struct Measured {
    estimate: f64,
    peak: f64,
    speed: f64,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut out = std::io::stdout();
    if let [cells, number] = &arguments[..] {
        let cell = cells_of(cells)[number.parse::<usize>().expect("the parent gives a number")];
        let (estimate, speed) = match cell.head {
            "whole" => (0, whole_head(cell.context)),
            _ => chunked_head(cell),
        };
        return done(writeln!(out, "{estimate} {} {speed}", peak_bytes()));
    }
    let asked = arguments.first().map_or("all", String::as_str);
    let cells = cells_of(asked);
    let measured: Vec<Option<Measured>> = (0..cells.len()).map(|number| measure(asked, number)).collect();
    let titles = "| model | trained | head | blocks | context | estimate, GiB | peak, GiB | tokens/s |\n\
                  |---|---|---|---|---|---|---|---|";
    let mut lines = vec![titles.to_string()];
    for (Cell { model, trained, head, blocks, context }, measured) in cells.iter().zip(&measured) {
        let numbers = match measured {
            None => "| died | |".to_string(),
            Some(Measured { peak, speed, .. }) if *head == "whole" => format!("| {peak:.2} | {speed:.0} |"),
            Some(Measured { estimate, peak, speed }) => format!("{estimate:.2} | {peak:.2} | {speed:.0} |"),
        };
        lines.push(format!("| {model} | {trained} | {head} | {blocks} | {context} | {numbers}"));
    }
    let verdict = if asked == "lora" { of_pairs(&measured) } else { of_long_rows(&measured) };
    let (Ok(line) | Err(line)) = &verdict;
    lines.push(line.clone());
    let code = done(writeln!(out, "{}", lines.join("\n")));
    if verdict.is_ok() { code } else { ExitCode::FAILURE }
}

fn cells_of(asked: &str) -> &'static [Cell] {
    if asked == "lora" { &PAIRS } else { &CELLS }
}

/// Runs a cell in a process of its own; none if it died.
fn measure(asked: &str, number: usize) -> Option<Measured> {
    let program = std::env::current_exe().expect("this program has a path");
    let child = Command::new(program)
        .args([asked, &number.to_string()])
        .env("MIMALLOC_PURGE_DELAY", "-1")
        .output()
        .expect("this program runs");
    let text = String::from_utf8_lossy(&child.stdout);
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [estimate, peak, speed] = numbers[..] else { return None };
    Some(Measured { estimate: estimate / GIB + PROGRAM, peak: peak / GIB, speed })
}

fn of_long_rows(measured: &[Option<Measured>]) -> Result<String, String> {
    let is_good = |measured: &Measured| measured.peak < LIMIT && (measured.estimate / measured.peak - 1.0).abs() < 0.2;
    match measured[..2].iter().all(|measured| measured.as_ref().is_some_and(is_good)) {
        true => Ok(format!("rows of {LONG} tokens fit in {LIMIT} GiB and the estimates are within 20 %")),
        false => {
            Err(format!("rows of {LONG} tokens do not fit in {LIMIT} GiB, or an estimate is off by more than 20 %"))
        }
    }
}

fn of_pairs(measured: &[Option<Measured>]) -> Result<String, String> {
    let is_good = |pair: &[Option<Measured>]| match pair {
        [Some(all), Some(adapters)] => adapters.peak < all.peak,
        _ => false,
    };
    match measured.chunks(2).all(is_good) {
        true => Ok("adapters take less than all weights".to_string()),
        false => Err("adapters take no less than all weights, or a cell died".to_string()),
    }
}

fn done(written: std::io::Result<()>) -> ExitCode {
    // A closed pipe ends the report, not the measurement.
    if written.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn model(name: &str) -> ModelConfig {
    let (family, vocabulary, hidden) = match name {
        "small experts" => ("qwen3_moe", SMALL_VOCABULARY, 512),
        "small dense" => ("qwen3", SMALL_VOCABULARY, 512),
        _ => ("qwen3", VOCABULARY, 256),
    };
    let text = format!(
        r#"{{"model_type": "{family}", "vocab_size": {vocabulary}, "hidden_size": {hidden}, "intermediate_size": {inner},
            "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
            "rms_norm_eps": 1e-6, "rope_theta": 1e6, "max_position_embeddings": {LONG}, "tie_word_embeddings": true,
            "num_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "initializer_range": 0.02}}"#,
        inner = 3 * hidden,
    );
    ModelConfig::from_json(&text).expect("the config above is valid")
}

fn tokens(context: usize, vocabulary: u32) -> Vec<u32> {
    (0..context as u64).map(|at| ((at * 2_654_435_761) >> 7) as u32 % vocabulary).collect()
}

/// Two steps of the real loop on one row; the estimate in bytes and the speed of the second step.
fn chunked_head(cell: Cell) -> (u64, f64) {
    struct Watch(u64, f64);
    impl Observer for Watch {
        fn on_memory(&mut self, memory: &Memory) {
            self.0 = memory.estimate.total();
        }
        fn on_step(&mut self, metrics: &StepMetrics) {
            self.1 = metrics.clock.tokens_per_s;
        }
    }
    let (model, context) = (model(cell.model), cell.context);
    let row = Row {
        tokens: tokens(context, model.vocab_size as u32),
        weights: (0..context).map(|at| if at == 0 { 0.0 } else { 1.0 }).collect(),
        positions: (0..context as u32).collect(),
        segments: vec![0; context],
        continues: vec![-1],
        sources: vec!["row".into()],
    };
    let lora = LoraConfig { rank: 16, alpha: 32.0, dropout: 0.0, targets: "proj".into() };
    let config = StageConfig {
        steps: Some(STEPS),
        epochs: None,
        rows_per_step: 1,
        rows_per_micro_batch: 1,
        micro_batches_at_once: 1,
        recompute: cell.blocks == "again",
        mixture: None,
        curriculum: None,
        guards: GuardConfig::default(),
        seed: 1,
        precision: Precision::F32,
        matmul_precision: MatmulPrecision::F32,
        routers: None,
        lora: (cell.trained == "adapters").then_some(lora),
        optimizer: OptimizerConfig::new(1e-4, 0.1, 1.0),
        schedule: Schedule { shape: Shape::Constant, warmup_steps: 0, floor: None, decay_steps: None },
        checkpoints: CheckpointConfig::new(STEPS, 1),
        validation: None,
    };
    let (device, stop) = (Device::flex().autodiff(), AtomicBool::new(false));
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
    let mut decoder = Decoder::init(&model(PLAIN.model), 1, &device);
    let (ids, weight) = (tokens(context, VOCABULARY), 1.0 / context as f32);
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
