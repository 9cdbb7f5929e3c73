//! The formats we read: one module each, one line each in [`SOURCES`].
//!
//! A new format is a type with [`Source`] and an entry in the list. Detection asks the sources in order, so a narrower
//! format stands before a wider one. [`Draft`] fills in what every trajectory needs.

mod agent_instruct;
mod agentnet_bench;
mod agentnet_recording;
mod agentworld;
mod aitw;
mod android_actions;
mod android_control;
mod android_control_records;
mod android_elements;
mod android_history;
mod android_world;
mod appagent;
mod asciicast;
mod atif;
mod autodroid;
mod blob;
mod blocks;
mod browsergym;
mod chat;
mod chatml;
mod claude_code;
mod cline;
mod codex;
mod content;
mod copilot;
pub(crate) mod corpus;
mod cursor;
mod domain;
mod droid;
mod fireact;
mod format;
mod gemini;
mod har;
mod inspect;
mod intercode;
mod kimi;
mod livemcp;
mod llamatouch;
mod mapped;
mod messages;
mod mini_swe;
mod miniwob;
mod miniwob_gestures;
mod opencode;
mod openhands;
mod openhands_events;
mod openhands_llm;
mod osworld;
mod pc_tracker;
mod pi;
mod react;
mod records;
mod reflexion;
mod screenagent;
mod screens;
mod session;
mod sharegpt;
mod swe_agent;
mod tags;
mod tarko;
mod tau_bench;
mod terminal_bench;
mod tree;
mod uiautomator;
mod webdancer;
mod webshop;
mod webvoyager;

pub(crate) use mapped::MappedSource;

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use worldloom_schema::{Domain, System, Trajectory, Turn, trajectory_id};

use crate::episode::Finished;
use crate::json::{self, Fields};
use crate::piece::{FilePiece, FolderPiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Every format, in the order of detection: a narrower one stands before a wider one.
static SOURCES: &[&dyn Source] = &[
    &android_world::AndroidWorld,
    &android_history::AndroidHistory,
    &android_control::AndroidControl,
    &android_control_records::FORMAT,
    &aitw::STEPS,
    &aitw::EPISODES,
    &appagent::AppAgent,
    &llamatouch::Trace,
    &llamatouch::Run,
    &autodroid::Exploration,
    &autodroid::Profiles,
    &miniwob::MiniWob,
    &agentnet_recording::AgentNetRecording,
    &agentnet_bench::AgentNetBench,
    &screenagent::ScreenAgent,
    &pc_tracker::PcTracker,
    &osworld::OsWorld,
    &browsergym::FORMAT,
    &browsergym::STEPS,
    &har::FORMAT,
    &terminal_bench::TerminalBench,
    &asciicast::Asciicast,
    &agentworld::AgentWorld,
    &atif::Atif,
    &claude_code::ClaudeCode,
    &livemcp::LiveMcp,
    &tau_bench::TauBench,
    &webdancer::WebDancer,
    &openhands_llm::OpenHandsLlm,
    &opencode::Storage,
    &opencode::EXPORT,
    &swe_agent::FORMAT,
    &openhands_events::Folder,
    &openhands_events::ROW,
    &openhands_events::LIST,
    &openhands::FORMAT,
    &openhands::EVENTS,
    &pi::FORMAT,
    &tarko::FORMAT,
    &inspect::Archive,
    &inspect::FORMAT,
    &intercode::FORMAT,
    &fireact::FORMAT,
    &reflexion::FORMAT,
    &webshop::FORMAT,
    &webshop::NOTEBOOK,
    &gemini::FORMAT,
    &gemini::LINES,
    &kimi::FORMAT,
    &copilot::FORMAT,
    &droid::FORMAT,
    &codex::FORMAT,
    &cursor::FORMAT,
    &cline::Cline,
    &mini_swe::MiniSwe,
    &webvoyager::WebVoyager,
    &chat::Chat,
    &agent_instruct::AgentInstruct,
    &sharegpt::ShareGpt,
    &chatml::ROW,
    &chatml::FILE,
];

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
    names_of(SOURCES)
}

/// The names of some formats.
pub(crate) fn names_of(formats: &[&dyn Source]) -> String {
    formats.iter().map(|source| source.name()).collect::<Vec<_>>().join(", ")
}

/// The format of this name.
pub(crate) fn by_name(name: &str) -> Option<&'static dyn Source> {
    SOURCES.iter().copied().find(|source| source.name() == name)
}

/// Every format of logs.
pub(crate) fn all() -> &'static [&'static dyn Source] {
    SOURCES
}

/// The format of this row, whatever file it is in.
pub(crate) fn detect_row<'s>(formats: &[&'s dyn Source], row: &str) -> Option<&'s dyn Source> {
    let rows = formats.iter().copied().filter(|source| source.shape() == Shape::Row);
    rows.into_iter().find(|source| source.detects(&Piece::Row(row)))
}

/// The format of a file from its head: one for whole files, or one for rows by the first row.
pub(crate) fn detect_file<'s>(formats: &[&'s dyn Source], file: &FilePiece<'_>) -> Option<&'s dyn Source> {
    formats.iter().copied().find(|source| match source.shape() {
        Shape::Row => file.first_row.is_some_and(|row| source.detects(&Piece::Row(row))),
        Shape::File => source.detects(&Piece::File(file)),
        Shape::Folder => false,
    })
}

/// The format of a folder.
pub(crate) fn detect_folder<'s>(formats: &[&'s dyn Source], folder: &FolderPiece<'_>) -> Option<&'s dyn Source> {
    let folders = formats.iter().copied().filter(|source| source.shape() == Shape::Folder);
    folders.into_iter().find(|source| source.detects(&Piece::Folder(folder)))
}

/// Where a piece comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Origin<'a> {
    /// The file or folder, relative to the input.
    pub(crate) file: &'a str,
    /// The row, from 0.
    pub(crate) row: u64,
    /// Where the row starts, in bytes of the unpacked file.
    pub(crate) offset: u64,
    /// Name of the source for pieces that do not say.
    pub(crate) source: &'a str,
}

impl Origin<'_> {
    /// The same file at another row.
    pub(crate) fn at(&self, row: u64, offset: u64) -> Self {
        Self { row, offset, ..*self }
    }
}

/// One upstream format.
pub(crate) trait Source: Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// What a user should know.
    fn info(&self) -> FormatInfo;
    /// How much of the input one reading takes; `detects` and `read` are given pieces of this shape only.
    fn shape(&self) -> Shape;
    /// Whether this piece, well formed or not, is of this format. A [`Shape::File`] source sees the head of the file
    /// and its first row; the folder's files are not read unless the source does.
    fn detects(&self, piece: &Piece<'_>) -> bool;
    /// Of a [`Shape::Folder`] source: whether this entry of a detected folder belongs to its episode. The others are
    /// read by themselves.
    fn takes(&self, _entry: &str) -> bool {
        true
    }
    /// Reads one piece. Gives each trajectory or refusal to `out`, so that one bad episode does not lose the file; a
    /// refusal that is returned is that of the whole piece.
    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal>;
}

/// A trajectory in the making: what a source found, before what every trajectory needs is filled in.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Name of the format.
    pub(crate) format: &'static str,
    /// Name of the source, where the piece says.
    pub(crate) source: Option<String>,
    /// The kind of environment; without it, [`domain::guess`].
    pub(crate) domain: Option<Domain>,
    /// What may not be split between training and evaluation; without it, the hash of the normalised task.
    pub(crate) task_group: Option<String>,
    pub(crate) licence: Option<String>,
    pub(crate) system: System,
    pub(crate) turns: Vec<Turn>,
    pub(crate) outcome: worldloom_schema::Outcome,
}

impl Draft {
    /// The trajectory; one without a turn is refused.
    pub(crate) fn finish(mut self, origin: &Origin<'_>) -> Result<Trajectory, Refusal> {
        if self.turns.is_empty() {
            return Err(Refusal::new("no_turns", "no action with a result"));
        }
        for (index, turn) in self.turns.iter_mut().enumerate() {
            turn.index = index as u32;
            blob::shorten(&mut turn.observation);
            blob::shorten(&mut turn.action);
        }
        let domain = self.domain.unwrap_or_else(|| domain::guess(&self.turns));
        Ok(Trajectory {
            trajectory_id: trajectory_id(&self.system, &self.turns),
            source: self.source.unwrap_or_else(|| origin.source.into()),
            source_path: origin.file.into(),
            source_row: origin.row,
            format: self.format.into(),
            domain,
            task_group: self.task_group.unwrap_or_else(|| hash_task(&self.system.task_description)),
            licence: self.licence,
            system: self.system,
            turns: self.turns,
            outcome: self.outcome,
            pool: None,
        })
    }
}

/// What chat-like rows say beside their messages.
pub(crate) struct Facts {
    /// Name of the format.
    pub(crate) format: &'static str,
    /// The agent's own system prompt: the action space where the row lists no tools, the task of last resort.
    pub(crate) agent_prompt: String,
}

impl Facts {
    pub(crate) fn of(format: &'static str, agent_prompt: String) -> Self {
        Self { format, agent_prompt }
    }
}

/// A trajectory from the fields of a row and its finished episode, ready to change where a source knows better.
///
/// The task is the field `task`, else the user's words before the first action, else the agent's system prompt. The
/// action space is the field `tools`, else that prompt. The task group is the field `task_group`, else `instance_id`,
/// else the hash of the task in lower case with single spaces. The domain is the field `domain`, else guessed from the
/// tools called ([`domain::guess`]).
pub(crate) fn assemble(fields: &Fields<'_>, facts: Facts, finished: Finished) -> Result<Draft, Refusal> {
    let Finished { task, turns, counts } = finished;
    if turns.is_empty() {
        let calls = counts.get("calls_without_a_result").copied().unwrap_or(0);
        return Err(Refusal::new("no_turns", format!("no action with a result; {calls} calls have none")));
    }
    let task = json::text(fields, "task").ok().flatten().or(Some(task).filter(|task| !task.trim().is_empty()));
    let prompt = Some(facts.agent_prompt).filter(|prompt| !prompt.trim().is_empty());
    let action_space = action_space(fields).or_else(|| prompt.clone().filter(|_| task.is_some()));
    let system = System {
        task_description: task.or(prompt).unwrap_or_default(),
        action_space,
        initial_state: json::text(fields, "initial_state")?,
        demonstrations: Vec::new(),
        simulation_instruction: json::text(fields, "simulation_instruction")?,
    };
    let domain = json::text(fields, "domain")?.map(|name| Domain::from_str(&name)).transpose();
    let outcome = worldloom_schema::Outcome {
        reward: json::number(fields, "reward")?,
        success: json::boolean(fields, "success")?.or(json::boolean(fields, "resolved")?),
    };
    let group = |name: &str| json::text(fields, name).ok().flatten().filter(|group| !group.is_empty());
    Ok(Draft {
        format: facts.format,
        source: json::text(fields, "source")?,
        domain: domain.map_err(|detail| Refusal::new("domain", detail))?,
        task_group: json::text(fields, "task_group")?.or_else(|| group("instance_id")),
        licence: json::text(fields, "license")?.or(json::text(fields, "licence")?),
        system,
        turns,
        outcome,
    })
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

/// The group of a task that has no name: the same words in another case or spacing are the same task.
pub(crate) fn hash_task(task: &str) -> String {
    let normalised = task.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    format!("task-{}", &blake3::hash(normalised.as_bytes()).to_hex()[..16])
}
