//! The turns that every predictor is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use worldloom_judge::verify::{self, Verifier};
use worldloom_judge::{JudgeContext, told};
use worldloom_schema::{ObservationKind, Prompt, TableReader, Trajectory, Turn};

use crate::error::{Error, Result};
use crate::model::Question;

/// The name of a class or family that a turn does not have.
const UNNAMED: &str = "other";
/// The stream of random numbers that draws turns.
const TURNS_STREAM: u64 = 1;

/// One turn to predict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EvaluationTurn {
    /// Number of its episode.
    pub(super) episode: usize,
    /// Its number in the episode.
    pub(super) turn: usize,
    pub(super) class: String,
    pub(super) family: String,
    pub(super) domain: &'static str,
    pub(super) kind: &'static str,
    /// Its rule axis, and the axis with the distance where the turn has one.
    pub(super) axes: Vec<String>,
}

/// Episodes with the turns to predict in them.
pub(super) struct EvaluationTurns {
    episodes: Vec<Trajectory>,
    turns: Vec<EvaluationTurn>,
    /// The checks that follow from the truth of turns on a rule axis.
    verifiers: BTreeMap<usize, Verifier>,
    /// Turns that could have been drawn.
    pub(super) in_pool: u64,
    /// Turns that curate marked as repeated, and images.
    pub(super) left_out: u64,
}

impl EvaluationTurns {
    /// Reads a pool and draws at most `max_turns` of its turns by seed, each with the same chance.
    pub(super) fn read(pool: &Path, max_turns: Option<u64>, seed: u64) -> Result<Self> {
        let episodes = TableReader::<Trajectory>::open(pool)?.collect::<worldloom_schema::Result<Vec<_>>>()?;
        let (all, left_out) = list(&episodes);
        if all.is_empty() {
            return Err(Error::NoTurns { path: pool.into(), trajectories: episodes.len() as u64 });
        }
        let in_pool = all.len() as u64;
        let turns = match max_turns {
            Some(most) if most < in_pool => draw(all, most as usize, seed),
            _ => all,
        };
        let on_axis = turns.iter().enumerate().filter(|(_, turn)| !turn.axes.is_empty());
        let verifiers = on_axis.filter_map(|(index, turn)| {
            Some((index, verify::build(&Prompt::of(&episodes[turn.episode], turn.turn, Vec::new())).0?))
        });
        let verifiers = verifiers.collect();
        Ok(Self { episodes, turns, verifiers, in_pool, left_out })
    }

    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &EvaluationTurn> {
        self.turns.iter()
    }

    pub(super) fn get(&self, index: usize) -> &EvaluationTurn {
        &self.turns[index]
    }

    pub(super) fn num_episodes(&self) -> u64 {
        self.turns.iter().map(|turn| turn.episode).collect::<BTreeSet<_>>().len() as u64
    }

    pub(super) fn class_shares(&self) -> BTreeMap<String, f64> {
        let mut counts: BTreeMap<String, f64> = BTreeMap::new();
        for turn in &self.turns {
            *counts.entry(turn.class.clone()).or_default() += 1.0;
        }
        counts.values_mut().for_each(|count| *count /= self.turns.len() as f64);
        counts
    }

    pub(super) fn questions(&self) -> Vec<Question<'_>> {
        let question = |turn: &EvaluationTurn| Question { trajectory: &self.episodes[turn.episode], turn: turn.turn };
        self.turns.iter().map(question).collect()
    }

    /// `trajectory_id#turn`.
    pub(super) fn id(&self, index: usize) -> String {
        format!("{}#{}", self.episode(index).trajectory_id, self.turns[index].turn)
    }

    /// The episode of a turn.
    pub(super) fn episode(&self, index: usize) -> &Trajectory {
        &self.episodes[self.turns[index].episode]
    }

    /// The turn itself, with its truth.
    pub(super) fn turn(&self, index: usize) -> &Turn {
        &self.episode(index).turns[self.turns[index].turn]
    }

    /// The turns before it.
    pub(super) fn history(&self, index: usize) -> &[Turn] {
        &self.episode(index).turns[..self.turns[index].turn]
    }

    /// The observation before it, where there is one.
    pub(super) fn before(&self, index: usize) -> Option<&str> {
        self.history(index).last().map(|turn| turn.observation.as_str())
    }

    /// The checks of a turn on a rule axis; none elsewhere, and where none can be made.
    pub(super) fn verifier(&self, index: usize) -> Option<&Verifier> {
        self.verifiers.get(&index)
    }

    /// Calls `with` with what a judge may know of the turn.
    pub(super) fn with_context<T>(&self, index: usize, with: impl FnOnce(&JudgeContext<'_>) -> T) -> T {
        let history = told(self.history(index));
        with(&JudgeContext::of(self.episode(index), self.turns[index].turn, &history))
    }
}

/// All turns that can be predicted, in the pool's order, and how many cannot.
fn list(episodes: &[Trajectory]) -> (Vec<EvaluationTurn>, u64) {
    let (mut turns, mut left_out) = (Vec::new(), 0);
    for (episode, trajectory) in episodes.iter().enumerate() {
        for (number, turn) in trajectory.turns.iter().enumerate() {
            if turn.keep == Some(false) || turn.observation_kind == ObservationKind::Image {
                left_out += 1;
                continue;
            }
            let flag = |name| turn.flag(name).unwrap_or(UNNAMED).to_string();
            turns.push(EvaluationTurn {
                episode,
                turn: number,
                class: flag("class"),
                family: flag("family"),
                domain: trajectory.domain.as_str(),
                kind: kind_name(turn.observation_kind),
                axes: axes(turn),
            });
        }
    }
    (turns, left_out)
}

/// `control`, `error` or `long` by the flag `axis`; `long, distance  4` besides, by the flag `axis_distance`.
fn axes(turn: &Turn) -> Vec<String> {
    let Some(axis) = turn.flag("axis") else { return Vec::new() };
    let with_distance = turn.flag("axis_distance").map(|distance| format!("{axis}, distance {distance:>2}"));
    std::iter::once(axis.to_string()).chain(with_distance).collect()
}

fn kind_name(kind: ObservationKind) -> &'static str {
    match kind {
        ObservationKind::Text => "text",
        ObservationKind::Json => "json",
        ObservationKind::Tree => "tree",
        ObservationKind::Diff => "diff",
        ObservationKind::Image => "image",
    }
}

fn draw(all: Vec<EvaluationTurn>, most: usize, seed: u64) -> Vec<EvaluationTurn> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    random.set_stream(TURNS_STREAM);
    drawn(all, most, &mut random)
}

/// So many of these, drawn at random, in their order.
pub(crate) fn drawn<T>(all: Vec<T>, most: usize, random: &mut ChaCha8Rng) -> Vec<T> {
    let chosen: BTreeSet<usize> = rand::seq::index::sample(random, all.len(), most).into_iter().collect();
    all.into_iter().enumerate().filter(|(index, _)| chosen.contains(index)).map(|(_, one)| one).collect()
}
