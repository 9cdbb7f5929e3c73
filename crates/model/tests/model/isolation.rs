//! Documents do not see each other, the future is not seen, and threads change nothing: bit for bit.

use crate::support::{FAMILIES, random_tokens, slow_decoder, small_config, small_config_of, with_threads};
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
    for family in FAMILIES {
        let decoder = slow_decoder(&small_config_of(family), 5, &device);
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
                assert_eq!(before[token] != after[token], may_see, "{family}: {changed} changed, logits of {token}");
            }
        }
    }
}

#[test]
fn a_packed_document_has_the_logits_it_has_alone() {
    let device = Device::flex();
    for family in FAMILIES {
        let decoder = slow_decoder(&small_config_of(family), 6, &device);
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
                    assert!(error < 1e-4, "{family}: document at {start}, token {token}: differs by {error}");
                }
            }
            start += len;
        }
    }
}

#[test]
fn padding_on_either_side_changes_no_logit_of_a_document() {
    let device = Device::flex();
    for family in FAMILIES {
        let decoder = slow_decoder(&small_config_of(family), 9, &device);
        let document = random_tokens(40, 97, 5);
        let padded = |left: usize, right: usize| -> Vec<f32> {
            let filler = |len: usize| random_tokens(len, 97, 6);
            let tokens = [filler(left), document.clone(), filler(right)].concat();
            let segments = [vec![0; left], vec![1; 40], vec![2; right]].concat();
            let positions: Vec<u32> = (0..left as u32).chain(0..40).chain(0..right as u32).collect();
            let seq = tokens.len();
            let layout = Layout::new(&positions, &segments, 1, seq, &device);
            let logits = decoder.logits(token_tensor(&tokens, 1, seq, &device), &layout);
            logits.into_data().iter::<f32>().skip(left * 97).take(40 * 97).collect()
        };
        let alone = padded(0, 0);
        for (left, right) in [(0, 30), (30, 0), (1, 1), (70, 5)] {
            for (padded, alone) in padded(left, right).iter().zip(&alone) {
                assert!((padded - alone).abs() < 1e-4, "{family}: padded by {left} and {right}: {padded} {alone}");
            }
        }
    }
}

#[test]
fn one_thread_and_three_give_the_same_bits() {
    for family in FAMILIES {
        let run = || {
            let device = Device::flex().autodiff();
            let decoder = Decoder::init(&small_config_of(family), 7, &device);
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
            assert!(one == with_threads(threads, run), "{family}, {threads} threads");
        }
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
