//! Matrices in bfloat16: updates are made in float32 and none is lost, a run goes on to the bit, and adapters learn beside
//! a rounded base. And products of bfloat16, which are close to those of float32 in everything and exact in the same things.

use worldloom_model::{LoraConfig, MatmulPrecision, Precision, SaveDType, bf16_unit};
use worldloom_train::OptimizerConfig;
use worldloom_train::supervised::StageConfig;

use crate::common::{decoder, device, metrics, parameters, rows, stage, train, train_until, weights};

fn rounded(steps: u64) -> StageConfig {
    StageConfig { precision: Precision::BF16, ..stage(steps) }
}

fn multiplied(matmul_precision: MatmulPrecision, steps: u64) -> StageConfig {
    StageConfig { matmul_precision, validation: None, ..stage(steps) }
}

#[test]
fn updates_that_bfloat16_cannot_hold_add_up_in_single_precision() {
    let out = tempfile::tempdir().unwrap();
    // Far below half of the last bit of nearly every weight.
    let optimizer = OptimizerConfig::new(1e-6, 0.0, 1.0);
    train(&StageConfig { optimizer, validation: None, ..rounded(8) }, rows(4), out.path()).unwrap();
    let trained = weights(&out.path().join("model"));
    let (mut moved, mut hidden, mut all) = (0, 0, 0);
    for ((_, before), (_, after)) in parameters(&decoder()).iter().zip(&trained) {
        for (&before, &after) in before.iter().zip(after) {
            all += 1;
            moved += usize::from(before != after);
            hidden += usize::from(before != after && SaveDType::BF16.round(before) == SaveDType::BF16.round(after));
            assert!((before - after).abs() < 1e-4);
        }
    }
    assert!(
        moved > all / 2 && hidden > moved / 2,
        "of {all} weights {moved} moved, {hidden} of them unseen in bfloat16"
    );
}

#[test]
fn the_loss_is_that_of_the_rounded_weights_and_falls() {
    let out = tempfile::tempdir().unwrap();
    train(&StageConfig { validation: None, ..rounded(40) }, rows(4), out.path()).unwrap();
    let exact = tempfile::tempdir().unwrap();
    train(&StageConfig { validation: None, ..stage(40) }, rows(4), exact.path()).unwrap();
    let [found, exact] = [out, exact].map(|out| metrics(out.path()));
    let loss = |lines: &[serde_json::Value], line: usize| lines[line]["loss"].as_f64().unwrap();
    assert!(loss(&found, 0) != loss(&exact, 0), "the first loss is of rounded weights");
    assert!((loss(&found, 0) / loss(&exact, 0) - 1.0).abs() < 0.01);
    assert!(loss(&found, 39) < 0.9 * loss(&found, 0));
    assert!((loss(&found, 39) / loss(&exact, 39) - 1.0).abs() < 0.05, "{} {}", loss(&found, 39), loss(&exact, 39));
}

#[test]
fn a_stopped_run_goes_on_as_if_it_had_not_stopped() {
    let lora = LoraConfig { rank: 2, alpha: 4.0, dropout: 0.0, targets: "proj".into() };
    for config in [rounded(7), StageConfig { lora: Some(lora), ..rounded(7) }] {
        let [straight, stopped] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        train(&config, rows(13), straight.path()).unwrap();
        assert!(train_until(&config, rows(13), stopped.path(), Some(4)).unwrap().0.is_stopped);
        train(&config, rows(13), stopped.path()).unwrap();
        assert_eq!(weights(&straight.path().join("model")), weights(&stopped.path().join("model")));
        assert_eq!(metrics(straight.path()), metrics(stopped.path()));
    }
}

#[test]
fn another_precision_is_another_run() {
    for (config, field) in
        [(rounded(7), "`precision`"), (multiplied(MatmulPrecision::Bf16Emulated, 7), "`matmul_precision`")]
    {
        let out = tempfile::tempdir().unwrap();
        train_until(&config, rows(13), out.path(), Some(4)).unwrap();
        let error = train(&StageConfig { validation: config.validation, ..stage(7) }, rows(13), out.path());
        let error = error.unwrap_err().to_string();
        assert!(error.contains(field), "{error}");
    }
}

/// The losses of a training's steps, and its last weights.
fn trained(config: &StageConfig) -> (Vec<f64>, Vec<(String, Vec<f32>)>) {
    let out = tempfile::tempdir().unwrap();
    train(config, rows(13), out.path()).unwrap();
    let losses = metrics(out.path()).iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    (losses, weights(&out.path().join("model")))
}

#[test]
fn products_of_bfloat16_train_as_those_of_float32_do() {
    let [(exact, _), (rounded, _)] =
        [MatmulPrecision::F32, MatmulPrecision::Bf16Emulated].map(|precision| trained(&multiplied(precision, 40)));
    assert!(rounded[0] != exact[0] && rounded[39] < 0.9 * rounded[0], "{rounded:?}");
    for (step, (rounded, exact)) in rounded.iter().zip(&exact).enumerate() {
        assert!((rounded / exact - 1.0).abs() < 0.02, "step {}: {rounded}, float32 {exact}", step + 1);
    }
}

#[test]
fn products_of_bfloat16_give_the_same_bits_stopped_recomputed_and_side_by_side() {
    let config = multiplied(MatmulPrecision::Bf16Emulated, 7);
    let straight = trained(&config);
    let stopped = tempfile::tempdir().unwrap();
    assert!(train_until(&config, rows(13), stopped.path(), Some(4)).unwrap().0.is_stopped);
    train(&config, rows(13), stopped.path()).unwrap();
    assert!(weights(&stopped.path().join("model")) == straight.1, "stopped");
    assert!(trained(&StageConfig { recompute: true, ..config.clone() }) == straight, "recomputed");
    let in_parts = StageConfig { rows_per_micro_batch: 2, ..config };
    let side_by_side = StageConfig { micro_batches_at_once: 2, ..in_parts.clone() };
    assert!(trained(&side_by_side) == trained(&in_parts), "side by side");
}

#[test]
fn the_processor_s_unit_trains_as_its_emulation_or_is_refused() {
    let config = multiplied(MatmulPrecision::Bf16, 10);
    let Some(unit) = bf16_unit() else {
        let error = train(&config, rows(4), tempfile::tempdir().unwrap().path()).unwrap_err().to_string();
        assert!(error.contains("matmul_precision") && error.contains("neither AMX tiles nor AVX512-BF16"), "{error}");
        return println!("no unit for bfloat16 here: its refusal alone was tested");
    };
    let [(found, _), (emulated, _)] =
        [config, multiplied(MatmulPrecision::Bf16Emulated, 10)].map(|config| trained(&config));
    for (found, emulated) in found.iter().zip(&emulated) {
        assert!((found / emulated - 1.0).abs() < 1e-3, "{unit}: {found}, emulated {emulated}");
    }
}

#[test]
fn adapters_learn_beside_a_base_in_bfloat16_that_stays_as_it_is() {
    let out = tempfile::tempdir().unwrap();
    let lora = LoraConfig { rank: 2, alpha: 8.0, dropout: 0.0, targets: "mlp".into() };
    train(&StageConfig { lora: Some(lora), validation: None, ..rounded(10) }, rows(4), out.path()).unwrap();
    let base = decoder().held_in(Precision::BF16);
    let adapted = base.clone().with_adapter(&out.path().join("adapter"), &device()).unwrap();
    assert_eq!(parameters(&adapted), weights(&out.path().join("model")));
    for ((name, before), (_, after)) in parameters(&base).iter().zip(&parameters(&adapted)) {
        assert_eq!(before != after, name.contains("mlp"), "{name}");
    }
}
