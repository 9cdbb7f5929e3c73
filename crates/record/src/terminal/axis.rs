//! Rule axes: episodes that ask for one ability of a world model, where bash itself tells what is right.
//!
//! *control*: a [`Condition`] is imposed on the shell before the first turn and told in the simulation instruction.
//! *error*: commands fail. *long*: a [`Fact`] is set, other commands run, and the fact is read back; the *distance* is
//! the number of turns between. Turns that show what they should are flagged in their metadata, the others are not.

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::condition::{CONDITIONS, Condition};
use super::content::random_word;
use super::episode::TurnClass;
use super::groups::Group;
use super::note::{Memory, Need};
use super::policy::{self, FAILURE_SHARE, Situation, Step};
use super::world::Snapshot;

/// What a suite of episodes asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// The environment obeys an instruction.
    Control,
    /// Commands fail, each in its way.
    Error,
    /// What was set turns ago is still so.
    Long,
}

impl Axis {
    /// All three.
    pub const ALL: [Axis; 3] = [Axis::Control, Axis::Error, Axis::Long];

    /// The name in the raw log and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Control => "control",
            Axis::Error => "error",
            Axis::Long => "long",
        }
    }
}

/// Turns between a fact and its reading, one episode after the other.
const DISTANCES: [usize; 5] = [1, 2, 4, 8, 16];
/// Names of facts: the policy uses none of them.
const FACT_NAMES: [&str; 6] = ["badge2", "crest", "ledger", "motto", "seal2", "token"];

/// What an episode does beside drawing from its group.
#[derive(Debug)]
pub(crate) enum Script {
    Plain,
    Error,
    Long(Fact),
    Control(&'static Condition),
}

impl Script {
    /// The script of an episode by its number.
    pub(crate) fn draw(axis: Option<Axis>, number: u64, random: &mut ChaCha8Rng) -> Script {
        match axis {
            None => Script::Plain,
            Some(Axis::Error) => Script::Error,
            Some(Axis::Long) => Script::Long(Fact::draw(DISTANCES[number as usize % DISTANCES.len()], random)),
            Some(Axis::Control) => Script::Control(&CONDITIONS[number as usize % CONDITIONS.len()]),
        }
    }

    /// The axis of its turns.
    pub(crate) fn axis(&self) -> Option<Axis> {
        match self {
            Script::Plain => None,
            Script::Error => Some(Axis::Error),
            Script::Long(_) => Some(Axis::Long),
            Script::Control(_) => Some(Axis::Control),
        }
    }

    /// What is imposed on the shell before the first turn.
    pub(crate) fn condition(&self) -> Option<&'static Condition> {
        match self {
            Script::Control(condition) => Some(condition),
            _ => None,
        }
    }

    /// The turns that it takes, where that is not drawn.
    pub(crate) fn num_turns(&self) -> Option<usize> {
        match self {
            Script::Long(fact) => Some(fact.distance + 2),
            _ => None,
        }
    }

    /// The command of turn `index`.
    pub(crate) fn step(
        &self,
        index: usize,
        world: &Snapshot,
        memory: &mut Memory,
        group: &Group,
        used: &[String],
        random: &mut ChaCha8Rng,
    ) -> Step {
        let situation = Situation { world, memory: &*memory, used };
        match self {
            Script::Plain => policy::next_step(situation, group, FAILURE_SHARE, random),
            Script::Error => policy::next_step(situation, group, 1.0, random),
            Script::Control(condition) => condition.step(situation, random),
            Script::Long(fact) if index == 0 => fact.set(),
            Script::Long(fact) if index == fact.distance + 1 => fact.read(memory),
            Script::Long(fact) => {
                let world = world.without(&fact.path());
                policy::next_step(Situation { world: &world, ..situation }, group, FAILURE_SHARE, random)
            }
        }
    }

    /// Axis and distance of a turn that shows what it should.
    pub(crate) fn shown(&self, index: usize, class: TurnClass, observation: &str) -> (Option<Axis>, Option<u64>) {
        let axis = self.axis();
        match self {
            Script::Error if class == TurnClass::Error => (axis, None),
            Script::Control(condition) if observation.contains(condition.sign) => (axis, None),
            Script::Long(fact) if index == fact.distance + 1 && observation == fact.answer() => {
                (axis, Some(fact.distance as u64))
            }
            _ => (None, None),
        }
    }
}

/// Something that is set in the first turn and read in the last.
#[derive(Debug)]
pub(crate) struct Fact {
    kind: FactKind,
    name: &'static str,
    /// What reading it prints.
    value: String,
    /// Turns between.
    distance: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FactKind {
    Variable,
    Function,
    /// The content of a file that patterns do not match.
    Content,
    /// The mode of such a file.
    Mode,
}

impl Fact {
    fn draw(distance: usize, random: &mut ChaCha8Rng) -> Fact {
        let kinds = [FactKind::Variable, FactKind::Function, FactKind::Content, FactKind::Mode];
        let kind = *kinds.choose(random).unwrap_or(&kinds[0]);
        let name = FACT_NAMES.choose(random).unwrap_or(&FACT_NAMES[0]);
        let value = match kind {
            FactKind::Mode => (*["600", "640", "700", "444", "755"].choose(random).unwrap_or(&"600")).to_owned(),
            _ => format!("{}-{}-{}", random_word(random), random.random_range(10..100), random_word(random)),
        };
        Fact { kind, name, value, distance }
    }

    /// The file's path from the home, whether or not there is one.
    fn path(&self) -> String {
        format!(".{}", self.name)
    }

    fn answer(&self) -> String {
        format!("{}\n", self.value)
    }

    fn set(&self) -> Step {
        let Fact { name, value, .. } = self;
        let (command, family) = match self.kind {
            FactKind::Variable => (format!("{name}={value}"), "variable"),
            FactKind::Function => (format!("{name}() {{ echo {value}; }}"), "function"),
            FactKind::Content => (format!("echo {value} > ~/.{name}"), "create"),
            FactKind::Mode => (format!("touch ~/.{name}; chmod {value} ~/.{name}"), "perm"),
        };
        policy::written(command, family, Vec::new())
    }

    /// The command that reads it; from now on the memory knows it, for the note.
    fn read(&self, memory: &mut Memory) -> Step {
        let Fact { name, value, .. } = self;
        let path =
            |content, mode| Need::Path { path: self.path(), shown: format!("~/.{name}"), content, bytes: false, mode };
        let (command, family, need) = match self.kind {
            FactKind::Variable => {
                memory.variables.insert((*name).to_owned(), Some(value.clone()));
                (format!("echo \"${name}\""), "variable", Need::Variable((*name).to_owned()))
            }
            FactKind::Function => {
                memory.functions.insert((*name).to_owned(), format!("echo {value}"));
                ((*name).to_owned(), "function", Need::Function((*name).to_owned()))
            }
            FactKind::Content => (format!("cat ~/.{name}"), "read", path(true, false)),
            FactKind::Mode => (format!("stat -c %a ~/.{name}"), "perm", path(false, true)),
        };
        policy::written(command, family, vec![need])
    }
}

#[cfg(test)]
mod tests {
    use super::super::words;
    use super::*;

    #[test]
    fn no_command_of_the_policy_uses_the_name_of_a_fact() {
        let used = [words::WORDS, words::VARIABLES, words::FUNCTIONS, words::UNKNOWN_COMMANDS];
        for name in FACT_NAMES {
            assert!(!used.iter().any(|list| list.split_whitespace().any(|word| word == name)), "{name}");
        }
    }
}
