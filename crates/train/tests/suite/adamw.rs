//! Ten steps of AdamW against torch, from `tests/golden/adamw`.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use worldloom_model::{Decoder, Gradients, load};
use worldloom_schema::Row;
use worldloom_train::{Batch, MuonConfig, Optimizer, OptimizerConfig, ParameterGroup, Schedule, Shape};

use crate::common::{device, parameters};
use crate::device::tolerance;

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
        assert!((value - golden_loss).abs() < tolerance(TOLERANCE), "{run} step {step}: loss {value}");
        let golden_norm = f64::from(golden_norm);
        assert!(
            (norm - golden_norm).abs() < f64::from(tolerance(1e-4)) * golden_norm,
            "{run} step {step}: norm {norm}, {golden_norm}"
        );
        decoder = optimizer.update(decoder, &mut gradients, norm, schedule.rate(config.learning_rate, step as u64, 10));
    }
    for (path, values) in parameters(&decoder) {
        let golden = &expected[&format!("param.{path}")];
        assert_eq!(values.len(), golden.len(), "{run} {path}");
        let worst = values.iter().zip(golden).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < tolerance(TOLERANCE), "{run} {path}: {worst} apart");
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

/// Each parameter's change by one update, by path.
fn changes(config: &OptimizerConfig) -> BTreeMap<String, f32> {
    let batches = tensors("adamw/batches.safetensors");
    let device = device();
    let (decoder, _): (Decoder, _) = load(&golden("qwen3-tied"), &device).unwrap();
    let before = parameters(&decoder);
    let mut gradients = Gradients::zeros(&decoder);
    let rows = rows_of(&batches, 0);
    let denominator = rows.iter().map(Row::total_weight).sum();
    gradients
        .accumulate(&decoder, Batch::new(&rows.iter().collect::<Vec<_>>(), denominator).loss(&decoder, 1.0, &device));
    let norm = gradients.squared_norm().sqrt();
    let mut optimizer = Optimizer::new(config, &decoder);
    let after = parameters(&optimizer.update(decoder, &mut gradients, norm, config.learning_rate));
    let largest = |old: &[f32], new: &[f32]| old.iter().zip(new).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    before.into_iter().zip(after).map(|((path, old), (_, new))| (path, largest(&old, &new))).collect()
}

#[test]
fn a_group_learns_at_its_own_rate_and_the_rest_as_before() {
    let group = |part: &str, learning_rate_scale| ParameterGroup { paths: vec![part.into()], learning_rate_scale };
    for muon in [None, Some(MuonConfig::default())] {
        let plain = OptimizerConfig { muon, ..OptimizerConfig::new(1e-2, 0.0, 1.0) };
        let groups = vec![group("embed_tokens", 0.1), group("layers.0.", 0.0), group("layers.", 0.5)];
        let grouped = OptimizerConfig { groups, ..plain.clone() };
        let (plain, grouped) = (changes(&plain), changes(&grouped));
        for (path, change) in &plain {
            let scale = match path.as_str() {
                path if path.contains("embed_tokens") => 0.1,
                path if path.contains("layers.0.") => 0.0,
                path if path.contains("layers.") => 0.5,
                _ => 1.0,
            };
            let found = grouped[path];
            assert!((found - scale * change).abs() <= 2e-2 * scale * change, "{path}: {found}, {scale} of {change}");
        }
    }
}
