//! Times training steps: `cargo run --release --example step -- [small|medium|MODEL_FOLDER|CONFIG.json] [steps] [words]`.
//!
//! A folder is loaded, of a config only the shape is taken. Words: `8x1024` are rows and tokens of a row (4x512 unless
//! said); with `lora`, adapters of rank 16 on every projection are trained in place of the weights; with `bf16` or
//! `bf16_emulated`, products are of factors in bfloat16. `bench/run.py` compares it with PyTorch.
//!
//! Run it with `MIMALLOC_PURGE_DELAY=-1`, as the program sets for itself when it trains, and `RAYON_NUM_THREADS` for the threads.

use burn::tensor::Device;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Instant;
use worldloom_kernels::{AdamWStep, adamw};
use worldloom_model::{Decoder, Gradients, Layout, LoraConfig, MatmulPrecision, ModelConfig, load, token_tensor};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// 2.6 million parameters beside the embedding: the models of the quickstart.
const SMALL: [usize; 4] = [2048, 192, 512, 32];
/// 12.6 million parameters: the shape of the published measurements of burn and PyTorch.
const MEDIUM: [usize; 4] = [4096, 384, 1024, 64];

fn config([vocabulary, hidden, intermediate, head_dim]: [usize; 4]) -> String {
    let tied = head_dim == SMALL[3];
    format!(
        r#"{{"model_type": "qwen3", "vocab_size": {vocabulary}, "hidden_size": {hidden},
            "intermediate_size": {intermediate}, "num_hidden_layers": 6, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": {head_dim}, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
            "max_position_embeddings": 512, "tie_word_embeddings": {tied}, "initializer_range": 0.02}}"#
    )
}

/// The model that the first argument names.
fn decoder(name: &str, device: &Device) -> Result<(Decoder, ModelConfig), Box<dyn std::error::Error>> {
    let text = match name {
        "small" => config(SMALL),
        "medium" => config(MEDIUM),
        path if path.ends_with(".json") => fs_err::read_to_string(path)?,
        folder => return Ok(load(std::path::Path::new(folder), device)?),
    };
    let config = ModelConfig::from_json(&text)?;
    Ok((Decoder::init(&config, 1, device), config))
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, steps) = (arguments.first().map_or("small", String::as_str), arguments.get(1));
    let steps: u64 = steps.and_then(|steps| steps.parse().ok()).unwrap_or(10);
    let words = arguments.get(2..).unwrap_or_default();
    let size =
        |word: &String| word.split_once('x').and_then(|(rows, seq)| Some((rows.parse().ok()?, seq.parse().ok()?)));
    let (batch, seq): (usize, usize) =
        words.iter().find_map(size).unwrap_or((if name == "small" { 8 } else { 4 }, 512));
    let (device, mut out) = (Device::flex().autodiff(), std::io::stdout());
    let (mut decoder, config) = match decoder(name, &device) {
        Ok(model) => model,
        Err(error) => {
            report(&mut out, error.to_string());
            return ExitCode::FAILURE;
        }
    };
    if words.iter().any(|word| word == "lora") {
        let adapters = LoraConfig { rank: 16, alpha: 32.0, dropout: 0.0, targets: "proj".to_owned() };
        decoder = decoder.with_lora(&adapters, 1, &device).expect("every decoder has projections");
    }
    let precisions = [("bf16", MatmulPrecision::Bf16), ("bf16_emulated", MatmulPrecision::Bf16Emulated)];
    for (_, precision) in precisions.iter().filter(|(name, _)| words.iter().any(|word| word == name)) {
        if !precision.is_available() {
            report(&mut out, "this processor has no unit for bfloat16: bf16_emulated".into());
            return ExitCode::FAILURE;
        }
        decoder = decoder.multiplied_in(*precision);
    }
    report(&mut out, format!("{} parameters, {batch} x {seq} tokens", decoder.num_parameters()));
    let (num_tokens, vocabulary) = (batch * seq, config.vocab_size as u64);
    let ids: Vec<u32> = (0..num_tokens as u64).map(|i| (((i * 2_654_435_761) >> 7) % vocabulary) as u32).collect();
    let weights = vec![1.0 / num_tokens as f32; num_tokens];
    let mut gradients = Gradients::zeros(&decoder);
    let mut moments: BTreeMap<String, [Vec<f32>; 2]> = gradients
        .iter()
        .map(|(path, values)| (path.to_owned(), [vec![0.0; values.len()], vec![0.0; values.len()]]))
        .collect();
    for step in 1..=steps {
        let start = Instant::now();
        let layout = Layout::causal(batch, seq, &device);
        let tokens = token_tensor(&ids, batch, seq, &device);
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
    ExitCode::SUCCESS
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
