//! A model that starts with copying heads repeats what stood before, without any training.

use burn::tensor::Device;
use worldloom_model::{Decoder, Layout, ModelConfig, Start, token_tensor};

fn config(hidden: usize, heads: usize) -> ModelConfig {
    let json = format!(
        r#"{{"model_type": "qwen3", "vocab_size": 400, "hidden_size": {hidden}, "intermediate_size": 128,
            "num_hidden_layers": 3, "num_attention_heads": {heads}, "num_key_value_heads": 4, "head_dim": 32,
            "rope_theta": 1000000.0, "max_position_embeddings": 256, "tie_word_embeddings": true,
            "initializer_range": 0.06}}"#
    );
    ModelConfig::from_json(&json).unwrap()
}

fn scattered(at: u32) -> u32 {
    (at * at * 131 + at * 17 + 5) % 400
}

/// Share of the second copy of 100 tokens that is predicted rightly.
fn repeated(decoder: &Decoder, first: Vec<u32>, device: &Device) -> f64 {
    let tokens = [first.clone(), first].concat();
    let logits = decoder.logits(token_tensor(&tokens, 1, 200, device), &Layout::causal(1, 200, device));
    let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
    let best = |at: usize| {
        let row = &logits[at * 400..][..400];
        (0..400).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap() as u32
    };
    (101..199).filter(|&at| best(at) == tokens[at + 1]).count() as f64 / 98.0
}

#[test]
fn words_between_separators_are_repeated_too() {
    let device = Device::flex();
    let words = (0..100).map(|at| if at % 2 == 0 { scattered(at) } else { 7 }).collect();
    let copying = Decoder::init_from(&config(128, 4), 3, Start::Copying, &device).unwrap();
    let repeated = repeated(&copying, words, &device);
    assert!(repeated > 0.8, "{repeated} of words and separators, of which half are the separator");
}

#[test]
fn fresh_weights_with_copying_heads_repeat_a_random_sequence_and_others_do_not() {
    let device = Device::flex();
    for heads in [4, 8] {
        let random_tokens = || (0..100).map(scattered).collect();
        let copying = Decoder::init_from(&config(96, heads), 3, Start::Copying, &device).unwrap();
        let random = Decoder::init_from(&config(96, heads), 3, Start::Random, &device).unwrap();
        let (copying, random) =
            (repeated(&copying, random_tokens(), &device), repeated(&random, random_tokens(), &device));
        assert!(copying > 0.6 && random < 0.05, "{heads} heads: copying {copying}, random {random}");
    }
}

#[test]
fn a_shape_without_room_for_copying_heads_is_refused_with_what_it_needs() {
    let error = Decoder::init_from(&config(64, 4), 3, Start::Copying, &Device::flex()).unwrap_err().to_string();
    assert!(error.contains("start") && error.contains("hidden_size 81 or more"), "{error}");
}
