//! An episode played inside the world model: actions in, predicted observations out, kept as a trajectory.
//!
//! A [`Scenario`] says what the environment is. Each step asks the model for the next observation with all earlier
//! turns as history; its thinking is shown and forgotten. *Control* is what the simulation is told beyond being
//! faithful: for good, or for one turn as a [`Perturbation`]. A step without a usable prediction is a *fault*: it is
//! told, and leaves the history as it was.

mod perturbation;
mod scenario;

use std::path::Path;

use worldloom_schema::{
    ActionKind, Domain, ObservationKind, Outcome, System, TableWriter, Trajectory, Turn, trajectory_id,
};
use worldloom_train::{Purpose, split_seed};

use crate::engine::{Ask, Engine, Patience};
use crate::error::{Error, Result};
use crate::model::{Answer, Asked, Decoding, Fault, Question};

pub use perturbation::{Perturbation, When};
pub use scenario::Scenario;

/// The `format` and `source` of simulated trajectories.
pub const SIMULATED: &str = "simulated";

/// How the model is asked for a step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Play {
    /// As it was trained.
    pub asked: Asked,
    /// Longest completion.
    pub max_new_tokens: usize,
    /// 0 is greedy.
    pub temperature: f32,
    /// Completions that are drawn until one holds a prediction; a greedy one is drawn once.
    pub attempts: u32,
}

/// What a step gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The predicted observation, or why there is none.
    pub observation: std::result::Result<String, Fault>,
    /// What the model thought.
    pub thinking: Option<String>,
    /// The completion as it came.
    pub completion: String,
    /// What was done to the turn, such as `perturbation:timeout` or `leak:answer`; `perturbation:timeout:unmet` where it
    /// was asked for and the observation does not show it.
    pub flags: Vec<String>,
    /// Whether the episode has reached its last turn.
    pub is_done: bool,
}

/// One episode.
#[derive(Debug, Clone)]
pub struct Episode {
    scenario: Scenario,
    turns: Vec<Turn>,
    /// Steps asked, faults included: each draws from a seed of its own.
    steps: u64,
    control: Vec<String>,
}

impl Episode {
    /// Before the first action.
    pub fn start(scenario: Scenario) -> Result<Self> {
        scenario.check()?;
        Ok(Self { scenario, turns: Vec::new(), steps: 0, control: Vec::new() })
    }

    /// What the environment is.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// The turns so far.
    pub fn turns(&self) -> &[Turn] {
        &self.turns
    }

    /// Steps asked so far, those without a prediction included.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Whether no further step is taken.
    pub fn is_done(&self) -> bool {
        self.scenario.max_turns.is_some_and(|most| self.turns.len() as u64 >= most)
    }

    /// Tells the simulation something that holds from now on; an empty text takes all back.
    pub fn control(&mut self, instruction: &str) {
        match instruction.trim() {
            "" => self.control.clear(),
            text => self.control.push(text.into()),
        }
    }

    /// What the simulation is told from now on.
    pub fn controls(&self) -> &[String] {
        &self.control
    }

    /// Adds a turn that really happened.
    pub fn recall(&mut self, action: &str, observation: &str) {
        let mut turn = self.turn(action);
        turn.observation = observation.into();
        turn.observation_kind = observation_kind(self.scenario.domain, observation);
        self.turns.push(turn);
    }

    /// Takes the last turn back; false at the start.
    pub fn undo(&mut self) -> bool {
        self.turns.pop().is_some()
    }

    /// Performs an action. An error leaves the turns as they were.
    pub fn step(&mut self, engine: &Engine, play: &Play, action: &str) -> Result<Step> {
        self.step_until(engine, play, action, Patience::default())
    }

    /// As [`Self::step`], for one whose patience ends.
    pub fn step_until(&mut self, engine: &Engine, play: &Play, action: &str, patience: Patience<'_>) -> Result<Step> {
        if self.is_done() {
            let most = self.scenario.max_turns.unwrap_or_default();
            return Err(Error::episode("action", format!("the episode is over after {most} turns")));
        }
        if action.trim().is_empty() {
            return Err(Error::episode("action", "it is empty"));
        }
        let number = self.turns.len() as u64;
        let perturbation = self.scenario.perturbation_at(number);
        let mut trajectory = self.trajectory_with(perturbation);
        trajectory.turns.push(self.turn(action));
        let mut step = self.ask(engine, play, &trajectory, patience)?;
        step.flags = perturbation.map_or(Vec::new(), |perturbation| perturbation_flags(perturbation, &step));
        if let Ok(observation) = &step.observation {
            if self.scenario.leaks(number, action, observation) {
                step.flags.push("leak:answer".into());
            }
            let mut turn = self.turn(action);
            turn.observation = observation.clone();
            turn.observation_kind = observation_kind(self.scenario.domain, observation);
            turn.flags = step.flags.clone();
            turn.trace = step.thinking.clone();
            self.turns.push(turn);
        }
        step.is_done = self.is_done();
        Ok(step)
    }

    fn ask(&mut self, engine: &Engine, play: &Play, trajectory: &Trajectory, patience: Patience<'_>) -> Result<Step> {
        let question = Question { trajectory, turn: self.turns.len() };
        let attempts = if play.temperature == 0.0 { 1 } else { play.attempts.max(1) };
        let mut last = Answer::none(Fault::PromptTooLong);
        for _ in 0..attempts {
            let seed = split_seed(self.scenario.seed, Purpose::Sampling, self.steps);
            self.steps += 1;
            let decoding = Decoding { max_new_tokens: play.max_new_tokens, temperature: play.temperature, seed };
            let request = match engine.model().request_of(&question, play.asked, &decoding)? {
                Ok(request) => request,
                Err(fault) => {
                    last.prediction = Err(fault);
                    break;
                }
            };
            let ask = Ask { request, num_most_probable: 0, stop_texts: Vec::new() };
            let completed = engine.complete_until(ask, patience)?.into_iter().next().ok_or(Error::EngineStopped)?;
            let stopped = completed.stopped();
            last = Answer::read(completed.text, stopped, play.asked);
            if last.prediction.is_ok() {
                break;
            }
        }
        let thinking = last.thinking().map(String::from);
        let Answer { completion, prediction, .. } = last;
        Ok(Step { observation: prediction, thinking, completion, flags: Vec::new(), is_done: false })
    }

    /// The episode as a trajectory.
    pub fn trajectory(&self) -> Trajectory {
        self.trajectory_with(None)
    }

    /// Writes the episode as a table of one trajectory.
    pub fn save(&self, path: &Path) -> Result<()> {
        let mut writer = TableWriter::create(path)?;
        writer.push(self.trajectory())?;
        writer.finish()?;
        Ok(())
    }

    fn trajectory_with(&self, perturbation: Option<Perturbation>) -> Trajectory {
        let Scenario { domain, task, tools, initial_state, demonstrations, .. } = &self.scenario;
        let control = self.control.iter().map(String::as_str).chain(perturbation.map(Perturbation::instruction));
        let system = System {
            task_description: task.clone(),
            action_space: tools.as_ref().map(scenario::tools_text),
            initial_state: initial_state.clone(),
            demonstrations: demonstrations.clone(),
            simulation_instruction: self.scenario.instruction(control),
        };
        let id = trajectory_id(&system, &self.turns);
        Trajectory {
            trajectory_id: id.clone(),
            source: SIMULATED.into(),
            source_path: String::new(),
            source_row: 0,
            format: SIMULATED.into(),
            domain: *domain,
            task_group: id,
            licence: None,
            system,
            turns: self.turns.clone(),
            outcome: Outcome::default(),
            pool: None,
        }
    }

    fn turn(&self, action: &str) -> Turn {
        Turn {
            index: self.turns.len() as u32,
            action: action.into(),
            action_kind: action_kind(self.scenario.domain, action),
            observation: String::new(),
            observation_kind: ObservationKind::Text,
            reasoning: None,
            pre_state: None,
            trace: None,
            is_error: None,
            truncated: false,
            flags: Vec::new(),
            keep_class: None,
            keep: None,
        }
    }
}

fn perturbation_flags(perturbation: Perturbation, step: &Step) -> Vec<String> {
    let name = format!("perturbation:{}", perturbation.as_str());
    let is_unmet = step.observation.as_ref().is_ok_and(|text| perturbation.is_met(text) == Some(false));
    let unmet = is_unmet.then(|| format!("{name}:unmet"));
    std::iter::once(name).chain(unmet).collect()
}

/// How the domain's agents write actions.
fn action_kind(domain: Domain, action: &str) -> ActionKind {
    let is_object = || serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(action).is_ok();
    match domain {
        Domain::Terminal if action.trim_start().starts_with('[') => ActionKind::Keystrokes,
        Domain::Terminal => ActionKind::Command,
        Domain::Mcp | Domain::Search | Domain::Swe if is_object() => ActionKind::ToolCall,
        Domain::Swe => ActionKind::Command,
        Domain::Os => ActionKind::Code,
        Domain::Mcp | Domain::Search | Domain::Android | Domain::Web => ActionKind::Text,
    }
}

fn observation_kind(domain: Domain, observation: &str) -> ObservationKind {
    match domain {
        Domain::Android | Domain::Web | Domain::Os => ObservationKind::Tree,
        _ if serde_json::from_str::<serde::de::IgnoredAny>(observation).is_ok()
            && observation.trim_start().starts_with(['{', '[']) =>
        {
            ObservationKind::Json
        }
        _ => ObservationKind::Text,
    }
}
