//! Laws of the loss, the order and the schedule, on random rows.

use proptest::prelude::*;
use worldloom_schema::Row;
use worldloom_train::supervised::StageConfig;
use worldloom_train::{Attribute, Batch, Curriculum, Data, OptimizerConfig, Schedule, Shape, StepMetrics};

use crate::common::{decoder, device, document, pack, stage, train_on};

fn any_rows(count: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Row>> {
    let row = (0u32..24, 1u32..5, 3usize..14, 0usize..3, 1u32..9);
    let row = row.prop_map(|(start, stride, length, context, weight)| {
        document(start, stride, length, context, weight as f32 / 4.0)
    });
    proptest::collection::vec(row, count)
}

/// Losses and gradient norms of a run.
fn run(config: &StageConfig, data: &Data) -> Vec<StepMetrics> {
    let out = tempfile::tempdir().unwrap();
    train_on(config, data, out.path(), None).unwrap().1
}

/// One epoch with no warm-up and no validation.
fn epoch(rows_per_step: usize, rows_per_micro_batch: usize) -> StageConfig {
    StageConfig {
        steps: None,
        epochs: Some(1.0),
        rows_per_step,
        rows_per_micro_batch,
        validation: None,
        schedule: Schedule { shape: Shape::Constant, warmup_steps: 0, floor: None, decay_steps: None },
        optimizer: OptimizerConfig::new(1e-3, 0.1, 1.0),
        ..stage(1)
    }
}

/// `Σ w·nll / Σ w` over rows, one by one and in float64.
fn loss_of(rows: &[Row]) -> f64 {
    let (decoder, device) = (decoder(), device());
    let sum: f64 = rows
        .iter()
        .map(|row| {
            let log_probs = Batch::new(&[row], 1.0).log_probs(&decoder, 1.0, &device).remove(0);
            let weights = row.weights.iter().filter(|weight| **weight != 0.0);
            -weights.zip(log_probs).map(|(&w, log_prob)| f64::from(w) * f64::from(log_prob)).sum::<f64>()
        })
        .sum();
    sum / rows.iter().map(Row::total_weight).sum::<f64>()
}

fn is_close(a: f64, b: f64) -> bool {
    // Float32 sums in another order.
    (a - b).abs() <= 2e-5 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_first_loss_is_the_weighted_mean_over_the_whole_step_however_it_is_split(
        rows in any_rows(2..9),
        rows_per_micro_batch in 1usize..9,
        recompute: bool,
    ) {
        let config = StageConfig { recompute, ..epoch(rows.len(), rows_per_micro_batch) };
        let steps = run(&config, &Data::from_rows(rows.clone()));
        prop_assert_eq!(steps.len(), 1);
        let expected = loss_of(&rows);
        prop_assert!(is_close(steps[0].loss, expected), "{} but Σ w·nll / Σ w is {expected}", steps[0].loss);
    }

    #[test]
    fn a_shorter_last_step_and_any_split_make_the_same_losses_and_norms(
        rows in any_rows(5..10),
        rows_per_step in 2usize..5,
        splits in (1usize..5, 1usize..5),
    ) {
        let data = Data::from_rows(rows);
        let (first, second) = (run(&epoch(rows_per_step, splits.0), &data), run(&epoch(rows_per_step, splits.1), &data));
        prop_assert_eq!(first.len(), second.len());
        for (a, b) in first.iter().zip(&second) {
            prop_assert!((a.loss - b.loss).abs() < 1e-4 && (a.grad_norm - b.grad_norm).abs() < 1e-3, "{a:?} {b:?}");
        }
    }

    #[test]
    fn packing_changes_neither_loss_nor_gradient(rows in any_rows(3..9), cut in 1usize..3) {
        let alone = run(&epoch(rows.len(), 2), &Data::from_rows(rows.clone()));
        let packed = vec![pack(&rows[..cut]), pack(&rows[cut..])];
        let together = run(&epoch(2, 2), &Data::from_rows(packed));
        prop_assert!(is_close(alone[0].loss, together[0].loss), "{} alone, {} packed", alone[0].loss, together[0].loss);
        prop_assert!((alone[0].grad_norm - together[0].grad_norm).abs() < 1e-3 * alone[0].grad_norm.max(1.0));
        prop_assert_eq!(alone[0].trained_tokens, together[0].trained_tokens);
    }

    #[test]
    fn computing_blocks_again_changes_no_bit_of_one_micro_batch(rows in any_rows(2..6)) {
        let data = Data::from_rows(rows.clone());
        let config = epoch(rows.len(), rows.len());
        let (plain, again) = (run(&config, &data), run(&StageConfig { recompute: true, ..config }, &data));
        prop_assert_eq!(plain[0].loss.to_bits(), again[0].loss.to_bits());
        prop_assert_eq!(plain[0].grad_norm.to_bits(), again[0].grad_norm.to_bits());
    }

    #[test]
    fn no_rate_is_zero_or_above_the_peak_and_the_last_is_not_below_the_floor(
        warmup_steps in 0u64..20,
        rest in 1u64..200,
        floor in 0.0f64..1.0,
        decay in 0.0f64..1.0,
    ) {
        let total = warmup_steps + rest;
        let decay_steps = Some(((rest as f64 * decay) as u64).max(1));
        for (shape, floor, decay_steps) in [
            (Shape::Constant, None, None),
            (Shape::Linear, Some(floor), None),
            (Shape::Cosine, Some(floor), None),
            (Shape::WarmupStableDecay, Some(floor.max(1e-6)), decay_steps),
        ] {
            let schedule = Schedule { shape, warmup_steps, floor, decay_steps };
            schedule.check(total).unwrap();
            for step in 0..total {
                let rate = schedule.rate(1.0, step, total);
                prop_assert!(rate > 0.0 && rate <= 1.0, "{shape:?} step {step} of {total}: {rate}");
                prop_assert!(step < warmup_steps || rate >= floor.unwrap_or(1.0) - 1e-12);
            }
        }
    }
}

/// Rows of one length each, told apart by their first token.
fn part(first: u32, count: u32, length: usize) -> Data {
    Data::from_rows((0..count).map(|at| document((first + at) % 24, 1, length + at as usize % 3, 1, 1.0)).collect())
}

fn mixed(weights: [f64; 2]) -> (StageConfig, Data) {
    let data = Data::mix(vec![("rows".into(), part(0, 12, 5)), ("rows-2".into(), part(12, 7, 11))]);
    let mixture = ["rows", "rows-2"].map(String::from).into_iter().zip(weights).collect();
    (StageConfig { mixture: Some(mixture), validation: None, ..stage(60) }, data)
}

#[test]
fn a_mixture_is_realised_by_tokens_within_a_hundredth_and_reported() {
    for weights in [[1.0, 1.0], [3.0, 1.0], [1.0, 9.0]] {
        let (config, data) = mixed(weights);
        let out = tempfile::tempdir().unwrap();
        let (report, steps) = train_on(&config, &data, out.path(), None).unwrap();
        let wanted = weights[1] / (weights[0] + weights[1]);
        let realised = report.figures["mixture.rows-2"];
        assert!((realised - wanted).abs() < 0.01, "{realised} realised, {wanted} wanted");
        let second: u64 = steps.iter().map(|step| step.parts["rows-2"]).sum();
        assert_eq!(second, report.counts["tokens of rows-2"]);
    }
}

#[test]
fn a_mixture_goes_on_after_a_stop_with_the_same_rows() {
    let (config, data) = mixed([2.0, 1.0]);
    let (straight, stopped) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = train_on(&config, &data, straight.path(), None).unwrap().1;
    let mut found = train_on(&config, &data, stopped.path(), Some(17)).unwrap().1;
    found.extend(train_on(&config, &data, stopped.path(), None).unwrap().1);
    let numbers = |steps: &[StepMetrics]| steps.iter().map(|step| step.row_numbers.clone()).collect::<Vec<_>>();
    assert_eq!(numbers(&expected), numbers(&found));
}

#[test]
fn mixtures_that_name_other_rows_or_none_are_refused() {
    let refusal = |change: fn(&mut StageConfig)| {
        let (mut config, data) = mixed([1.0, 1.0]);
        change(&mut config);
        let out = tempfile::tempdir().unwrap();
        train_on(&config, &data, out.path(), None).unwrap_err().to_string()
    };
    assert!(refusal(|config| config.mixture = None).contains("give a weight to each of rows, rows-2"));
    let unknown = refusal(|config| {
        config.mixture.as_mut().unwrap().insert("rows-9".into(), 1.0);
    });
    assert!(unknown.contains("`mixture.rows-9`") && unknown.contains("rows, rows-2"), "{unknown}");
    let zero = refusal(|config| {
        config.mixture.as_mut().unwrap().insert("rows".into(), 0.0);
    });
    assert!(zero.contains("`mixture.rows`"), "{zero}");
}

#[test]
fn a_curriculum_goes_through_its_bins_and_visits_every_row_once_an_epoch() {
    let rows: Vec<Row> = (0..24).map(|at| document(at, 1, 4 + (at as usize * 5) % 9, 1, 1.0)).collect();
    let curriculum = Curriculum { by: Attribute::Tokens, bins: 3, epochs: 1, descending: false };
    let config = |descending| StageConfig {
        epochs: Some(2.0),
        curriculum: Some(Curriculum { descending, ..curriculum }),
        ..epoch(4, 4)
    };
    for descending in [false, true] {
        let steps = run(&config(descending), &Data::from_rows(rows.clone()));
        let lengths = |steps: &[StepMetrics]| -> Vec<usize> {
            steps.iter().flat_map(|step| &step.row_numbers).map(|&row| rows[row].tokens.len()).collect()
        };
        let mean = |part: &[usize]| part.iter().sum::<usize>() as f64 / part.len() as f64;
        let means: Vec<f64> = lengths(&steps[..6]).chunks(8).map(mean).collect();
        let is_sorted = means.is_sorted_by(|a, b| if descending { a >= b } else { a <= b });
        assert!(is_sorted && means[0] != means[2], "{means:?}");
        for epoch in steps.chunks(6) {
            let mut numbers: Vec<usize> = epoch.iter().flat_map(|step| step.row_numbers.clone()).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, (0..24).collect::<Vec<_>>());
        }
    }
}
