//! Matrices in bfloat16: updates are made in float32 and none is lost, a run goes on to the bit, and adapters learn beside
//! a rounded base.

use worldloom_model::{LoraConfig, Precision, SaveDType};
use worldloom_train::OptimizerConfig;
use worldloom_train::supervised::StageConfig;

use crate::common::{decoder, device, metrics, parameters, rows, stage, train, train_until, weights};

fn rounded(steps: u64) -> StageConfig {
    StageConfig { precision: Precision::BF16, ..stage(steps) }
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
    let out = tempfile::tempdir().unwrap();
    train_until(&rounded(7), rows(13), out.path(), Some(4)).unwrap();
    let error = train(&stage(7), rows(13), out.path()).unwrap_err().to_string();
    assert!(error.contains("`precision`"), "{error}");
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
