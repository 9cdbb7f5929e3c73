//! A hundred steps on the tiny golden model lie on the curves of plain PyTorch and of TRL's SFT trainer
//! (`tests/reference/train_parity.py`).

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{CheckpointConfig, Control, Data, Job, OptimizerConfig, Schedule, Shape, Silent};

use crate::common::{device, metrics, pack, stage};

/// The folder where our metrics are left for the script's plot.
const CURVES: &str = "WORLDLOOM_PARITY_CURVES";

fn golden(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden")).join(name)
}

/// As `documents()` in the script; targets have one of three weights.
fn documents(weights: [f32; 3]) -> Vec<Row> {
    let document = |at: u32| {
        let (length, context) = (6 + at * 7 % 18, 1 + at % 4);
        let weight = weights[at as usize % 3];
        Row {
            tokens: (0..length).map(|place| (3 + at * 11 + (1 + at % 5) * place) % 96).collect(),
            weights: (0..length).map(|place| if place < context { 0.0 } else { weight }).collect(),
            positions: (0..length).collect(),
            segments: vec![0; length as usize],
            continues: vec![-1],
            sources: vec![at.to_string()],
        }
    };
    (0..20).map(document).collect()
}

/// A hundred steps beside a curve of the script; ours is left for its plot where that is asked for.
fn compare(file: &str, rows: Vec<Row>) {
    let text = fs_err::read_to_string(golden("train-parity").join(file)).unwrap();
    let theirs: serde_json::Value = serde_json::from_str(&text).unwrap();
    let theirs = theirs["curve"].as_array().unwrap();
    let config = StageConfig {
        rows_per_step: rows.len(),
        rows_per_micro_batch: 2,
        recompute: true,
        optimizer: OptimizerConfig::new(2e-3, 0.1, 1.0),
        schedule: Schedule { shape: Shape::Cosine, warmup_steps: 10, floor: Some(0.1), decay_steps: None },
        checkpoints: CheckpointConfig::new(100, 1),
        validation: None,
        ..stage(100)
    };
    let (out, device, stop) = (tempfile::tempdir().unwrap(), device(), AtomicBool::new(false));
    let (decoder, model) = worldloom_model::load(&golden("qwen3-tied"), &device).unwrap();
    let job = Job { decoder, model, out: out.path(), device: &device };
    supervised::run(&config, job, &Data::from_rows(rows), None, &mut Control { observer: &mut Silent, stop: &stop })
        .unwrap();
    let ours = metrics(out.path());
    assert_eq!(ours.len(), theirs.len());
    for (step, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
        let gap = |name: &str| (ours[name].as_f64().unwrap() - theirs[name].as_f64().unwrap()).abs();
        assert!(gap("learning_rate") < 1e-15, "step {step}: another rate");
        assert!(gap("loss") < 1e-3, "step {step}: {} here, {} there", ours["loss"], theirs["loss"]);
        assert!(gap("grad_norm") < 1e-3, "step {step}: {} here, {} there", ours["grad_norm"], theirs["grad_norm"]);
    }
    if let Ok(folder) = std::env::var(CURVES) {
        let left = PathBuf::from(folder).join(file).with_extension("jsonl");
        fs_err::copy(out.path().join("metrics.jsonl"), left).unwrap();
    }
}

#[test]
fn a_hundred_steps_lie_on_the_curve_of_pytorch() {
    // Packed in rows of three, in micro-batches of two rows, the blocks computed again.
    compare("curve.json", documents([1.0, 0.5, 2.0]).chunks(3).map(pack).collect());
}

#[test]
fn a_hundred_steps_lie_on_the_curve_of_trl() {
    compare("trl.json", documents([1.0; 3]).chunks(3).map(pack).collect());
}
