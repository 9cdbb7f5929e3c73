//! Ten steps of AdamW against torch, from `tests/golden/adamw`.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use worldloom_model::{Decoder, Gradients, load};
use worldloom_schema::Row;
use worldloom_train::{Batch, Optimizer, OptimizerConfig, Schedule, Shape};

use crate::common::{device, parameters};

/// The tolerance of the golden README: float32 against float64 differs by 3e-6.
const TOLERANCE: f32 = 2e-5;

fn golden(name: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// Tensors by name, ids and numbers alike.
fn tensors(name: &str) -> BTreeMap<String, Vec<f32>> {
    let bytes = fs_err::read(golden(name)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let value = |dtype, four: [u8; 4]| match dtype {
        safetensors::Dtype::I32 => i32::from_le_bytes(four) as f32,
        _ => f32::from_le_bytes(four),
    };
    let values = |dtype, data: &[u8]| data.chunks_exact(4).map(|four| value(dtype, four.try_into().unwrap())).collect();
    file.iter().map(|(name, view)| (name.to_string(), values(view.dtype(), view.data()))).collect()
}

/// The rows of a step: three documents of 16 tokens, labels of −100 not trained.
fn rows_of(batches: &BTreeMap<String, Vec<f32>>, step: usize) -> Vec<Row> {
    let of = |name: &str, row: usize| batches[name][(step * 3 + row) * 16..][..16].to_vec();
    let row = |row: usize| {
        let labels = of("labels", row);
        let weight = |at: usize| if at == 0 || labels[at] < 0.0 { 0.0 } else { 1.0 };
        Row {
            tokens: of("input_ids", row).into_iter().map(|id| id as u32).collect(),
            weights: (0..16).map(weight).collect(),
            positions: (0..16).collect(),
            segments: vec![0; 16],
            continues: vec![-1],
            sources: vec![String::new()],
        }
    };
    (0..3).map(row).collect()
}

fn check(run: &str, config: &OptimizerConfig, schedule: Schedule) {
    let (batches, expected) = (tensors("adamw/batches.safetensors"), tensors(&format!("adamw/{run}.safetensors")));
    let device = device();
    let (mut decoder, _): (Decoder, _) = load(&golden("qwen3-tied"), &device).unwrap();
    let mut optimizer = Optimizer::new(config, &decoder);
    let mut gradients = Gradients::zeros(&decoder);
    for (step, (&golden_loss, &golden_norm)) in expected["loss"].iter().zip(&expected["grad_norm"]).enumerate() {
        let rows = rows_of(&batches, step);
        let denominator = rows.iter().map(Row::total_weight).sum();
        let loss = Batch::new(&rows.iter().collect::<Vec<_>>(), denominator).loss(&decoder, 1.0, &device);
        let value = loss.clone().into_data().iter::<f32>().next().unwrap();
        gradients.reset();
        gradients.accumulate(&decoder, loss);
        let norm = gradients.squared_norm().sqrt();
        assert!((value - golden_loss).abs() < TOLERANCE, "{run} step {step}: loss {value}");
        let golden_norm = f64::from(golden_norm);
        assert!((norm - golden_norm).abs() < 1e-4 * golden_norm, "{run} step {step}: norm {norm}, {golden_norm}");
        decoder = optimizer.update(decoder, &gradients, norm, schedule.rate(config.learning_rate, step as u64, 10));
    }
    for (path, values) in parameters(&decoder) {
        let golden = &expected[&format!("param.{path}")];
        assert_eq!(values.len(), golden.len(), "{run} {path}");
        let worst = values.iter().zip(golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < TOLERANCE, "{run} {path}: {worst} apart");
    }
}

#[test]
fn cosine_with_decay_on_matrices_equals_torch() {
    let no_decay = vec!["norm".to_string()];
    let config = OptimizerConfig { no_decay, ..OptimizerConfig::new(3e-3, 0.1, 1.0) };
    check("cosine", &config, Schedule { shape: Shape::Cosine, warmup_steps: 2, floor: Some(0.1), decay_steps: None });
}

#[test]
fn warmup_stable_decay_with_decay_on_everything_equals_torch() {
    let config = OptimizerConfig { no_decay: Vec::new(), ..OptimizerConfig::new(3e-3, 0.1, 6.0) };
    let schedule =
        Schedule { shape: Shape::WarmupStableDecay, warmup_steps: 2, floor: Some(0.1), decay_steps: Some(3) };
    check("wsd", &config, schedule);
}
