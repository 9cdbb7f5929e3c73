//! What is left out of the last block where no loss counts changes neither the loss nor a gradient.

use crate::support::{FAMILIES, random_tokens, relative_norm, slow_decoder, small_config_of};
use burn::tensor::{Device, Tensor, TensorData};
use worldloom_model::ops::{self, RowTargets};
use worldloom_model::{Decoder, Gradients, Layout, MatmulPrecision, Objective, token_tensor};

const SEQ: usize = 130;

/// Two rows: a prompt of 70 tokens with branches of 9, 1 and 30 and a document of 20; one document and another.
fn layout(device: &Device) -> Layout {
    let lengths = [vec![70, 9, 1, 30, 20], vec![41, 89]];
    let starts = [vec![0, 70, 70, 70, 0], vec![0, 0]];
    let (mut positions, mut segments) = (Vec::new(), Vec::new());
    for (lengths, starts) in lengths.iter().zip(&starts) {
        for (segment, (&length, &start)) in lengths.iter().zip(starts).enumerate() {
            positions.extend(start..start + length);
            segments.extend(vec![segment as u32; length as usize]);
        }
    }
    Layout::with_branches(&positions, &segments, &[vec![-1, 0, 0, 0, -1], vec![-1, -1]], SEQ, device)
}

/// The loss over every row of the final hidden states.
fn whole(decoder: &Decoder, tokens: &[u32], targets: &[u32], weights: &[f32], device: &Device) -> Tensor<1> {
    let hidden = decoder.hidden(token_tensor(tokens, 2, SEQ, device), &layout(device));
    let [batch, seq, width] = hidden.dims();
    let head = decoder.lm_head.as_ref().unwrap_or(&decoder.model.embed_tokens).weight.val();
    let targets: Vec<i32> = targets.iter().map(|&target| target as i32).collect();
    let targets = RowTargets {
        tokens: Tensor::from_data(TensorData::new(targets, [2 * SEQ]), device),
        weights: Tensor::from_data(TensorData::new(weights.to_vec(), [2 * SEQ]), device),
        temperature: 0.9,
    };
    ops::linear_cross_entropy(hidden.reshape([batch * seq, width]), head, targets, MatmulPrecision::F32).total
}

#[test]
fn the_last_block_leaves_out_what_no_loss_reads() {
    let device = Device::flex().autodiff();
    let (tokens, targets) = (random_tokens(2 * SEQ, 97, 3), random_tokens(2 * SEQ, 97, 4));
    // The prompt does not count but for two tokens, branches do; a document counts now and then; nothing of the last.
    let weight = |at: usize| match at {
        33 | 34 | 71..=85 | 90..=109 => 0.1,
        130..=170 if at.is_multiple_of(3) => -0.2,
        _ => 0.0,
    };
    let weights: Vec<f32> = (0..2 * SEQ).map(weight).collect();
    for family in FAMILIES {
        let decoder = slow_decoder(&small_config_of(family), 10, &device);
        let expected_loss = whole(&decoder, &tokens, &targets, &weights, &device);
        let expected = expected_loss.clone().into_scalar::<f32>();
        let mut gradients = Gradients::zeros(&decoder);
        gradients.accumulate(&decoder, expected_loss);
        let objective =
            Objective { targets: &targets, weights: &weights, weigh: None, temperature: 0.9, routers: None };
        for recompute in [false, true] {
            let (tokens, layout) = (token_tensor(&tokens, 2, SEQ, &device), layout(&device));
            let mut found = Gradients::zeros(&decoder);
            let losses = match recompute {
                true => decoder.accumulate_recomputed(tokens, &layout, &objective, &mut found),
                false => decoder.accumulate(tokens, &layout, &objective, &mut found),
            };
            assert!((losses.nll - expected).abs() < 1e-4, "{family}: {}, expected {expected}", losses.nll);
            for (path, gradient) in gradients.iter() {
                let error = relative_norm(found.get(path), gradient);
                assert!(error < 1e-4, "{family}: gradient of {path} differs by {error}");
            }
        }
    }
}

#[test]
fn where_nothing_counts_the_loss_is_zero() {
    let device = Device::flex().autodiff();
    let decoder = Decoder::init(&small_config_of("qwen3"), 2, &device);
    let tokens = random_tokens(2 * SEQ, 97, 3);
    let loss =
        decoder.weighted_nll(token_tensor(&tokens, 2, SEQ, &device), &layout(&device), &tokens, &[0.0; 2 * SEQ], 1.0);
    assert_eq!(loss.into_scalar::<f32>(), 0.0);
}
