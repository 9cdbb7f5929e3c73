//! Documents do not see each other, the future is not seen, and threads change nothing: bit for bit.

use crate::support::{random_tokens, small_config, with_threads};
use burn::tensor::Device;
use worldloom_model::{Decoder, Gradients, Layout, token_tensor};

const BATCH: usize = 2;
const SEQ: usize = 75;

/// Lengths of the documents of each row; blocks of attention end inside them.
const DOCUMENTS: [&[usize]; BATCH] = [&[1, 40, 7, 27], &[33, 42]];

fn packed() -> (Vec<u32>, Vec<u32>) {
    let (mut positions, mut segments) = (Vec::new(), Vec::new());
    for documents in DOCUMENTS {
        for (segment, &len) in documents.iter().enumerate() {
            positions.extend(0..len as u32);
            segments.extend(vec![segment as u32; len]);
        }
    }
    (positions, segments)
}

fn logits(decoder: &Decoder, tokens: &[u32], device: &Device) -> Vec<Vec<u32>> {
    let (positions, segments) = packed();
    let layout = Layout::new(&positions, &segments, BATCH, SEQ, device);
    let logits = decoder.logits(token_tensor(tokens, BATCH, SEQ, device), &layout);
    let bits: Vec<u32> = logits.into_data().iter::<f32>().map(f32::to_bits).collect();
    bits.chunks(97).map(<[u32]>::to_vec).collect()
}

#[test]
fn changing_a_token_changes_only_later_logits_of_its_own_document() {
    let device = Device::flex();
    let decoder = Decoder::init(&small_config(true), 5, &device);
    let (_, segments) = packed();
    let tokens = random_tokens(BATCH * SEQ, 97, 1);
    let before = logits(&decoder, &tokens, &device);
    for changed in [0, 1, 20, 40, 41, 47, 48, 74, 75, 100, 107, 108, 149] {
        let mut other = tokens.clone();
        other[changed] = (other[changed] + 1) % 97;
        let after = logits(&decoder, &other, &device);
        for token in 0..BATCH * SEQ {
            let same_document = token / SEQ == changed / SEQ && segments[token] == segments[changed];
            let may_see = same_document && token >= changed;
            assert_eq!(before[token] != after[token], may_see, "token {changed} changed, logits of {token}");
        }
    }
}

#[test]
fn a_packed_document_has_the_logits_it_has_alone() {
    let device = Device::flex();
    let decoder = Decoder::init(&small_config(false), 6, &device);
    let tokens = random_tokens(BATCH * SEQ, 97, 2);
    let together = logits(&decoder, &tokens, &device);
    let mut start = 0;
    for &len in DOCUMENTS.iter().copied().flatten() {
        let alone = token_tensor(&tokens[start..start + len], 1, len, &device);
        let alone = decoder.logits(alone, &Layout::causal(1, len, &device));
        let alone: Vec<f32> = alone.into_data().iter::<f32>().collect();
        for (token, alone) in alone.chunks(97).enumerate() {
            for (&packed, &alone) in together[start + token].iter().zip(alone) {
                let error = (f32::from_bits(packed) - alone).abs();
                assert!(error < 1e-4, "document at {start}, token {token}: differs by {error}");
            }
        }
        start += len;
    }
}

#[test]
fn one_thread_and_three_give_the_same_bits() {
    let run = || {
        let device = Device::flex().autodiff();
        let decoder = Decoder::init(&small_config(true), 7, &device);
        let (positions, segments) = packed();
        let layout = Layout::new(&positions, &segments, BATCH, SEQ, &device);
        let tokens = random_tokens(BATCH * SEQ, 97, 3);
        let weights: Vec<f32> = (0..BATCH * SEQ).map(|t| [0.0, 0.25, -0.5][t % 3]).collect();
        let input = token_tensor(&tokens, BATCH, SEQ, &device);
        let loss = decoder.weighted_nll(input, &layout, &tokens, &weights, 0.9);
        let mut bits = vec![loss.clone().into_scalar::<f32>().to_bits()];
        let mut gradients = Gradients::zeros(&decoder);
        gradients.accumulate(&decoder, loss);
        for (_, gradient) in gradients.iter() {
            bits.extend(gradient.iter().map(|value| value.to_bits()));
        }
        (bits, gradients.squared_norm().to_bits())
    };
    let one = with_threads(1, run);
    for threads in [2, 3] {
        assert_eq!(one, with_threads(threads, run), "{threads} threads");
    }
}

#[test]
fn an_evaluation_pass_on_the_plain_device_gives_the_loss_of_the_training_pass() {
    let tokens = random_tokens(BATCH * SEQ, 97, 4);
    let loss = |device: Device| {
        let decoder = Decoder::init(&small_config(false), 8, &device);
        let layout = Layout::causal(BATCH, SEQ, &device);
        let weights = vec![0.5; BATCH * SEQ];
        let input = token_tensor(&tokens, BATCH, SEQ, &device);
        decoder.weighted_nll(input, &layout, &tokens, &weights, 1.0).into_scalar::<f32>().to_bits()
    };
    assert_eq!(loss(Device::flex()), loss(Device::flex().autodiff()));
}
