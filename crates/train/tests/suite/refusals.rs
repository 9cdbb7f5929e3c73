//! What a run refuses, with the facts in the message, and what it leaves untouched.

use worldloom_model::LoraConfig;
use worldloom_schema::{Row, ShardWriter};
use worldloom_train::supervised::{StageConfig, ValidationConfig};
use worldloom_train::{Data, Error, OptimizerConfig, ParameterGroup};

use crate::common::{decoder, parameters, rows, stage, train, train_from, train_until, weights};

fn refusal(config: &StageConfig, rows: Vec<Row>) -> String {
    train(config, rows, tempfile::tempdir().unwrap().path()).unwrap_err().to_string()
}

#[test]
fn a_run_without_targets_does_not_start() {
    let untrained: Vec<Row> = rows(5)
        .into_iter()
        .map(|mut row| {
            row.weights.fill(0.0);
            row
        })
        .collect();
    let config = StageConfig { validation: None, ..stage(4) };
    assert!(refusal(&config, untrained).contains("none of 5 rows"));
    assert!(refusal(&config, Vec::new()).contains("none of 0 rows"));
}

#[test]
fn rows_that_do_not_fit_the_model_are_named() {
    type Change = fn(&mut Row);
    let cases: [(&str, Change); 4] = [
        ("row 3: token id 24, but the model's vocabulary has 24", |row| row.tokens[1] = 24),
        ("row 3: position 64, but the model has 64", |row| row.positions[1] = 64),
        ("row 3: segment 0 continues a later one, 0", |row| row.continues[0] = 0),
        ("row 3: token 2 has weight -1", |row| row.weights[2] = -1.0),
    ];
    for (expected, change) in cases {
        let mut all = rows(6);
        change(&mut all[3]);
        let error = refusal(&stage(4), all);
        assert!(error.contains(expected), "`{error}`, expected `{expected}`");
    }
}

fn grouped(path: &str, learning_rate_scale: f64) -> OptimizerConfig {
    let groups = vec![ParameterGroup { paths: vec![path.into()], learning_rate_scale }];
    OptimizerConfig { groups, ..OptimizerConfig::new(3e-3, 0.1, 1.0) }
}

#[test]
fn config_values_that_cannot_be_meant_are_named() {
    let dropped = LoraConfig { rank: 2, alpha: 2.0, dropout: 0.1, targets: "proj".into() };
    let held_out = |rows| Some(ValidationConfig { every: 2, held_out_rows: rows });
    let cases = [
        ("steps", StageConfig { steps: None, ..stage(4) }),
        ("steps", StageConfig { epochs: Some(1.0), ..stage(4) }),
        ("rows_per_step", StageConfig { rows_per_step: 0, ..stage(4) }),
        ("rows_per_micro_batch", StageConfig { rows_per_micro_batch: 0, ..stage(4) }),
        ("micro_batches_at_once", StageConfig { micro_batches_at_once: 0, ..stage(4) }),
        ("micro_batches_at_once", StageConfig { micro_batches_at_once: 2, lora: Some(dropped), ..stage(4) }),
        ("validation.held_out_rows", StageConfig { validation: held_out(Some(6)), ..stage(4) }),
        ("validation.held_out_rows", StageConfig { validation: held_out(None), ..stage(4) }),
        ("optimizer.learning_rate", StageConfig { optimizer: OptimizerConfig::new(0.0, 0.1, 1.0), ..stage(4) }),
        ("optimizer.clip_norm", StageConfig { optimizer: OptimizerConfig::new(0.1, 0.1, f64::NAN), ..stage(4) }),
        ("optimizer.groups.learning_rate_scale", StageConfig { optimizer: grouped("embed_tokens", -1.0), ..stage(4) }),
        ("optimizer.groups.paths", StageConfig { optimizer: grouped("embedding", 0.5), ..stage(4) }),
        ("schedule.warmup_steps", stage(2)),
    ];
    for (field, config) in cases {
        let error = refusal(&config, rows(6));
        assert!(error.contains(&format!("`{field}`")), "`{error}` does not name {field}");
    }
}

#[test]
fn changed_data_config_or_weights_are_refused_with_what_changed() {
    let out = tempfile::tempdir().unwrap();
    train_until(&stage(10), rows(13), out.path(), Some(4)).unwrap();
    let error = train(&stage(10), rows(12), out.path()).unwrap_err().to_string();
    assert!(error.contains("the data has other content"), "{error}");
    let config = StageConfig { optimizer: OptimizerConfig::new(4e-3, 0.1, 1.0), ..stage(10) };
    let error = train(&config, rows(13), out.path()).unwrap_err().to_string();
    assert!(error.contains("`optimizer.learning_rate` was 0.003, now 0.004"), "{error}");
    let other = decoder().update_parameters(&mut |_, _, values| values[0] += 1.0);
    let error = train_from(&stage(10), other, rows(13), out.path()).unwrap_err().to_string();
    assert!(error.contains("the model has other content"), "{error}");
    assert_eq!(train(&stage(10), rows(13), out.path()).unwrap().steps, 10);
}

/// A run whose second update overflows: its rate is beyond float32.
fn overflowing(every: u64) -> StageConfig {
    StageConfig {
        optimizer: OptimizerConfig { beta1: 0.0, ..OptimizerConfig::new(4e38, 0.0, 1.0) },
        checkpoints: worldloom_train::CheckpointConfig::new(every, 1),
        validation: None,
        ..stage(9)
    }
}

#[test]
fn a_step_that_is_not_finite_stops_the_run_and_leaves_the_last_checkpoint() {
    let out = tempfile::tempdir().unwrap();
    let error = train(&overflowing(1), rows(13), out.path()).unwrap_err();
    assert!(matches!(error, Error::NonFinite { step: 2, .. }), "{error}");
    let kept = out.path().join("checkpoints/step-000001");
    assert!(weights(&kept).iter().all(|(_, values)| values.iter().all(|value| value.is_finite())));
    assert!(!out.path().join("model").exists());
}

#[test]
fn a_loss_that_is_not_finite_names_step_and_rows() {
    let broken = decoder().update_parameters(&mut |path, _, values| {
        if path == "model.norm.weight" {
            values[0] = f32::INFINITY;
        }
    });
    let out = tempfile::tempdir().unwrap();
    let error = train_from(&stage(5), broken, rows(13), out.path()).unwrap_err();
    let Error::NonFinite { step, what, rows } = &error else { panic!("{error}") };
    assert_eq!((*step, what.as_str()), (1, "loss"), "{error}");
    assert!(rows.starts_with("rows ") && rows.matches(',').count() == 3, "{error}");
}

#[test]
fn weights_that_are_not_numbers_never_become_a_checkpoint() {
    let broken = decoder().update_parameters(&mut |path, _, values| {
        if path == "model.norm.weight" {
            values[0] = f32::NAN;
        }
    });
    assert!(parameters(&broken).iter().any(|(_, values)| values.iter().any(|value| value.is_nan())));
    let out = tempfile::tempdir().unwrap();
    let error = train_from(&stage(5), broken, rows(13), out.path()).unwrap_err();
    assert!(matches!(error, Error::NonFinite { step: 1, .. }), "{error}");
    assert!(fs_err::read_dir(out.path().join("checkpoints")).unwrap().next().is_none());
}

#[test]
fn shards_and_their_hash_come_from_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: Vec<Row>| {
        let mut writer = ShardWriter::create(&folder.path().join(name)).unwrap();
        rows.into_iter().for_each(|row| writer.push(row).unwrap());
        writer.finish().unwrap();
    };
    write("00000.shard", rows(3));
    let first = Data::open(folder.path()).unwrap();
    write("00001.shard", rows(2));
    let second = Data::open(folder.path()).unwrap();
    assert_eq!((first.rows.len(), second.rows.len()), (3, 5));
    assert_eq!(second.rows.row(4).unwrap(), rows(2)[1]);
    assert_ne!(first.parts[0].key, second.parts[0].key);
}

#[test]
fn two_runs_at_once_in_one_folder_are_refused() {
    struct Second<'a>(&'a std::path::Path, Option<String>);
    impl worldloom_train::Observer for Second<'_> {
        fn on_start(&mut self, _: &worldloom_train::StartInfo) {
            self.1 = train(&stage(3), rows(13), self.0).err().map(|error| error.to_string());
        }
    }
    let out = tempfile::tempdir().unwrap();
    let (stop, device) = (std::sync::atomic::AtomicBool::new(false), crate::common::device());
    let mut second = Second(out.path(), None);
    let model = crate::common::model_config();
    let job = worldloom_train::Job { decoder: decoder(), model, out: out.path(), device: &device };
    let mut control = worldloom_train::Control { observer: &mut second, stop: &stop };
    worldloom_train::supervised::run(&stage(3), job, &Data::from_rows(rows(13)), None, &mut control).unwrap();
    assert!(second.1.unwrap().contains("another process"));
}
