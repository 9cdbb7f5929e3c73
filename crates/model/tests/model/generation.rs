//! The laws of generation, on the golden models.

use burn::tensor::Device;
use worldloom_model::generate::{Batch, Completion, End, Error, Event, Generator, Limits, Request, Sampling, Ticket};
use worldloom_model::{Decoder, Layout, ModelConfig, load, token_tensor};

use crate::support::{Golden, golden_dir};

/// Case, and how far its logits may be from the reference's.
const CASES: [(&str, f32); 9] = [
    ("qwen3-tied", 1e-4),
    ("qwen3-untied", 1e-4),
    ("qwen2-untied", 1e-4),
    ("qwen3-moe-norm", 1e-4),
    ("qwen3-moe-nonorm", 1e-4),
    ("qwen3-next", 2e-3),
    ("qwen3_5-dense", 2e-3),
    ("qwen3_5-moe", 2e-3),
    ("qwen3_5-moe-vl", 2e-3),
];

/// One model of each kind of block: attention alone, delta-nets, experts.
const KINDS: [&str; 4] = ["qwen3-tied", "qwen3-moe-norm", "qwen3_5-dense", "qwen3-next"];

fn model(case: &str) -> (Decoder, ModelConfig, Generator) {
    let (decoder, config) = load(&golden_dir(case), &Device::flex()).unwrap();
    let generator = Generator::new(&decoder, &config).unwrap();
    (decoder, config, generator)
}

/// Prompt, greedy tokens and the logits before each of them, as the reference computed them.
fn golden(case: &str) -> (Vec<u32>, Vec<u32>, Vec<Vec<f32>>) {
    // The text part of a vision-language model is that text model.
    let file = Golden::open(case.trim_end_matches("-vl"), "decode.safetensors");
    let vocab_size = file.shape("logits")[1];
    let logits = file.floats("logits").chunks(vocab_size).map(<[f32]>::to_vec).collect();
    (file.tokens("prompt_ids"), file.tokens("tokens"), logits)
}

fn prompt(len: usize, salt: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i * 7 + i * 13 + salt * 31) % 120).collect()
}

fn request(prompt: Vec<u32>, num_completions: usize, seed: u64, sampling: Sampling) -> Request {
    Request { prompt, num_completions, seed, sampling }
}

/// Requests of unequal prompts, groups, lengths and temperatures.
fn mixed_requests() -> Vec<Request> {
    let lengths = [1, 7, 16, 33, 100, 130, 200];
    let one = |(i, len): (usize, usize)| {
        let sampling = Sampling {
            top_p: (i % 3 == 1).then_some(0.9),
            ..Sampling::plain(5 + 4 * i, if i == 3 { 0.0 } else { 0.5 + 0.2 * i as f32 }, vec![11, 12])
        };
        request(prompt(len, i as u32), 1 + i % 4, 40 + i as u64, sampling)
    };
    lengths.into_iter().enumerate().map(one).collect()
}

fn generate(generator: &Generator, requests: &[Request]) -> Vec<Vec<Completion>> {
    generator.generate(requests, &mut |_, _| ()).unwrap()
}

/// The whole content of a completion, bit for bit.
type Bits = (Vec<u32>, Vec<u32>, bool);

fn bits(completion: &Completion) -> Bits {
    let log_probs = completion.log_probs.iter().map(|log_prob| log_prob.to_bits()).collect();
    (completion.tokens.clone(), log_probs, completion.stopped)
}

fn all_bits(completions: &[Vec<Completion>]) -> Vec<Vec<Bits>> {
    completions.iter().map(|group| group.iter().map(bits).collect()).collect()
}

#[test]
fn greedy_tokens_are_those_of_the_reference() {
    for (case, tolerance) in CASES {
        let (_, _, generator) = model(case);
        let (prompt, tokens, logits) = golden(case);
        let made = generate(&generator, &[request(prompt, 1, 0, Sampling::greedy(32, vec![]))]).remove(0).remove(0);
        assert_eq!(made.tokens, tokens, "{case}");
        assert!(!made.stopped);
        for ((log_prob, logits), token) in made.log_probs.iter().zip(&logits).zip(&tokens) {
            let total: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
            let expected = f64::from(logits[*token as usize]) - total.ln();
            assert!((f64::from(*log_prob) - expected).abs() < f64::from(tolerance), "{case}: {log_prob} {expected}");
        }
    }
}

#[test]
fn logits_are_those_of_the_reference() {
    for (case, tolerance) in CASES {
        let (_, _, generator) = model(case);
        let (mut sequence, tokens, logits) = golden(case);
        for (token, expected) in tokens.iter().zip(&logits) {
            let computed = generator.logits(&sequence);
            for (value, expected) in computed.iter().zip(expected) {
                assert!((value - expected).abs() < tolerance, "{case}: {value} {expected}");
            }
            sequence.push(*token);
        }
    }
}

#[test]
fn log_probs_are_those_of_the_training_forward_pass() {
    for (case, _) in CASES {
        let (decoder, _, generator) = model(case);
        for temperature in [0.7, 1.0] {
            let prompt = prompt(150, 3);
            let sampling = Sampling::plain(40, temperature, vec![]);
            for made in generate(&generator, &[request(prompt.clone(), 3, 9, sampling)]).remove(0) {
                let tokens: Vec<u32> = prompt.iter().chain(&made.tokens).copied().collect();
                let (inputs, targets) = (&tokens[..tokens.len() - 1], &tokens[1..]);
                let selected: Vec<bool> = (0..inputs.len()).map(|position| position + 1 >= prompt.len()).collect();
                let device = Device::flex();
                let input = token_tensor(inputs, 1, inputs.len(), &device);
                let layout = Layout::causal(1, inputs.len(), &device);
                let expected = decoder.token_log_probs(input, &layout, targets, &selected, temperature);
                for (log_prob, expected) in made.log_probs.iter().zip(&expected[prompt.len() - 1..]) {
                    assert!((log_prob - expected).abs() < 1e-4, "{case} at {temperature}: {log_prob} {expected}");
                }
                assert_eq!(made.log_probs.len(), 40);
            }
        }
    }
}

#[test]
fn a_batch_of_unequal_prompts_is_the_same_bits_as_one_by_one() {
    for case in KINDS {
        let (_, _, generator) = model(case);
        let requests = mixed_requests();
        let together = generate(&generator, &requests);
        for (request, together) in requests.into_iter().zip(together) {
            assert_eq!(all_bits(&generate(&generator, &[request])), all_bits(&[together]), "{case}");
        }
    }
}

#[test]
fn a_group_is_the_same_bits_as_its_streams_on_their_own() {
    let (_, _, generator) = model("qwen3-untied");
    let of_size = |size| request(prompt(50, 1), size, 77, Sampling::plain(20, 1.0, vec![]));
    let group = generate(&generator, &[of_size(9)]).remove(0);
    for size in 1..9 {
        let smaller = generate(&generator, &[of_size(size)]).remove(0);
        assert_eq!(smaller.iter().map(bits).collect::<Vec<_>>(), group[..size].iter().map(bits).collect::<Vec<_>>());
    }
}

#[test]
fn the_limits_and_the_number_of_threads_change_no_bit() {
    let requests = mixed_requests();
    for case in KINDS {
        let run = |limits: Limits, threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let generator = model(case).2.with_limits(limits);
            all_bits(&pool.install(|| generate(&generator, &requests)))
        };
        let expected = run(Limits::default(), 1);
        for (max_active_sequences, max_cache_tokens) in [(1, 1 << 20), (2, 300), (5, 260), (7, 1 << 20), (64, 400)] {
            let limits = Limits { max_active_sequences, max_cache_tokens };
            assert!(run(limits, 1) == expected, "{case}, {limits:?}, 1 thread");
            assert!(run(limits, 3) == expected, "{case}, {limits:?}, 3 threads");
        }
        assert!(run(Limits::default(), 2) == expected, "{case}, 2 threads");
    }
}

#[test]
fn a_batch_above_the_rows_of_one_thread_is_the_same_bits() {
    let (_, _, generator) = model("qwen3-tied");
    let of_size = |size| request(prompt(20, 5), size, 3, Sampling::plain(6, 1.3, vec![]));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(4).build().unwrap();
    let large = pool.install(|| generate(&generator, &[of_size(61)]));
    let alone =
        generate(&generator.with_limits(Limits { max_active_sequences: 1, max_cache_tokens: 64 }), &[of_size(61)]);
    assert_eq!(all_bits(&large), all_bits(&alone));
}

#[test]
fn continuing_from_the_cache_is_the_same_bits_as_computing_everything_again() {
    let greedy = |prompt: Vec<u32>, count| request(prompt, 1, 0, Sampling::greedy(count, vec![]));
    for case in KINDS {
        let (_, _, generator) = model(case);
        let whole = generate(&generator, &[greedy(prompt(90, 2), 30)]).remove(0).remove(0);
        for done in 1..30 {
            let longer: Vec<u32> = prompt(90, 2).into_iter().chain(whole.tokens[..done].iter().copied()).collect();
            let rest = generate(&generator, &[greedy(longer, 30 - done)]).remove(0).remove(0);
            assert_eq!(rest.tokens, whole.tokens[done..], "{case}");
            assert!(rest.log_probs == whole.log_probs[done..], "{case}, after {done} tokens");
        }
    }
}

#[test]
fn any_of_the_stop_tokens_ends_a_completion_and_is_part_of_it() {
    let (_, _, generator) = model("qwen3-tied");
    let (prompt, tokens, _) = golden("qwen3-tied");
    for stop in [tokens[0], tokens[4], tokens[10]] {
        let end = tokens.iter().position(|token| *token == stop).unwrap() + 1;
        for stop_ids in [vec![stop], vec![159, stop], vec![stop, 158]] {
            let sampling = Sampling::greedy(32, stop_ids);
            let made = generate(&generator, &[request(prompt.clone(), 1, 0, sampling)]).remove(0).remove(0);
            assert!(made.stopped);
            assert_eq!(made.tokens, tokens[..end]);
            assert_eq!(made.log_probs.len(), end);
        }
    }
    let last = Sampling::greedy(5, vec![tokens[4]]);
    assert!(generate(&generator, &[request(prompt, 1, 0, last)])[0][0].stopped, "at the last place too");
}

#[test]
fn temperature_zero_is_the_most_probable_token_whatever_the_seed() {
    let (_, _, generator) = model("qwen3-untied");
    let greedy = generate(&generator, &[request(prompt(30, 1), 2, 1, Sampling::greedy(20, vec![]))]).remove(0);
    assert_eq!(bits(&greedy[0]), bits(&greedy[1]));
    let one = Sampling { top_k: Some(1), ..Sampling::plain(20, 1.0, vec![]) };
    let only_choice = generate(&generator, &[request(prompt(30, 1), 1, 2, one)]).remove(0);
    assert_eq!(bits(&greedy[0]), bits(&only_choice[0]));
}

#[test]
fn a_penalty_on_what_was_seen_keeps_greedy_completions_from_repeating() {
    let (_, _, generator) = model("qwen3-tied");
    let greedy = |repetition_penalty| {
        let sampling = Sampling { repetition_penalty, ..Sampling::greedy(40, vec![]) };
        generate(&generator, &[request(prompt(30, 1), 1, 1, sampling)]).remove(0).remove(0)
    };
    let distinct = |made: &Completion| made.tokens.iter().collect::<std::collections::BTreeSet<_>>().len();
    let (free, held) = (greedy(1.0), greedy(50.0));
    assert!(distinct(&free) < 40);
    assert_eq!(distinct(&held), 40, "nothing comes twice: {:?}", held.tokens);
    assert!(held.tokens.iter().all(|token| !prompt(30, 1).contains(token)));
}

#[test]
fn completions_of_a_group_differ_and_a_seed_repeats_them() {
    let (_, _, generator) = model("qwen3-tied");
    let with_seed = |seed| request(prompt(30, 1), 8, seed, Sampling::plain(12, 1.0, vec![]));
    let groups = generate(&generator, &[with_seed(1), with_seed(1), with_seed(2)]);
    for i in 0..8 {
        for j in 0..i {
            assert_ne!(groups[0][i].tokens, groups[0][j].tokens, "completions {i} and {j}");
        }
    }
    assert_eq!(all_bits(&groups[..1]), all_bits(&groups[1..2]));
    assert_ne!(groups[0], groups[2]);
}

#[test]
fn progress_counts_every_completion_once() {
    let (_, _, generator) = model("qwen3-tied");
    let mut requests = mixed_requests();
    requests.push(request(vec![1], 0, 0, Sampling::greedy(1, vec![])));
    let total: usize = requests.iter().map(|request| request.num_completions).sum();
    let mut heard = Vec::new();
    let made = generator.generate(&requests, &mut |finished, of| heard.push((finished, of))).unwrap();
    assert!(heard.is_sorted_by(|a, b| a.0 < b.0));
    assert_eq!(heard.last(), Some(&(total, total)));
    assert_eq!(made.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3, 4, 1, 2, 3, 0]);
    assert!(made.iter().flatten().all(|completion| !completion.tokens.is_empty()));
}

#[test]
fn a_request_that_cannot_be_met_is_named() {
    let (_, _, generator) = model("qwen3-tied");
    let check = |request: Request, expected: &str| {
        let good = mixed_requests().remove(0);
        let error = generator.generate(&[good, request], &mut |_, _| panic!("nothing is computed")).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    let greedy = |prompt, count| request(prompt, 1, 0, Sampling::greedy(count, vec![]));
    check(greedy(vec![], 4), "request 1: the prompt is empty");
    check(greedy(vec![3], 0), "request 1: `max_new_tokens` is 0");
    check(
        greedy(prompt(510, 0), 3),
        "request 1: 510 prompt tokens and 3 new ones are more than the model's 512 positions",
    );
    check(greedy(vec![1, 160], 4), "request 1: token 160 at 1 of the prompt, and the vocabulary has 160");
    let sampled = |sampling| request(vec![1], 1, 0, sampling);
    let plain = |temperature| Sampling::plain(4, temperature, vec![]);
    check(sampled(plain(-1.0)), "request 1: `temperature` is -1, expected a number of at least 0");
    check(sampled(plain(f32::NAN)), "request 1: `temperature` is NaN, expected a number of at least 0");
    let penalised = Sampling { repetition_penalty: 0.0, ..plain(1.0) };
    check(sampled(penalised), "request 1: `repetition_penalty` is 0, expected a number above 0");
    check(sampled(Sampling { top_k: Some(0), ..plain(1.0) }), "request 1: `top_k` is 0, expected at least 1");
    let none = Sampling { top_p: Some(0.0), ..plain(1.0) };
    check(sampled(none), "request 1: `top_p` is 0, expected a number above 0 and at most 1");
    let too_much = Sampling { min_p: Some(1.5), ..plain(1.0) };
    check(sampled(too_much), "request 1: `min_p` is 1.5, expected a number from 0 to 1");
}

#[test]
fn limits_that_no_sequence_fits_are_named() {
    let run = |max_active_sequences, max_cache_tokens| {
        let generator = model("qwen3-tied").2.with_limits(Limits { max_active_sequences, max_cache_tokens });
        generator.generate(&[request(prompt(20, 0), 1, 0, Sampling::greedy(5, vec![]))], &mut |_, _| ())
    };
    assert_eq!(run(0, 100), Err(Error::NoActiveSequences));
    assert_eq!(run(1, 24), Err(Error::CacheLimit { request: 0, needed: 25, limit: 24 }));
    assert!(run(1, 25).is_ok());
}

#[test]
fn the_states_of_delta_nets_count_as_the_positions_that_take_as_much_memory() {
    let with =
        |max_cache_tokens| model("qwen3_5-dense").2.with_limits(Limits { max_active_sequences: 64, max_cache_tokens });
    let generator = with(1000);
    let state = generator.state_bytes_per_sequence().div_ceil(generator.cache_bytes_per_token());
    assert_eq!(state, 15, "three layers of 4 · 8 · 12 and 3 · 80 numbers, of 128 numbers a position");
    assert_eq!(generator.longest(), 512);
    assert_eq!(with(300).longest(), 300 - 2 * state);
    let of_group = |generator: &Generator, size| {
        generate(generator, &[request(prompt(20, 0), size, 0, Sampling::plain(5, 1.0, vec![]))])
    };
    let request = || request(prompt(20, 0), 3, 0, Sampling::plain(5, 1.0, vec![]));
    let needed = 20 + state + 5 + state;
    let refused = with(needed - 1).generate(&[request()], &mut |_, _| ()).unwrap_err();
    assert_eq!(refused, Error::CacheLimit { request: 0, needed, limit: needed - 1 });
    assert_eq!(all_bits(&of_group(&with(needed), 3)), all_bits(&of_group(&generator, 3)));
    // There is room for the prompt and for two completions of three.
    let narrow = with(needed + 5 + state);
    let mut batch = narrow.batch(0);
    batch.submit(request(), 0).unwrap();
    batch.step();
    assert_eq!((batch.num_active(), batch.num_waiting()), (2, 1));
}

#[test]
fn a_prompt_may_fill_the_positions_to_the_last() {
    let (_, config, generator) = model("qwen3-tied");
    let made = generate(&generator, &[request(prompt(509, 0), 1, 0, Sampling::greedy(3, vec![]))]);
    assert_eq!(made[0][0].tokens.len(), 3);
    assert_eq!(config.max_position_embeddings, 512);
}

#[test]
fn broken_weights_are_reported_with_the_place() {
    let (decoder, config, _) = model("qwen3-tied");
    let broken = decoder.update_parameters(&mut |path, _, values| {
        if path == "model.norm.weight" {
            values[0] = f32::NAN;
        }
    });
    let result = Generator::new(&broken, &config)
        .unwrap()
        .generate(&[request(vec![5], 2, 0, Sampling::plain(3, 1.0, vec![]))], &mut |_, _| ());
    assert_eq!(result, Err(Error::NotFinite { request: 0, completion: 0, position: 0 }));
}

/// Steps until nothing is left; the completions of each ticket.
fn drain(batch: &mut Batch<'_>, made: &mut Vec<Vec<Completion>>) {
    while !batch.is_idle() {
        take_step(batch, made);
    }
}

fn take_step(batch: &mut Batch<'_>, made: &mut Vec<Vec<Completion>>) {
    for event in batch.step() {
        let Event::Token(sampled) = event else { panic!("{event:?}") };
        let Ticket(number) = sampled.request;
        made.resize_with(made.len().max(number + 1), Vec::new);
        let group = &mut made[number];
        group.resize_with(group.len().max(sampled.completion + 1), Completion::default);
        let completion = &mut group[sampled.completion];
        completion.tokens.push(sampled.token);
        completion.log_probs.push(sampled.log_prob);
        completion.stopped = sampled.end == Some(End::Stop);
    }
}

#[test]
fn requests_that_come_while_others_are_in_work_get_the_completions_they_would_get_alone() {
    for case in KINDS {
        let (_, _, generator) = model(case);
        let requests = mixed_requests();
        let expected = generate(&generator, &requests);
        let generator = generator.with_limits(Limits { max_active_sequences: 5, max_cache_tokens: 700 });
        for prefix_tokens in [0, 1000] {
            let (mut batch, mut made) = (generator.batch(prefix_tokens), Vec::new());
            for (number, request) in requests.iter().enumerate() {
                assert_eq!(batch.submit(request.clone(), 0), Ok(Ticket(number)));
                (0..3).for_each(|_| take_step(&mut batch, &mut made));
            }
            drain(&mut batch, &mut made);
            assert_eq!(all_bits(&made), all_bits(&expected), "{case}");
        }
    }
}

#[test]
fn a_prompt_that_goes_on_from_a_kept_one_gives_the_same_completions() {
    for case in KINDS {
        let (_, _, generator) = model(case);
        let sampling = Sampling::plain(8, 1.0, vec![]);
        let whole = prompt(150, 3);
        let other_end: Vec<u32> = whole[..90].iter().chain(&[5, 6, 7]).copied().collect();
        let prompts = [whole[..100].to_vec(), whole.clone(), other_end, whole[..20].to_vec(), whole];
        let requests: Vec<Request> = prompts.iter().map(|p| request(p.clone(), 2, 1, sampling.clone())).collect();
        let (mut batch, mut made) = (generator.batch(1000), Vec::new());
        for request in &requests {
            batch.submit(request.clone(), 0).unwrap();
            drain(&mut batch, &mut made);
        }
        assert_eq!(all_bits(&made), all_bits(&generate(&generator, &requests)), "{case}");
        let (computed, reused) = batch.prompt_tokens();
        let total: usize = prompts.iter().map(Vec::len).sum();
        assert_eq!(computed + reused, total as u64);
        assert!(reused >= 100, "{case}: {reused}");
    }
}

#[test]
fn a_cancelled_request_leaves_its_place_to_the_next() {
    let (_, _, generator) = model("qwen3-tied");
    let generator = generator.with_limits(Limits { max_active_sequences: 2, max_cache_tokens: 400 });
    let long = request(prompt(20, 1), 4, 1, Sampling::plain(100, 1.0, vec![]));
    let short = request(prompt(20, 2), 1, 1, Sampling::plain(5, 1.0, vec![]));
    let (mut batch, mut made) = (generator.batch(0), Vec::new());
    let first = batch.submit(long, 0).unwrap();
    let second = batch.submit(short.clone(), 0).unwrap();
    take_step(&mut batch, &mut made);
    assert_eq!((batch.num_active(), batch.num_waiting()), (2, 3));
    batch.cancel_completion(first, 0);
    assert_eq!(batch.num_active(), 1);
    batch.cancel(first);
    assert_eq!((batch.num_active(), batch.num_waiting()), (0, 1));
    drain(&mut batch, &mut made);
    assert_eq!(bits(&made[second.0][0]), bits(&generate(&generator, &[short])[0][0]));
}

#[test]
fn the_most_probable_tokens_come_in_order_with_the_chosen_one_among_all() {
    let (_, _, generator) = model("qwen3-tied");
    let mut batch = generator.batch(0);
    batch.submit(request(prompt(20, 1), 1, 1, Sampling::plain(6, 0.7, vec![])), 160).unwrap();
    while !batch.is_idle() {
        for event in batch.step() {
            let Event::Token(sampled) = event else { panic!("{event:?}") };
            assert_eq!(sampled.most_probable.len(), 160);
            assert!(sampled.most_probable.is_sorted_by(|a, b| a.1 >= b.1));
            assert!(sampled.most_probable.contains(&(sampled.token, sampled.log_prob)));
            let total: f64 = sampled.most_probable.iter().map(|(_, log_prob)| f64::from(*log_prob).exp()).sum();
            assert!((total - 1.0).abs() < 1e-5);
        }
    }
}
