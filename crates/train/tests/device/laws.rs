//! What must hold on a device: its self-test, the CPU's numbers, a short road, memory that does not grow.

use std::sync::atomic::AtomicBool;

use burn::tensor::Device;
use worldloom_model::{Decoder, ModelConfig, load, self_test};
use worldloom_train::rl::{Partners, RlConfig};
use worldloom_train::{Control, Job, parity};

use crate::common::{self, metrics, model_config, rows, stage, train, train_from, train_until};
use crate::device::{device, products, takes_all, tolerance};
use crate::rl_toys::{ToyScorer, Watcher, config, prompts, sampler};

#[test]
fn the_device_passes_its_self_test() {
    for check in self_test(&device(), &Device::flex()) {
        assert!(check.passes(products()), "{check:?}");
    }
}

/// Sums are added in another order, and AdamW divides by a root: what was one bit apart grows with the updates.
#[test]
fn twenty_updates_come_out_as_on_the_cpu() {
    let hybrid = ModelConfig::from_json(
        r#"{"model_type": "qwen3_5_text", "vocab_size": 97, "hidden_size": 40, "intermediate_size": 56,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 64, "tie_word_embeddings": true,
            "initializer_range": 0.1, "full_attention_interval": 2, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2,
            "linear_num_value_heads": 4}"#,
    )
    .unwrap();
    // The gated norm of a delta-net divides by a small root mean square.
    let models = [(model_config(), 1e-4), (hybrid, 2e-3)];
    for (model, gradients) in models.iter().take(if takes_all() { 2 } else { 1 }) {
        let apart = parity(model, 20, &Device::flex(), &device());
        let within = |found: f64, on_cpu: f32| found < f64::from(tolerance(on_cpu));
        assert!(within(apart.logits, 1e-4) && within(apart.loss, 1e-5), "{apart:?}");
        assert!(within(apart.gradients, *gradients) && within(apart.gradient_norm, 1e-5), "{apart:?}");
        assert!(within(apart.last_loss, 1e-3) && within(apart.weights, 1e-3), "{apart:?}");
    }
}

#[test]
fn every_stage_of_a_short_road_trains() {
    let folder = tempfile::tempdir().unwrap();
    let [cpt, sft, rl] = ["cpt", "sft", "rl"].map(|stage| folder.path().join(stage));
    let model = |out: &std::path::Path| -> Decoder { load(&out.join("model"), &common::device()).unwrap().0 };
    train(&stage(6), rows(12), &cpt).unwrap();
    let losses: Vec<f64> = metrics(&cpt).iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    assert!(losses[5] < losses[0], "{losses:?}");
    train_from(&stage(4), model(&cpt), rows(12), &sft).unwrap();
    let config = RlConfig { max_fault_share_at_start: 1.0, ..config(2) };
    let (stop, device) = (AtomicBool::new(false), common::device());
    let mut watcher = Watcher { steps: Vec::new(), stop_after: None, stop: &stop };
    let job = Job { decoder: model(&sft), model: model_config(), out: &rl, device: &device };
    let mut partners = Partners { sampler: &mut sampler(&config), scorer: &mut ToyScorer { is_flat: false } };
    worldloom_train::rl::run(
        &config,
        job,
        &prompts(),
        &mut partners,
        &mut Control { observer: &mut watcher, stop: &stop },
    )
    .unwrap();
    let steps = watcher.steps;
    assert_eq!(steps.len(), 2);
    assert!(steps.iter().all(|step| step.sampler_gap <= 1e-4 && step.loss.is_finite()), "{steps:?}");
}

#[test]
fn three_hundred_steps_hold_no_more_memory_than_fifty() {
    if !takes_all() {
        return;
    }
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = train_until(&stage(300), rows(12), out.path(), None).unwrap();
    let most = |steps: &[worldloom_train::StepMetrics]| {
        steps.iter().map(|step| step.clock.device_bytes.unwrap()).max().unwrap()
    };
    let (early, late) = (most(&steps[..50]), most(&steps[250..]));
    // Less than a number a step: what a pool counts moves by some hundred bytes with the order in which it is used.
    assert!(early > 0 && late < early + 4 * 250, "{early} bytes in the first 50 steps, {late} in the last 50");
}
