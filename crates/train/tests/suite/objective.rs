//! The policy objectives and advantages against the golden values of `tests/golden/rl`.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use worldloom_train::rl::{
    Aggregation, Denominators, Normalisation, Objective, Ratio, Sequence, advantages, policy_loss,
};

fn path(name: &str) -> String {
    format!("{}/../../tests/golden/rl/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn tensors(name: &str) -> BTreeMap<String, (Vec<usize>, Vec<f64>)> {
    let bytes = fs_err::read(path(name)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let values = |data: &[u8]| {
        data.chunks_exact(4).map(|four| f64::from(f32::from_le_bytes(four.try_into().unwrap()))).collect()
    };
    file.iter().map(|(name, view)| (name.to_string(), (view.shape().to_vec(), values(view.data())))).collect()
}

fn objective(config: &serde_json::Value) -> Option<Objective> {
    let aggregation = match config["loss"].as_str()? {
        "grpo" => Aggregation::SequenceMean,
        "dapo" | "bnpo" => Aggregation::TokenMean,
        "dr_grpo" => Aggregation::ConstantLength,
        _ => return None,
    };
    let ratio = match config["level"].as_str()? {
        "token" => Ratio::Token,
        _ => Ratio::Sequence,
    };
    if !config["delta"].is_null() || !config["rollout_cap"].is_null() {
        return None;
    }
    Some(Objective {
        ratio,
        aggregation,
        clip_low: config["eps_low"].as_f64()?,
        clip_high: config["eps_high"].as_f64()?,
        kl: config["beta"].as_f64()?,
        is_kl_weighted: config["kl_weighted"].as_bool()?,
    })
}

struct Data {
    rows: Vec<[Vec<f64>; 3]>,
    masks: Vec<Vec<bool>>,
    advantages: Vec<f64>,
}

impl Data {
    fn load(file: &BTreeMap<String, (Vec<usize>, Vec<f64>)>) -> Self {
        let row = |name: &str, row: usize| file[name].1[row * 10..][..10].to_vec();
        let rows = (0..6).map(|at| [row("logps", at), row("old_logps", at), row("ref_logps", at)]).collect();
        let masks = (0..6).map(|at| row("mask", at).iter().map(|&value| value > 0.5).collect()).collect();
        Self { rows, masks, advantages: file["advantages"].1.clone() }
    }

    fn sequences(&self) -> Vec<Sequence<'_>> {
        let of = |at: usize| Sequence {
            log_probs: &self.rows[at][0],
            old_log_probs: &self.rows[at][1],
            reference_log_probs: Some(&self.rows[at][2]),
            mask: &self.masks[at],
            advantage: self.advantages[at],
        };
        (0..self.rows.len()).map(of).collect()
    }
}

#[test]
fn losses_gradients_and_metrics_equal_the_golden_values() {
    let file = tensors("losses.safetensors");
    let meta: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(path("meta.json")).unwrap()).unwrap();
    let data = Data::load(&file);
    let denominators = Denominators { sequences: 6, tokens: 30, max_completion_tokens: 12 };
    let mut compared = 0;
    for (name, case) in meta["cases"].as_object().unwrap() {
        let Some(objective) = objective(&case["config"]) else { continue };
        let found = policy_loss(&data.sequences(), &denominators, &objective);
        let loss = case["loss"].as_f64().unwrap();
        // The reference is float64 throughout; only the inputs were rounded, to values that float32 holds exactly.
        assert!((found.loss - loss).abs() < 1e-12, "{name}: loss {}, expected {loss}", found.loss);
        let gradient = &file[&format!("{name}.grad")].1;
        for (at, (found, expected)) in found.coefficients.iter().flatten().zip(gradient).enumerate() {
            // The stored gradient was rounded to float32.
            let tolerance = 1e-7 * expected.abs() + 1e-12;
            assert!((found - expected).abs() <= tolerance, "{name} gradient {at}: {found}, expected {expected}");
        }
        let metric = |key: &str| case["metrics"][key].as_f64().unwrap();
        let tokens = found.totals.tokens as f64;
        assert!((found.totals.clipped_low as f64 / tokens - metric("clip_low")).abs() < 1e-12, "{name}");
        assert!((found.totals.clipped_high as f64 / tokens - metric("clip_high")).abs() < 1e-12, "{name}");
        assert!((found.totals.kl / tokens - metric("kl")).abs() < 1e-12, "{name}");
        assert!((found.totals.ratio_max - metric("ratio_max")).abs() < 1e-12, "{name}");
        compared += 1;
    }
    assert_eq!(compared, 14, "grpo, bnpo, dr_grpo, dapo and gspo with their variants");
}

#[test]
fn shares_of_micro_batches_add_up_to_the_whole() {
    let data = Data::load(&tensors("losses.safetensors"));
    let denominators = Denominators { sequences: 6, tokens: 30, max_completion_tokens: 12 };
    for ratio in [Ratio::Token, Ratio::Sequence] {
        for aggregation in [Aggregation::SequenceMean, Aggregation::TokenMean, Aggregation::ConstantLength] {
            let objective = Objective { ratio, aggregation, kl: 0.04, ..Objective::default() };
            let sequences = data.sequences();
            let whole = policy_loss(&sequences, &denominators, &objective);
            let parts: Vec<_> = sequences.chunks(1).map(|part| policy_loss(part, &denominators, &objective)).collect();
            let sum: f64 = parts.iter().map(|part| part.loss).sum();
            assert!((sum - whole.loss).abs() < 1e-12, "{ratio:?} {aggregation:?}: {sum}, expected {}", whole.loss);
            let coefficients: Vec<_> = parts.into_iter().flat_map(|part| part.coefficients).collect();
            assert_eq!(coefficients, whole.coefficients);
        }
    }
}

#[test]
fn coefficients_are_the_slopes_of_the_loss() {
    let data = Data::load(&tensors("losses.safetensors"));
    let denominators = Denominators { sequences: 6, tokens: 30, max_completion_tokens: 12 };
    for (ratio, is_kl_weighted) in [(Ratio::Token, false), (Ratio::Token, true), (Ratio::Sequence, true)] {
        let objective =
            Objective { ratio, is_kl_weighted, kl: 0.3, clip_low: 0.05, clip_high: 0.05, ..Objective::default() };
        let coefficients = policy_loss(&data.sequences(), &denominators, &objective).coefficients;
        for (row, token) in (0..6).flat_map(|row| (0..10).map(move |token| (row, token))) {
            let moved = |by: f64| {
                let mut rows = Data { rows: data.rows.clone(), masks: data.masks.clone(), advantages: vec![] };
                rows.advantages = data.advantages.clone();
                rows.rows[row][0][token] += by;
                policy_loss(&rows.sequences(), &denominators, &objective).loss
            };
            let slope = (moved(1e-6) - moved(-1e-6)) / 2e-6;
            let found = coefficients[row][token];
            assert!((slope - found).abs() < 1e-7, "{ratio:?} row {row} token {token}: {found}, slope {slope}");
        }
    }
}

#[test]
fn moving_away_from_the_reference_raises_the_loss() {
    let (old, reference, mask) = ([-1.0; 4], [-1.0; 4], [true; 4]);
    let denominators = Denominators { sequences: 1, tokens: 4, max_completion_tokens: 4 };
    let loss = |shift: f64, kl: f64| {
        let log_probs = [-1.0 + shift; 4];
        let sequence = Sequence {
            log_probs: &log_probs,
            old_log_probs: &old,
            reference_log_probs: Some(&reference),
            mask: &mask,
            advantage: 0.0,
        };
        policy_loss(&[sequence], &denominators, &Objective { kl, ..Objective::default() }).loss
    };
    assert!(loss(0.3, 0.1) > loss(0.1, 0.1) && loss(-0.3, 0.1) > loss(-0.1, 0.1) && loss(-0.1, 0.1) > 0.0);
    assert_eq!(loss(0.3, 0.0), 0.0);
}

#[test]
fn a_completion_without_tokens_adds_nothing() {
    let sequence =
        Sequence { log_probs: &[], old_log_probs: &[], reference_log_probs: None, mask: &[], advantage: 1.0 };
    let denominators = Denominators { sequences: 1, tokens: 1, max_completion_tokens: 4 };
    let found = policy_loss(&[sequence], &denominators, &Objective::default());
    assert_eq!((found.loss, found.coefficients), (0.0, vec![vec![]]));
}

#[test]
fn clip_ranges_of_token_ratios_are_refused_for_sequences() {
    let objective = Objective { clip_high: 0.2, ..Objective::default() };
    assert!(objective.check().unwrap_err().to_string().contains("objective.clip_high"));
    assert!(Objective { ratio: Ratio::Token, ..objective }.check().is_ok());
    assert!(Objective::default().check().is_ok());
}

#[test]
fn advantages_equal_the_golden_values() {
    let file = tensors("advantages.safetensors");
    let groups: Vec<Vec<Option<f64>>> =
        file["rewards"].1.chunks(3).map(|group| group.iter().copied().map(Some).collect()).collect();
    for (name, normalisation) in
        [("adv.group", Normalisation::Group), ("adv.batch", Normalisation::Batch), ("adv.none", Normalisation::None)]
    {
        let found = advantages(&groups, normalisation);
        assert_eq!(found.zero_variance_groups, 1, "{name}");
        for (found, expected) in found.values.iter().flatten().zip(&file[name].1) {
            let found = found.unwrap();
            assert!((found - expected).abs() < 1e-6, "{name}: {found}, expected {expected}");
        }
    }
}
