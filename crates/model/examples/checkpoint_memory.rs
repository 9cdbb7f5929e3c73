//! Measures the peak memory and the time of loading and writing a checkpoint, each in a process of its own:
//!
//! `cargo run --release --example checkpoint_memory -- make DIR [GIB]`, then `.. -- load DIR`, `.. -- save DIR`,
//! `.. -- export DIR` and `.. -- pack DIR`; `load-bf16` and `pack-bf16` hold the matrices in bfloat16.
//!
//! `make` writes a synthetic checkpoint of about so many GiB of bfloat16. `export` writes it once more in float32 and reads
//! it back, one tensor at a time. `pack` makes what generates. `both DIR TIMES` loads, and writes in float32 as training
//! does, so many times, a line each. All print the largest resident memory of the process (`VmHWM`) beside what the model
//! takes.

use burn::tensor::Device;
use std::path::{Path, PathBuf};
use std::time::Instant;
use worldloom_model::generate::Generator;
use worldloom_model::{
    Decoder, ModelConfig, Precision, SaveDType, SaveOptions, export, load, load_in, parameter_shapes, save, save_with,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Blocks of 67 million parameters, and an embedding of as many.
fn config(gib: f64) -> Result<ModelConfig> {
    let layers = (gib * f64::from(1 << 30) / 2.0 / 67e6) as u64;
    Ok(ModelConfig::from_json(&format!(
        r#"{{"model_type": "qwen3", "vocab_size": 32768, "hidden_size": 2048, "intermediate_size": 8192,
            "num_hidden_layers": {layers}, "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 128,
            "rope_theta": 10000.0, "max_position_embeddings": 4096, "tie_word_embeddings": true}}"#
    ))?)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "checkpoint_memory make|load|save|both|export|pack|load-bf16|pack-bf16 DIR [GIB or TIMES]";
    let [what, dir, rest @ ..] = arguments.as_slice() else { return Err(usage.into()) };
    let (dir, device) = (PathBuf::from(dir), Device::flex());
    match what.as_str() {
        "make" => {
            let gib = rest.first().map_or(Ok(2.0), |gib| gib.parse())?;
            let config = config(gib)?;
            let options = SaveOptions { max_shard_bytes: 500_000_000, ..SaveOptions::new(SaveDType::BF16) };
            save_with(&Decoder::init(&config, 1, &device), &config, &dir, &options)?;
            report("made", &dir, 0)
        }
        "load" | "load-bf16" => {
            let precision = if what == "load" { Precision::F32 } else { Precision::BF16 };
            let (decoder, _) = load_in(&dir, precision, &device)?;
            report("loaded", &dir, decoder.num_parameters() * precision.size())
        }
        "pack" | "pack-bf16" => {
            let precision = if what == "pack" { Precision::F32 } else { Precision::BF16 };
            let (generator, config) = Generator::load(&dir, precision, &device)?;
            assert_eq!(generator.logits(&[1, 2]).len(), config.vocab_size);
            let numbers: usize = parameter_shapes(&config, &device).iter().map(|shape| shape.num_elements()).sum();
            report("packed", &dir, numbers * precision.size())
        }
        "save" => {
            let (decoder, config) = load(&dir, &device)?;
            let options = SaveOptions { max_shard_bytes: 500_000_000, ..SaveOptions::new(SaveDType::BF16) };
            save_with(&decoder, &config, &dir.join("again"), &options)?;
            report("loaded and saved", &dir, decoder.num_parameters() * size_of::<f32>())
        }
        "both" => {
            let times = rest.first().map_or(Ok(3), |times| times.parse())?;
            let mut bytes = 0;
            for _ in 0..times {
                let start = Instant::now();
                let (decoder, config) = load(&dir, &device)?;
                took("load", start)?;
                let start = Instant::now();
                save(&decoder, &config, &dir.join("again"), SaveDType::F32)?;
                took("save", start)?;
                bytes = decoder.num_parameters() * size_of::<f32>();
            }
            report("loaded and saved", &dir, bytes)
        }
        "export" => {
            let options = SaveOptions { max_shard_bytes: 500_000_000, ..SaveOptions::new(SaveDType::F32) };
            let numbers = export(&dir, &dir.join("again"), &options, &device)? as usize;
            report("exported and read back", &dir, numbers * size_of::<f32>())
        }
        _ => Err(usage.into()),
    }
}

fn took(what: &str, start: Instant) -> Result<()> {
    use std::io::Write;
    Ok(writeln!(std::io::stdout(), "{what}: all {:.1} ms", start.elapsed().as_secs_f64() * 1e3)?)
}

fn report(done: &str, dir: &Path, model_bytes: usize) -> Result<()> {
    use std::io::Write;
    let status = fs_err::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or(" unknown").trim().to_owned();
    let model = model_bytes / 1024;
    let line = format!("{done} {}: peak {peak}, the model alone {model} kB", dir.display());
    Ok(writeln!(std::io::stdout(), "{line}")?)
}
