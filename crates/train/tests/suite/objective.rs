//! The policy objectives and advantages against the golden values of `tests/golden/rl`.

use std::collections::BTreeMap;

use safetensors::SafeTensors;
use worldloom_train::rl::{
    Aggregation, Correction, CorrectionLevel, CorrectionMode, Denominators, Divergence, Name, Normalisation, Objective,
    Ratio, Sequence, advantages, policy_loss,
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
    let name = match config["loss"].as_str()? {
        "grpo" => Name::Grpo,
        "dapo" => Name::Dapo,
        "bnpo" => Name::Bnpo,
        "dr_grpo" => Name::DrGrpo,
        "cispo" => Name::Cispo,
        "sapo" => Name::Sapo,
        "luspo" => Name::Luspo,
        _ => return None,
    };
    let ratio = match config["level"].as_str()? {
        "token" => Ratio::Token,
        "sequence" => Ratio::Sequence,
        _ => Ratio::SequenceToken,
    };
    let token_truncate = |cap| Correction { level: CorrectionLevel::Token, mode: CorrectionMode::Truncate, cap };
    Some(Objective {
        ratio,
        clip_low: config["eps_low"].as_f64()?,
        clip_high: config["eps_high"].as_f64()?,
        cap: config["eps_high"].as_f64()?,
        gate_positive: config["temp_pos"].as_f64().unwrap_or(1.0),
        // The reference held its temperatures in float32.
        gate_negative: f64::from(config["temp_neg"].as_f64().unwrap_or(1.05) as f32),
        two_sided: config["delta"].as_f64(),
        kl: config["beta"].as_f64()?,
        is_kl_weighted: config["kl_weighted"].as_bool()?,
        correction: config["rollout_cap"].as_f64().map(token_truncate),
        ..Objective::published(name)
    })
}

struct Data {
    rows: Vec<[Vec<f64>; 4]>,
    masks: Vec<Vec<bool>>,
    advantages: Vec<f64>,
}

impl Data {
    fn load(file: &BTreeMap<String, (Vec<usize>, Vec<f64>)>) -> Self {
        let row = |name: &str, row: usize| file[name].1[row * 10..][..10].to_vec();
        let names = ["logps", "old_logps", "ref_logps", "rollout_logps"];
        let rows = (0..6).map(|at| names.map(|name| row(name, at))).collect();
        let masks = (0..6).map(|at| row("mask", at).iter().map(|&value| value > 0.5).collect()).collect();
        Self { rows, masks, advantages: file["advantages"].1.clone() }
    }

    fn sequences(&self) -> Vec<Sequence<'_>> {
        let of = |at: usize| Sequence {
            log_probs: &self.rows[at][0],
            old_log_probs: &self.rows[at][1],
            reference_log_probs: Some(&self.rows[at][2]),
            sampler_log_probs: Some(&self.rows[at][3]),
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
    assert_eq!(compared, 20, "all of them");
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
    let narrow = Objective { kl: 0.3, clip_low: 0.05, clip_high: 0.05, ..Objective::published(Name::Grpo) };
    let correction = |level, mode| Some(Correction { level, mode, cap: 1.02 });
    let objectives = [
        narrow,
        Objective { is_kl_weighted: true, ..narrow },
        Objective { ratio: Ratio::Sequence, is_kl_weighted: true, ..narrow },
        Objective { kl_estimator: Divergence::K1, ..narrow },
        Objective { kl_estimator: Divergence::K2, is_kl_weighted: true, ..narrow },
        Objective { two_sided: Some(1.1), dual_clip: Some(1.05), ..narrow },
        Objective { entropy: 0.2, ..narrow },
        Objective { entropy: 0.2, ratio: Ratio::Sequence, aggregation: Aggregation::SequenceSum, ..narrow },
        Objective { kl: 0.3, gate_positive: 0.8, gate_negative: 1.3, ..Objective::published(Name::Sapo) },
        Objective { ratio: Ratio::Sequence, ..Objective::published(Name::Sapo) },
        Objective { correction: correction(CorrectionLevel::Token, CorrectionMode::Mask), ..narrow },
        Objective { correction: correction(CorrectionLevel::Sequence, CorrectionMode::Truncate), ..narrow },
        Objective { correction: correction(CorrectionLevel::Sequence, CorrectionMode::Mask), ..narrow },
    ];
    for objective in objectives {
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
            assert!((slope - found).abs() < 1e-7, "{objective:?} row {row} token {token}: {found}, slope {slope}");
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
            sampler_log_probs: None,
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
    let sequence = Sequence {
        log_probs: &[],
        old_log_probs: &[],
        reference_log_probs: None,
        sampler_log_probs: None,
        mask: &[],
        advantage: 1.0,
    };
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
fn a_name_decides_what_is_not_given_and_nonsense_is_refused() {
    let read = |text: &str| serde_json::from_str::<Objective>(text).unwrap();
    assert_eq!(read("{}"), Objective::published(Name::Gspo));
    assert_eq!(read(r#"{"name": "dapo"}"#).clip_high, 0.28);
    let departure = read(r#"{"name": "dr_grpo", "clip_high": 0.3, "kl": 0.01, "kl_estimator": "k2"}"#);
    assert_eq!(
        (departure.aggregation, departure.clip_low, departure.clip_high),
        (Aggregation::ConstantLength, 0.2, 0.3)
    );
    // What was resolved reads back as itself.
    let json = serde_json::to_string(&departure).unwrap();
    assert_eq!(serde_json::from_str::<Objective>(&json).unwrap(), departure);
    assert!(serde_json::from_str::<Objective>(r#"{"name": "ppo"}"#).unwrap_err().to_string().contains("dr_grpo"));
    for (field, objective) in [
        ("objective.cap", Objective { cap: 0.2, ..Objective::published(Name::Cispo) }),
        ("objective.two_sided", Objective { two_sided: Some(1.1), ..Objective::published(Name::Grpo) }),
        ("objective.two_sided", Objective { two_sided: Some(2.0), ..Objective::published(Name::Cispo) }),
        ("objective.dual_clip", Objective { dual_clip: Some(0.5), ..Objective::published(Name::Grpo) }),
        ("objective.clip_low", Objective { clip_low: 0.2, ..Objective::published(Name::GspoToken) }),
        ("objective.kl", Objective { kl: -0.1, ..Objective::default() }),
    ] {
        assert!(objective.check().unwrap_err().to_string().contains(field), "{field}");
    }
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
