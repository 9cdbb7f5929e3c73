//! FireAct's ReAct trajectories; see [`react`](super::react) for the text and the task group.

use worldloom_schema::Domain;

use super::format::{Drafts, RowFormat, episodes, holds};
use super::react::{self, Label, Part, mark_harness};
use super::{Draft, Origin};
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "fireact",
    description: "FireAct trajectories: a JSON object of questions with ReAct text or chat in `traj`",
    example: r#"{"17": {"reward": true, "em": true, "f1": 1.0, "gt": "plum", "pred": "plum", "prompt": [], "traj": [{"role": "user", "content": "Which fruit?"}, {"role": "assistant", "content": "Thought: I need to search.\nAction: search[fruit]"}, {"role": "user", "content": "Observation: A plum is a fruit."}]}}"#,
    detects,
    read,
};

/// How an episode ends.
const VERDICT: &str = "Episode finished, reward = ";
/// Where the answer begins in the one text.
const RESPONSE: &str = "### Response:\n";
/// Where the question begins in it.
const INSTRUCTION: &str = "### Instruction:\n";

fn detects(fields: &Fields<'_>) -> bool {
    holds(fields, is_episode)
}

fn is_episode(fields: &Fields<'_>) -> bool {
    ["traj", "reward", "gt", "pred"].iter().all(|name| fields.contains_key(*name))
}

/// The episodes of a row.
fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    episodes(fields, is_episode, episode, counts)
}

fn episode(fields: &Fields<'_>, counts: &mut Counts) -> Result<Draft, Refusal> {
    let (question, parts) = match fields.get("traj").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::Text(text)) => told_in_text(&text)?,
        Some(Value::List(_)) => told_in_chat(&json::objects(fields, "traj")?, counts)?,
        other => {
            return Err(Refusal::field_type("traj", "a text or a list", other.map_or("nothing", |value| value.kind())));
        }
    };
    let mut turns = react::turns(parts, counts);
    turns.iter_mut().filter(|turn| turn.observation.starts_with(VERDICT)).for_each(mark_harness);
    let mut draft = react::draft(Domain::Search, question, turns);
    draft.outcome.success = json::boolean(fields, "em")?;
    draft.outcome.reward = json::number(fields, "reward")?;
    Ok(draft)
}

fn told_in_text(text: &str) -> Result<(String, Vec<Part>), Refusal> {
    let missing = || Refusal::new("no_response", "`traj` has no `### Response:`");
    let (head, answer) = text.split_once(RESPONSE).ok_or_else(missing)?;
    let question = head.rsplit_once(INSTRUCTION).map_or(head, |(_, question)| question);
    Ok((question.trim().into(), react::parts(answer)))
}

/// Of an assistant's message the first action was run; the environment answers in the next message.
fn told_in_chat(messages: &[Fields<'_>], counts: &mut Counts) -> Result<(String, Vec<Part>), Refusal> {
    let (mut question, mut parts) = (None, Vec::new());
    for message in messages {
        let content = json::text(message, "content")?.unwrap_or_default();
        match (json::text(message, "role")?.as_deref(), content.strip_prefix("Observation: ")) {
            (Some("user"), Some(text)) => parts.push(Part { label: Label::Observation, text: text.into() }),
            (Some("user"), None) if question.is_none() => question = Some(content),
            (Some("assistant"), _) => parts.extend(react::parts(&content)),
            _ => count(counts, "user_messages_in_the_middle", 1),
        }
    }
    Ok((question.unwrap_or_default().trim().into(), parts))
}
