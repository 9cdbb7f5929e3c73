//! SmolLM2-135M-Instruct as `just smollm2` makes it, against the reference. It is not part of the project: where the
//! folder is missing, this says so and compares nothing.

use crate::support::{Golden, golden_dir, largest_difference, row_nll};
use burn::tensor::Device;
use std::path::{Path, PathBuf};
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{Layout, load, token_tensor};

#[expect(clippy::print_stderr, reason = "a test says what it skips")]
fn folders() -> Option<[PathBuf; 2]> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [root.join("models/smollm2-135m"), golden_dir("smollm2-135m")];
    let is_there = folders[0].join("config.json").exists();
    if !is_there {
        eprintln!("skipped: no models/smollm2-135m; `just smollm2` makes it");
    }
    is_there.then_some(folders)
}

#[test]
fn the_model_that_just_smollm2_makes_has_the_logits_and_answers_of_the_reference() {
    let Some([model, golden_folder]) = folders() else { return };
    let golden = Golden::open("smollm2-135m", "golden.safetensors");
    let device = Device::flex();
    let (decoder, config) = load(&model, &device).unwrap();
    assert_eq!(decoder.num_parameters(), 134_515_008);
    let [batch, seq] = golden.shape("input_ids").try_into().unwrap();
    let tokens = token_tensor(&golden.tokens("input_ids"), batch, seq, &device);
    let logits: Vec<f32> =
        decoder.logits(tokens, &Layout::causal(batch, seq, &device)).into_data().iter::<f32>().collect();
    // Thirty layers in single precision with another order of additions: logits of up to 40 agree to 1e-3.
    let last = &logits[(seq - 1) * config.vocab_size..];
    let error = largest_difference(last, &golden.floats("last_logits"));
    assert!(error < 1e-3, "logits of the last position differ by {error}");
    for (row, (logits, ids)) in logits.chunks(config.vocab_size).zip(golden.tokens("top16_ids").chunks(16)).enumerate()
    {
        let top: Vec<f32> = ids.iter().map(|&id| logits[id as usize]).collect();
        let error = largest_difference(&top, &golden.floats("top16_logits")[row * 16..][..16]);
        assert!(error < 1e-3, "position {row}: largest logits differ by {error}");
        let log_sum = logits.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
        let expected = f64::from(golden.floats("logsumexp")[row]);
        assert!((log_sum - expected).abs() < 1e-3, "position {row}: {log_sum}, expected {expected}");
    }
    let (ids, mut weights) = (golden.tokens("input_ids"), vec![1.0 / (seq - 1) as f32; seq]);
    weights[seq - 1] = 0.0;
    let targets: Vec<u32> = ids[1..].iter().copied().chain([0]).collect();
    let tokens = token_tensor(&ids, batch, seq, &device);
    let layout = Layout::causal(batch, seq, &device);
    let rows = row_nll(&decoder, tokens.clone(), &layout, &targets, &weights);
    let error = largest_difference(&rows[..seq - 1], &golden.floats("nll"));
    assert!(error < 1e-3, "losses of rows differ by {error}");
    let loss = decoder.weighted_nll(tokens, &layout, &targets, &weights, 1.0);
    let (loss, expected) = (loss.into_scalar::<f32>(), golden.floats("loss")[0]);
    assert!((loss - expected).abs() < 1e-4, "loss {loss}, expected {expected}");
    let meta: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(golden_folder.join("meta.json")).unwrap()).unwrap();
    let generator = Generator::new(&decoder, &config).unwrap();
    let chats = meta["greedy"].as_object().unwrap();
    for (question, chat) in chats {
        let ids = |key: &str| -> Vec<u32> { serde_json::from_value(chat[key].clone()).unwrap() };
        let (prompt, expected) = (ids("prompt_ids"), ids("tokens"));
        let sampling = Sampling::greedy(expected.len(), vec![2]);
        let request = Request { prompt, num_completions: 1, seed: 0, sampling };
        let answer = generator.generate(&[request], &mut |_, _| ()).unwrap().remove(0).remove(0);
        assert_eq!(answer.tokens, expected, "{question}");
    }
    assert_eq!(chats.len(), 3);
}
