//! Which prompts RL draws, holds out and lets rest, and what it measures from.

use std::collections::BTreeSet;

use worldloom_train::OptimizerConfig;
use worldloom_train::rl::{Objective, PassRates, RlConfig, RlValidation};

use crate::common::device;
use crate::rl_toys::{HELD_OUT, ToyScorer, adapters, config, log_probs, rollouts, run, sampler, train};

#[test]
fn held_out_prompts_are_measured_and_never_trained() {
    let out = tempfile::tempdir().unwrap();
    let (_, steps) = run(&RlConfig { validation: Some(HELD_OUT), ..config(6) }, out.path());
    let measured: Vec<bool> = steps.iter().map(|step| step.validation.is_some()).collect();
    assert_eq!(measured, [false, false, true, false, false, true]);
    assert_eq!(steps.iter().filter(|step| step.validation_before.is_some()).count(), 1);
    let first = steps[0].validation_before.as_ref().unwrap();
    assert_eq!(first.all.completions, 2 * 3);
    assert_eq!(first.by_label.values().map(|figures| figures.completions).sum::<u64>(), 6);
    let drawn: BTreeSet<String> =
        (1..=6).flat_map(|step| rollouts(out.path(), step)).map(|rollout| rollout.prompt_id).collect();
    assert_eq!(drawn.len(), 4, "all others: {drawn:?}");
    let all = RlConfig { validation: Some(RlValidation { held_out_prompts: 6, ..HELD_OUT }), ..config(1) };
    let error = train(&all, out.path(), None, sampler(&all), ToyScorer { is_flat: false }).unwrap_err().to_string();
    assert!(error.contains("`validation.held_out_prompts`: 6, but there are 6 prompts"), "{error}");
}

#[test]
fn prompts_that_are_always_passed_rest() {
    // Everything passes: a prompt that was drawn is passed over twice before it is drawn again.
    let always = PassRates { pass: -1.0, low: 0.0, high: 0.5, rests: 2 };
    let ids = |config: &RlConfig| {
        let out = tempfile::tempdir().unwrap();
        let (_, steps) = run(config, out.path());
        let of =
            |step| rollouts(out.path(), step).chunks(6).map(|group| group[0].prompt_id.clone()).collect::<Vec<_>>();
        ((1..=config.steps).flat_map(of).collect::<Vec<_>>(), steps)
    };
    let (plain, _) = ids(&config(3));
    let (resting, steps) = ids(&RlConfig { curriculum: Some(always), ..config(3) });
    assert_eq!(plain[..6], resting[..6], "nothing was seen yet");
    assert_ne!(plain[6..], resting[6..]);
    let rested: u64 = steps.iter().map(|step| step.rested_prompts).sum();
    assert!(steps[0].rested_prompts == 0 && rested >= 6, "{rested}");
    // Nothing lies between these: nothing rests.
    let never = PassRates { pass: 0.0, low: 0.0, high: 1.0, rests: 2 };
    assert_eq!(ids(&RlConfig { curriculum: Some(never), ..config(3) }).0, plain);
}

#[test]
fn a_reference_that_is_reset_measures_from_the_policy_of_then() {
    let with = |reference_every| {
        let out = tempfile::tempdir().unwrap();
        let objective = Objective { kl: 1e-9, ..Objective::default() };
        run(&RlConfig { objective, reference_every, mini_batches: 1, ..config(6) }, out.path()).1
    };
    let (kept, reset) = (with(None), with(Some(2)));
    let resets: Vec<bool> = reset.iter().map(|step| step.reference_reset).collect();
    assert_eq!(resets, [false, false, true, false, true, false]);
    for (at, step) in reset.iter().enumerate() {
        match at {
            0 | 2 | 4 => assert!(step.kl.abs() < 1e-12, "step {} starts from the reference: {}", at + 1, step.kl),
            _ => assert!(step.kl > 0.0),
        }
    }
    assert!(kept[4].kl > 2.0 * reset[3].kl, "{} and {}", kept[4].kl, reset[3].kl);
    for (config, why) in [
        (RlConfig { reference_every: Some(2), ..config(2) }, "`objective.kl` is 0"),
        (RlConfig { reference_every: Some(0), ..config(2) }, "at least 1"),
    ] {
        let out = tempfile::tempdir().unwrap();
        let error = train(&config, out.path(), None, sampler(&config), ToyScorer { is_flat: false }).unwrap_err();
        assert!(error.to_string().contains("`reference_every`") && error.to_string().contains(why), "{error}");
    }
}

/// The mean k3 estimate at a step's first update, from its dump and a decoder.
fn divergence(out: &std::path::Path, step: u64, reference: &worldloom_model::Decoder) -> f64 {
    let (mut sum, mut tokens) = (0.0, 0);
    for rollout in rollouts(out, step).iter().filter(|rollout| rollout.advantage.is_some()) {
        let start = rollout.tokens.len() - rollout.trainer_log_probs.len();
        for (&own, other) in rollout.trainer_log_probs.iter().zip(log_probs(reference, &rollout.tokens, start)) {
            let difference = f64::from(own) - other;
            sum += (-difference).exp() + difference - 1.0;
            tokens += 1;
        }
    }
    sum / f64::from(tokens)
}

#[test]
fn adapters_are_measured_from_their_state_at_the_reset() {
    let objective = Objective { kl: 1e-9, ..Objective::default() };
    let optimizer = OptimizerConfig::new(3e-2, 0.0, 1.0);
    let base = RlConfig { objective, optimizer, lora: Some(adapters()), mini_batches: 1, ..config(4) };
    let reset = RlConfig { reference_every: Some(2), ..base.clone() };
    let of = |config: &RlConfig| {
        let out = tempfile::tempdir().unwrap();
        let steps = run(config, out.path()).1;
        (out, steps)
    };
    let ((_, kept), (out, steps)) = (of(&base), of(&reset));
    let resets: Vec<bool> = steps.iter().map(|step| step.reference_reset).collect();
    assert_eq!(resets, [false, false, true, false]);
    assert!(steps[0].kl.abs() < 1e-12 && steps[2].kl.abs() < 1e-12, "{} and {}", steps[0].kl, steps[2].kl);
    // Whole weights with the adapters of step 2 folded in say the same, by another way.
    let (two, _) = of(&RlConfig { steps: 2, ..base });
    let (merged, _) = worldloom_model::load(&two.path().join("model"), &device()).unwrap();
    let expected = divergence(out.path(), 4, &merged);
    assert!(steps[3].kl > 1e-6 && (steps[3].kl - expected).abs() < 1e-3 * expected, "{} and {expected}", steps[3].kl);
    assert!(kept[3].kl > 1.5 * steps[3].kl, "{} and {}", kept[3].kl, steps[3].kl);
    // What is kept of it are adapters.
    let folder = out.path().join("reference/step-000002");
    assert!(folder.join("adapter_model.safetensors").exists() && !folder.join("model.safetensors").exists());
}
