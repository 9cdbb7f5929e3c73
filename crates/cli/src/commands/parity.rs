//! `doctor --parity`: the same small models, data and updates on a device and on the CPU, and how far they come out apart.

use anyhow::{Context, Result};
use burn::tensor::Device;
use serde::Serialize;
use worldloom_model::ModelConfig;
use worldloom_train::{Parity, parity};

use crate::device::{Place, cpu};

/// Updates that are compared.
const STEPS: u64 = 20;

/// A small model of every family of parts.
const MODELS: [(&str, &str); 3] = [
    (
        "dense",
        r#"{"model_type": "qwen3", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
        "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "initializer_range": 0.05}"#,
    ),
    (
        "experts",
        r#"{"model_type": "qwen3_moe", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 160,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 128, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "tie_word_embeddings": true,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "norm_topk_prob": true,
        "initializer_range": 0.05}"#,
    ),
    (
        "hybrid",
        r#"{"model_type": "qwen3_next", "vocab_size": 320, "hidden_size": 64, "intermediate_size": 160,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "max_position_embeddings": 128, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": true, "full_attention_interval": 2, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "shared_expert_intermediate_size": 48,
        "norm_topk_prob": true, "initializer_range": 0.05}"#,
    ),
];

/// How far a device is from the CPU on one model.
#[derive(Debug, Serialize)]
pub(super) struct Apart {
    device: String,
    model: &'static str,
    #[serde(flatten)]
    parity: Parity,
}

/// Every model, on the device and on the CPU.
pub(super) fn apart_from_cpu(place: Place, device: &Device) -> Result<Vec<Apart>> {
    let compare = |&(model, config): &(&'static str, &str)| {
        let config = ModelConfig::from_json(config).with_context(|| format!("the small model `{model}`"))?;
        Ok(Apart { device: place.to_string(), model, parity: parity(&config, STEPS, &cpu(), device) })
    };
    MODELS.iter().map(compare).collect()
}

/// A table.
pub(super) fn print(apart: &[Apart]) {
    println!("parity with the CPU: one forward and backward pass, then {STEPS} updates of AdamW");
    let titles = ["logits", "loss", "gradients", "norm", "last loss", "weights"];
    println!("  {:8} {:8} {}", "device", "model", titles.map(|title| format!("{title:>10}")).join(""));
    for Apart { device, model, parity } in apart {
        let Parity { logits, loss, gradients, gradient_norm, last_loss, weights } = parity;
        let figures = [logits, loss, gradients, gradient_norm, last_loss, weights];
        println!("  {device:8} {model:8} {}", figures.map(|figure| format!("{figure:10.1e}")).join(""));
    }
    println!("  logits, losses: largest difference; gradients: largest relative norm of the error of one parameter;");
    println!("  norm: of all gradients, relative; weights: relative norm of the difference after the last update");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_not_apart_from_itself() {
        for Apart { model, parity, .. } in apart_from_cpu(Place::CPU, &cpu()).unwrap() {
            let zero =
                Parity { logits: 0.0, loss: 0.0, gradients: 0.0, gradient_norm: 0.0, last_loss: 0.0, weights: 0.0 };
            assert_eq!(parity, zero, "{model}");
        }
    }
}
