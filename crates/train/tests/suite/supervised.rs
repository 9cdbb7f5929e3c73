//! The laws of the supervised loop.

use worldloom_schema::Row;
use worldloom_train::supervised::StageConfig;

use crate::common::{document, largest_difference, metrics, model_config, pack, rows, stage, train, weights};

/// Trains and returns the final weights and the losses.
fn outcome(config: &StageConfig, rows: Vec<Row>) -> (Vec<(String, Vec<f32>)>, Vec<f64>) {
    let out = tempfile::tempdir().unwrap();
    train(config, rows, out.path()).unwrap();
    let losses = metrics(out.path()).iter().map(|line| line["loss"].as_f64().unwrap()).collect();
    (weights(&out.path().join("model")), losses)
}

/// Rounding of float32 sums in another order, amplified by AdamW's quotient over a few steps.
const ROUNDING: f32 = 1e-4;

fn assert_same(first: &(Vec<(String, Vec<f32>)>, Vec<f64>), second: &(Vec<(String, Vec<f32>)>, Vec<f64>)) {
    assert_eq!(first.1.len(), second.1.len());
    for (step, (a, b)) in first.1.iter().zip(&second.1).enumerate() {
        assert!((a - b).abs() < 1e-5, "step {step}: loss {a} and {b}");
    }
    let difference = largest_difference(&first.0, &second.0);
    assert!(difference < ROUNDING, "weights differ by {difference}");
}

#[test]
fn micro_batches_of_any_size_make_the_same_steps() {
    let whole = outcome(&stage(5), rows(13));
    for rows_per_micro_batch in [1, 2, 3] {
        assert_same(&whole, &outcome(&StageConfig { rows_per_micro_batch, ..stage(5) }, rows(13)));
    }
}

#[test]
fn micro_batches_side_by_side_are_the_same_run_bit_for_bit() {
    let with = |micro_batches_at_once| {
        outcome(&StageConfig { micro_batches_at_once, rows_per_micro_batch: 1, ..stage(5) }, rows(13))
    };
    let one = with(1);
    // Four micro-batches a step: in pairs, three and one left, and with a lane to spare.
    for at_once in [2, 3, 8] {
        assert_eq!(with(at_once), one);
    }
}

#[test]
fn targets_that_branch_from_one_history_train_as_rows_of_their_own() {
    let history = document(2, 1, 6, 6, 0.0);
    let branch = |start: u32, length: usize, weight: f32| {
        // The first token of a branch is never a target.
        let own = document(start, 3, length, 1, weight);
        Row { positions: (6..6 + length as u32).collect(), ..own }
    };
    let branches = [branch(1, 5, 1.0), branch(9, 7, 0.5), branch(4, 3, 2.0)];
    let alone = branches.each_ref().map(|branch| Row {
        tokens: [history.tokens.clone(), branch.tokens.clone()].concat(),
        weights: [history.weights.clone(), branch.weights.clone()].concat(),
        positions: (0..(6 + branch.tokens.len()) as u32).collect(),
        segments: vec![0; 6 + branch.tokens.len()],
        ..branch.clone()
    });
    let other = document(3, 2, 9, 2, 1.0);
    let [a, b, c] = branches;
    let shared = Row { continues: vec![-1, 0, 0, 0, -1], ..pack(&[history, a, b, c, other.clone()]) };
    let with = |rows_per_step| StageConfig { rows_per_step, validation: None, ..stage(4) };
    let separate = [alone.as_slice(), &[other]].concat();
    assert_same(&outcome(&with(4), separate), &outcome(&with(1), vec![shared]));
}

#[test]
fn the_last_step_of_an_epoch_takes_what_is_left_with_its_own_denominator() {
    let config = StageConfig {
        steps: None,
        epochs: Some(1.0),
        validation: None,
        rows_per_micro_batch: 1,
        schedule: worldloom_train::Schedule { warmup_steps: 1, ..stage(1).schedule },
        ..stage(1)
    };
    let out = tempfile::tempdir().unwrap();
    train(&config, rows(10), out.path()).unwrap();
    let lines = metrics(out.path());
    let sizes: Vec<u64> = lines.iter().map(|line| line["rows"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [4, 4, 2]);
    let whole = outcome(&StageConfig { rows_per_micro_batch: 4, ..config }, rows(10));
    let tail = lines[2]["loss"].as_f64().unwrap();
    assert!((tail - whole.1[2]).abs() < 1e-5, "tail loss {tail}, {} in one micro-batch", whole.1[2]);
}

#[test]
fn every_row_is_drawn_once_an_epoch() {
    let config = StageConfig { steps: None, epochs: Some(2.0), validation: None, ..stage(1) };
    let out = tempfile::tempdir().unwrap();
    let total: u64 = rows(10).iter().map(|row| row.tokens.len() as u64).sum();
    let report = train(&config, rows(10), out.path()).unwrap();
    assert_eq!((report.steps, report.counts["rows_drawn"], report.counts["tokens"]), (5, 20, 2 * total));
}

#[test]
fn packed_rows_make_the_same_steps_as_their_documents() {
    let documents: Vec<Row> = (0..8).map(|at| document(at * 3, 1, 6 + at as usize, 2, 1.0)).collect();
    let config = StageConfig { rows_per_step: 8, validation: None, ..stage(4) };
    let single = outcome(&config, documents.clone());
    let packed = vec![pack(&documents[..3]), pack(&documents[3..5]), pack(&documents[5..])];
    assert_same(&single, &outcome(&StageConfig { rows_per_step: 3, ..config }, packed));
}

#[test]
fn the_weight_of_a_token_counts_and_not_its_number() {
    let config = StageConfig { validation: None, ..stage(3) };
    let doubled = rows(8).into_iter().map(|mut row| {
        row.weights.iter_mut().for_each(|weight| *weight *= 2.0);
        row
    });
    assert_same(&outcome(&config, rows(8)), &outcome(&config, doubled.collect()));
}

#[test]
fn one_batch_can_be_memorised() {
    let out = tempfile::tempdir().unwrap();
    let config = StageConfig { validation: None, ..stage(300) };
    let optimizer = worldloom_train::OptimizerConfig { learning_rate: 1e-2, ..config.optimizer.clone() };
    let rows: Vec<Row> = (0..4).map(|at| document(at * 7, at + 1, 10, 3, 1.0)).collect();
    let report = train(&StageConfig { optimizer, ..config }, rows, out.path()).unwrap();
    assert!(report.figures["loss"] < 0.02, "loss {} after 300 steps on four rows", report.figures["loss"]);
}

#[test]
fn held_out_rows_are_not_trained_on_and_their_loss_is_weighted_by_tokens() {
    let out = tempfile::tempdir().unwrap();
    let report = train(&stage(8), rows(13), out.path()).unwrap();
    assert_eq!((report.counts["rows"], report.counts["held_out_rows"]), (11, 2));
    let measured: Vec<u64> = metrics(out.path())
        .iter()
        .filter(|line| line.get("validation_loss").is_some())
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(measured, [4, 8]);
    // Before the first update, once: what the start is worth, near the loss of a uniform guess.
    let before: Vec<f64> =
        metrics(out.path()).iter().filter_map(|line| line["validation_before"]["loss"].as_f64()).collect();
    let uniform = (model_config().vocab_size as f64).ln();
    assert!(before.len() == 1 && (before[0] - uniform).abs() < 0.5, "{before:?}, uniform {uniform}");
    // The same rows split into micro-batches of one: a mean of means would differ.
    let split = tempfile::tempdir().unwrap();
    let again = train(&StageConfig { rows_per_micro_batch: 1, ..stage(8) }, rows(13), split.path()).unwrap();
    assert!((report.figures["validation_loss"] - again.figures["validation_loss"]).abs() < 1e-4);
}

#[test]
fn rows_without_targets_are_left_out_and_counted() {
    let mut all = rows(9);
    all[4].weights.fill(0.0);
    let out = tempfile::tempdir().unwrap();
    let report = train(&stage(3), all, out.path()).unwrap();
    assert_eq!((report.counts["rows"], report.counts["untrained_rows"]), (6, 1));
}
