//! Logits, losses and every gradient of the reference implementation (`tests/golden`), within the tolerances that its
//! README states for float32: dense and MoE, logits 1e-4 and each gradient 1e-4 in relative norm; hybrids 2e-3 for both,
//! because their gated norm divides by a small root mean square. The program's suite `device` runs the same on other devices.

use crate::device::{device, is_taken, tolerance};
use crate::support::{Golden, golden_dir, largest_difference, relative_norm, row_nll, small_config};
use burn::tensor::{Int, Tensor};
use std::collections::BTreeSet;
use worldloom_kernels::decode::rotary_angles;
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{Decoder, Gradients, Layout, ModelConfig, Objective, RouterLoss, RouterTerm, load, token_tensor};

/// Case and tolerance.
const CASES: [(&str, f32); 8] = [
    ("qwen3-tied", 1e-4),
    ("qwen3-untied", 1e-4),
    ("qwen2-untied", 1e-4),
    ("qwen3-moe-norm", 1e-4),
    ("qwen3-moe-nonorm", 1e-4),
    ("qwen3-next", 2e-3),
    ("qwen3_5-dense", 2e-3),
    ("qwen3_5-moe", 2e-3),
];

/// Those that are computed on the device of this suite.
fn cases() -> impl Iterator<Item = (&'static str, f32)> {
    let taken = CASES.into_iter().filter(|(case, _)| is_taken(case));
    taken.map(|(case, on_cpu)| (case, tolerance(on_cpu)))
}

/// Targets and weights of labels that are not shifted: position `t` predicts label `t + 1`, −100 does not count.
fn shifted(labels: &[i32], seq: usize) -> (Vec<u32>, Vec<f32>) {
    let next = |t: usize| if (t + 1).is_multiple_of(seq) { -100 } else { labels[t + 1] };
    let next: Vec<i32> = (0..labels.len()).map(next).collect();
    let counted = next.iter().filter(|&&label| label >= 0).count() as f32;
    let weight = |&label: &i32| if label >= 0 { 1.0 / counted } else { 0.0 };
    (next.iter().map(|&label| label.max(0) as u32).collect(), next.iter().map(weight).collect())
}

fn values(tensor: Tensor<3>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

fn check_gradients(decoder: &Decoder, golden: &Golden, loss: Tensor<1>, tolerance: f32) {
    let mut gradients = Gradients::zeros(decoder);
    gradients.accumulate(decoder, loss);
    let mut unseen: BTreeSet<String> = golden.names().into_iter().filter(|name| name.starts_with("grad.")).collect();
    for (name, gradient) in gradients.iter() {
        for (name, part) in published_parts(name, gradient, &unseen) {
            let error = relative_norm(part, &golden.floats(&name));
            assert!(error < f64::from(tolerance), "{name}: relative norm of the error {error}");
            unseen.remove(&name);
        }
    }
    assert!(unseen.is_empty(), "every gradient of the file is compared, but not {unseen:?}");
    let norm = gradients.squared_norm().sqrt();
    let expected = f64::from(golden.floats("grad_norm")[0]);
    assert!((norm / expected - 1.0).abs() < f64::from(tolerance) / 10.0, "gradient norm {norm}, expected {expected}");
}

/// A parameter's gradient by the names in the file, where experts may have a tensor each.
fn published_parts<'a>(name: &str, gradient: &'a [f32], names: &BTreeSet<String>) -> Vec<(String, &'a [f32])> {
    let whole = format!("grad.{name}");
    let Some((layer, projection)) = name.split_once(".experts.") else { return vec![(whole, gradient)] };
    if names.contains(&whole) {
        return vec![(whole, gradient)];
    }
    let projections: &[&str] = if projection == "gate_up_proj" { &["gate_proj", "up_proj"] } else { &["down_proj"] };
    let of_expert =
        |expert: usize| projections.iter().map(move |part| format!("grad.{layer}.experts.{expert}.{part}.weight"));
    let parts: Vec<String> =
        (0..).map(of_expert).take_while(|parts| parts.clone().all(|part| names.contains(&part))).flatten().collect();
    assert!(!parts.is_empty(), "no gradient of {name} in the file");
    let len = gradient.len() / parts.len();
    parts.into_iter().zip(gradient.chunks_exact(len)).collect()
}

#[test]
fn logits_loss_and_every_gradient_equal_the_reference() {
    for (case, tolerance) in cases() {
        let golden = Golden::open(case, "golden.safetensors");
        let device = device().autodiff();
        let (decoder, _) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        let layout = Layout::causal(batch, seq, &device);

        let logits = values(decoder.logits(tokens.clone(), &layout));
        let error = largest_difference(&logits, &golden.floats("logits"));
        assert!(error < tolerance, "{case}: logits differ by {error}");

        let (targets, weights) = shifted(&golden.integers("labels"), seq);
        let loss = decoder.weighted_nll(tokens.clone(), &layout, &targets, &weights, 1.0);
        let rows = row_nll(&decoder, tokens.clone(), &layout, &targets, &weights);
        let (every, even) = shifted(&golden.integers("input_ids"), seq);
        let of_all = decoder.weighted_nll(tokens, &layout, &every, &even, 1.0);
        for (name, loss) in [("loss", loss.clone()), ("loss_all_tokens", of_all)] {
            let (loss, expected) = (loss.into_scalar::<f32>(), golden.floats(name)[0]);
            assert!((loss - expected).abs() < tolerance / 10.0, "{case}: {name} {loss}, expected {expected}");
        }
        let rows: Vec<f32> = rows.chunks(seq).flat_map(|row| row[..seq - 1].to_vec()).collect();
        let error = largest_difference(&rows, &golden.floats("nll"));
        assert!(error < tolerance, "{case}: losses of rows differ by {error}");
        check_gradients(&decoder, &golden, loss, tolerance);
    }
}

#[test]
fn hidden_states_after_every_block_equal_the_reference() {
    for (case, tolerance) in cases() {
        let golden = Golden::open(case, "golden.safetensors");
        let device = device();
        let (decoder, _) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        check_hidden(case, &decoder, &golden, tokens, tolerance);
    }
}

/// The stream before every block, and what leaves the final norm.
fn check_hidden(case: &str, decoder: &Decoder, golden: &Golden, tokens: Tensor<2, Int>, tolerance: f32) {
    let [batch, seq] = tokens.dims();
    let layout = Layout::causal(batch, seq, &tokens.device());
    let rotary = decoder.rotary(&layout);
    let mut stream = decoder.embed(tokens.clone());
    let layers = decoder.model.layers.len();
    for layer in 0..layers {
        let error = largest_difference(&values(stream.clone()), &golden.floats(&format!("hidden.{layer}")));
        assert!(error < tolerance, "{case}: stream before block {layer} differs by {error}");
        stream = decoder.block(layer, stream, &rotary, &layout);
    }
    let last = golden.floats(&format!("hidden.{layers}"));
    let error = largest_difference(&values(decoder.hidden(tokens, &layout)), &last);
    assert!(error < tolerance, "{case}: hidden states differ by {error}");
}

#[test]
fn packed_documents_have_the_logits_and_gradients_of_each_alone() {
    for (case, tolerance) in cases() {
        let golden = Golden::open(case, "packed.safetensors");
        let device = device().autodiff();
        let (decoder, _) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        let (positions, segments) = (golden.tokens("position_ids"), golden.tokens("segment_ids"));
        let layout = Layout::new(&positions, &segments, batch, seq, &device);

        let logits = values(decoder.logits(tokens.clone(), &layout));
        let error = largest_difference(&logits, &golden.floats("logits"));
        assert!(error < tolerance, "{case}: packed logits differ by {error}");

        let (targets, weights) = shifted(&golden.integers("labels"), seq);
        let counted = weights.iter().filter(|&&weight| weight > 0.0).count() as i32;
        assert_eq!(counted, golden.integers("n_valid")[0]);
        let loss = decoder.weighted_nll(tokens, &layout, &targets, &weights, 1.0);
        let (found, expected) = (loss.clone().into_scalar::<f32>(), golden.floats("loss")[0]);
        assert!((found - expected).abs() < tolerance / 10.0, "{case}: packed loss {found}, expected {expected}");
        check_gradients(&decoder, &golden, loss, tolerance);
    }
}

#[test]
fn left_padding_changes_nothing() {
    for (case, tolerance) in cases() {
        let golden = Golden::open(case, "padded.safetensors");
        let device = device();
        let (decoder, config) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        // Padding is a segment of its own.
        let segments = golden.tokens("attention_mask");
        let positions: Vec<u32> = golden.integers("position_ids").iter().map(|&p| p.max(0) as u32).collect();
        let logits = values(decoder.logits(tokens, &Layout::new(&positions, &segments, batch, seq, &device)));
        let expected = golden.floats("logits");
        for (token, _) in segments.iter().enumerate().filter(|&(_, &mask)| mask == 1) {
            let row = token * config.vocab_size..(token + 1) * config.vocab_size;
            let error = largest_difference(&logits[row.clone()], &expected[row]);
            assert!(error < tolerance, "{case}: logits of token {token} differ by {error}");
        }
    }
}

#[test]
fn greedy_continuation_by_full_passes_equals_the_reference_cache() {
    for (case, tolerance) in cases() {
        let golden = Golden::open(case, "decode.safetensors");
        let device = device();
        let (decoder, config) = load(&golden_dir(case), &device).unwrap();
        let mut tokens = golden.tokens("prompt_ids");
        let expected = golden.floats("logits");
        for (step, &token) in golden.tokens("tokens").iter().enumerate() {
            let seq = tokens.len();
            let layout = Layout::causal(1, seq, &device);
            let logits = values(decoder.logits(token_tensor(&tokens, 1, seq, &device), &layout));
            let last = &logits[(seq - 1) * config.vocab_size..];
            let error = largest_difference(last, &expected[step * config.vocab_size..][..config.vocab_size]);
            assert!(error < tolerance, "{case}: logits before token {step} differ by {error}");
            let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
            assert_eq!(best as u32, token, "{case}: token {step}");
            tokens.push(token);
        }
    }
}

#[test]
fn token_log_probs_are_the_negative_losses_and_follow_the_temperature() {
    let golden = Golden::open("qwen3-tied", "golden.safetensors");
    let device = device().autodiff();
    let (decoder, config) = load(&golden_dir("qwen3-tied"), &device).unwrap();
    let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
    let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
    let layout = Layout::causal(batch, seq, &device);
    let (targets, weights) = shifted(&golden.integers("labels"), seq);
    let selected: Vec<bool> = weights.iter().map(|&weight| weight > 0.0).collect();
    let logits = golden.floats("logits");
    for temperature in [1.0, 0.7] {
        let found = decoder.token_log_probs(tokens.clone(), &layout, &targets, &selected, temperature);
        for (row, logits) in logits.chunks(config.vocab_size).enumerate() {
            let scaled: Vec<f64> = logits.iter().map(|&l| f64::from(l) / f64::from(temperature)).collect();
            let log_sum = scaled.iter().map(|l| l.exp()).sum::<f64>().ln();
            let expected = if selected[row] { scaled[targets[row] as usize] - log_sum } else { 0.0 };
            assert!((f64::from(found[row]) - expected).abs() < 1e-4, "row {row} at temperature {temperature}");
        }
    }
}

#[test]
fn routers_say_what_the_reference_says_and_balance_as_it_does() {
    for (case, tolerance) in cases_with_experts() {
        let golden = Golden::open(case, "golden.safetensors");
        let device = device();
        let (decoder, config) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        let layout = Layout::causal(batch, seq, &device);
        let rotary = decoder.rotary(&layout);
        let shape = config.design.experts.unwrap();
        let experts = shape.num_experts;
        let (mut chosen, mut probable, mut rows) = (vec![0f64; experts], vec![0f64; experts], 0.0);
        let mut stream = decoder.embed(tokens);
        let mut routers = 0;
        for layer in 0..config.num_hidden_layers {
            if let Some(routing) = decoder.routing(layer, stream.clone(), &rotary, &layout) {
                let logits = values(routing.logits);
                let expected = golden.floats(&format!("router_logits.{routers}"));
                let error = largest_difference(&logits, &expected);
                assert!(error < tolerance, "{case}: router {routers} differs by {error}");
                let choices: Vec<i64> = routing.choices.into_data().iter::<i64>().collect();
                let of_rows = choices.chunks(shape.num_experts_per_tok).zip(expected.chunks(experts));
                for (row, (choices, logits)) in of_rows.enumerate() {
                    let mut best: Vec<i64> = (0..experts as i64).collect();
                    best.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
                    let set = |all: &[i64]| all.iter().copied().collect::<BTreeSet<i64>>();
                    assert_eq!(set(choices), set(&best[..choices.len()]), "{case}: router {routers}, row {row}");
                }
                routers += 1;
                for row in logits.chunks(experts) {
                    let total: f64 = row.iter().map(|&logit| f64::from(logit).exp()).sum();
                    probable.iter_mut().zip(row).for_each(|(sum, &logit)| *sum += f64::from(logit).exp() / total);
                    rows += 1.0;
                }
                choices.iter().for_each(|&expert| chosen[expert as usize] += 1.0);
            }
            stream = decoder.block(layer, stream, &rotary, &layout);
        }
        let balance: f64 = chosen.iter().zip(&probable).map(|(f, p)| f / rows * p / rows).sum::<f64>() * experts as f64;
        let expected = f64::from(golden.floats("aux_loss")[0]);
        assert!((balance - expected).abs() < 1e-4, "{case}: balance {balance}, expected {expected}");
    }
}

fn cases_with_experts() -> impl Iterator<Item = (&'static str, f32)> {
    let has_experts = |case: &str| case.contains("moe") || case.contains("next");
    cases().filter(move |(case, _)| has_experts(case))
}

#[test]
fn gradients_of_the_loss_with_the_routers_balance_equal_the_reference() {
    for (case, tolerance) in cases_with_experts() {
        let golden = Golden::open(case, "golden.safetensors");
        let device = device().autodiff();
        let (decoder, _) = load(&golden_dir(case), &device).unwrap();
        let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
        let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
        let layout = Layout::causal(batch, seq, &device);
        let (targets, weights) = shifted(&golden.integers("labels"), seq);
        // The reference counts the choices of every token, whether or not its label counts.
        let counted = vec![true; batch * seq];
        let loss = RouterLoss::new(&decoder.expert_load(tokens.clone(), &layout, &counted), 0.01, 0.0);
        let routers = Some(RouterTerm { loss: &loss, counted: &counted });
        let objective = Objective { targets: &targets, weights: &weights, weigh: None, temperature: 1.0, routers };
        let mut gradients = Gradients::zeros(&decoder);
        decoder.accumulate(tokens, &layout, &objective, &mut gradients);
        let names = golden.names();
        let routers: Vec<&str> = names.iter().filter_map(|name| name.strip_prefix("with_aux.grad.")).collect();
        assert!(!routers.is_empty(), "{case}: no routers to compare");
        for name in routers {
            let error = relative_norm(gradients.get(name), &golden.floats(&format!("with_aux.grad.{name}")));
            assert!(error < f64::from(tolerance), "{case}: {name}: relative norm of the error {error}");
        }
        let (norm, expected) = (gradients.squared_norm().sqrt(), f64::from(golden.floats("grad_norm_with_aux")[0]));
        assert!(
            (norm / expected - 1.0).abs() < f64::from(tolerance) / 10.0,
            "{case}: norm {norm}, expected {expected}"
        );
    }
}

#[test]
fn the_text_part_of_a_vision_language_checkpoint_is_the_text_model() {
    let golden = Golden::open("qwen3_5-moe-vl", "golden.safetensors");
    let device = device();
    let (decoder, config) = load(&golden_dir("qwen3_5-moe-vl"), &device).unwrap();
    assert_eq!(config.outer.as_ref().unwrap()["model_type"], "qwen3_5_moe");
    let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
    let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
    let logits = values(decoder.logits(tokens, &Layout::causal(batch, seq, &device)));
    let error = largest_difference(&logits, &golden.floats("logits"));
    assert!(error < 2e-3, "logits differ by {error}");
}

#[test]
fn rotary_tables_equal_the_reference_up_to_position_262143() {
    let golden = Golden::open("rope", "tables.safetensors");
    let positions = golden.tokens("positions");
    assert_eq!(positions.last(), Some(&262_143));
    let layout = Layout::new(&positions, &vec![0; positions.len()], 1, positions.len(), &device());
    for (case, head_dim, rope_theta) in
        [("qwen3", 128, 1e6), ("qwen3_5", 64, 1e7), ("smollm2", 64, 1e5), ("qwen3-tied", 16, 1e6)]
    {
        let config = ModelConfig { head_dim, rope_theta, ..small_config(true) };
        let rotary = Decoder::init(&config, 1, &device()).rotary(&layout);
        for (name, table) in [("cos", rotary.cos), ("sin", rotary.sin)] {
            let found: Vec<f32> = table.into_data().iter::<f32>().collect();
            let error = largest_difference(&found, &golden.floats(&format!("{case}.{name}")));
            // Angles in single precision, as in the reference: one bit of a frequency near 1 would show as 0.008 there.
            assert!(error < 1e-5, "{case}: {name} differs by {error}");
        }
        // Generation makes the angles of one position at a time.
        let frequencies = golden.floats(&format!("{case}.inv_freq"));
        let [mut cosines, mut sines] = [(); 2].map(|()| vec![0.0; frequencies.len()]);
        for (row, &position) in positions.iter().enumerate() {
            rotary_angles(position as usize, &frequencies, &mut cosines, &mut sines);
            for (name, found) in [("cos", &cosines), ("sin", &sines)] {
                let table = golden.floats(&format!("{case}.{name}"));
                let error = largest_difference(found, &table[row * found.len()..][..found.len()]);
                assert!(error < 1e-5, "{case}: {name} of position {position} in generation differs by {error}");
            }
        }
    }
}

#[test]
fn a_llama_that_was_really_trained_has_the_numbers_of_the_reference_and_tells_its_story() {
    if !is_taken("stories260k") {
        return;
    }
    let (golden, device) = (Golden::open("stories260k", "golden.safetensors"), device().autodiff());
    let (decoder, config) = load(&golden_dir("stories260k"), &device).unwrap();
    let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
    let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
    let layout = Layout::causal(batch, seq, &device);
    let error = largest_difference(&values(decoder.logits(tokens.clone(), &layout)), &golden.floats("logits"));
    assert!(error < 1e-4, "logits differ by {error}");
    check_hidden("stories260k", &decoder, &golden, tokens.clone(), 1e-4);
    let (targets, weights) = shifted(&golden.integers("input_ids"), seq);
    let loss = decoder.weighted_nll(tokens.clone(), &layout, &targets, &weights, 1.0);
    let (found, expected) = (loss.clone().into_scalar::<f32>(), golden.floats("loss")[0]);
    assert!((found - expected).abs() < 1e-5, "loss {found}, expected {expected}");
    let rows = row_nll(&decoder, tokens, &layout, &targets, &weights);
    let error = largest_difference(&rows[..seq - 1], &golden.floats("nll"));
    assert!(error < 1e-4, "losses of rows differ by {error}");
    let mut gradients = Gradients::zeros(&decoder);
    gradients.accumulate(&decoder, loss);
    for (name, gradient) in gradients.iter() {
        let error = relative_norm(gradient, &golden.floats(&format!("grad.{name}")));
        assert!(error < 1e-4, "gradient of {name}: relative norm of the error {error}");
    }
    let (prompt, story) = (golden.tokens("prompt_ids"), golden.tokens("greedy_tokens"));
    let sampling = Sampling::greedy(story.len(), vec![]);
    let request = Request { prompt, num_completions: 1, seed: 0, sampling };
    let generator = Generator::new(&decoder, &config).unwrap();
    let told = generator.generate(&[request], &mut |_, _| ()).unwrap().remove(0).remove(0);
    assert_eq!(told.tokens, story, "the reference's story");
}
