//! The formats we read: one module each, one line each in [`SOURCES`].
//!
//! A new format is a type with [`Source`] and an entry in the list. Detection asks the sources in order, so a narrower
//! format stands before a wider one.

mod chat;
mod content;
mod sharegpt;

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use worldloom_schema::{ActionKind, Domain, System, Trajectory, Turn, trajectory_id};

use crate::episode::Finished;
use crate::json::{self, Fields};
use crate::refusal::{Counts, Refusal};

/// Every format, in the order of detection.
static SOURCES: [&dyn Source; 2] = [&chat::Chat, &sharegpt::ShareGpt];

/// What a user should know of a format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormatInfo {
    /// The name for `format` in the config and `--format`.
    pub name: String,
    /// One line.
    pub description: String,
    /// A row of it.
    pub example: String,
}

/// All formats that can be read.
pub fn formats() -> Vec<FormatInfo> {
    SOURCES.iter().map(|source| source.info()).collect()
}

/// The names of all formats, for errors.
pub(crate) fn names() -> String {
    SOURCES.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ")
}

/// The format of this name.
pub(crate) fn by_name(name: &str) -> Option<&'static dyn Source> {
    SOURCES.into_iter().find(|source| source.name() == name)
}

/// The format of this row.
pub(crate) fn detect(row: &str) -> Option<&'static dyn Source> {
    SOURCES.into_iter().find(|source| source.detects(row))
}

/// Where a row comes from.
pub(crate) struct Origin<'a> {
    /// The file, relative to the input.
    pub(crate) file: &'a str,
    /// The row, from 0.
    pub(crate) row: u64,
    /// Name of the source for rows that do not say.
    pub(crate) source: &'a str,
}

/// What a row gave.
#[derive(Debug)]
pub(crate) struct Reading {
    /// At least one; logs of several agents give several.
    pub(crate) trajectories: Vec<Trajectory>,
    /// Repairs and things left out.
    pub(crate) counts: Counts,
}

/// One upstream format.
pub(crate) trait Source: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What a user should know.
    fn info(&self) -> FormatInfo;
    /// Whether this row, valid JSON or not, is of this format.
    fn detects(&self, row: &str) -> bool;
    /// Reads one row.
    fn read(&self, row: &str, origin: &Origin<'_>) -> Result<Reading, Refusal>;
}

/// What chat-like rows say beside their messages.
pub(crate) struct Facts {
    /// Name of the format.
    pub(crate) format: &'static str,
    /// The agent's own system prompt, the task of last resort.
    pub(crate) agent_prompt: String,
}

/// A trajectory from the fields of a row and its finished episode.
///
/// The task is the field `task`, else the user's words before the first action. The task group is the field
/// `task_group`, else the hash of the task in lower case with single spaces. The domain is the field `domain`, else
/// `terminal` where half of the actions are commands, else `mcp`.
pub(crate) fn assemble(
    fields: &Fields<'_>,
    facts: Facts,
    finished: Finished,
    origin: &Origin<'_>,
) -> Result<Reading, Refusal> {
    let Finished { task, turns, counts } = finished;
    if turns.is_empty() {
        let calls = counts.get("calls_without_a_result").copied().unwrap_or(0);
        return Err(Refusal::new("no_turns", format!("no action with a result; {calls} calls have none")));
    }
    let task = Some(task).filter(|task| !task.trim().is_empty());
    let system = System {
        task_description: json::text(fields, "task")?.or(task).unwrap_or(facts.agent_prompt),
        action_space: action_space(fields),
        initial_state: json::text(fields, "initial_state")?,
        demonstrations: Vec::new(),
        simulation_instruction: json::text(fields, "simulation_instruction")?,
    };
    let domain = match json::text(fields, "domain")? {
        Some(name) => Domain::from_str(&name).map_err(|detail| Refusal::new("domain", detail))?,
        None => guess_domain(&turns),
    };
    let task_group = json::text(fields, "task_group")?;
    let licence = json::text(fields, "license")?.or(json::text(fields, "licence")?);
    let outcome = worldloom_schema::Outcome {
        reward: json::number(fields, "reward")?,
        success: json::boolean(fields, "success")?.or(json::boolean(fields, "resolved")?),
    };
    let trajectory = Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: json::text(fields, "source")?.unwrap_or_else(|| origin.source.into()),
        source_path: origin.file.into(),
        source_row: origin.row,
        format: facts.format.into(),
        domain,
        task_group: task_group.unwrap_or_else(|| hash_task(&system.task_description)),
        licence,
        system,
        turns,
        outcome,
        pool: None,
    };
    Ok(Reading { trajectories: vec![trajectory], counts })
}

/// The tools as the JSON text they came as; a string is taken as it is.
fn action_space(fields: &Fields<'_>) -> Option<String> {
    let raw = fields.get("tools").or_else(|| fields.get("functions"))?.get();
    match json::Value::parse(raw).ok()? {
        json::Value::Null => None,
        json::Value::Text(text) => Some(text),
        _ => Some(raw.to_string()),
    }
}

fn guess_domain(turns: &[Turn]) -> Domain {
    let commands = turns.iter().filter(|turn| turn.action_kind == ActionKind::Command).count();
    if 2 * commands >= turns.len() { Domain::Terminal } else { Domain::Mcp }
}

/// The group of a task that has no name: the same words in another case or spacing are the same task.
fn hash_task(task: &str) -> String {
    let normalised = task.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("task-{}", &blake3::hash(normalised.as_bytes()).to_hex()[..16])
}
