//! Times training steps: `cargo run --release --example step -- [small|medium|MODEL_FOLDER] [steps] [lora]`.
//!
//! A folder is loaded and trained at 4 rows; `bench/peers/cpt_step.py` compares it with PyTorch. With `lora`,
//! adapters of rank 16 on every projection are trained in place of the weights.
//!
//! Run it with `MIMALLOC_PURGE_DELAY=-1`, as the program sets for itself, and `RAYON_NUM_THREADS` for the threads.

use burn::tensor::Device;
use std::collections::BTreeMap;
use std::time::Instant;
use worldloom_kernels::{AdamWStep, adamw};
use worldloom_model::{Decoder, Gradients, Layout, LoraConfig, ModelConfig, load, token_tensor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of a batch, and the sizes of the model.
struct Shape {
    batch: usize,
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    head_dim: usize,
}

/// 2.6 million parameters beside the embedding: the models of the quickstart.
const SMALL: Shape = Shape { batch: 8, vocab_size: 2048, hidden_size: 192, intermediate_size: 512, head_dim: 32 };
/// 12.6 million parameters: the shape of the published measurements of burn and PyTorch.
const MEDIUM: Shape = Shape { batch: 4, vocab_size: 4096, hidden_size: 384, intermediate_size: 1024, head_dim: 64 };
const SEQ: usize = 512;

fn config(shape: &Shape) -> ModelConfig {
    let Shape { vocab_size, hidden_size, intermediate_size, head_dim, .. } = shape;
    let tied = *head_dim == SMALL.head_dim;
    let text = format!(
        r#"{{"model_type": "qwen3", "vocab_size": {vocab_size}, "hidden_size": {hidden_size},
            "intermediate_size": {intermediate_size}, "num_hidden_layers": 6, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": {head_dim}, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "max_position_embeddings": {SEQ}, "tie_word_embeddings": {tied}, "initializer_range": 0.02}}"#
    );
    ModelConfig::from_json(&text).expect("the config above is valid")
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let shape = if arguments.first().is_some_and(|name| name == "medium") { MEDIUM } else { SMALL };
    let steps: u64 = arguments.get(1).and_then(|steps| steps.parse().ok()).unwrap_or(10);
    let device = Device::flex().autodiff();
    let folder = arguments.first().map(std::path::Path::new).filter(|path| path.is_dir());
    let (mut decoder, shape) = match folder.map(|folder| load(folder, &device)) {
        None => (Decoder::init(&config(&shape), 1, &device), shape),
        Some(Ok((decoder, config))) => (decoder, Shape { vocab_size: config.vocab_size, ..MEDIUM }),
        Some(Err(error)) => return report(&mut std::io::stdout(), error.to_string()),
    };
    if arguments.get(2).is_some_and(|word| word == "lora") {
        let adapters = LoraConfig { rank: 16, alpha: 32.0, dropout: 0.0, targets: "proj".to_owned() };
        decoder = decoder.with_lora(&adapters, 1, &device).expect("every decoder has projections");
    }
    let mut out = std::io::stdout();
    report(&mut out, format!("{} parameters, {} x {SEQ} tokens", decoder.num_parameters(), shape.batch));
    let num_tokens = shape.batch * SEQ;
    let ids: Vec<u32> =
        (0..num_tokens).map(|i| (((i as u64 * 2_654_435_761) >> 7) % shape.vocab_size as u64) as u32).collect();
    let weights = vec![1.0 / num_tokens as f32; num_tokens];
    let mut gradients = Gradients::zeros(&decoder);
    let mut moments: BTreeMap<String, [Vec<f32>; 2]> = gradients
        .iter()
        .map(|(path, values)| (path.to_owned(), [vec![0.0; values.len()], vec![0.0; values.len()]]))
        .collect();
    for step in 1..=steps {
        let start = Instant::now();
        let layout = Layout::causal(shape.batch, SEQ, &device);
        let tokens = token_tensor(&ids, shape.batch, SEQ, &device);
        let loss = decoder.weighted_nll(tokens, &layout, &ids, &weights, 1.0);
        let value: f32 = loss.clone().into_scalar();
        let forward = start.elapsed();
        gradients.reset();
        gradients.accumulate(&decoder, loss);
        let backward = start.elapsed() - forward;
        let norm = gradients.squared_norm().sqrt();
        let hyper = AdamWStep {
            learning_rate: 1e-3,
            weight_decay: 0.1,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-8,
            step,
            gradient_scale: (1.0 / (norm + 1e-6)).min(1.0) as f32,
        };
        decoder = decoder.update_parameters(&mut |path, _, values| {
            if let Some([m, v]) = moments.get_mut(path) {
                adamw(values, gradients.get(path), m, v, &hyper);
            }
        });
        let all = start.elapsed();
        let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
        let update = all - forward - backward;
        report(
            &mut out,
            format!(
                "step {step}: loss {value:.4}, forward {:.0} ms, backward {:.0} ms, update {:.0} ms, all {:.0} ms",
                ms(forward),
                ms(backward),
                ms(update),
                ms(all)
            ),
        );
    }
    if let Some(kilobytes) = peak_kilobytes() {
        report(&mut out, format!("peak {kilobytes}"));
    }
}

/// The most memory this process had, where the system says.
fn peak_kilobytes() -> Option<u64> {
    let status = fs_err::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

fn report(out: &mut impl std::io::Write, line: String) {
    // A closed pipe ends the report, not the measurement.
    let _ = writeln!(out, "{line}");
}
