//! Several processes make the run of one, up to the rounding of sums: here the ranks are threads that meet.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex};

use proptest::prelude::*;
use worldloom_model::{Decoder, LoraConfig, ModelConfig};
use worldloom_schema::Row;
use worldloom_train::supervised::{self, StageConfig};
use worldloom_train::{
    CheckpointConfig, Control, Data, Error, GuardConfig, Job, Ranks, Report, Result, Rows, Silent, StepMetrics,
};

use crate::common::{
    Recorder, decoder, device, document, largest_difference, metrics, model_config, rows, stage, train_until, weights,
};

/// Where ranks that are threads meet: the last to come adds up in the order of ranks, then all take the result.
struct Meeting {
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    brought: Vec<Option<Vec<u8>>>,
    result: Vec<u8>,
    taken: usize,
    is_open: bool,
    gone: Option<usize>,
}

struct Thread {
    rank: usize,
    meeting: Arc<Meeting>,
}

impl Thread {
    fn all(count: usize) -> Vec<Thread> {
        let state = Mutex::new(State { brought: vec![None; count], ..State::default() });
        let meeting = Arc::new(Meeting { count, state, changed: Condvar::new() });
        (0..count).map(|rank| Thread { rank, meeting: Arc::clone(&meeting) }).collect()
    }

    /// Brings bytes and takes what `join` makes of everybody's.
    fn meet(&self, bytes: Vec<u8>, join: impl Fn(&[Vec<u8>]) -> Vec<u8>) -> Result<Vec<u8>> {
        let gone = |rank: usize| Error::Rank { rank, detail: "it ended".into() };
        let mut state = self.meeting.state.lock().unwrap();
        while state.is_open {
            state = self.meeting.changed.wait(state).unwrap();
        }
        state.brought[self.rank] = Some(bytes);
        if state.brought.iter().all(Option::is_some) {
            let all: Vec<Vec<u8>> = state.brought.iter_mut().filter_map(Option::take).collect();
            (state.result, state.is_open) = (join(&all), true);
            self.meeting.changed.notify_all();
        }
        while !state.is_open {
            if let Some(rank) = state.gone {
                return Err(gone(rank));
            }
            state = self.meeting.changed.wait(state).unwrap();
        }
        state.taken += 1;
        if state.taken == self.meeting.count {
            (state.taken, state.is_open) = (0, false);
            self.meeting.changed.notify_all();
        }
        Ok(state.result.clone())
    }

    fn sum<T: bytemuck::Pod + std::ops::AddAssign>(&self, values: &mut [T]) -> Result<()> {
        let numbers =
            |bytes: &[u8]| -> Vec<T> { bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect() };
        let sum = self.meet(bytemuck::cast_slice::<T, u8>(values).to_vec(), |all| {
            let mut sum = numbers(&all[0]);
            for other in &all[1..] {
                sum.iter_mut().zip(numbers(other)).for_each(|(sum, value)| *sum += value);
            }
            bytemuck::cast_slice::<T, u8>(&sum).to_vec()
        })?;
        values.copy_from_slice(&numbers(&sum));
        Ok(())
    }
}

impl Ranks for Thread {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.meeting.count
    }

    fn sum_f32(&self, values: &mut [f32]) -> Result<()> {
        self.sum(values)
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<()> {
        self.sum(values)
    }

    fn broadcast(&self, from: usize, bytes: &mut Vec<u8>) -> Result<()> {
        *bytes = self.meet(std::mem::take(bytes), |all| all[from].clone())?;
        Ok(())
    }
}

/// A thread that ends, however it ends, is missed by the others.
impl Drop for Thread {
    fn drop(&mut self) {
        let mut state = self.meeting.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.gone.get_or_insert(self.rank);
        self.meeting.changed.notify_all();
    }
}

/// What one rank does: its number, its ranks; the outcomes in the order of ranks.
fn on_ranks<T: Send>(count: usize, work: impl Fn(&Thread) -> T + Sync) -> Vec<std::thread::Result<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = Thread::all(count).into_iter().map(|rank| scope.spawn(move || work(&rank))).collect();
        running.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    })
}

type Outcome = Result<(Report, Vec<StepMetrics>)>;

/// One rank of a run, from weights of its own.
fn train_one(
    rank: &dyn Ranks,
    config: &StageConfig,
    model: (Decoder, ModelConfig),
    data: &Data,
    out: &Path,
    stop_after: Option<u64>,
) -> Outcome {
    let (stop, device) = (AtomicBool::new(false), device());
    let mut recorder = Recorder { steps: Vec::new(), stop_after, stop: &stop };
    let job = Job { decoder: model.0, model: model.1, out, device: &device };
    let mut control = Control { observer: &mut recorder, stop: &stop };
    let report = supervised::run_on(rank, config, job, data, None, &mut control)?;
    Ok((report, recorder.steps))
}

/// A run on so many ranks; the outcome of each. Only the last one is asked to stop.
fn train_on_ranks(count: usize, config: &StageConfig, rows: &[Row], out: &Path, stop: Option<u64>) -> Vec<Outcome> {
    let outcomes = on_ranks(count, |rank| {
        let stop = stop.filter(|_| rank.rank() + 1 == count);
        let model = (decoder(), model_config());
        train_one(rank, config, model, &Data::from_rows(rows.to_vec()), out, stop)
    });
    outcomes.into_iter().map(|outcome| outcome.unwrap()).collect()
}

fn assert_same_curve(found: &[serde_json::Value], expected: &[serde_json::Value]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        // Float32 sums in another order, over ten updates.
        for (name, tolerance) in [("loss", 1e-4), ("grad_norm", 1e-3), ("validation_loss", 1e-4)] {
            let (a, b) = (found[name].as_f64(), expected[name].as_f64());
            assert_eq!(a.is_some(), b.is_some(), "{name}: {found} {expected}");
            let (a, b) = (a.unwrap_or(0.0), b.unwrap_or(0.0));
            assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{name}: {found} {expected}");
        }
        for name in ["step", "learning_rate", "rows", "tokens", "trained_tokens", "padding"] {
            assert_eq!(found[name], expected[name], "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_number_of_ranks_makes_the_run_of_one_process_up_to_rounding(
        count in 2usize..5,
        rows_per_step in 1usize..6,
        rows_per_micro_batch in 1usize..4,
        micro_batches_at_once in 1usize..3,
    ) {
        let config = StageConfig {
            rows_per_step,
            rows_per_micro_batch,
            micro_batches_at_once,
            steps: None,
            epochs: Some(1.0),
            ..stage(1)
        };
        let (alone, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (expected, _) = train_until(&config, rows(13), alone.path(), None).unwrap();
        let outcomes = train_on_ranks(count, &config, &rows(13), shared.path(), None);
        assert_same_curve(&metrics(shared.path()), &metrics(alone.path()));
        let difference = largest_difference(&weights(&shared.path().join("model")), &weights(&alone.path().join("model")));
        prop_assert!(difference < 1e-4, "weights are {difference} apart");
        for outcome in outcomes {
            let (report, steps) = outcome.unwrap();
            prop_assert_eq!(&report.counts, &expected.counts);
            prop_assert!(steps.iter().all(|step| step.clock.exchange_seconds.is_some()));
        }
    }
}

#[test]
fn the_loss_of_a_step_is_over_the_rows_of_all_ranks_however_unequal_their_weights() {
    // Three rows, of which one has nearly all the weight, on two ranks; and one more rank than there are rows.
    let rows = [document(0, 1, 14, 1, 8.0), document(3, 2, 5, 1, 0.25), document(7, 1, 4, 2, 0.5)];
    let config = StageConfig { rows_per_step: 3, rows_per_micro_batch: 1, validation: None, ..stage(3) };
    let alone = tempfile::tempdir().unwrap();
    let expected = train_until(&config, rows.to_vec(), alone.path(), None).unwrap().1;
    for count in [2, 4] {
        let out = tempfile::tempdir().unwrap();
        for outcome in train_on_ranks(count, &config, &rows, out.path(), None) {
            for (found, expected) in outcome.unwrap().1.iter().zip(&expected) {
                assert!((found.loss - expected.loss).abs() < 1e-5, "{} {}", found.loss, expected.loss);
                assert!((found.grad_norm / expected.grad_norm - 1.0).abs() < 1e-4);
                assert_eq!(found.row_numbers, expected.row_numbers);
            }
        }
    }
}

#[test]
fn masks_of_dropout_and_balances_of_routers_are_those_of_one_process() {
    let lora = LoraConfig { rank: 2, alpha: 8.0, dropout: 0.25, targets: "proj".into() };
    let config = StageConfig { lora: Some(lora), rows_per_micro_batch: 1, ..stage(6) };
    let (alone, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_until(&config, rows(13), alone.path(), None).unwrap();
    train_on_ranks(3, &config, &rows(13), shared.path(), None).into_iter().for_each(|outcome| drop(outcome.unwrap()));
    assert_same_curve(&metrics(shared.path()), &metrics(alone.path()));
    assert!(shared.path().join("adapter/adapter_model.safetensors").exists());

    let experts = || {
        let model = crate::routers::model();
        (Decoder::init(&model, 5, &device()), model)
    };
    let config = StageConfig { validation: None, ..crate::routers::balanced(0.5, 0.01, 1, false) };
    let (alone, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = || Data::from_rows(rows(8));
    train_one(&worldloom_train::Alone, &config, experts(), &data(), alone.path(), None).unwrap();
    for outcome in on_ranks(2, |rank| train_one(rank, &config, experts(), &data(), shared.path(), None)) {
        outcome.unwrap().unwrap();
    }
    assert_same_curve(&metrics(shared.path()), &metrics(alone.path()));
    for (found, expected) in metrics(shared.path()).iter().zip(metrics(alone.path())) {
        for name in ["loss", "busiest"] {
            let number = |line: &serde_json::Value| line["routers"][name].as_f64().unwrap();
            assert!((number(found) / number(&expected) - 1.0).abs() < 1e-3, "{found} {expected}");
        }
    }
}

#[test]
fn a_run_that_one_rank_was_asked_to_stop_goes_on_with_the_same_bytes_or_with_other_ranks() {
    let config = StageConfig { rows_per_micro_batch: 1, ..stage(10) };
    let straight = tempfile::tempdir().unwrap();
    train_on_ranks(2, &config, &rows(13), straight.path(), None).into_iter().for_each(|outcome| drop(outcome.unwrap()));
    let expected = weights(&straight.path().join("model"));
    for then in [2, 3] {
        let out = tempfile::tempdir().unwrap();
        for outcome in train_on_ranks(2, &config, &rows(13), out.path(), Some(4)) {
            let (report, _) = outcome.unwrap();
            assert!(report.is_stopped && report.steps == 4);
        }
        for outcome in train_on_ranks(then, &config, &rows(13), out.path(), None) {
            assert_eq!(outcome.unwrap().1[0].step, 5, "every rank goes on from the checkpoint");
        }
        let found = weights(&out.path().join("model"));
        match then {
            2 => assert_eq!((found, metrics(out.path())), (expected.clone(), metrics(straight.path()))),
            _ => assert!(largest_difference(&found, &expected) < 1e-4),
        }
    }
}

#[test]
fn one_rank_writes_and_the_folder_is_that_of_one_process() {
    let config = StageConfig { checkpoints: CheckpointConfig::new(2, 3), ..stage(5) };
    let (alone, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    train_until(&config, rows(13), alone.path(), None).unwrap();
    train_on_ranks(3, &config, &rows(13), shared.path(), None).into_iter().for_each(|outcome| drop(outcome.unwrap()));
    assert_eq!(files(shared.path(), Path::new("")), files(alone.path(), Path::new("")));
    assert_eq!(metrics(shared.path()).len(), 5, "a line a step, not one a rank");
}

fn files(root: &Path, below: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(root.join(below)).unwrap() {
        let inner = below.join(entry.unwrap().file_name());
        match root.join(&inner).is_dir() {
            true => found.extend(files(root, &inner)),
            false => found.push(inner.to_string_lossy().into_owned()),
        }
    }
    found.sort();
    found
}

/// Rows of which one cannot be read after it was once looked at.
struct Torn(Vec<Row>, std::sync::atomic::AtomicUsize);

impl Rows for Torn {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn row(&self, index: usize) -> Result<Row> {
        let reads = self.1.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        if reads > 2 * self.0.len() {
            return Err(Error::Row { row: index, detail: "the disk is gone".into() });
        }
        Ok(self.0[index].clone())
    }
}

#[test]
fn a_rank_that_fails_ends_the_others_with_its_reason() {
    let out = tempfile::tempdir().unwrap();
    let config = StageConfig { rows_per_micro_batch: 1, validation: None, ..stage(40) };
    let outcomes = on_ranks(3, |rank| {
        let mut data = Data::from_rows(rows(13));
        if rank.rank() == 1 {
            data.rows = Box::new(Torn(rows(13), 0.into()));
        }
        train_one(rank, &config, (decoder(), model_config()), &data, out.path(), None)
    });
    let errors: Vec<Error> = outcomes.into_iter().map(|outcome| outcome.unwrap().unwrap_err()).collect();
    assert!(matches!(errors[1], Error::Row { .. }), "{}", errors[1]);
    for at in [0, 2] {
        let Error::Rank { rank: 1, detail } = &errors[at] else { panic!("{}", errors[at]) };
        assert!(detail.contains("the disk is gone"), "{detail}");
    }
}

#[test]
fn a_rank_that_dies_is_missed_by_the_others() {
    struct Dies;
    impl worldloom_train::Observer for Dies {
        fn on_step(&mut self, metrics: &StepMetrics) {
            assert!(metrics.step < 3, "died on purpose");
        }
    }
    let out = tempfile::tempdir().unwrap();
    let outcomes = on_ranks(2, |rank| {
        let (stop, device) = (AtomicBool::new(false), device());
        let (mut dies, mut lives) = (Dies, Silent);
        let job = Job { decoder: decoder(), model: model_config(), out: out.path(), device: &device };
        let observer: &mut dyn worldloom_train::Observer = if rank.rank() == 1 { &mut dies } else { &mut lives };
        let mut control = Control { observer, stop: &stop };
        supervised::run_on(rank, &stage(40), job, &Data::from_rows(rows(13)), None, &mut control)
    });
    let [first, second] = &outcomes[..] else { panic!("two ranks") };
    assert!(second.is_err(), "rank 1 was to die");
    let error = first.as_ref().unwrap().as_ref().unwrap_err();
    assert!(matches!(error, Error::Rank { rank: 1, .. }), "{error}");
}

#[test]
fn a_loss_that_is_not_finite_on_one_rank_is_skipped_or_refused_by_all() {
    // One embedding row is not a number; adapters beside it, and rows of which one starts with it.
    let model = crate::guards::untied_model();
    let broken = || {
        Decoder::init(&model, 5, &device()).update_parameters(&mut |path, shape, values| {
            if path == "model.embed_tokens.weight" {
                values[23 * shape[1]..24 * shape[1]].fill(f32::NAN);
            }
        })
    };
    let mut rows: Vec<Row> = (0..12).map(|at| document(at, 1, 6, 1, 1.0)).collect();
    rows[2].tokens[0] = 23;
    for (skip_steps, is_fine) in [(0, false), (1, true)] {
        let config = StageConfig {
            epochs: Some(1.0),
            steps: None,
            rows_per_step: 4,
            rows_per_micro_batch: 1,
            lora: Some(LoraConfig { rank: 2, alpha: 4.0, dropout: 0.0, targets: "proj".into() }),
            guards: GuardConfig { skip_steps, ..GuardConfig::default() },
            schedule: worldloom_train::Schedule { warmup_steps: 0, ..stage(1).schedule },
            validation: None,
            ..stage(1)
        };
        let out = tempfile::tempdir().unwrap();
        let data = || Data::from_rows(rows.clone());
        for outcome in
            on_ranks(2, |rank| train_one(rank, &config, (broken(), model.clone()), &data(), out.path(), None))
        {
            match outcome.unwrap() {
                Ok((report, _)) => assert!(is_fine && report.counts["skipped_steps"] == 1),
                Err(Error::NonFinite { rows, .. }) => assert!(!is_fine && rows.contains('2'), "{rows}"),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn ranks_that_were_started_otherwise_are_refused_by_name() {
    let refusal = |change: fn(&mut StageConfig, &mut Vec<Row>, &mut Decoder)| {
        let out = tempfile::tempdir().unwrap();
        let outcomes = on_ranks(2, |rank| {
            let (mut config, mut rows, mut decoder) = (stage(3), rows(13), decoder());
            if rank.rank() == 1 {
                change(&mut config, &mut rows, &mut decoder);
            }
            train_one(rank, &config, (decoder, model_config()), &Data::from_rows(rows), out.path(), None)
        });
        outcomes.into_iter().map(|outcome| outcome.unwrap().unwrap_err().to_string()).collect::<Vec<_>>()
    };
    let errors = [
        ("`seed` was 11, now 12", refusal(|config, _, _| config.seed = 12)),
        ("the data has other content", refusal(|_, rows, _| rows[3].weights[3] = 7.0)),
        (
            "the model has other content",
            refusal(|_, _, decoder| *decoder = Decoder::init(&model_config(), 6, &device())),
        ),
    ];
    for (what, errors) in &errors {
        assert!(errors.iter().all(|error| error.contains("rank 1") && error.contains(what)), "{errors:?}");
    }
}
