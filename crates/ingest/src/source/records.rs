//! What the session files of coding agents share: one file is one session, one record a row.

use super::Draft;
use super::format::{Drafts, Found};
use crate::episode::Episode;
use crate::json::{Fields, Value};
use crate::piece::FilePiece;
use crate::refusal::{Counts, Refusal, count};

/// Reads the records of a session in order. A record that is no JSON object, such as the last of a session that was
/// cut, becomes a refusal of its row and leaves the session whole.
pub(crate) fn read(
    file: &FilePiece<'_>,
    counts: &mut Counts,
    mut add: impl FnMut(&Fields<'_>, &mut Counts) -> Result<(), Refusal>,
) -> Result<Drafts, Refusal> {
    let mut found = Drafts::new();
    for row in file.rows(counts) {
        let refused = match row.text.as_deref().map(Value::parse) {
            Ok(Ok(Value::Object(fields))) => {
                add(&fields, counts).map_err(|refusal| refusal.at("record", row.number as usize))?;
                continue;
            }
            Ok(Ok(other)) => Refusal::field_type("record", "an object", other.kind()),
            Ok(Err(error)) => Refusal::json(&error),
            Err(refusal) => refusal.clone(),
        };
        found.push(Found { row: row.number, offset: row.offset, draft: Err(refused) });
    }
    Ok(found)
}

/// The episode of a session, its counts added to `counts`.
pub(crate) fn draft(episode: Episode, task_group: Option<String>, counts: &mut Counts) -> Draft {
    let finished = episode.finish();
    finished.counts.iter().for_each(|(name, number)| count(counts, name, *number));
    let mut draft = Draft { turns: finished.turns, task_group, ..Draft::default() };
    draft.system.task_description = finished.task;
    draft
}
