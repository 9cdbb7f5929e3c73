//! Branches are rows of their own, and threads change nothing, bit for bit. What holds for any lengths is in `laws`.

use crate::support::{
    FAMILIES, random_tokens, relative_norm, slow_decoder, small_config, small_config_of, with_threads,
};
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

/// Logits and gradients of rows of tokens with positions, segments and what each segment continues; every token counts.
fn run_rows(
    decoder: &Decoder,
    rows: &[(Vec<u32>, Vec<u32>, Vec<u32>)],
    continues: &[i32],
    weights: &[f32],
) -> (Vec<f32>, Gradients) {
    let device = Device::flex().autodiff();
    let mut gradients = Gradients::zeros(decoder);
    let mut all = Vec::new();
    for (tokens, positions, segments) in rows {
        let seq = tokens.len();
        let layout = Layout::with_branches(positions, segments, &[continues.to_vec()], seq, &device);
        let input = token_tensor(tokens, 1, seq, &device);
        all.extend(decoder.logits(input.clone(), &layout).into_data().iter::<f32>());
        let targets: Vec<u32> = tokens.iter().map(|token| (token * 7 + 3) % 97).collect();
        let loss = decoder.weighted_nll(input, &layout, &targets, &weights[..seq], 1.0);
        gradients.accumulate(decoder, loss);
    }
    (all, gradients)
}

#[test]
fn branches_of_a_prompt_have_the_logits_and_gradients_of_rows_of_their_own() {
    let (prompt, lens) = (random_tokens(70, 97, 11), [9, 1, 30]);
    let branches: Vec<Vec<u32>> =
        lens.iter().enumerate().map(|(i, &len)| random_tokens(len, 97, 12 + i as u64)).collect();
    for family in FAMILIES {
        let decoder = slow_decoder(&small_config_of(family), 10, &Device::flex().autodiff());
        let shared = {
            let tokens = [vec![prompt.clone()], branches.clone()].concat().concat();
            let positions: Vec<u32> = (0..70).chain(lens.iter().flat_map(|&len| 70..70 + len as u32)).collect();
            let segments: Vec<u32> = [vec![0; 70], vec![1; lens[0]], vec![2; lens[1]], vec![3; lens[2]]].concat();
            // The prompt counts once in each row of its own.
            let weights: Vec<f32> = (0..tokens.len()).map(|at| if at < 70 { 0.3 } else { 0.1 }).collect();
            run_rows(&decoder, &[(tokens, positions, segments)], &[-1, 0, 0, 0], &weights)
        };
        let alone: Vec<_> = branches
            .iter()
            .map(|branch| {
                let tokens = [prompt.clone(), branch.clone()].concat();
                let seq = tokens.len();
                (tokens, (0..seq as u32).collect(), vec![0; seq])
            })
            .collect();
        let (logits, gradients) = run_rows(&decoder, &alone, &[], &[0.1; 100]);
        let mut start = 0;
        let mut at = 70;
        for &len in &lens {
            let own = &logits[(start + 70) * 97..(start + 70 + len) * 97];
            for (own, shared) in own.iter().zip(&shared.0[at * 97..(at + len) * 97]) {
                assert!((own - shared).abs() < 1e-3, "{family}: {own} {shared}");
            }
            start += 70 + len;
            at += len;
        }
        for (name, own) in gradients.iter() {
            let error = relative_norm(shared.1.get(name), own);
            assert!(error < 1e-3, "{family}: gradient of {name} differs by {error}");
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
