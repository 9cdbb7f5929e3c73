//! Computing blocks again gives the gradients of one graph; the statistics of a row are those of its whole distribution.

use crate::support::{random_tokens, small_config_of};
use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData, activation};
use worldloom_model::ops::{self, RowTargets};
use worldloom_model::{Decoder, Gradients, Layout, LoraConfig, MatmulPrecision, Objective, token_tensor};

const FAMILIES: [&str; 7] = ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"];

/// Value and gradients of a loss, in one graph and computed again.
fn both(decoder: &Decoder) -> [(f32, Gradients); 2] {
    let device = Device::flex().autodiff();
    let (tokens, targets) = (random_tokens(40, 97, 3), random_tokens(40, 97, 103));
    let weights: Vec<f32> = (0..40).map(|at| if at % 5 == 0 { 0.0 } else { 0.01 * at as f32 }).collect();
    let layout = Layout::causal(2, 20, &device);
    let tensor = || token_tensor(&tokens, 2, 20, &device);
    let mut plain = Gradients::zeros(decoder);
    let loss = decoder.weighted_nll(tensor(), &layout, &targets, &weights, 1.0);
    let value = loss.clone().into_scalar::<f32>();
    plain.accumulate(decoder, loss);
    let mut again = Gradients::zeros(decoder);
    let objective = Objective { targets: &targets, weights: &weights, weigh: None, temperature: 1.0, routers: None };
    let found = decoder.accumulate_recomputed(tensor(), &layout, &objective, &mut again).nll;
    [(value, plain), (found, again)]
}

/// Weights that follow from the log-probs of the same pass are pushed back as given ones are.
#[test]
fn weights_may_follow_from_the_log_probs_of_the_pass() {
    let device = Device::flex().autodiff();
    let decoder = Decoder::init(&small_config_of("qwen3"), 2, &device);
    let (tokens, targets) = (random_tokens(40, 97, 3), random_tokens(40, 97, 103));
    let selected: Vec<bool> = (0..40).map(|at| at % 5 != 0).collect();
    let ones: Vec<f32> = selected.iter().map(|&selected| f32::from(u8::from(selected))).collect();
    let layout = Layout::causal(2, 20, &device);
    let tensor = || token_tensor(&tokens, 2, 20, &device);
    let log_probs = decoder.token_log_probs(tensor(), &layout, &targets, &selected, 0.7);
    let of = |log_probs: &[f32]| log_probs.iter().map(|log_prob| log_prob * 0.1).collect::<Vec<_>>();
    let weigh = |found: &[f32]| {
        assert_eq!(found, log_probs);
        of(found)
    };
    let given = of(&log_probs);
    let plain = Objective { targets: &targets, weights: &given, weigh: None, temperature: 0.7, routers: None };
    let late = Objective { weights: &ones, weigh: Some(&weigh), ..plain };
    let mut expected = Gradients::zeros(&decoder);
    let loss = decoder.accumulate(tensor(), &layout, &plain, &mut expected);
    for recompute in [false, true] {
        let mut found = Gradients::zeros(&decoder);
        let value = match recompute {
            true => decoder.accumulate_recomputed(tensor(), &layout, &late, &mut found),
            false => decoder.accumulate(tensor(), &layout, &late, &mut found),
        };
        assert_eq!(value, loss);
        for (path, values) in expected.iter() {
            assert!(values.iter().any(|&value| value != 0.0) && values == found.get(path), "{path}, {recompute}");
        }
    }
}

fn assert_same(name: &str, decoder: &Decoder) {
    let [(value, plain), (found, again)] = both(decoder);
    assert_eq!(value.to_bits(), found.to_bits(), "{name}");
    for (path, values) in plain.iter() {
        assert!(
            values.iter().any(|&value| value != 0.0) || path.contains("lora_A"),
            "{name} {path}: nothing to compare"
        );
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert!(bits(values) == bits(again.get(path)), "{name} {path}: another gradient");
    }
}

#[test]
fn computing_blocks_again_changes_no_bit_in_any_family() {
    let device = Device::flex().autodiff();
    for family in FAMILIES {
        assert_same(family, &Decoder::init(&small_config_of(family), 2, &device));
    }
}

#[test]
fn adapters_with_dropout_are_computed_again_with_the_same_masks() {
    let device = Device::flex().autodiff();
    let lora = LoraConfig { rank: 4, alpha: 8.0, dropout: 0.3, targets: "proj".into() };
    let decoder = Decoder::init(&small_config_of("qwen3"), 2, &device).with_lora(&lora, 7, &device).unwrap();
    decoder.set_dropout(Some(11));
    assert_same("lora", &decoder);
}

#[test]
fn a_loss_that_is_not_finite_adds_nothing() {
    let device = Device::flex().autodiff();
    let decoder = Decoder::init(&small_config_of("qwen3"), 2, &device).update_parameters(&mut |path, _, values| {
        if path == "model.norm.weight" {
            values[0] = f32::NAN;
        }
    });
    let [_, (value, gradients)] = both(&decoder);
    assert!(value.is_nan());
    assert!(gradients.iter().all(|(_, values)| values.iter().all(|&value| value == 0.0)));
}

#[test]
fn the_statistics_of_a_row_are_those_of_its_softmax() {
    let device = Device::flex();
    let (rows, width, vocabulary) = (70, 8, 300);
    let numbers = |count: usize, seed: u64| -> Vec<f32> {
        random_tokens(count, 2000, seed).into_iter().map(|token| token as f32 / 500.0 - 2.0).collect()
    };
    let hidden: Tensor<2> = Tensor::from_data(TensorData::new(numbers(rows * width, 1), [rows, width]), &device);
    let weight: Tensor<2> =
        Tensor::from_data(TensorData::new(numbers(vocabulary * width, 2), [vocabulary, width]), &device);
    let logits = hidden.clone().matmul(weight.clone().transpose());
    let best: Vec<i64> = logits.clone().argmax(1).into_data().iter::<i64>().collect();
    // Every second target is the most probable token; every seventh row does not count.
    let tokens: Vec<i32> = (0..rows).map(|at| if at % 2 == 0 { best[at] as i32 } else { (at * 3) as i32 }).collect();
    let weights: Vec<f32> = (0..rows).map(|at| if at % 7 == 0 { 0.0 } else { 1.0 }).collect();
    let targets = RowTargets {
        tokens: Tensor::from_data(TensorData::new(tokens.clone(), [rows]), &device),
        weights: Tensor::from_data(TensorData::new(weights.clone(), [rows]), &device),
        temperature: 1.0,
    };
    let found: Vec<f32> =
        ops::row_statistics(hidden, weight, targets, MatmulPrecision::F32).into_data().iter::<f32>().collect();
    let log_probs = activation::log_softmax(logits, 1);
    let entropy: Vec<f32> =
        (log_probs.clone().exp() * log_probs.clone()).sum_dim(1).neg().into_data().iter::<f32>().collect();
    let log_probs: Vec<f32> = log_probs.into_data().iter::<f32>().collect();
    for row in 0..rows {
        let [nll, of_row, is_top] = found[3 * row..3 * row + 3] else { unreachable!("three numbers a row") };
        if weights[row] == 0.0 {
            assert_eq!([nll, of_row, is_top], [0.0; 3]);
            continue;
        }
        assert!((nll + log_probs[row * vocabulary + tokens[row] as usize]).abs() < 1e-4);
        assert!((of_row - entropy[row]).abs() < 1e-4, "row {row}: entropy {of_row}, expected {}", entropy[row]);
        assert_eq!(is_top, f32::from(u8::from(i64::from(tokens[row]) == best[row])), "row {row}");
    }
}

#[test]
fn statistics_of_a_decoder_agree_with_its_log_probs() {
    let device = Device::flex().autodiff();
    let decoder = Decoder::init(&small_config_of("qwen3"), 2, &device);
    let (tokens, targets) = (random_tokens(40, 97, 3), random_tokens(40, 97, 103));
    let selected: Vec<bool> = (0..40).map(|at| at % 3 > 0).collect();
    let layout = Layout::causal(2, 20, &device);
    let tensor = || token_tensor(&tokens, 2, 20, &device);
    let log_probs = decoder.token_log_probs(tensor(), &layout, &targets, &selected, 1.0);
    let statistics = decoder.token_statistics(tensor(), &layout, &targets, &selected);
    for (log_prob, found) in log_probs.iter().zip(&statistics) {
        assert_eq!((-log_prob).to_bits() << 1, found.nll.to_bits() << 1);
        assert!(found.entropy >= 0.0 && found.entropy <= 97f32.ln() + 1e-4);
    }
    assert_eq!(decoder.valid().num_parameters(), decoder.num_parameters());
}
