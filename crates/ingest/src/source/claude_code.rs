//! Claude Code sessions: a JSONL file of records that form a tree by `parentUuid`.
//!
//! Taken: `user` and `assistant` records; the text of a result from its message (`toolUseResult` is a second copy).
//! An answer of the model is several records, one a block, and parallel calls with their results hang beside the path:
//! records of one message belong together, results are found by the id of their call. A trajectory is a path from a root to a leaf: the session itself, the part before a
//! compaction, a branch that was given up (if it has results of its own), and each sub-agent (`isSidechain`).
//! Left out, counted: records of other types, and words the program itself wrote (`isMeta`).
//! Task group: the hash of the session's first task, shared by all its paths.

use std::collections::{BTreeMap, BTreeSet};

use super::{Draft, FormatInfo, Origin, Source, domain, hash_task, messages};
use crate::episode::Episode;
use crate::json::{self, Value};
use crate::piece::{FilePiece, Piece, Shape, Sink};
use crate::refusal::Refusal;

/// The format.
pub(crate) struct ClaudeCode;

impl Source for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-code"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "Claude Code sessions: JSONL records with `parentUuid` and Anthropic messages".into(),
            example: concat!(
                r#"{"type": "user", "uuid": "1", "parentUuid": null, "isSidechain": false, "sessionId": "s", "message": {"role": "user", "content": "List the files."}}"#,
                "\n",
                r#"{"type": "assistant", "uuid": "2", "parentUuid": "1", "isSidechain": false, "sessionId": "s", "message": {"id": "m", "role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "ls"}}]}}"#,
                "\n",
                r#"{"type": "user", "uuid": "3", "parentUuid": "2", "isSidechain": false, "sessionId": "s", "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "notes.txt"}]}}"#
            )
            .into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(file) = piece.file() else { return false };
        let Some(first) = file.first_fields() else { return false };
        let head = String::from_utf8_lossy(file.bytes);
        let has = |name: &str| head.contains(&format!("\"{name}\""));
        first.contains_key("type") && has("parentUuid") && has("sessionId") && has("message") && !has("parts")
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        let records = records(file, out);
        let paths = paths(&records);
        let mut group = None;
        for path in paths {
            let first = &records[path[0]];
            let origin = origin.at(first.row, first.offset);
            if let Err(refusal) = read_path(&records, &path, &mut group, &origin, out) {
                out.refuse(first.row, first.offset, refusal);
            }
        }
        Ok(())
    }
}

/// One line of the file that takes part in the tree.
#[derive(Default)]
struct Record {
    row: u64,
    offset: u64,
    text: String,
    uuid: String,
    parent: Option<String>,
    is_sidechain: bool,
    /// `user` or `assistant`, with a message.
    speaks: bool,
    /// The message of the model that it is a part of.
    message_id: Option<String>,
    /// Ids of the calls in it.
    calls: Vec<String>,
    /// Ids of the calls whose results are in it.
    results: Vec<String>,
}

fn records(file: &FilePiece<'_>, out: &mut Sink<'_>) -> Vec<Record> {
    let mut records = Vec::new();
    for row in file.rows(out.counts) {
        let record = row.text.and_then(|text| record(text, row.number, row.offset));
        match record {
            Ok(Some(record)) => {
                out.count("records_of_other_types", u64::from(!record.speaks));
                records.push(record);
            }
            Ok(None) => out.count("records_of_other_types", 1),
            Err(refusal) => out.refuse(row.number, row.offset, refusal),
        }
    }
    records
}

/// None for a record that is not part of the tree.
fn record(text: String, row: u64, offset: u64) -> Result<Option<Record>, Refusal> {
    let fields = match Value::parse(&text).map_err(|error| Refusal::json(&error))? {
        Value::Object(fields) => fields,
        other => return Err(Refusal::field_type("record", "an object", other.kind())),
    };
    let Some(uuid) = json::text(&fields, "uuid")? else { return Ok(None) };
    let kind = json::text(&fields, "type")?.unwrap_or_default();
    let is_meta = json::boolean(&fields, "isMeta")?.unwrap_or(false);
    let message = json::object(&fields, "message").ok().flatten();
    let speaks = matches!(kind.as_str(), "user" | "assistant") && message.is_some() && !is_meta;
    let mut record = Record {
        row,
        offset,
        uuid,
        parent: json::text(&fields, "parentUuid")?,
        is_sidechain: json::boolean(&fields, "isSidechain")?.unwrap_or(false),
        speaks,
        ..Record::default()
    };
    record.message_id = message.as_ref().and_then(|message| json::text(message, "id").ok().flatten());
    if let Some(Value::List(blocks)) = message.and_then(|message| Value::of(message.get("content")?).ok()) {
        for block in blocks {
            if let Ok(Value::Object(block)) = Value::of(block) {
                match json::text(&block, "type").ok().flatten().as_deref() {
                    Some("tool_use") => record.calls.extend(json::text(&block, "id")?),
                    Some("tool_result") => record.results.extend(json::text(&block, "tool_use_id")?),
                    _ => {}
                }
            }
        }
    }
    drop(fields);
    record.text = text;
    Ok(Some(record))
}

/// The paths worth a trajectory, each as indices in file order; in the order of their first records, longest first.
fn paths(records: &[Record]) -> Vec<Vec<usize>> {
    let by_uuid: BTreeMap<&str, usize> =
        records.iter().enumerate().map(|(at, record)| (record.uuid.as_str(), at)).collect();
    let parent = |at: usize| {
        let parent = *by_uuid.get(records[at].parent.as_deref()?)?;
        (parent < at && records[parent].is_sidechain == records[at].is_sidechain).then_some(parent)
    };
    let inner: BTreeSet<usize> = (0..records.len()).filter_map(parent).collect();
    let mut covered = BTreeSet::new();
    let mut paths = Vec::new();
    for leaf in (0..records.len()).rev().filter(|at| !inner.contains(at)) {
        let mut path: BTreeSet<usize> = std::iter::successors(Some(leaf), |at| parent(*at)).collect();
        let messages: BTreeSet<&String> = path.iter().filter_map(|at| records[*at].message_id.as_ref()).collect();
        let is_part = |at: &usize| records[*at].message_id.as_ref().is_some_and(|id| messages.contains(id));
        let parts: Vec<usize> = (0..records.len()).filter(is_part).collect();
        path.extend(parts);
        let calls: BTreeSet<&String> = path.iter().flat_map(|at| &records[*at].calls).collect();
        let start = path.first().copied().unwrap_or(leaf);
        let answers = (start..records.len()).filter(|at| records[*at].results.iter().any(|id| calls.contains(id)));
        path.extend(answers.collect::<Vec<_>>());
        let results: BTreeSet<usize> = path.iter().copied().filter(|at| !records[*at].results.is_empty()).collect();
        let has_words = path.iter().any(|at| records[*at].speaks);
        if results.is_subset(&covered) && (!paths.is_empty() || !has_words) {
            continue;
        }
        covered.extend(results);
        paths.push(path.into_iter().collect::<Vec<_>>());
    }
    paths.sort_by_key(|path| (path[0], std::cmp::Reverse(path.len())));
    paths
}

fn read_path(
    records: &[Record],
    path: &[usize],
    group: &mut Option<String>,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    let mut reader = messages::Reader { counts: out.counts, episode: Episode::default(), agent_prompt: Vec::new() };
    for at in path {
        let record = &records[*at];
        if !record.speaks {
            continue;
        }
        let Value::Object(fields) = Value::parse(&record.text).map_err(|error| Refusal::json(&error))? else {
            continue;
        };
        let message = json::object(&fields, "message")?.unwrap_or_default();
        reader
            .add(&message)
            .map_err(|refusal| Refusal { detail: format!("row {}: {}", record.row, refusal.detail), ..refusal })?;
    }
    let log = reader.finish();
    let mut draft = Draft { format: "claude-code", turns: log.finished.turns, ..Draft::default() };
    draft.domain = Some(domain::guess_of_coding_agent(&draft.turns));
    draft.system.task_description = log.finished.task;
    let own = hash_task(&draft.system.task_description);
    draft.task_group = Some(group.get_or_insert(own).clone());
    out.push(draft.finish(origin)?);
    Ok(())
}
