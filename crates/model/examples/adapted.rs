//! Puts adapters with drawn numbers beside a model, and writes them as a run does:
//!
//! `cargo run --release --example adapted -- MODEL OUT TARGETS`: `OUT/adapter` and `OUT/model`.
//!
//! `tests/reference/adapter_logits.py` compares the two by PEFT.

use burn::tensor::Device;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use worldloom_model::{LoraConfig, SaveDType, load, save};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [model, out, targets] = arguments.as_slice() else { return Err("adapted MODEL OUT TARGETS".into()) };
    let (device, out) = (Device::flex(), Path::new(out));
    let lora = LoraConfig { rank: 4, alpha: 8.0, dropout: 0.0, targets: targets.clone() };
    let (decoder, config) = load(Path::new(model), &device)?;
    let mut generator = ChaCha8Rng::seed_from_u64(7);
    // A fresh `B` is zero: nothing would differ.
    let adapted = decoder.with_lora(&lora, 7, &device)?.update_parameters(&mut |_, _, values| {
        values.iter_mut().for_each(|value| *value += generator.random_range(-0.05..0.05));
    });
    adapted.save_adapter(&out.join("adapter"), model)?;
    save(&adapted, &config, &out.join("model"), SaveDType::F32)?;
    Ok(())
}
