//! Long horizons: a script of actions played inside the world model on its own predictions, beside what the real
//! environment answered to the same script.
//!
//! The other measures give the model the true history at every turn. Here it lives with what it said: a wrong listing
//! stays wrong. Of a recorded episode the actions are the script, and its observations are what the real environment
//! answers to it ([`play`]). Who has the real environment at hand plays any script inside the model ([`play_inside`]),
//! performs its actions there, and lays one beside the other ([`compare`], [`summary`]).

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use worldloom_judge::{clustered_mean, normalised_match};
use worldloom_schema::{Interval, ObservationKind, Trajectory};

use crate::engine::Engine;
use crate::episode::{Episode, Play, Scenario};
use crate::error::{Error, Result};

/// What one script came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Played {
    /// The episode.
    pub trajectory_id: String,
    /// Per step: whether the observations agree after masking.
    pub agrees: Vec<bool>,
    /// Steps without a usable prediction.
    pub faults: u64,
    /// The first step that does not agree, from 0.
    pub first_divergence: Option<u64>,
}

/// What many scripts came to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Horizon {
    /// Episodes played.
    pub episodes: u64,
    /// Steps in all.
    pub steps: u64,
    /// Steps without a usable prediction.
    pub faults: u64,
    /// Share of steps that agree, with its interval by episode.
    pub agreement: Interval,
    /// Mean number of steps before the first that does not agree; an episode without one counts all of its steps.
    pub steps_until_divergence: Interval,
    /// Share of episodes that agree to their end.
    pub whole: Interval,
    /// Share of steps that agree by their number, with the number of episodes that long.
    pub by_step: Vec<(f64, u64)>,
    /// Every episode.
    pub played: Vec<Played>,
}

/// One step as it was played.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Predicted {
    /// What was done.
    pub action: String,
    /// What the model answered; none without a usable prediction.
    pub observation: Option<String>,
}

/// Plays recorded scripts, `threads` at a time; `progress` hears how many are done.
pub fn play(
    engine: &Engine,
    how: &Play,
    trajectories: &[Trajectory],
    seed: u64,
    resamples: usize,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Horizon> {
    let one = |place: usize| play_one(engine, how, &trajectories[place], seed.wrapping_add(place as u64));
    Ok(summary(play_each(trajectories.len(), threads, progress, &one)?, seed, resamples))
}

/// The outcomes of `one` for each number below `count`, `threads` at a time; the first error of them, if any.
pub fn play_each<T: Send, E: Send>(
    count: usize,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
    one: &(dyn Fn(usize) -> std::result::Result<T, E> + Sync),
) -> std::result::Result<Vec<T>, E> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let outcomes: Vec<Mutex<Option<std::result::Result<T, E>>>> = (0..count).map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(outcome) = outcomes.get(place) else { break };
            let played = one(place);
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(played);
            progress(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, count as u64);
        }
    };
    std::thread::scope(|scope| {
        (0..threads.max(1)).for_each(|_| _ = scope.spawn(work));
    });
    outcomes.into_iter().filter_map(|outcome| outcome.into_inner().unwrap_or_else(PoisonError::into_inner)).collect()
}

/// The environment of a recorded episode, before its first turn.
pub fn scenario_of(trajectory: &Trajectory, seed: u64) -> Scenario {
    let system = &trajectory.system;
    Scenario {
        task: system.task_description.clone(),
        tools: system.action_space.clone().map(serde_json::Value::String),
        initial_state: system.initial_state.clone(),
        demonstrations: system.demonstrations.clone(),
        control: system.simulation_instruction.iter().cloned().collect(),
        seed,
        ..Scenario::of(trajectory.domain)
    }
}

/// Plays inside the model until `act`, which hears the step before, has no further action.
pub fn play_inside<E: From<Error>>(
    engine: &Engine,
    how: &Play,
    scenario: Scenario,
    mut act: impl FnMut(Option<&Predicted>) -> std::result::Result<Option<String>, E>,
) -> std::result::Result<Vec<Predicted>, E> {
    let mut episode = Episode::start(scenario)?;
    let mut steps: Vec<Predicted> = Vec::new();
    while let Some(action) = act(steps.last())? {
        let observation = match action.trim().is_empty() {
            true => None,
            false => episode.step(engine, how, &action)?.observation.ok(),
        };
        if observation.is_none() {
            // The script goes on, and the model remembers an action that nothing came of.
            episode.recall(&action, "");
        }
        steps.push(Predicted { action, observation });
    }
    Ok(steps)
}

/// The steps beside what the real environment answered to them; steps that it was not asked about are left out.
pub fn compare<'a>(trajectory_id: &str, steps: &[Predicted], truths: impl IntoIterator<Item = &'a str>) -> Played {
    let (mut agrees, mut faults) = (Vec::new(), 0);
    for (step, truth) in steps.iter().zip(truths) {
        agrees.push(step.observation.as_deref().is_some_and(|predicted| normalised_match(truth, predicted)));
        faults += u64::from(step.observation.is_none());
    }
    let first_divergence = agrees.iter().position(|agrees| !agrees).map(|at| at as u64);
    Played { trajectory_id: trajectory_id.into(), agrees, faults, first_divergence }
}

fn play_one(engine: &Engine, how: &Play, trajectory: &Trajectory, seed: u64) -> Result<Played> {
    let turns = || trajectory.turns.iter().filter(|turn| turn.observation_kind != ObservationKind::Image);
    let mut actions = turns().map(|turn| turn.action.clone());
    let steps = play_inside(engine, how, scenario_of(trajectory, seed), |_| Ok::<_, Error>(actions.next()))?;
    Ok(compare(&trajectory.trajectory_id, &steps, turns().map(|turn| turn.observation.as_str())))
}

/// What the scripts come to together; intervals resample whole episodes.
pub fn summary(played: Vec<Played>, seed: u64, resamples: usize) -> Horizon {
    let share = |is_met: bool| if is_met { 1.0 } else { 0.0 };
    let each = |of: &dyn Fn(&Played) -> f64| -> Vec<(usize, f64)> {
        played.iter().enumerate().map(|(episode, played)| (episode, of(played))).collect()
    };
    let mean = |values: &[(usize, f64)]| -> Interval {
        clustered_mean(values, resamples, seed).map_or(Interval::default(), |found| Interval {
            mean: found.mean,
            low: found.low,
            high: found.high,
            n: found.n as u64,
            clusters: found.clusters as u64,
        })
    };
    let steps: Vec<(usize, f64)> = played
        .iter()
        .enumerate()
        .flat_map(|(episode, played)| played.agrees.iter().map(move |agrees| (episode, share(*agrees))))
        .collect();
    let longest = played.iter().map(|played| played.agrees.len()).max().unwrap_or(0);
    let at = |step: usize| {
        let there: Vec<bool> = played.iter().filter_map(|played| played.agrees.get(step).copied()).collect();
        (there.iter().filter(|agrees| **agrees).count() as f64 / there.len().max(1) as f64, there.len() as u64)
    };
    let until = |played: &Played| played.first_divergence.map_or(played.agrees.len() as f64, |first| first as f64);
    Horizon {
        episodes: played.len() as u64,
        steps: steps.len() as u64,
        faults: played.iter().map(|played| played.faults).sum(),
        agreement: mean(&steps),
        steps_until_divergence: mean(&each(&until)),
        whole: mean(&each(&|played| share(played.first_divergence.is_none()))),
        by_step: (0..longest).map(at).collect(),
        played,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divergence_is_the_first_step_that_does_not_agree() {
        let played = |agrees: &[bool]| Played {
            trajectory_id: String::new(),
            agrees: agrees.to_vec(),
            faults: 0,
            first_divergence: agrees.iter().position(|agrees| !agrees).map(|at| at as u64),
        };
        let all = vec![played(&[true, true, true]), played(&[true, false, true]), played(&[false])];
        let horizon = summary(all, 1, 100);
        assert_eq!((horizon.episodes, horizon.steps), (3, 7));
        assert!((horizon.agreement.mean - 5.0 / 7.0).abs() < 1e-12);
        assert!((horizon.steps_until_divergence.mean - 4.0 / 3.0).abs() < 1e-12);
        assert!((horizon.whole.mean - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(horizon.by_step, [(2.0 / 3.0, 3), (0.5, 2), (1.0, 2)]);
    }
}
