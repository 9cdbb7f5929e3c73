//! The RL loop with a toy sampler and a toy scorer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{Decoder, MatmulPrecision, Precision};
use worldloom_schema::{Rollout, RolloutOutcome};
use worldloom_train::rl::{
    Completion, Draw, Failure, Group, Objective, Overlong, Ratio, RlConfig, RlPrompt, RlStepMetrics, Sampler, Score,
    Scorer,
};
use worldloom_train::{Error, Purpose, split_seed};

use crate::common::{metrics, model_config, weights};
use crate::rl_toys::{
    HELD_OUT, LONGEST, RESTING, STOP, ToySampler, ToyScorer, adapters, config, rollouts, run, sampler, train,
};

#[test]
fn the_reward_rises() {
    for objective in
        [Objective::default(), Objective { ratio: Ratio::Token, clip_low: 0.2, clip_high: 0.2, ..Objective::default() }]
    {
        let out = tempfile::tempdir().unwrap();
        let (_, steps) = run(&RlConfig { objective, ..config(40) }, out.path());
        let mean = |steps: &[RlStepMetrics]| steps.iter().map(|s| s.reward_mean).sum::<f64>() / steps.len() as f64;
        let (first, last) = (mean(&steps[..5]), mean(&steps[35..]));
        assert!(last > first + 10.0, "{:?}: reward {first} at the start and {last} at the end", objective.ratio);
    }
}

#[test]
fn the_sampler_agrees_with_the_trainer_at_any_temperature_and_the_first_ratio_is_one() {
    for temperature in [1.0, 0.7] {
        let out = tempfile::tempdir().unwrap();
        let (_, steps) = run(&RlConfig { temperature, ..config(3) }, out.path());
        for step in steps {
            assert!(step.sampler_gap <= 1e-4 && step.sampler_gap > 0.0, "gap {}", step.sampler_gap);
            assert_eq!(step.first_log_ratio, (step.step == 1).then_some(0.0));
            assert!(step.ratio_max != 1.0, "the second update of a step is off the policy");
        }
    }
}

#[test]
fn a_sampler_of_another_policy_is_refused_with_the_token() {
    let config = config(3);
    for wrong in [ToySampler { temperature: 0.7, error: 0.0 }, ToySampler { temperature: 1.0, error: 1e-3 }] {
        let out = tempfile::tempdir().unwrap();
        let error = train(&config, out.path(), None, wrong, ToyScorer { is_flat: false }).unwrap_err();
        assert!(matches!(error, Error::Mismatch { step: 1, .. }), "{error}");
    }
}

#[test]
fn log_probs_that_are_not_numbers_are_counted_and_replaced_by_the_trainers() {
    let config = config(2);
    let (out, clean) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let broken = ToySampler { temperature: 1.0, error: f32::NAN };
    let (_, steps) = train(&config, out.path(), None, broken, ToyScorer { is_flat: false }).unwrap();
    let tokens = (steps[0].response_length * steps[0].completions as f64).round() as u64;
    assert_eq!(steps[0].non_finite_sampler_log_probs, tokens);
    run(&config, clean.path());
    assert_eq!(weights(&out.path().join("model")), weights(&clean.path().join("model")));
}

#[test]
fn resuming_at_any_step_equals_a_straight_run_bit_for_bit() {
    let plain = RlConfig { refills: 1, ..config(6) };
    let ahead = RlConfig { ahead: true, curriculum: Some(RESTING), ..plain.clone() };
    let objective = Objective { kl: 0.1, ..Objective::default() };
    let measured = RlConfig { validation: Some(HELD_OUT), reference_every: Some(2), objective, ..config(6) };
    let adapted = RlConfig { lora: Some(adapters()), ..measured.clone() };
    for config in [plain, ahead, measured, adapted] {
        let straight = tempfile::tempdir().unwrap();
        run(&config, straight.path());
        for at in 1..6 {
            let out = tempfile::tempdir().unwrap();
            let again = Some(at + 1).filter(|&again| again < 6);
            for stop in [Some(at), again, None] {
                train(&config, out.path(), stop, sampler(&config), ToyScorer { is_flat: false }).unwrap();
            }
            assert_eq!(weights(&out.path().join("model")), weights(&straight.path().join("model")));
            assert_eq!(metrics(out.path()), metrics(straight.path()));
            for step in 1..=6 {
                assert_eq!(rollouts(out.path(), step), rollouts(straight.path(), step));
            }
        }
    }
}

#[test]
fn micro_batches_of_any_size_make_the_same_steps() {
    let (whole, split) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, first) = run(&config(1), whole.path());
    let (_, second) = run(&RlConfig { rows_per_micro_batch: 1, ..config(1) }, split.path());
    assert!((first[0].grad_norm - second[0].grad_norm).abs() < 1e-4 * first[0].grad_norm);
    let difference =
        crate::common::largest_difference(&weights(&whole.path().join("model")), &weights(&split.path().join("model")));
    // Rounding in another order, through the quotient of AdamW's first updates.
    assert!(difference < 1e-3, "weights differ by {difference}");
}

#[test]
fn micro_batches_side_by_side_are_the_same_run_bit_for_bit() {
    let (one, pairs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with = |micro_batches_at_once| RlConfig { rows_per_micro_batch: 1, micro_batches_at_once, ..config(2) };
    run(&with(1), one.path());
    run(&with(2), pairs.path());
    assert_eq!(weights(&pairs.path().join("model")), weights(&one.path().join("model")));
    assert_eq!(metrics(pairs.path()), metrics(one.path()));
}

#[test]
fn blocks_computed_again_make_the_same_updates() {
    let (kept, again) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, first) = run(&config(1), kept.path());
    let (_, second) = run(&RlConfig { recompute: true, ..config(1) }, again.path());
    assert!((first[0].grad_norm - second[0].grad_norm).abs() < 1e-4 * first[0].grad_norm);
    let (kept, again) = (weights(&kept.path().join("model")), weights(&again.path().join("model")));
    assert!(crate::common::largest_difference(&kept, &again) < 1e-3);
}

#[test]
fn completions_that_share_their_prompt_make_the_same_steps_as_rows_of_their_own() {
    let (shared, alone) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (_, first) = run(&config(1), shared.path());
    let (_, second) = run(&RlConfig { share_prompts: false, ..config(1) }, alone.path());
    assert!((first[0].grad_norm - second[0].grad_norm).abs() < 1e-4 * first[0].grad_norm);
    for (a, b) in rollouts(shared.path(), 1).iter().zip(&rollouts(alone.path(), 1)) {
        assert_eq!((&a.tokens, &a.sampled), (&b.tokens, &b.sampled));
        for (a, b) in a.trainer_log_probs.iter().zip(&b.trainer_log_probs) {
            assert!((a - b).abs() < 1e-5, "log-probs {a} and {b}");
        }
    }
    let difference = crate::common::largest_difference(
        &weights(&shared.path().join("model")),
        &weights(&alone.path().join("model")),
    );
    assert!(difference < 1e-3, "weights differ by {difference}");
}

#[test]
fn the_likelihood_of_the_truth_rises_beside_the_reward_and_outside_the_statistics() {
    let (plain, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let with_truth = RlConfig { truth_nll: 0.5, ..config(12) };
    let (_, without) = run(&config(12), plain.path());
    let (_, steps) = run(&with_truth, beside.path());
    assert!(steps[11].truth_nll < steps[0].truth_nll - 0.5, "{} to {}", steps[0].truth_nll, steps[11].truth_nll);
    assert!(without.iter().all(|step| step.truth_nll == 0.0));
    assert!(steps.iter().all(|step| step.completions == 24));
    for (one, other) in rollouts(plain.path(), 1).iter().zip(&rollouts(beside.path(), 1)) {
        assert_eq!((&one.tokens, one.advantage), (&other.tokens, other.advantage));
    }
    // Rows of their own make the same step.
    let alone = tempfile::tempdir().unwrap();
    let (_, own_rows) = run(&RlConfig { share_prompts: false, ..with_truth }, alone.path());
    assert!((own_rows[0].grad_norm - steps[0].grad_norm).abs() < 1e-4 * steps[0].grad_norm);
    assert!((own_rows[0].loss - steps[0].loss).abs() < 1e-5);
}

/// A scorer that is down for a while.
pub(crate) struct Flaky<'a>(pub(crate) ToyScorer, pub(crate) &'a AtomicBool);

impl Scorer for Flaky<'_> {
    fn score(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<Score>>, Failure> {
        if !self.1.load(Ordering::Relaxed) {
            return self.0.score(groups);
        }
        let silent = Score::Unavailable { reason: "no_answer".into() };
        Ok(groups.iter().map(|group| vec![silent.clone(); group.completions.len()]).collect())
    }

    fn text(&self, tokens: &[u32]) -> Option<String> {
        self.0.text(tokens)
    }
}

#[test]
fn a_run_whose_judge_is_down_stops_with_the_reason_and_goes_on_as_if_nothing_had_been() {
    let config = RlConfig { max_unavailable_share: 0.5, ..config(4) };
    let (straight, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    run(&config, straight.path());
    let is_down = AtomicBool::new(true);
    let attempt = |stop_after: Option<u64>| {
        let scorer = Flaky(ToyScorer { is_flat: false }, &is_down);
        train(&config, out.path(), stop_after, sampler(&config), scorer).map(|(report, _)| report)
    };
    let error = attempt(None).unwrap_err();
    assert!(matches!(error, Error::ScorerUnavailable { step: 1, unavailable: 24, .. }), "{error}");
    assert!(error.to_string().contains("no_answer: 24"), "{error}");
    is_down.store(false, Ordering::Relaxed);
    assert!(attempt(Some(2)).unwrap().is_stopped);
    is_down.store(true, Ordering::Relaxed);
    assert!(matches!(attempt(None), Err(Error::ScorerUnavailable { step: 3, .. })));
    is_down.store(false, Ordering::Relaxed);
    attempt(None).unwrap();
    assert_eq!(weights(&out.path().join("model")), weights(&straight.path().join("model")));
    assert_eq!(metrics(out.path()), metrics(straight.path()));
}

#[test]
fn figures_are_kept_by_label_and_the_dump_names_label_and_reason() {
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = run(&config(1), out.path());
    let by_label = &steps[0].by_label;
    assert_eq!(by_label.keys().collect::<Vec<_>>(), ["even", "odd"]);
    assert_eq!(by_label.values().map(|figures| figures.completions).sum::<u64>(), steps[0].completions);
    let faults = |name: &str| by_label[name].faults.values().sum::<u64>();
    assert_eq!(faults("even") + faults("odd"), steps[0].faults.values().sum::<u64>());
    for rollout in rollouts(out.path(), 1) {
        let label = rollout.label.unwrap();
        assert_eq!(rollout.prompt_id[2..].parse::<usize>().unwrap() % 2, usize::from(label == "odd"));
        let reason = match rollout.outcome {
            RolloutOutcome::Scored => None,
            RolloutOutcome::PolicyFault => Some("empty"),
            RolloutOutcome::Unavailable => Some("silent"),
        };
        assert_eq!(rollout.reason.as_deref(), reason);
    }
}

#[test]
fn equal_rewards_push_nothing_and_are_counted() {
    let config = RlConfig { objective: Objective::default(), seed: 8, ..config(1) };
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: true }).unwrap();
    let flat_groups = rollouts(out.path(), 1)
        .chunks(6)
        .filter(|group| group.iter().all(|rollout| rollout.outcome != RolloutOutcome::PolicyFault))
        .count();
    assert!(flat_groups >= 1, "another seed, please: no group without a fault");
    assert_eq!(steps[0].zero_variance_share, flat_groups as f64 / 4.0);
    for rollout in rollouts(out.path(), 1).chunks(6).flatten().filter(|r| r.outcome == RolloutOutcome::Unavailable) {
        assert_eq!((rollout.reward, rollout.advantage), (None, None));
    }
}

#[test]
fn groups_that_teach_nothing_are_replaced_within_the_rounds_allowed() {
    let config = RlConfig { refills: 2, seed: 8, ..config(2) };
    let out = tempfile::tempdir().unwrap();
    let (report, steps) = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: true }).unwrap();
    let refilled: u64 = steps.iter().map(|step| step.refilled_groups).sum();
    assert!(refilled > 0, "another seed, please: every group had a fault");
    assert_eq!(report.counts["prompts_drawn"], 2 * 4 + refilled);
    assert!(steps.iter().all(|step| step.completions == 4 * 6 && step.refilled_groups <= 2 * 4));
    let plain = RlConfig { refills: 0, ..config };
    let (_, without) =
        train(&plain, tempfile::tempdir().unwrap().path(), None, sampler(&plain), ToyScorer { is_flat: true }).unwrap();
    assert!(steps[0].zero_variance_share <= without[0].zero_variance_share);
}

#[test]
fn long_completions_lose_reward_or_leave_the_loss() {
    let outcome = |overlong: Overlong| {
        let out = tempfile::tempdir().unwrap();
        let (_, steps) = run(&RlConfig { overlong, ..config(1) }, out.path());
        (steps[0].clone(), rollouts(out.path(), 1))
    };
    let (_, plain) = outcome(Overlong::Keep);
    let (_, punished) = outcome(Overlong::Penalty { buffer: 2, largest: 5.0 });
    for (plain, punished) in plain.iter().zip(&punished) {
        let length = plain.sampler_log_probs.len();
        let penalty = if plain.outcome == RolloutOutcome::Scored { [0.0, 0.0, 0.0, 2.5, 5.0][length] } else { 0.0 };
        let expected = plain.reward.map(|reward| reward - penalty);
        assert_eq!(punished.reward, expected, "a completion of {length} tokens");
    }
    let (masked, rollouts) = outcome(Overlong::Mask);
    let counts = |rollout: &&Rollout| rollout.stopped && rollout.advantage.is_some();
    let tokens: usize = rollouts.iter().filter(counts).map(|rollout| rollout.sampler_log_probs.len()).sum();
    assert_eq!(masked.trained_tokens, tokens as u64);
    assert!(
        rollouts.iter().any(|rollout| !rollout.stopped && rollout.advantage.is_some()),
        "it stays in the statistics"
    );
    for wrong in [Overlong::Penalty { buffer: 0, largest: 1.0 }, Overlong::Penalty { buffer: 9, largest: 1.0 }] {
        let config = RlConfig { overlong: wrong, ..config(1) };
        let out = tempfile::tempdir().unwrap();
        let error = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: false }).unwrap_err();
        assert!(error.to_string().contains("overlong.buffer"), "{error}");
    }
}

#[test]
fn a_divergence_pulls_back_to_the_starting_weights() {
    let moved = |kl: f64| {
        let out = tempfile::tempdir().unwrap();
        let objective = Objective { kl, ..Objective::default() };
        let (_, steps) = run(&RlConfig { objective, ..config(25) }, out.path());
        steps.last().unwrap().kl
    };
    let (free, held) = (moved(1e-9), moved(1.0));
    assert!(free > 0.0 && held < 0.5 * free, "divergence {free} without a pull and {held} with one");
}

#[test]
fn too_many_faults_at_the_start_are_refused_with_their_reasons_and_the_rollouts_stay() {
    let out = tempfile::tempdir().unwrap();
    let config = RlConfig { max_fault_share_at_start: 0.0, prompts_per_step: 20, ..config(2) };
    let error = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: false }).unwrap_err();
    assert!(matches!(error, Error::FaultsAtStart { completions: 120, .. }), "{error}");
    assert!(error.to_string().contains("empty: "), "{error}");
    assert_eq!(rollouts(out.path(), 1).len(), 120);
}

#[test]
fn the_dump_holds_everything_that_was_decided() {
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = run(&config(2), out.path());
    let all = rollouts(out.path(), 2);
    let mut outcomes: BTreeMap<String, u64> = BTreeMap::new();
    for rollout in &all {
        *outcomes.entry(format!("{:?}", rollout.outcome)).or_default() += 1;
        let sampled = rollout.sampled.iter().filter(|&&sampled| sampled).count();
        assert_eq!((sampled, rollout.trainer_log_probs.len()), (rollout.sampler_log_probs.len(), sampled));
        assert_eq!(rollout.advantage.is_some(), rollout.reward.is_some());
        let tokens = &rollout.tokens[rollout.tokens.len() - sampled..];
        assert_eq!(rollout.text, Some(tokens.iter().map(|token| format!("<{token}>")).collect()));
        assert_eq!(rollout.stopped, tokens.last() == Some(&STOP));
    }
    assert_eq!(all.len() as u64, steps[1].completions);
    assert_eq!(outcomes.get("PolicyFault").copied().unwrap_or(0), steps[1].faults.values().sum::<u64>());
    assert_eq!(outcomes.get("Unavailable").copied().unwrap_or(0), steps[1].unavailable);
    assert_eq!(all.iter().map(|rollout| rollout.staleness).max(), Some(1));
    assert!(all.iter().any(|rollout| rollout.sample == 5));
}

#[test]
fn values_that_cannot_be_meant_are_named() {
    let cases = [
        ("group_size", RlConfig { group_size: 1, ..config(2) }),
        ("temperature", RlConfig { temperature: 0.0, ..config(2) }),
        ("mini_batches", RlConfig { mini_batches: 5, ..config(2) }),
        (
            "objective.clip_low",
            RlConfig { objective: Objective { clip_low: 0.2, ..Objective::default() }, ..config(2) },
        ),
        ("max_fault_share_at_start", RlConfig { max_fault_share_at_start: 1.5, ..config(2) }),
    ];
    for (field, config) in cases {
        let out = tempfile::tempdir().unwrap();
        let error = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: false }).unwrap_err();
        assert!(error.to_string().contains(&format!("`{field}`")), "`{error}` does not name {field}");
    }
    let out = tempfile::tempdir().unwrap();
    let long = RlConfig { max_completion_tokens: 61, ..config(2) };
    let error = train(&long, out.path(), None, sampler(&long), ToyScorer { is_flat: false }).unwrap_err();
    assert!(error.to_string().starts_with("prompt `p#1`: 65"), "{error}");
}

/// Samples with the generation engine, as the program does.
struct EngineSampler {
    temperature: f32,
}

impl Sampler for EngineSampler {
    fn sample(
        &mut self,
        decoder: &Decoder,
        prompts: &[&RlPrompt],
        group_size: usize,
        draw: Draw,
    ) -> Result<Vec<Vec<Completion>>, Failure> {
        let request = |(slot, prompt): (usize, &&RlPrompt)| Request {
            prompt: prompt.tokens.clone(),
            num_completions: group_size,
            seed: split_seed(draw.seed, Purpose::Sampling, slot as u64),
            sampling: Sampling::plain(LONGEST, self.temperature, vec![STOP]),
        };
        let requests: Vec<Request> = prompts.iter().enumerate().map(request).collect();
        Ok(Generator::new(decoder, &model_config())?.generate(&requests, &mut |_, _| {})?)
    }
}

#[test]
fn matrices_in_half_the_bits_keep_the_bound_between_sampler_and_trainer() {
    let config = RlConfig { precision: Precision::BF16, ..config(3) };
    let out = tempfile::tempdir().unwrap();
    let (_, steps) =
        train(&config, out.path(), None, EngineSampler { temperature: 1.0 }, ToyScorer { is_flat: false }).unwrap();
    for step in steps {
        assert!(step.sampler_gap <= 1e-4, "both round the matrices alike and sum in float32: {}", step.sampler_gap);
        assert_eq!(step.first_log_ratio, (step.step == 1).then_some(0.0));
    }
}

#[test]
fn products_of_bfloat16_need_a_wider_bound_between_sampler_and_trainer_and_keep_it() {
    let narrow = RlConfig { matmul_precision: MatmulPrecision::Bf16Emulated, ..config(3) };
    let run = |config: &RlConfig| {
        let out = tempfile::tempdir().unwrap();
        train(config, out.path(), None, EngineSampler { temperature: 1.0 }, ToyScorer { is_flat: false })
    };
    let error = run(&narrow).unwrap_err().to_string();
    assert!(error.contains("max_log_prob_gap") && error.contains("products of bfloat16"), "{error}");
    let (_, steps) = run(&RlConfig { max_log_prob_gap: 0.05, ..narrow }).unwrap();
    for step in steps {
        assert!((1e-5..0.05).contains(&step.sampler_gap), "the sampler computes in float32: {}", step.sampler_gap);
        assert_eq!(step.first_log_ratio, (step.step == 1).then_some(0.0), "the trainer's own log-probs are compared");
    }
}

#[test]
fn the_generation_engine_agrees_with_the_trainer_and_its_reward_rises() {
    for temperature in [1.0f32, 0.7] {
        let config = RlConfig { temperature: f64::from(temperature), ..config(25) };
        let out = tempfile::tempdir().unwrap();
        let (_, steps) =
            train(&config, out.path(), None, EngineSampler { temperature }, ToyScorer { is_flat: false }).unwrap();
        let rewards: Vec<f64> = steps.iter().map(|step| step.reward_mean).collect();
        assert!(rewards[20..].iter().sum::<f64>() > rewards[..5].iter().sum::<f64>() + 15.0, "{rewards:?}");
        assert!(steps.iter().all(|step| step.sampler_gap <= 1e-4));
    }
}
