//! Where RL's rollouts come from: the policy, the policy of one batch before, another run.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use worldloom_model::Decoder;
use worldloom_schema::Rollout;
use worldloom_train::rl::{
    self, Completion, Correction, CorrectionLevel, CorrectionMode, Draw, Failure, Objective, RlConfig, RlPrompt,
    RlStepMetrics, Sampler,
};
use worldloom_train::{Control, Error, Job, OptimizerConfig};

use crate::common::{decoder, device, metrics, model_config, weights};
use crate::rl::Flaky;
use crate::rl_toys::{
    HELD_OUT, RESTING, ToySampler, ToyScorer, Watcher, config, prompts, rollouts, run, sampler, train,
};

fn replay(config: &RlConfig, out: &Path, stop_after: Option<u64>, from: &Path) -> Result<Vec<RlStepMetrics>, Error> {
    let (stop, device) = (AtomicBool::new(false), device());
    let mut watcher = Watcher { steps: Vec::new(), stop_after, stop: &stop };
    let job = Job { decoder: decoder(), model: model_config(), out, device: &device };
    let mut control = Control { observer: &mut watcher, stop: &stop };
    rl::replay(config, job, &prompts(), from, &mut control)?;
    Ok(watcher.steps)
}

#[test]
fn a_run_on_its_own_rollouts_ends_with_the_same_weights_and_goes_on_after_a_stop() {
    let (straight, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, steps) = run(&config(4), straight.path());
    replay(&config(4), again.path(), Some(2), straight.path()).unwrap();
    let replayed = replay(&config(4), again.path(), None, &straight.path().join("rollouts")).unwrap();
    assert_eq!(weights(&again.path().join("model")), weights(&straight.path().join("model")));
    for (replayed, sampled) in replayed.iter().zip(&steps[2..]) {
        assert_eq!((replayed.staleness, sampled.staleness), (None, Some(0)), "nobody knows");
        assert_eq!((replayed.loss, replayed.sampler_gap), (sampled.loss, sampled.sampler_gap));
        assert_eq!(replayed.by_label, sampled.by_label);
    }
    for step in 1..=4 {
        assert_eq!(rollouts(again.path(), step), rollouts(straight.path(), step));
    }
}

fn is_off_policy(step: &RlStepMetrics) -> bool {
    step.alarms.iter().any(|alarm| alarm == "off_policy")
}

#[test]
fn rollouts_of_other_weights_are_weighed_where_that_is_asked_for_and_an_alarm_where_not() {
    let straight = tempfile::tempdir().unwrap();
    run(&config(3), straight.path());
    let optimizer = OptimizerConfig::new(3e-2, 0.0, 1.0);
    let far = |objective: Objective| {
        let out = tempfile::tempdir().unwrap();
        replay(&RlConfig { optimizer: optimizer.clone(), objective, ..config(3) }, out.path(), None, straight.path())
    };
    let plain = far(Objective::default()).unwrap();
    assert!(!is_off_policy(&plain[0]) && plain[0].sampler_gap <= 1e-4, "the first step is on the policy");
    assert!(is_off_policy(&plain[2]) && plain[2].sampler_gap > 1e-4);
    let correction = Correction { level: CorrectionLevel::Token, mode: CorrectionMode::Truncate, cap: 1.5 };
    let weighed = far(Objective { correction: Some(correction), ..Objective::default() }).unwrap();
    assert!((weighed[0].correction.unwrap() - 1.0).abs() < 1e-4);
    assert!(weighed[2].correction.unwrap() < 1.5 && weighed[2].correction_max.unwrap() > 1.0);
    assert!(!is_off_policy(&weighed[2]));
}

#[test]
fn what_cannot_be_replayed_is_named() {
    let (straight, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&config(2), straight.path());
    let error = |config: RlConfig, from: &Path| replay(&config, out.path(), None, from).unwrap_err().to_string();
    assert!(error(config(3), straight.path()).contains("`steps`: 3, but there are rollouts of 2"));
    for (field, config) in [
        ("ahead", RlConfig { ahead: true, ..config(2) }),
        ("validation", RlConfig { validation: Some(HELD_OUT), ..config(2) }),
        ("curriculum", RlConfig { curriculum: Some(RESTING), ..config(2) }),
        ("refills", RlConfig { refills: 1, ..config(2) }),
    ] {
        assert!(error(config, straight.path()).contains(&format!("`{field}`")), "{field}");
    }
    let short = error(RlConfig { max_completion_tokens: 1, ..config(2) }, straight.path());
    assert!(short.contains("step-000001.parquet") && short.contains("`max_completion_tokens`, 1"), "{short}");
    let dump = straight.path().join("rollouts/step-000001.parquet");
    let change = |change: fn(&mut Rollout)| {
        let mut all: Vec<Rollout> = worldloom_schema::read_table(&dump).unwrap();
        let before = all.clone();
        change(&mut all[7]);
        worldloom_schema::write_table(&dump, all).unwrap();
        let found = error(config(2), straight.path());
        worldloom_schema::write_table(&dump, before).unwrap();
        found
    };
    let unknown = change(|rollout| rollout.prompt_id = "q".into());
    assert!(unknown.contains("row 7") && unknown.contains("`prompt_id` is `q`"), "{unknown}");
    assert!(change(|rollout| rollout.tokens[0] = 30).contains("row 7: `tokens`"));
    assert!(error(config(2), out.path()).contains("no rollouts"));
}

#[test]
fn the_next_batch_is_sampled_with_the_weights_before_this_one_and_weighed_for_it() {
    let (ahead, still) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, steps) = run(&RlConfig { ahead: true, ..config(3) }, ahead.path());
    // Weights that stay where they are.
    run(&RlConfig { optimizer: OptimizerConfig::new(1e-30, 0.0, 1.0), ..config(2) }, still.path());
    for step in [1, 2] {
        for (ahead, still) in rollouts(ahead.path(), step).iter().zip(&rollouts(still.path(), step)) {
            assert_eq!((&ahead.tokens, &ahead.sampler_log_probs), (&still.tokens, &still.sampler_log_probs));
        }
    }
    assert_eq!(steps.iter().map(|step| step.staleness).collect::<Vec<_>>(), [Some(0), Some(1), Some(1)]);
    assert!(steps[0].sampler_gap <= 1e-4 && steps[1].sampler_gap > 1e-4, "the trainer has moved on");
    assert!(steps[0].correction.is_none() && steps[1].correction.is_some() && !is_off_policy(&steps[1]));
    assert!(steps[0].first_log_ratio == Some(0.0));
    let staleness = |step| rollouts(ahead.path(), step).iter().map(|rollout| rollout.staleness).collect::<Vec<_>>();
    assert_eq!((staleness(1).iter().max(), staleness(2).iter().min()), (Some(&1), Some(&2)), "in updates");
    let plain = tempfile::tempdir().unwrap();
    let (_, uncorrected) = run(&RlConfig { ahead: true, correct_stale: false, ..config(3) }, plain.path());
    assert!(uncorrected[1].correction.is_none() && is_off_policy(&uncorrected[1]));
}

#[test]
fn the_reward_rises_one_step_off_the_policy_too() {
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = run(&RlConfig { ahead: true, ..config(40) }, out.path());
    let mean = |steps: &[RlStepMetrics]| steps.iter().map(|s| s.reward_mean).sum::<f64>() / steps.len() as f64;
    let (first, last) = (mean(&steps[..5]), mean(&steps[35..]));
    assert!(last > first + 10.0, "reward {first} at the start and {last} at the end");
}

/// Says that its weights are old.
struct Stale(ToySampler, u64);

impl Sampler for Stale {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        self.0.sample(decoder, prompts, group_size, draw)
    }

    fn staleness(&self) -> u64 {
        self.1
    }
}

#[test]
fn weights_that_are_too_old_are_refused() {
    let with = |config: RlConfig, age: u64| {
        let out = tempfile::tempdir().unwrap();
        train(&config, out.path(), None, Stale(sampler(&config), age), ToyScorer { is_flat: false })
    };
    let (_, steps) = with(config(2), 1).unwrap();
    assert!(steps.iter().all(|step| step.staleness == Some(1) && step.correction.is_some()));
    let error = with(config(2), 2).unwrap_err().to_string();
    assert!(error.contains("2 batches old") && error.contains("`max_staleness` allows 1"), "{error}");
    assert!(with(RlConfig { ahead: true, ..config(2) }, 1).unwrap_err().to_string().contains("2 batches old"));
    assert!(with(RlConfig { ahead: true, max_staleness: 2, ..config(2) }, 1).is_ok());
    let never = RlConfig { ahead: true, max_staleness: 0, ..config(2) };
    assert!(with(never, 0).unwrap_err().to_string().contains("`max_staleness`"));
}

#[test]
fn a_batch_ahead_that_the_judge_missed_is_scored_when_it_is_back() {
    let config = RlConfig { max_unavailable_share: 0.5, ahead: true, ..config(5) };
    let (straight, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&config, straight.path());
    let is_down = AtomicBool::new(false);
    let attempt = |stop_after: Option<u64>| {
        let scorer = Flaky(ToyScorer { is_flat: false }, &is_down);
        train(&config, out.path(), stop_after, sampler(&config), scorer).map(|(report, _)| report)
    };
    assert!(attempt(Some(2)).unwrap().is_stopped);
    is_down.store(true, Ordering::Relaxed);
    // Step 3 was scored while step 2 trained; step 4 was not.
    assert!(matches!(attempt(None), Err(Error::ScorerUnavailable { step: 4, unavailable: 24, .. })));
    assert!(matches!(attempt(None), Err(Error::ScorerUnavailable { step: 4, .. })), "it is still down");
    is_down.store(false, Ordering::Relaxed);
    attempt(None).unwrap();
    assert_eq!(weights(&out.path().join("model")), weights(&straight.path().join("model")));
    assert_eq!(metrics(out.path()), metrics(straight.path()));
}
