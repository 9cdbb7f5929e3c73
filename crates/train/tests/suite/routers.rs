//! The routers' losses in a run: of the whole step whatever its micro-batches, beside the loss and not in it, and refused where
//! there are no experts.

use std::sync::atomic::AtomicBool;

use worldloom_model::{Decoder, ModelConfig};
use worldloom_train::supervised::{self, RouterConfig, StageConfig};
use worldloom_train::{Control, Data, Job};

use crate::common::{device, metrics, rows, stage, train};

pub(crate) fn model() -> ModelConfig {
    ModelConfig::from_json(
        r#"{"model_type": "qwen3_moe", "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
            "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
            "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 8, "norm_topk_prob": true,
            "rms_norm_eps": 1e-6, "initializer_range": 0.3}"#,
    )
    .unwrap()
}

/// Lines of the metrics of a run with experts.
fn run(config: &StageConfig) -> Vec<serde_json::Value> {
    let (out, device, stop) = (tempfile::tempdir().unwrap(), device(), AtomicBool::new(false));
    // Routers that are sure of their choice, so that few experts have most of the tokens.
    let decoder = Decoder::init(&model(), 5, &device).update_parameters(&mut |path, _, values| {
        if path.ends_with("mlp.gate.weight") {
            values.iter_mut().for_each(|value| *value *= 8.0);
        }
    });
    let job = Job { decoder, model: model(), out: out.path(), device: &device };
    let mut control = Control { observer: &mut worldloom_train::Silent, stop: &stop };
    supervised::run(config, job, &Data::from_rows(rows(8)), None, &mut control).unwrap();
    metrics(out.path())
}

pub(crate) fn balanced(balance: f64, z: f64, rows_per_micro_batch: usize, recompute: bool) -> StageConfig {
    let routers = Some(RouterConfig { balance, z });
    StageConfig { routers, rows_per_micro_batch, recompute, validation: None, ..stage(6) }
}

fn number(line: &serde_json::Value, path: &str) -> f64 {
    line.pointer(path).unwrap().as_f64().unwrap()
}

#[test]
fn any_micro_batches_make_the_same_losses_norms_and_shares() {
    let whole = run(&balanced(0.5, 0.01, 4, false));
    for (rows_per_micro_batch, recompute) in [(1, false), (3, true)] {
        for (found, expected) in run(&balanced(0.5, 0.01, rows_per_micro_batch, recompute)).iter().zip(&whole) {
            for path in ["/loss", "/grad_norm", "/routers/loss"] {
                let (found, expected) = (number(found, path), number(expected, path));
                assert!((found / expected - 1.0).abs() < 1e-3, "{path}: {found} {expected}");
            }
        }
    }
}

#[test]
fn the_balance_falls_where_it_is_trained() {
    let lines = run(&StageConfig { steps: Some(60), ..balanced(1.0, 0.0, 4, false) });
    let balance = |lines: &[serde_json::Value]| {
        lines.iter().map(|line| number(line, "/routers/loss")).sum::<f64>() / lines.len() as f64
    };
    let (first, last) = (balance(&lines[..4]), balance(&lines[56..]));
    assert!(last < first, "the balance is {first} at first and {last} at last");
    assert!(lines.iter().all(|line| number(line, "/routers/busiest") >= 1.0));
}

#[test]
fn a_model_without_experts_and_factors_that_cannot_be_meant_are_refused_by_name() {
    let out = tempfile::tempdir().unwrap();
    let error = train(&balanced(0.1, 0.0, 4, false), rows(4), out.path()).unwrap_err().to_string();
    assert!(error.contains("`routers`") && error.contains("`qwen3` has no experts"), "{error}");
    for (balance, z, field) in [(-1.0, 0.0, "routers.balance"), (0.1, f64::NAN, "routers.z")] {
        let error = train(&balanced(balance, z, 4, false), rows(4), out.path()).unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}
