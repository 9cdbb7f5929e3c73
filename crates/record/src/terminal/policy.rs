//! Picks the next command: a family of the episode's group, a form of it, and what fills the form's slots.
//!
//! Choices come from the seeded generator and from the snapshot of the real file system, so that most commands make
//! sense; some are meant to fail, as in real work.

use std::sync::LazyLock;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha8Rng;

use super::forms::{FAMILIES, Family, SETUP};
use super::groups::Group;
use super::note::{Memory, Need};
use super::slots::{self, Filled};
use super::world::Snapshot;

/// Share of commands that are meant to fail; some that are meant to work fail too.
pub(crate) const FAILURE_SHARE: f64 = 0.22;
/// Share of commands that add files although there are enough.
const SETUP_SHARE: f64 = 0.05;
/// Fewest text files that commands have something to work on.
const MIN_TEXT_FILES: usize = 2;
const MAX_TRIES: usize = 60;

/// A command that was chosen.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) family: &'static str,
    /// What the state note must tell.
    pub(crate) needs: Vec<Need>,
    /// Variables that the command names for the first time.
    pub(crate) new_variables: Vec<String>,
    /// Name and body of the function that the command defines.
    pub(crate) new_function: Option<(String, String)>,
}

/// What a command is chosen in.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) world: &'a Snapshot,
    pub(crate) memory: &'a Memory,
    /// Commands that were chosen before.
    pub(crate) used: &'a [String],
}

/// The next command of an episode, different from those before; `failure_share` of them are meant to fail.
pub(crate) fn next_step(situation: Situation<'_>, group: &Group, failure_share: f64, random: &mut ChaCha8Rng) -> Step {
    let needs_files = situation.world.iter().filter(|(_, entry)| slots::is_workable(entry)).count() < MIN_TEXT_FILES;
    if !needs_files && !random.random_bool(SETUP_SHARE) {
        for _ in 0..MAX_TRIES {
            let Some(family) = group.families.choose(random) else { break };
            let forms = forms_of(family);
            let side = if random.random_bool(failure_share) { &forms.fails } else { &forms.works };
            if let Some(step) = try_form(family.name, side, situation, random) {
                return step;
            }
        }
    }
    next_of(SETUP.name, &SETUP_FORMS.works, situation, random)
}

/// The next command by these forms, `ls` where none of them fits.
pub(crate) fn next_of(
    family: &'static str,
    forms: &[(f64, &'static str)],
    situation: Situation<'_>,
    random: &mut ChaCha8Rng,
) -> Step {
    let step = (0..MAX_TRIES).find_map(|_| try_form(family, forms, situation, random));
    let listing = || Need::Listing { path: situation.world.cwd.clone(), mode: false, bytes: false };
    step.unwrap_or_else(|| written("ls".to_owned(), "list", vec![listing()]))
}

fn try_form(
    family: &'static str,
    forms: &[(f64, &'static str)],
    Situation { world, memory, used }: Situation<'_>,
    random: &mut ChaCha8Rng,
) -> Option<Step> {
    let (_, form) = forms.choose_weighted(random, |(weight, _)| *weight).ok()?;
    let filled = slots::fill(form, world, memory, random)?;
    let is_short = filled.command.len() <= 8;
    let repeats = if is_short { used.last() == Some(&filled.command) } else { used.contains(&filled.command) };
    (!repeats).then(|| step(family, filled))
}

fn step(family: &'static str, filled: Filled) -> Step {
    let Filled { command, needs, new_variables, new_function, .. } = filled;
    Step { command, family, needs, new_variables, new_function }
}

/// A command that no form was filled for.
pub(crate) fn written(command: String, family: &'static str, needs: Vec<Need>) -> Step {
    Step { command, family, needs, new_variables: Vec::new(), new_function: None }
}

/// The forms of one family, parsed.
struct Forms {
    works: Vec<(f64, &'static str)>,
    fails: Vec<(f64, &'static str)>,
}

static SETUP_FORMS: LazyLock<Forms> = LazyLock::new(|| Forms { works: parse(SETUP.works), fails: Vec::new() });

static FORMS: LazyLock<Vec<Forms>> = LazyLock::new(|| {
    let parsed = FAMILIES.iter().map(|family| Forms { works: parse(family.works), fails: parse(family.fails) });
    parsed.collect()
});

fn forms_of(family: &Family) -> &'static Forms {
    let index = FAMILIES.iter().position(|other| other.name == family.name);
    &FORMS[index.expect("a group holds families of the grammar only")]
}

/// Weight and form of each line.
pub(crate) fn parse(table: &'static str) -> Vec<(f64, &'static str)> {
    let line = |line: &'static str| {
        let (weight, form) = line.split_once(' ').expect("a line of the grammar is a weight and a form");
        (weight.parse().expect("the weight of a form is a number"), form)
    };
    table.lines().map(line).collect()
}
