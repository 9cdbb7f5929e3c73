//! Sampled turns with the stages' predictions, spread over the domains and classes.

use std::collections::{BTreeMap, BTreeSet};

use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use worldloom_schema::{Example, Prediction, PredictorKind};

use super::Measured;
use super::config::EvaluateConfig;
use super::outcome::Outcome;
use super::turns::EvaluationTurns;

/// The stream of random numbers that draws examples.
const EXAMPLES_STREAM: u64 = 2;

/// Examples where the config names no number: one for this many turns, within these bounds.
const TURNS_PER_EXAMPLE: usize = 20;
const FEWEST: usize = 10;
const MOST: usize = 60;

/// `config.examples` turns: one class of one domain after the other in rounds, of different episodes while there are any.
pub(super) fn choose(config: &EvaluateConfig, turns: &EvaluationTurns, measured: &[Measured]) -> Vec<Example> {
    let mut random = ChaCha8Rng::seed_from_u64(config.seed);
    random.set_stream(EXAMPLES_STREAM);
    let wanted = config.examples.unwrap_or((turns.len() / TURNS_PER_EXAMPLE).clamp(FEWEST, MOST));
    let mut cells: BTreeMap<(&str, &str), Vec<usize>> = BTreeMap::new();
    for (index, turn) in turns.iter().enumerate() {
        cells.entry((&turn.class, turn.domain)).or_default().push(index);
    }
    cells.values_mut().for_each(|indices| indices.shuffle(&mut random));
    let (mut chosen, mut episodes) = (Vec::new(), BTreeSet::new());
    while chosen.len() < wanted && cells.values().any(|indices| !indices.is_empty()) {
        for indices in cells.values_mut().filter(|indices| !indices.is_empty()) {
            let fresh = indices.iter().position(|index| !episodes.contains(&turns.get(*index).episode));
            let index = indices.remove(fresh.unwrap_or(0));
            episodes.insert(turns.get(index).episode);
            chosen.push(index);
        }
    }
    chosen.truncate(wanted);
    chosen.into_iter().map(|index| example(turns, measured, index)).collect()
}

fn example(turns: &EvaluationTurns, measured: &[Measured], index: usize) -> Example {
    let (place, turn) = (turns.get(index), turns.turn(index));
    let stages = measured.iter().filter(|measured| measured.kind != PredictorKind::Baseline);
    let history = turns.history(index).iter();
    Example {
        id: turns.id(index),
        domain: place.domain.into(),
        class: place.class.clone(),
        family: place.family.clone(),
        system: turns.episode(index).system.clone(),
        history: history.map(|turn| (turn.action.clone(), turn.observation.clone())).collect(),
        action: turn.action.clone(),
        truth: turn.observation.clone(),
        predictions: stages.map(|stage| (stage.name.clone(), prediction(&stage.outcomes[index]))).collect(),
    }
}

fn prediction(outcome: &Outcome) -> Prediction {
    Prediction {
        text: outcome.text.clone(),
        thinking: outcome.thinking.clone(),
        normalised: outcome.normalised,
        rubric: outcome.rubric,
        fault: outcome.fault.map(String::from),
    }
}
