//! Messages of content blocks as Anthropic's API has them: `text`, `thinking`, `tool_use`, `tool_result`. Results stand
//! in messages of the user; calls without ids are answered by order.

use crate::episode::{Answer, Call, Episode};
use crate::json::{self, Fields, Value};
use crate::refusal::{Counts, Refusal, count};

/// Adds a message `{role, content}` to an episode.
pub(crate) fn add(message: &Fields<'_>, episode: &mut Episode, counts: &mut Counts) -> Result<(), Refusal> {
    let is_agent = json::text(message, "role")?.as_deref() == Some("assistant");
    let mut words = Vec::new();
    if is_agent {
        episode.start_batch();
    }
    match message.get("content").map(|raw| Value::of(raw)).transpose()? {
        Some(Value::Text(text)) => words.push(text),
        Some(Value::List(_)) => {
            for block in json::objects(message, "content")? {
                words.extend(add_block(&block, episode, counts)?);
            }
        }
        _ => {}
    }
    if is_agent {
        words.iter().for_each(|words| episode.thoughts(words));
    } else if !words.is_empty() {
        let words = without_reminders(&words.join("\n"), counts);
        if !words.trim().is_empty() {
            episode.user(words);
        }
    }
    Ok(())
}

/// Adds a block; its words, if it has some.
fn add_block(block: &Fields<'_>, episode: &mut Episode, counts: &mut Counts) -> Result<Option<String>, Refusal> {
    match json::text(block, "type")?.unwrap_or_default().as_str() {
        "text" => return json::text(block, "text"),
        "thinking" => episode.thoughts(&json::text(block, "thinking")?.unwrap_or_default()),
        "tool_use" => episode.call(Call {
            id: json::text(block, "id")?,
            name: json::text(block, "name")?.unwrap_or_default(),
            arguments: block.get("input").map(|raw| raw.get().into()),
        }),
        "tool_result" => {
            let content = super::content::read(block.get("content").copied(), counts)?;
            episode.answer(Answer {
                id: json::text(block, "tool_use_id")?,
                is_image_only: content.images > 0 && content.text.is_empty(),
                text: content.text,
                is_error: json::boolean(block, "is_error")?,
                ..Answer::default()
            });
        }
        kind if kind.contains("image") => {
            count(counts, "images_left_out", 1);
            return Ok(Some("[image]".into()));
        }
        _ => count(counts, "blocks_of_unknown_type", 1),
    }
    Ok(None)
}

/// The user's words without what the harness added in `<system-reminder>`, which is counted.
pub(crate) fn without_reminders(words: &str, counts: &mut Counts) -> String {
    let (open, close) = ("<system-reminder>", "</system-reminder>");
    let mut kept = String::with_capacity(words.len());
    let mut rest = words;
    while let Some((before, after)) = rest.split_once(open) {
        let Some((_, after)) = after.split_once(close) else { break };
        count(counts, "harness_notes_left_out", 1);
        kept.push_str(before);
        rest = after.trim_start_matches('\n');
    }
    kept.push_str(rest);
    kept
}
