//! What is refused before the first step, what is flagged and what may be skipped.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use worldloom_model::{Decoder, LoraConfig, ModelConfig};
use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{
    CheckpointConfig, Control, Data, Error, GuardConfig, Job, Labels, Lost, OptimizerConfig, Report, Silent,
};

use crate::common::{device, document, metrics, rows, stage, train_on};

fn refusal(config: &StageConfig, data: &Data) -> String {
    let out = tempfile::tempdir().unwrap();
    let error = train_on(config, data, out.path(), None).unwrap_err();
    assert!(!out.path().join("checkpoints").exists(), "refused only after the run was opened");
    error.to_string()
}

#[test]
fn stop_tokens_that_are_never_a_target_are_refused() {
    let mut all = rows(8);
    for row in &mut all {
        row.tokens.push(23);
        row.weights.push(0.0);
        row.positions.push(row.positions.len() as u32);
        row.segments.push(0);
    }
    let data = |all: &[Row]| Data { stop_tokens: vec![23], ..Data::from_rows(all.to_vec()) };
    // Other tokens of these rows may be 23 with a weight.
    all.iter_mut()
        .flat_map(|row| row.tokens.iter_mut().rev().skip(1))
        .filter(|token| **token == 23)
        .for_each(|t| *t = 1);
    let error = refusal(&stage(3), &data(&all));
    assert!(error.contains("(23) occur 8 times and are never a target"), "{error}");
    let lenient = StageConfig { guards: GuardConfig { stop_targets: false, ..GuardConfig::default() }, ..stage(3) };
    let out = tempfile::tempdir().unwrap();
    train_on(&lenient, &data(&all), out.path(), None).unwrap();
    *all[5].weights.last_mut().unwrap() = 1.0;
    let out = tempfile::tempdir().unwrap();
    train_on(&stage(3), &data(&all), out.path(), None).unwrap();
}

#[test]
fn rows_that_lost_or_mask_too_much_are_refused_with_the_figures() {
    let lost = Lost { path: "rows".into(), tokens: 30, of: 100 };
    let data = |lost: Lost| Data { lost: vec![lost], ..Data::from_rows(rows(8)) };
    let error = refusal(&stage(3), &data(lost.clone()));
    assert!(error.contains("30 of 100 rendered tokens") && error.contains("0.25"), "{error}");
    let out = tempfile::tempdir().unwrap();
    train_on(&stage(3), &data(Lost { tokens: 25, ..lost }), out.path(), None).unwrap();

    let mut all = rows(9);
    all.iter_mut().take(5).for_each(|row| row.weights.fill(0.0));
    let error = refusal(&stage(3), &Data::from_rows(all));
    assert!(error.contains("5 of 9 rows have no target"), "{error}");
}

#[test]
fn guards_that_cannot_be_meant_are_named() {
    let with = |guards| StageConfig { guards, ..stage(3) };
    for (field, guards) in [
        ("guards.spike", GuardConfig { spike: 0.0, ..GuardConfig::default() }),
        ("guards.max_lost_share", GuardConfig { max_lost_share: 1.5, ..GuardConfig::default() }),
        ("guards.max_untrained_share", GuardConfig { max_untrained_share: f64::NAN, ..GuardConfig::default() }),
    ] {
        let error = refusal(&with(guards), &Data::from_rows(rows(8)));
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
    let checkpoints = CheckpointConfig { keep_every: Some(4), ..CheckpointConfig::new(3, 1) };
    assert!(refusal(&StageConfig { checkpoints, ..stage(3) }, &Data::from_rows(rows(8))).contains("keep_every"));
    let checkpoints = CheckpointConfig { keep_best: true, ..CheckpointConfig::new(3, 1) };
    let config = StageConfig { checkpoints, validation: None, ..stage(3) };
    assert!(refusal(&config, &Data::from_rows(rows(8))).contains("keep_best"));
}

pub(crate) fn untied_model() -> ModelConfig {
    let text = serde_json::json!({
        "model_type": "qwen3", "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rope_theta": 10000.0,
        "max_position_embeddings": 64, "tie_word_embeddings": false, "initializer_range": 0.1,
    });
    ModelConfig::from_json(&text.to_string()).unwrap()
}

/// Adapters beside weights of which one embedding row is not a number, and rows of which one starts with it.
fn with_one_bad_row(skip_steps: u64, out: &Path) -> Result<Report, Error> {
    let (model, device) = (untied_model(), device());
    let decoder = Decoder::init(&model, 5, &device).update_parameters(&mut |path, shape, values| {
        if path == "model.embed_tokens.weight" {
            values[23 * shape[1]..24 * shape[1]].fill(f32::NAN);
        }
    });
    let mut rows: Vec<Row> = (0..12).map(|at| document(at, 1, 6, 1, 1.0)).collect();
    rows[2].tokens[0] = 23;
    let config = StageConfig {
        steps: None,
        epochs: Some(1.0),
        rows_per_step: 1,
        lora: Some(LoraConfig { rank: 2, alpha: 4.0, dropout: 0.0, targets: "proj".into() }),
        guards: GuardConfig { skip_steps, ..GuardConfig::default() },
        checkpoints: CheckpointConfig::new(1, 20),
        validation: None,
        ..stage(1)
    };
    let (stop, job) = (AtomicBool::new(false), Job { decoder, model, out, device: &device });
    supervised::run(&config, job, &Data::from_rows(rows), None, &mut Control { observer: &mut Silent, stop: &stop })
}

#[test]
fn a_step_that_is_not_finite_is_skipped_within_the_budget_and_changes_no_weight() {
    let out = tempfile::tempdir().unwrap();
    let error = with_one_bad_row(0, out.path()).unwrap_err();
    let Error::NonFinite { step, rows, .. } = &error else { panic!("{error}") };
    assert_eq!(rows, "rows 2");
    // One more is let pass: the run goes on from its last checkpoint and ends.
    let out = tempfile::tempdir().unwrap();
    let report = with_one_bad_row(1, out.path()).unwrap();
    assert_eq!((report.steps, report.counts["skipped_steps"]), (12, 1));
    let line = &metrics(out.path())[*step as usize - 1];
    assert!(line["skipped"] == true && line["loss"].is_null(), "{line}");
    let adapter = |step: u64| {
        let folder = out.path().join(format!("checkpoints/step-{step:06}"));
        ["adapter_model.safetensors", "optimizer.safetensors"].map(|name| fs_err::read(folder.join(name)).unwrap())
    };
    assert!(adapter(*step) == adapter(*step - 1), "the skipped step changed weights or moments");
    assert!(adapter(*step) != adapter(*step + 1));
}

#[test]
fn validation_tells_domains_bytes_and_exact_answers_apart() {
    // Every row twice, so that what is held out can be learnt from its twin.
    let mut all: Vec<Row> = (0..12).map(|at| document(at % 6 * 3, 1, 12, 2, 1.0)).collect();
    all.iter_mut().enumerate().for_each(|(at, row)| row.sources = vec![format!("source-{}", at % 6)]);
    let labels = Labels {
        token_bytes: vec![2; 24],
        domains: (0..6).map(|at| (format!("source-{at}"), if at < 4 { "terminal" } else { "web" }.into())).collect(),
    };
    let data = Data { labels: Some(labels), ..Data::from_rows(all.clone()) };
    let optimizer = OptimizerConfig { learning_rate: 1e-2, ..stage(1).optimizer };
    let config = StageConfig { optimizer, ..stage(200) };
    let out = tempfile::tempdir().unwrap();
    let (report, steps) = train_on(&config, &data, out.path(), None).unwrap();
    let measured: Vec<_> = steps.iter().filter_map(|step| step.validation.as_ref()).collect();
    let (first, last) = (measured[0], measured[measured.len() - 1]);
    assert_eq!(first.all.answers, 2);
    let answers: u64 = first.domains.values().map(|score| score.answers).sum();
    assert_eq!(answers, 2);
    // Every token has two bytes, so bits per byte are half the loss in bits.
    let bits = first.all.loss / std::f64::consts::LN_2 / 2.0;
    assert!((first.all.bits_per_byte.unwrap() - bits).abs() < 1e-6);
    assert!(last.all.loss < first.all.loss && last.all.entropy < first.all.entropy);
    assert_eq!(last.all.exact, 1.0, "rows are memorised in 200 steps: {last:?}");
    assert_eq!(report.figures["validation_exact"], 1.0);
}
