//! A tiny model and rows with a rule in them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::Device;
use worldloom_model::{Decoder, MatmulPrecision, ModelConfig, Precision};
use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig, ValidationConfig};
use worldloom_train::{
    CheckpointConfig, Control, Data, Error, GuardConfig, Job, Observer, OptimizerConfig, Report, Schedule, Shape,
    Silent, StepMetrics,
};

pub(crate) const VOCABULARY: u32 = 24;

pub(crate) fn device() -> Device {
    crate::device::device().autodiff()
}

pub(crate) fn model_config() -> ModelConfig {
    ModelConfig::from_json(
        r#"{"model_type": "qwen3", "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
            "rms_norm_eps": 1e-6, "initializer_range": 0.1}"#,
    )
    .unwrap()
}

pub(crate) fn decoder() -> Decoder {
    Decoder::init(&model_config(), 5, &device())
}

/// A document that counts up by `stride`; every token after the first `context` is trained with `weight`.
pub(crate) fn document(start: u32, stride: u32, length: usize, context: usize, weight: f32) -> Row {
    let tokens: Vec<u32> = (0..length as u32).map(|at| (start + stride * at) % VOCABULARY).collect();
    let weights = (0..length).map(|at| if at < context.max(1) { 0.0 } else { weight }).collect();
    Row {
        tokens,
        weights,
        positions: (0..length as u32).collect(),
        segments: vec![0; length],
        continues: vec![-1],
        sources: vec![format!("{start}-{stride}")],
    }
}

/// Documents one after the other in one row.
pub(crate) fn pack(documents: &[Row]) -> Row {
    let mut row = Row::default();
    for (number, document) in documents.iter().enumerate() {
        row.tokens.extend(&document.tokens);
        row.weights.extend(&document.weights);
        row.positions.extend(&document.positions);
        row.segments.extend(vec![number as u32; document.tokens.len()]);
        row.continues.push(-1);
        row.sources.extend(document.sources.clone());
    }
    row
}

/// Rows of unequal length and weight.
pub(crate) fn rows(count: usize) -> Vec<Row> {
    (0..count)
        .map(|at| document(at as u32 * 5, 1 + at as u32 % 3, 4 + at * 7 % 12, at % 3, [1.0, 0.5, 2.0][at % 3]))
        .collect()
}

pub(crate) fn stage(steps: u64) -> StageConfig {
    StageConfig {
        steps: Some(steps),
        epochs: None,
        rows_per_step: 4,
        rows_per_micro_batch: 4,
        micro_batches_at_once: 1,
        recompute: false,
        precision: Precision::F32,
        matmul_precision: MatmulPrecision::F32,
        routers: None,
        mixture: None,
        curriculum: None,
        guards: GuardConfig::default(),
        seed: 11,
        lora: None,
        optimizer: OptimizerConfig::new(3e-3, 0.1, 1.0),
        schedule: Schedule { shape: Shape::Cosine, warmup_steps: 2, floor: Some(0.1), decay_steps: None },
        checkpoints: CheckpointConfig::new(3, 2),
        validation: Some(ValidationConfig { every: 4, held_out_rows: Some(2) }),
    }
}

/// Keeps every step's metrics; stops the run after a step if asked to.
pub(crate) struct Recorder<'a> {
    pub(crate) steps: Vec<StepMetrics>,
    pub(crate) stop_after: Option<u64>,
    pub(crate) stop: &'a AtomicBool,
}

impl Observer for Recorder<'_> {
    fn on_step(&mut self, metrics: &StepMetrics) {
        self.steps.push(metrics.clone());
        if self.stop_after == Some(metrics.step) {
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

pub(crate) fn train(config: &StageConfig, rows: Vec<Row>, out: &Path) -> Result<Report, Error> {
    train_until(config, rows, out, None).map(|(report, _)| report)
}

pub(crate) fn train_until(
    config: &StageConfig,
    rows: Vec<Row>,
    out: &Path,
    stop_after: Option<u64>,
) -> Result<(Report, Vec<StepMetrics>), Error> {
    train_on(config, &Data::from_rows(rows), out, stop_after)
}

pub(crate) fn train_on(
    config: &StageConfig,
    data: &Data,
    out: &Path,
    stop_after: Option<u64>,
) -> Result<(Report, Vec<StepMetrics>), Error> {
    let stop = AtomicBool::new(false);
    let mut recorder = Recorder { steps: Vec::new(), stop_after, stop: &stop };
    let device = device();
    let job = Job { decoder: decoder(), model: model_config(), out, device: &device };
    let mut control = Control { observer: &mut recorder, stop: &stop };
    let report = supervised::run(config, job, data, None, &mut control)?;
    Ok((report, recorder.steps))
}

/// As `train`, from other weights.
pub(crate) fn train_from(config: &StageConfig, decoder: Decoder, rows: Vec<Row>, out: &Path) -> Result<Report, Error> {
    let (stop, device) = (AtomicBool::new(false), device());
    let job = Job { decoder, model: model_config(), out, device: &device };
    supervised::run(config, job, &Data::from_rows(rows), None, &mut Control { observer: &mut Silent, stop: &stop })
}

/// All parameters of a folder's model, name by name.
pub(crate) fn weights(folder: &Path) -> Vec<(String, Vec<f32>)> {
    let (decoder, _) = worldloom_model::load(folder, &device()).unwrap();
    parameters(&decoder)
}

pub(crate) fn parameters(decoder: &Decoder) -> Vec<(String, Vec<f32>)> {
    let mut found = Vec::new();
    decoder.for_each_parameter(&mut |path, _, values| found.push((path.to_string(), values.to_vec())));
    found
}

/// Largest difference between two sets of parameters.
pub(crate) fn largest_difference(first: &[(String, Vec<f32>)], second: &[(String, Vec<f32>)]) -> f32 {
    assert_eq!(first.len(), second.len());
    let pairs = first.iter().zip(second).flat_map(|((_, a), (_, b))| a.iter().zip(b));
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// The metrics file without its wall-clock figures.
pub(crate) fn metrics(out: &Path) -> Vec<serde_json::Value> {
    let text = fs_err::read_to_string(out.join("metrics.jsonl")).unwrap();
    let without_clock = |line: &str| {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        value.as_object_mut().unwrap().remove("clock").expect("every line has a clock");
        value
    };
    text.lines().map(without_clock).collect()
}
