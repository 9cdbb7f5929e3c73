//! WebVoyager runs: a list of messages, the agent's `Thought:` and `Action:` as text, a page's elements as a list.
//!
//! The harness replaced older observations by "(Omitted in context.)": such a turn has `observation_kind = image`, no
//! text and the flag `omitted:context`, so that nobody learns the sentence. Of the others, the words with which the
//! harness asks for the next action are taken off; the screenshot is left out and marked.
//! Task group: `webvoyager/` and the task's name in the file's name, else the site.

use worldloom_schema::{ActionKind, Domain, ObservationKind, System};

use super::{Draft, FormatInfo, Origin, Source, chat, content};
use crate::episode::{Answer, Episode};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::{Refusal, count};

const OMITTED: &str = "(Omitted in context.)";
/// The harness's request, from and to.
const REQUEST: (&str, &str) = ("please analyze the attached screenshot", "textual information.");
const TASK: &str = "Now given a task:";
const SITE: &str = "Please interact with";

/// The format.
pub(crate) struct WebVoyager;

impl Source for WebVoyager {
    fn name(&self) -> &'static str {
        "webvoyager"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "WebVoyager messages: `Action:` as text, numbered page elements and screenshots".into(),
            example: r#"[{"role": "system", "content": "Imagine you are a robot browsing the web."}, {"role": "user", "content": "Now given a task: Find a pear pie.  Please interact with https://example.org/ and get the answer.Observation: A screenshot and some texts. (Omitted in context.)"}, {"role": "assistant", "content": "Thought: I click.\n\nAction: Click [2]"}, {"role": "user", "content": [{"type": "text", "text": "Observation: please analyze the attached screenshot and give the Thought and Action. Refer to the textual information.\n[0]: <button> \"Pies\";"}, {"type": "image_url", "image_url": {"url": "data:"}}]}]"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.row().is_some_and(|row| {
            row.trim_start().starts_with('[') && row.contains(TASK) && row.contains(SITE) && row.contains("Action: ")
        })
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let (_, messages) = chat::parts(piece.row().unwrap_or_default())?;
        let (mut episode, mut system, mut site) = (Episode::default(), System::default(), String::new());
        for (at, raw) in messages.iter().enumerate() {
            let Value::Object(message) = Value::of(raw)? else {
                return Err(Refusal::new("message_type", format!("messages[{at}]: expected an object")));
            };
            let content = content::read(message.get("content").copied(), out.counts)?;
            match json::text(&message, "role")?.unwrap_or_default().as_str() {
                "system" => system.action_space = Some(content.text),
                "assistant" => add_action(&content.text, &mut episode),
                _ if !episode.has_calls() => (site, system) = add_task(&content.text, system),
                _ => episode.answer(observation(&content.text)),
            }
        }
        let mut finished = episode.finish();
        out.add_counts(&finished.counts);
        for turn in &mut finished.turns {
            let is_omitted = turn.flag("omitted").is_some();
            count(out.counts, "observations_omitted_by_the_harness", u64::from(is_omitted));
            turn.observation_kind = if is_omitted { ObservationKind::Image } else { ObservationKind::Tree };
        }
        let draft = Draft {
            format: self.name(),
            domain: Some(Domain::Web),
            task_group: Some(format!("{}/{}", self.name(), task_name(origin.file).unwrap_or(&site))),
            system,
            turns: finished.turns,
            ..Draft::default()
        };
        out.push(draft.finish(origin)?);
        Ok(())
    }
}

/// `taskAmazon--0` in a path such as `examples/taskAmazon--0/interact_messages.json`.
fn task_name(file: &str) -> Option<&str> {
    let start = file.rfind("task").map(|at| at + "task".len())?;
    let name = file[start..].split(['/', '.']).next()?;
    name.contains("--").then_some(name)
}

fn add_action(text: &str, episode: &mut Episode) {
    let Some((thought, action)) = text.split_once("Action:") else {
        episode.thoughts(text);
        return;
    };
    let thought = thought.trim();
    episode.thoughts(thought.strip_prefix("Thought:").unwrap_or(thought));
    episode.start_batch();
    episode.act(None, String::new(), action.trim().to_string(), ActionKind::Text, Vec::new());
}

/// The task and the site from the first message, and the first observation as the initial state.
fn add_task(text: &str, system: System) -> (String, System) {
    let (task, state) = text.split_once("Observation:").unwrap_or((text, ""));
    let task = task.trim().strip_prefix(TASK).unwrap_or(task).trim();
    let site = task.rsplit_once(SITE).map_or("", |(_, rest)| rest.split_whitespace().next().unwrap_or(""));
    let state = observation(state);
    let initial_state = Some(state.text).filter(|text| !text.is_empty());
    (site.to_string(), System { task_description: task.into(), initial_state, ..system })
}

fn observation(text: &str) -> Answer {
    if text.contains(OMITTED) {
        return Answer { is_image_only: true, flags: vec!["omitted:context".into()], ..Answer::default() };
    }
    let text = text.trim().strip_prefix("Observation:").unwrap_or(text.trim());
    let range = text.find(REQUEST.0).and_then(|start| {
        let end = text[start..].find(REQUEST.1)?;
        Some(start..start + end + REQUEST.1.len())
    });
    let mut text = text.to_string();
    if let Some(range) = range {
        text.replace_range(range, "");
    }
    Answer { text: text.trim().to_string(), ..Answer::default() }
}
