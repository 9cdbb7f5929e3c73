//! Simulation instructions by a teacher: it is shown what an environment really answered, and writes what the simulator is
//! to be told, so that a model learns to do as it is told. The rules of `render` do the same without a teacher; search
//! (query, answer, no leak) is left to them.
//!
//! An instruction that writes out more than half of an observation is rejected: the model would learn to copy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use worldloom_judge::copied;
use worldloom_judge::endpoint::Message;
use worldloom_schema::{Domain, ObservationKind, Pool, Trajectory, Turn, hash_json, read_table, write_table};
use worldloom_train::{Purpose, split_seed};

use crate::error::{Error, Result};
use crate::judges::JudgePlace;
use crate::teacher::{Reply, Teacher, TeacherConfig, check_answered, check_share, write_report};

const SYSTEM: &str = include_str!("../prompts/instruct.md");
/// Name of the report inside an artifact.
pub const INSTRUCT_REPORT_FILE: &str = "instruct-report.json";
/// Trajectories that are asked about together.
const AT_ONCE: usize = 32;
/// Turns of a trajectory that are instructed.
const MAX_TURNS: usize = 3;
/// Longest instruction, in characters.
const MAX_CHARS: usize = 400;
/// Of an action and of an observation, in characters, what the teacher is shown.
const SHOWN_CHARS: usize = 4_000;
/// Share of an observation that an instruction may write out.
const MAX_COPIED: f64 = 0.5;

/// What decides the instructions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InstructConfig {
    /// Who writes.
    pub teacher: TeacherConfig,
    /// The pools.
    pub pools: Vec<Pool>,
    /// Share of their trajectories that get an instruction, 0 to 1.
    pub share: f64,
    /// Seed of the draw.
    pub seed: u64,
    /// Share of the trajectories asked about without an answer, 0 to 1, above which the run refuses. Default: 0.05.
    #[serde(default = "max_unavailable_share")]
    pub max_unavailable_share: f64,
}

fn max_unavailable_share() -> f64 {
    0.05
}

/// What a run is given.
pub struct InstructInputs<'a> {
    /// Folder with a Parquet file for each pool.
    pub pools: &'a Path,
    /// Where the teacher is opened.
    pub place: &'a JudgePlace<'a>,
    /// Set to stop after what is under way; answers of an endpoint are kept.
    pub stop: &'a AtomicBool,
    /// Hears how many trajectories are done, and of how many.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// `trajectories = drawn + had_one + search + nothing_to_say + not_drawn`, `drawn = instructed + left_as_they_were +
/// unavailable`; `rejected` counts single instructions by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstructReport {
    /// Trajectories in the pools.
    pub trajectories: u64,
    /// Those that bring an instruction of their own.
    pub had_one: u64,
    /// Those of search, which the rules of `render` instruct.
    pub search: u64,
    /// Those without a turn to speak of: images, and turns that are not kept.
    pub nothing_to_say: u64,
    /// Those that the draw passed over.
    pub not_drawn: u64,
    /// Those that the teacher was asked about.
    pub drawn: u64,
    /// Those that have an instruction now.
    pub instructed: u64,
    /// Those of which nothing that the teacher wrote could be used.
    pub left_as_they_were: u64,
    /// Those that the teacher gave no answer about.
    pub unavailable: u64,
    /// Single instructions that were rejected, by reason; under `rejected_by_server`, trajectories whose question the
    /// server would not take.
    pub rejected: BTreeMap<String, u64>,
}

impl InstructReport {
    /// Counts for a manifest.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        let counts = [
            ("trajectories", self.trajectories),
            ("had_one", self.had_one),
            ("search", self.search),
            ("nothing_to_say", self.nothing_to_say),
            ("not_drawn", self.not_drawn),
            ("drawn", self.drawn),
            ("instructed", self.instructed),
            ("left_as_they_were", self.left_as_they_were),
            ("unavailable", self.unavailable),
        ];
        let rejected = self.rejected.iter().map(|(reason, &count)| (format!("rejected_{reason}"), count));
        counts.into_iter().map(|(name, count)| (name.to_string(), count)).chain(rejected).collect()
    }
}

/// Hash of the words that a teacher is asked with: they decide what it writes.
pub fn words_hash() -> String {
    hash_json(&json!(SYSTEM))
}

/// Writes the pools with instructions and the report into the existing folder `out`.
pub fn instruct(config: &InstructConfig, inputs: &InstructInputs<'_>, out: &Path) -> Result<InstructReport> {
    for (field, share) in [("share", config.share), ("max_unavailable_share", config.max_unavailable_share)] {
        check_share(field, share)?;
    }
    if config.pools.is_empty() {
        return Err(Error::config("pools", "empty, expected at least one of cpt, sft, rl"));
    }
    if config.pools.iter().enumerate().any(|(at, pool)| config.pools[..at].contains(pool)) {
        return Err(Error::config("pools", "one pool is named twice"));
    }
    let teacher = config.teacher.open(inputs.place)?;
    let mut report = InstructReport::default();
    let mut pools: Vec<(PathBuf, Vec<Trajectory>)> = Vec::new();
    for pool in &config.pools {
        let name = PathBuf::from(format!("{pool}.parquet"));
        pools.push((name.clone(), read_table(&inputs.pools.join(name))?));
    }
    let mut drawn: Vec<Drawn<'_>> = Vec::new();
    for (_, trajectories) in &mut pools {
        drawn.extend(trajectories.iter_mut().filter_map(|trajectory| draw(config, trajectory, &mut report)));
    }
    let (mut done, total, mut why) = (0, drawn.len() as u64, None);
    for chunk in drawn.chunks_mut(AT_ONCE) {
        if inputs.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped { done, total });
        }
        why = ask(&teacher, chunk, &mut report)?.or(why);
        done += chunk.len() as u64;
        (inputs.progress)(done, total);
    }
    let (unavailable, limit) = (report.unavailable, config.max_unavailable_share);
    check_answered(unavailable, report.drawn, limit, why.as_deref(), inputs.place.folder)?;
    for (name, trajectories) in pools {
        write_table(&out.join(name), trajectories)?;
    }
    write_report(&out.join(INSTRUCT_REPORT_FILE), &report)?;
    Ok(report)
}

/// A trajectory to be instructed, and the turns that are spoken of.
struct Drawn<'a> {
    trajectory: &'a mut Trajectory,
    turns: Vec<usize>,
}

/// Counts a trajectory, and takes it where it is to be instructed.
fn draw<'a>(config: &InstructConfig, trajectory: &'a mut Trajectory, report: &mut InstructReport) -> Option<Drawn<'a>> {
    report.trajectories += 1;
    let own = trajectory.system.simulation_instruction.as_deref().unwrap_or_default();
    if !own.trim().is_empty() {
        report.had_one += 1;
        return None;
    }
    if trajectory.domain == Domain::Search {
        report.search += 1;
        return None;
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed_of(config.seed, &trajectory.trajectory_id));
    if random.random::<f64>() >= config.share {
        report.not_drawn += 1;
        return None;
    }
    let speaks = |turn: &Turn| turn.keep == Some(true) && turn.observation_kind != ObservationKind::Image;
    let kept = trajectory.turns.iter().enumerate().filter(|(_, turn)| speaks(turn)).map(|(at, _)| at);
    let mut turns: Vec<usize> = kept.collect();
    while turns.len() > MAX_TURNS {
        turns.remove(random.random_range(0..turns.len() as u64) as usize);
    }
    if turns.is_empty() {
        report.nothing_to_say += 1;
        return None;
    }
    report.drawn += 1;
    Some(Drawn { trajectory, turns })
}

/// A trajectory draws by its id, whatever else is in its pool.
fn seed_of(seed: u64, id: &str) -> u64 {
    let hash =
        id.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    split_seed(seed, Purpose::Sampling, hash)
}

/// Asks about a chunk; why an answer is missing, where one is.
fn ask(teacher: &Teacher, drawn: &mut [Drawn<'_>], report: &mut InstructReport) -> Result<Option<String>> {
    let conversations: Vec<Vec<Message>> = drawn.iter().map(Drawn::conversation).collect();
    let mut missing = None;
    for (drawn, reply) in drawn.iter_mut().zip(teacher.ask(&conversations, 0)?) {
        let content = match reply {
            Reply::Said { content, .. } => content,
            Reply::Unavailable { why } => {
                report.unavailable += 1;
                missing = Some(why);
                continue;
            }
            Reply::Rejected => {
                report.left_as_they_were += 1;
                *report.rejected.entry("rejected_by_server".into()).or_default() += 1;
                continue;
            }
            Reply::Refused | Reply::Cut => String::new(),
        };
        let instruction = drawn.read(&content, &mut report.rejected);
        report.instructed += u64::from(instruction.is_some());
        report.left_as_they_were += u64::from(instruction.is_none());
        drawn.trajectory.system.simulation_instruction = instruction;
    }
    Ok(missing)
}

impl Drawn<'_> {
    fn conversation(&self) -> Vec<Message> {
        let shown = |text: &str| text.chars().take(SHOWN_CHARS).collect::<String>();
        let turns: Vec<Value> = self
            .turns
            .iter()
            .map(|&at| {
                let turn = &self.trajectory.turns[at];
                json!({ "turn": at + 1, "action": shown(&turn.action), "observation": shown(&turn.observation) })
            })
            .collect();
        let question = json!({ "domain": self.trajectory.domain, "turns": turns });
        vec![Message::system(SYSTEM), Message::user(format!("{question:#}"))]
    }

    /// The instruction in a reply, turn by turn; what cannot be used is counted.
    fn read(&self, content: &str, rejected: &mut BTreeMap<String, u64>) -> Option<String> {
        let mut reject = |reason: &str| *rejected.entry(reason.into()).or_default() += 1;
        let Some(listed) = listed(content) else {
            reject("unparseable");
            return None;
        };
        let mut said: BTreeMap<usize, String> = BTreeMap::new();
        for (turn, text) in listed {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            match turn.checked_sub(1).filter(|at| self.turns.contains(at)) {
                None => reject("other_turn"),
                Some(_) if text.is_empty() => reject("empty"),
                Some(_) if text.chars().count() > MAX_CHARS => reject("too_long"),
                Some(at) if tells_it_all(&text, &self.trajectory.turns[at].observation) => reject("copies_the_answer"),
                Some(at) if said.contains_key(&at) => reject("second_of_a_turn"),
                Some(at) => _ = said.insert(at, text),
            }
        }
        let lines: Vec<String> = said.iter().map(|(at, text)| format!("Turn {}: {text}", at + 1)).collect();
        (!lines.is_empty()).then(|| lines.join("\n"))
    }
}

/// Whether more than half of the observation stands in the text; of a short one, all of it.
fn tells_it_all(text: &str, observation: &str) -> bool {
    let whole = observation.split_whitespace().collect::<Vec<_>>().join(" ");
    (whole.chars().count() > 3 && text.contains(&whole)) || copied(text, observation, "") > MAX_COPIED
}

/// The instructions in a reply: the last JSON object with `instructions`.
fn listed(content: &str) -> Option<Vec<(usize, String)>> {
    #[derive(Deserialize)]
    struct Listed {
        instructions: Vec<One>,
    }
    #[derive(Deserialize)]
    struct One {
        turn: usize,
        instruction: String,
    }
    let end = content.rfind('}')? + 1;
    let starts = content.match_indices('{').map(|(at, _)| at);
    let found = starts.filter_map(|at| serde_json::from_str::<Listed>(content.get(at..end)?).ok()).next()?;
    Some(found.instructions.into_iter().map(|one| (one.turn, one.instruction)).collect())
}

#[cfg(test)]
mod tests {
    use super::{listed, tells_it_all};

    #[test]
    fn instructions_are_read_from_an_object_with_or_without_words_around_it() {
        let object = r#"{"instructions": [{"turn": 2, "instruction": "The command fails."}]}"#;
        for reply in [object.to_string(), format!("Here:\n```json\n{object}\n```"), format!("{{not this}} {object}")] {
            assert_eq!(listed(&reply), Some(vec![(2, "The command fails.".to_string())]), "{reply}");
        }
        for reply in ["", "no object", "{", "}{", r#"{"instructions": "none"}"#, r#"{"instructions": [{"turn": -1}]}"#]
        {
            assert_eq!(listed(reply), None, "{reply}");
        }
    }

    #[test]
    fn an_instruction_may_tell_half_of_an_observation_and_no_more() {
        assert!(tells_it_all("Print the line `permission denied`.", "permission denied\n"));
        assert!(tells_it_all("List a long name.txt, then another name.txt", "a long name.txt\nanother name.txt\n"));
        assert!(!tells_it_all(
            "The output begins with `a long name.txt`.",
            "a long name.txt\nand a longer other name.txt\n"
        ));
        assert!(!tells_it_all("The command prints 4.", "4\n"), "a number can only be told");
        assert!(!tells_it_all("The command prints nothing.", ""));
    }
}
