//! Documents do not see each other, the future is not seen, padding is not seen, and the cache forgets nothing: for any
//! lengths, tokens and weights, in every family.

use crate::support::{FAMILIES, random_tokens, slow_decoder, small_config_of};
use burn::tensor::Device;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::BTreeMap;
use worldloom_model::generate::{Event, Generator, Limits, Request, Sampled, Sampling};
use worldloom_model::{Decoder, Layout, token_tensor};

const VOCABULARY: usize = 97;

/// Rows of documents of any lengths, and their tokens.
#[derive(Clone, Debug)]
struct Packed {
    lengths: Vec<usize>,
    tokens: Vec<u32>,
}

impl Packed {
    /// Position and document of every token.
    fn places(&self) -> Vec<(u32, u32)> {
        let documents = self.lengths.iter().zip(0..);
        documents.flat_map(|(&len, document)| (0..len as u32).map(move |position| (position, document))).collect()
    }

    /// Bits of the logits, token by token.
    fn logits(&self, decoder: &Decoder, tokens: &[u32]) -> Vec<Vec<u32>> {
        let (positions, segments): (Vec<u32>, Vec<u32>) = self.places().into_iter().unzip();
        let (device, seq) = (Device::flex(), tokens.len());
        let layout = Layout::new(&positions, &segments, 1, seq, &device);
        bits_of(decoder, tokens, &layout)
    }
}

fn bits_of(decoder: &Decoder, tokens: &[u32], layout: &Layout) -> Vec<Vec<u32>> {
    let logits = decoder.logits(token_tensor(tokens, 1, tokens.len(), &Device::flex()), layout);
    let bits: Vec<u32> = logits.into_data().iter::<f32>().map(f32::to_bits).collect();
    bits.chunks(VOCABULARY).map(<[u32]>::to_vec).collect()
}

/// How far apart numbers may be that are added up in another order, as for the goldens: the gated norm of a delta-net divides
/// by a small root mean square.
fn tolerance(family: &str) -> f32 {
    if family.starts_with("qwen3_next") || family.starts_with("qwen3_5") { 2e-3 } else { 1e-4 }
}

fn largest_gap(a: &[Vec<u32>], b: &[Vec<u32>]) -> f32 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(&a, &b)| (f32::from_bits(a) - f32::from_bits(b)).abs()).fold(0.0, f32::max)
}

/// Documents long enough that blocks of attention and chunks of the delta rule end inside them, and very short ones.
fn packed() -> impl Strategy<Value = Packed> {
    let length = prop_oneof![1..4usize, 4..40usize, 60..90usize];
    let tokens = |lengths: Vec<usize>| {
        let total = lengths.iter().sum();
        (Just(lengths), any::<u64>()).prop_map(move |(lengths, seed)| {
            let tokens = random_tokens(total, VOCABULARY as u32, seed);
            Packed { lengths, tokens }
        })
    };
    prop::collection::vec(length, 1..5).prop_flat_map(tokens)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn changing_a_token_changes_later_logits_of_its_own_document_and_no_bit_elsewhere(
        family in select(&FAMILIES[..]),
        seed: u64,
        row in packed(),
        changed: Index,
        by in 1..VOCABULARY as u32,
    ) {
        let decoder = slow_decoder(&small_config_of(family), seed, &Device::flex());
        let changed = changed.index(row.tokens.len());
        let mut other = row.tokens.clone();
        other[changed] = (other[changed] + by) % VOCABULARY as u32;
        let (before, after) = (row.logits(&decoder, &row.tokens), row.logits(&decoder, &other));
        let places = row.places();
        for token in 0..other.len() {
            let may_see = places[token].1 == places[changed].1 && token >= changed;
            prop_assert!(
                (before[token] != after[token]) == may_see,
                "{family}: {changed} changed, logits of {token}, may see: {may_see}"
            );
        }
    }

    #[test]
    fn a_packed_document_has_the_logits_it_has_alone(family in select(&FAMILIES[..]), seed: u64, row in packed()) {
        let decoder = slow_decoder(&small_config_of(family), seed, &Device::flex());
        let together = row.logits(&decoder, &row.tokens);
        let mut start = 0;
        for &len in &row.lengths {
            let alone = bits_of(&decoder, &row.tokens[start..start + len], &Layout::causal(1, len, &Device::flex()));
            let gap = largest_gap(&alone, &together[start..start + len]);
            prop_assert!(gap < tolerance(family), "{family}: the document at {start} differs by {gap}");
            start += len;
        }
    }

    #[test]
    fn padding_on_either_side_changes_no_logit_of_a_document(
        family in select(&FAMILIES[..]),
        seed: u64,
        len in 1..60usize,
        (left, right) in (0..80usize, 0..40usize),
    ) {
        let decoder = slow_decoder(&small_config_of(family), seed, &Device::flex());
        let tokens = random_tokens(left + len + right, VOCABULARY as u32, seed ^ 1);
        let lengths = [left, len, right].into_iter().filter(|&len| len > 0).collect();
        let padded = Packed { lengths, tokens: tokens.clone() }.logits(&decoder, &tokens);
        let alone = bits_of(&decoder, &tokens[left..left + len], &Layout::causal(1, len, &Device::flex()));
        let gap = largest_gap(&alone, &padded[left..left + len]);
        prop_assert!(gap < tolerance(family), "{family}: {left} before and {right} behind {len}: differs by {gap}");
    }

    #[test]
    fn a_batch_of_unequal_prompts_decodes_from_its_caches_what_full_passes_say_at_every_position(
        family in select(&FAMILIES[..]),
        seed: u64,
        groups in prop::collection::vec((1..70usize, 1..4usize, 1..25usize, 0.4..1.5f32), 1..5),
        max_active_sequences in 1..8usize,
    ) {
        let config = small_config_of(family);
        let decoder = slow_decoder(&config, seed, &Device::flex());
        let requests: Vec<Request> = groups
            .iter()
            .zip(seed..=u64::MAX)
            .map(|(&(len, num_completions, most, temperature), seed)| Request {
                prompt: random_tokens(len, VOCABULARY as u32, seed),
                num_completions,
                seed,
                sampling: Sampling::plain(most, temperature, vec![3, 50]),
            })
            .collect();
        let limits = Limits { max_active_sequences, ..Limits::default() };
        let generator = Generator::new(&decoder, &config).unwrap().with_limits(limits);
        let made = all_log_probs(&generator, &requests);
        prop_assert_eq!(made.len(), requests.iter().map(|request| request.num_completions).sum::<usize>());
        for ((request, _), completion) in &made {
            let request = &requests[*request];
            let sampled: Vec<u32> = completion.iter().map(|sampled| sampled.token).collect();
            let tokens = [request.prompt.as_slice(), &sampled].concat();
            let (inputs, first) = (&tokens[..tokens.len() - 1], request.prompt.len() - 1);
            let logits = bits_of(&decoder, inputs, &Layout::causal(1, inputs.len(), &Device::flex()));
            prop_assert_eq!(logits.len() - first, completion.len());
            for (logits, sampled) in logits[first..].iter().zip(completion) {
                let temperature = f64::from(request.sampling.temperature);
                let scaled: Vec<f64> =
                    logits.iter().map(|&bits| f64::from(f32::from_bits(bits)) / temperature).collect();
                let log_sum = scaled.iter().map(|logit| logit.exp()).sum::<f64>().ln();
                prop_assert_eq!(sampled.most_probable.len(), VOCABULARY);
                let chosen = (sampled.token, sampled.log_prob);
                prop_assert!(sampled.most_probable.contains(&chosen), "{family}: {chosen:?} is among them");
                for &(token, log_prob) in &sampled.most_probable {
                    let gap = (f64::from(log_prob) - (scaled[token as usize] - log_sum)).abs();
                    // Where all is attention, the orders of additions differ little. A delta-net decodes token by token
                    // what a full pass computes in chunks, and its gated norm divides what differs by a small root mean
                    // square: hybrids get what the goldens' README allows them.
                    prop_assert!(
                        gap < f64::from(tolerance(family)),
                        "{family}: the log-prob {log_prob} of {token} differs by {gap}"
                    );
                }
            }
        }
    }
}

/// The tokens of every completion, by request and place in its group, each with the log-probs of the whole vocabulary.
fn all_log_probs(generator: &Generator, requests: &[Request]) -> BTreeMap<(usize, usize), Vec<Sampled>> {
    let mut batch = generator.batch(0);
    for request in requests {
        batch.submit(request.clone(), VOCABULARY).unwrap();
    }
    let mut made: BTreeMap<(usize, usize), Vec<Sampled>> = BTreeMap::new();
    while !batch.is_idle() {
        for event in batch.step() {
            let Event::Token(sampled) = event else { panic!("{event:?}") };
            made.entry((sampled.request.0, sampled.completion)).or_default().push(sampled);
        }
    }
    made
}
