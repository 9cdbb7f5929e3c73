//! Training adapters: the weights stay, the loss falls, a run goes on where it stopped, and only adapters are stored.

use worldloom_model::LoraConfig;
use worldloom_train::supervised::StageConfig;

use crate::common::{decoder, device, metrics, parameters, rows, stage, train, train_until, weights};

fn lora(steps: u64) -> StageConfig {
    let lora = LoraConfig { rank: 2, alpha: 8.0, dropout: 0.25, targets: "proj".to_owned() };
    StageConfig { lora: Some(lora), ..stage(steps) }
}

#[test]
fn adapters_alone_are_trained_and_stored_and_the_merged_model_is_what_was_trained() {
    let out = tempfile::tempdir().unwrap();
    let config = StageConfig { validation: None, ..lora(40) };
    train(&config, rows(4), out.path()).unwrap();
    let lines = metrics(out.path());
    let loss = |line: usize| lines[line]["loss"].as_f64().unwrap();
    assert!(loss(39) < 0.9 * loss(0), "loss from {} to {}", loss(0), loss(39));
    let merged = weights(&out.path().join("model"));
    let base = parameters(&decoder());
    for ((name, before), (_, after)) in base.iter().zip(&merged) {
        assert_eq!(before != after, name.contains("proj"), "{name}");
    }
    let adapted = decoder().with_adapter(&out.path().join("adapter"), &device()).unwrap();
    assert_eq!(parameters(&adapted), merged);
    let checkpoint = out.path().join("checkpoints/step-000039");
    assert!(checkpoint.join("adapter_model.safetensors").exists() && !checkpoint.join("model.safetensors").exists());
    let bytes = |name: &str| fs_err::metadata(checkpoint.join(name)).unwrap().len();
    let numbers = adapted.num_trained() as u64 * 4;
    assert!(bytes("adapter_model.safetensors") < numbers + 10_000);
    assert!(bytes("optimizer.safetensors") < 2 * numbers + 10_000);
}

#[test]
fn a_stopped_run_with_dropout_goes_on_as_if_it_had_not_stopped() {
    let [straight, stopped] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    train(&lora(7), rows(13), straight.path()).unwrap();
    let (report, _) = train_until(&lora(7), rows(13), stopped.path(), Some(4)).unwrap();
    assert!(report.is_stopped);
    train(&lora(7), rows(13), stopped.path()).unwrap();
    assert_eq!(weights(&straight.path().join("model")), weights(&stopped.path().join("model")));
    let adapters =
        |out: &tempfile::TempDir| fs_err::read(out.path().join("adapter/adapter_model.safetensors")).unwrap();
    assert_eq!(adapters(&straight), adapters(&stopped));
}

#[test]
fn a_run_with_other_adapters_is_another_run() {
    let out = tempfile::tempdir().unwrap();
    train_until(&lora(7), rows(13), out.path(), Some(4)).unwrap();
    let mut other = lora(7);
    other.lora.as_mut().unwrap().rank = 3;
    let error = train(&other, rows(13), out.path()).unwrap_err().to_string();
    assert!(error.contains("`lora.rank` was 2, now 3"), "{error}");
    let error = train(&stage(7), rows(13), out.path()).unwrap_err().to_string();
    assert!(error.contains("`lora`"), "{error}");
}
