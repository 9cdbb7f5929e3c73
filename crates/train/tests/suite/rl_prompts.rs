//! Which prompts RL draws, holds out and lets rest, and what it measures from.

use std::collections::BTreeSet;

use worldloom_train::rl::{Objective, PassRates, RlConfig, RlValidation};

use crate::rl_toys::{HELD_OUT, ToyScorer, config, rollouts, run, sampler, train};

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
