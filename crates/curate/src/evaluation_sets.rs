//! Evaluation sets of any kind, read for decontamination: what they say, and their task groups.
//!
//! A set is a file or a folder. Of a folder of pools only `eval.parquet` is read; of other folders every file with a
//! known ending. `.parquet`: trajectories of ours, as the words of their actions and observations. `.jsonl`, `.json`:
//! one text per object, from `prompt` and `response` in turn where it has them (benchmark rows), else from all its
//! strings; a `task_group` is taken. Anything else is one text.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;
use worldloom_schema::{Pool, TableReader, Trajectory};

use crate::error::{Error, Result};
use crate::overlap::OverlapBuilder;
use crate::run::pool_file;
use crate::words::add_words;

const ENDINGS: [&str; 5] = ["parquet", "jsonl", "json", "txt", "md"];

/// What evaluation sets hold.
pub(crate) struct EvaluationSets {
    pub(crate) runs: OverlapBuilder,
    pub(crate) task_groups: BTreeSet<String>,
    /// Texts read.
    pub(crate) texts: u64,
}

/// Reads all sets; `runs` takes what they say.
pub(crate) fn read(paths: &[PathBuf], runs: OverlapBuilder) -> Result<EvaluationSets> {
    let mut reading = Reading { runs, words: Vec::new(), groups: BTreeSet::new(), texts: 0 };
    for path in paths {
        let before = reading.texts;
        files(path)?.iter().try_for_each(|file| reading.file(file))?;
        if reading.texts == before {
            return Err(Error::EmptyEvaluationSet { path: path.clone() });
        }
    }
    let Reading { runs, groups, texts, .. } = reading;
    Ok(EvaluationSets { runs, task_groups: groups, texts })
}

/// The files of a set, sorted.
pub(crate) fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !fs_err::metadata(path)?.is_dir() {
        return Ok(vec![path.into()]);
    }
    let pool = path.join(pool_file(Pool::Eval));
    if pool.exists() {
        return Ok(vec![pool]);
    }
    let mut found = Vec::new();
    for entry in fs_err::read_dir(path)? {
        let entry = entry?.path();
        if entry.is_dir() {
            found.extend(files(&entry)?);
        } else if ENDINGS.contains(&ending(&entry).as_str()) {
            found.push(entry);
        }
    }
    found.sort();
    Ok(found)
}

fn ending(path: &Path) -> String {
    path.extension().map(|ending| ending.to_string_lossy().to_lowercase()).unwrap_or_default()
}

struct Reading {
    runs: OverlapBuilder,
    words: Vec<u64>,
    groups: BTreeSet<String>,
    texts: u64,
}

impl Reading {
    fn file(&mut self, path: &Path) -> Result<()> {
        match ending(path).as_str() {
            "parquet" => self.trajectories(path),
            "jsonl" => self.rows(path),
            "json" => {
                let text = fs_err::read_to_string(path)?;
                let value = serde_json::from_str(&text).map_err(|error| wrong_json(path, 0, &error))?;
                match value {
                    Value::Array(rows) => rows.iter().try_for_each(|row| self.object(row)),
                    value => self.object(&value),
                }
            }
            _ => {
                add_words(&String::from_utf8_lossy(&fs_err::read(path)?), &mut self.words);
                self.close()
            }
        }
    }

    fn trajectories(&mut self, path: &Path) -> Result<()> {
        for trajectory in TableReader::<Trajectory>::open(path)? {
            let trajectory = trajectory?;
            for turn in &trajectory.turns {
                add_words(&turn.action, &mut self.words);
                add_words(&turn.observation, &mut self.words);
            }
            self.groups.insert(trajectory.task_group);
            self.close()?;
        }
        Ok(())
    }

    /// Lines end at `\n` only: texts hold other line ends.
    fn rows(&mut self, path: &Path) -> Result<()> {
        for (row, line) in BufReader::new(fs_err::File::open(path)?).split(b'\n').enumerate() {
            let line = line?;
            let text = String::from_utf8_lossy(&line);
            if !text.trim().is_empty() {
                self.object(&serde_json::from_str(&text).map_err(|error| wrong_json(path, row, &error))?)?;
            }
        }
        Ok(())
    }

    fn object(&mut self, row: &Value) -> Result<()> {
        if let Some(group) = row.get("task_group").and_then(Value::as_str) {
            self.groups.insert(group.into());
        }
        match (row.get("prompt"), row.get("response")) {
            (Some(Value::Array(prompts)), Some(Value::Array(responses))) => {
                for at in 0..prompts.len().max(responses.len()) {
                    [prompts.get(at), responses.get(at)].into_iter().flatten().for_each(|text| self.strings(text));
                }
            }
            (Some(prompt), Some(response)) => [prompt, response].into_iter().for_each(|text| self.strings(text)),
            _ => self.strings(row),
        }
        self.close()
    }

    fn strings(&mut self, value: &Value) {
        match value {
            Value::String(text) => add_words(text, &mut self.words),
            Value::Array(items) => items.iter().for_each(|item| self.strings(item)),
            Value::Object(fields) => fields.values().for_each(|field| self.strings(field)),
            _ => {}
        }
    }

    fn close(&mut self) -> Result<()> {
        if !self.words.is_empty() {
            self.runs.add(&self.words)?;
            self.texts += 1;
        }
        self.words.clear();
        Ok(())
    }
}

fn wrong_json(path: &Path, row: usize, error: &serde_json::Error) -> Error {
    Error::EvaluationSet { path: path.into(), row, detail: error.to_string() }
}
