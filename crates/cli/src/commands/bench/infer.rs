//! The first step: completions of every row, from an endpoint or from a checkpoint.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::{Context, Result, bail};
use clap::ArgMatches;
use serde_json::json;
use worldloom_judge::bench::{BenchRow, Counts, infer_rows, refuse, set_completion};
use worldloom_schema::hash_json;
use worldloom_world::engine::{Ask, Engine};
use worldloom_world::{Asked, Error, Request, Role, Sampling, refusal_text};

use super::super::world::{asked, start_engine};
use super::{endpoint, parameters, unless_stopped};
use crate::config::UserError;
use crate::progress::Progress;

/// Completions of a checkpoint that were had, one a line.
const PART_FILE: &str = "completions.part.jsonl";

pub(super) fn infer(matches: &ArgMatches, rows: &mut [BenchRow], out: &Path, stop: &AtomicBool) -> Result<Counts> {
    match (matches.get_one::<String>("endpoint"), matches.contains_id("model")) {
        (Some(url), _) => {
            let name = matches.get_one::<String>("model-name");
            let name =
                name.ok_or_else(|| UserError::new("--model-name is missing").hint("the model's name at the endpoint"))?;
            let client = endpoint(matches, url, name, "key-env", out, "model")?;
            let progress = Progress::new("infer");
            let mut hear = |done: u64, total: u64| progress.update(done, total);
            let parameters = parameters(matches);
            unless_stopped(infer_rows(&client, rows, &parameters, &mut hear), stop)
        }
        (None, true) => Local::new(matches, out)?.infer(rows, stop),
        (None, false) => {
            let error = UserError::new("no model to evaluate");
            Err(error.hint("--model DIR, or --endpoint URL --model-name NAME").into())
        }
    }
}

/// A checkpoint at work on rows.
struct Local {
    engine: Engine,
    asked: Asked,
    temperature: f32,
    max_new_tokens: usize,
    seed: u64,
    threads: usize,
    /// What tells its completions from those of other models and settings, beside the prompt's tokens.
    identity: serde_json::Value,
    known: HashMap<String, String>,
    part: Mutex<fs_err::File>,
}

impl Local {
    fn new(matches: &ArgMatches, out: &Path) -> Result<Self> {
        let folder = matches.get_one::<std::path::PathBuf>("model").cloned().unwrap_or_default();
        let threads = matches.get_one::<usize>("max-active").copied().unwrap_or(1).max(1);
        let engine = start_engine(matches, threads)?;
        let asked = asked(matches);
        let temperature = matches.get_one::<f64>("temperature").copied().unwrap_or_default() as f32;
        let max_new_tokens = matches.get_one::<u32>("max-tokens").copied().unwrap_or(1).max(1) as usize;
        let seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
        let weights = weights_key(&crate::steps::model_folder(&folder))?;
        let identity = json!([weights, matches.get_one::<String>("precision"), temperature, max_new_tokens, seed]);
        let (known, file) = open_part(&out.join(PART_FILE))?;
        let part = Mutex::new(file);
        Ok(Self { engine, asked, temperature, max_new_tokens, seed, threads, identity, known, part })
    }

    fn infer(&self, rows: &mut [BenchRow], stop: &AtomicBool) -> Result<Counts> {
        let (next, done, total) = (AtomicUsize::new(0), AtomicUsize::new(0), rows.len());
        let progress = Progress::new("infer");
        let outcomes: Vec<Mutex<Option<Result<Outcome>>>> = rows.iter().map(|_| Mutex::new(None)).collect();
        let (asked, rows_now) = (&outcomes, &*rows);
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(row) = rows_now.get(place) else { break };
                let outcome = self.one(row);
                let is_broken = outcome.is_err();
                *asked[place].lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                progress.update(done.fetch_add(1, Ordering::Relaxed) as u64 + 1, total as u64);
                if is_broken {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            (0..self.threads).for_each(|_| _ = scope.spawn(work));
        });
        if stop.load(Ordering::Relaxed) {
            bail!("stopped; what was completed is kept");
        }
        let mut counts = Counts::new();
        for (row, outcome) in rows.iter_mut().zip(outcomes) {
            let outcome =
                outcome.into_inner().unwrap_or_else(PoisonError::into_inner).context("a row was left out")??;
            *counts.entry(outcome.name().into()).or_default() += 1;
            match outcome {
                Outcome::Done(text) | Outcome::Kept(text) => set_completion(row, &text),
                Outcome::Refused { detail, .. } => refuse(row, &detail),
            }
        }
        Ok(counts)
    }

    fn one(&self, row: &BenchRow) -> Result<Outcome> {
        let refused = |reason, detail: String| Ok(Outcome::Refused { reason, detail });
        let messages = match row.inference_messages() {
            Ok(messages) => messages,
            Err(fault) => return refused("row_fault", fault.to_string()),
        };
        let texts: Vec<(Role, String)> =
            messages.iter().map(|message| (role(message.role), message.content.to_str())).collect();
        let borrowed: Vec<(Role, &str)> = texts.iter().map(|(role, text)| (*role, text.as_str())).collect();
        let model = self.engine.model();
        let prompt = match model.chat_prompt(&borrowed, self.asked)? {
            Ok(prompt) => prompt,
            Err(refusal) => return refused(refusal.as_str(), refusal_text(refusal)),
        };
        let key = hash_json(&json!([self.identity, prompt]));
        if let Some(text) = self.known.get(&key) {
            return Ok(Outcome::Kept(text.clone()));
        }
        let positions = model.generator().longest();
        let room = positions.saturating_sub(prompt.len());
        if room == 0 {
            let detail = format!("the prompt has {} tokens, and the context is {positions}", prompt.len());
            return refused("prompt_too_long", detail);
        }
        let stop_ids = model.renderer().stop_tokens();
        let sampling = Sampling::plain(self.max_new_tokens.min(room), self.temperature, stop_ids);
        // The row's own seed: the same completion whatever other rows there are.
        let seed = u64::from_str_radix(key.get(..16).unwrap_or_default(), 16).unwrap_or_default() ^ self.seed;
        let request = Request { prompt, num_completions: 1, seed, sampling };
        let ask = Ask { request, num_most_probable: 0, stop_texts: Vec::new() };
        let completed = match self.engine.complete(ask) {
            Ok(completed) => completed.into_iter().next().context("one completion is asked for")?,
            // No answer of the model, and none to keep: another run asks again.
            Err(error @ Error::Completion { .. }) => return refused("broke_off", error.to_string()),
            Err(error) => return Err(error.into()),
        };
        let line = json!({"key": key, "text": completed.text}).to_string() + "\n";
        self.part.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())?;
        Ok(Outcome::Done(completed.text))
    }
}

enum Outcome {
    Done(String),
    Kept(String),
    Refused { reason: &'static str, detail: String },
}

impl Outcome {
    fn name(&self) -> &'static str {
        match self {
            Outcome::Done(_) => "done",
            Outcome::Kept(_) => "had_before",
            Outcome::Refused { reason, .. } => reason,
        }
    }
}

fn role(name: &str) -> Role {
    match name {
        "system" => Role::System,
        "assistant" => Role::Assistant,
        _ => Role::User,
    }
}

/// Completions of an earlier run, and the file to go on with. What a kill left of a line is cut off.
fn open_part(path: &Path) -> Result<(HashMap<String, String>, fs_err::File)> {
    let bytes = if path.exists() { fs_err::read(path)? } else { Vec::new() };
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
    let mut known = HashMap::new();
    for line in bytes[..whole].split(|byte| *byte == b'\n') {
        let Ok(value) = serde_json::from_slice::<serde_json::Value>(line) else { continue };
        if let (Some(key), Some(text)) = (value["key"].as_str(), value["text"].as_str()) {
            known.insert(key.to_string(), text.to_string());
        }
    }
    let file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
    file.set_len(whole as u64)?;
    Ok((known, file))
}

/// Hashes of the files with weights.
fn weights_key(folder: &Path) -> Result<Vec<String>> {
    let mut hashes = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            hashes.push(worldloom_schema::hash_file(&path)?);
        }
    }
    hashes.sort();
    Ok(hashes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_kill_cut_inside_a_character_is_read_and_gone_on_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(PART_FILE);
        let line = |key: &str, text: &str| json!({"key": key, "text": text}).to_string() + "\n";
        let whole = line("a", "één");
        let torn = line("b", "é");
        let cut = torn.find('é').unwrap() + 1;
        fs_err::write(&path, [whole.as_bytes(), &torn.as_bytes()[..cut]].concat()).unwrap();
        let (known, mut file) = open_part(&path).unwrap();
        assert_eq!(known, HashMap::from([("a".to_string(), "één".to_string())]));
        file.write_all(line("c", "fig").as_bytes()).unwrap();
        let (known, _) = open_part(&path).unwrap();
        assert!(known.len() == 2 && known["c"] == "fig", "{known:?}");
        assert_eq!(fs_err::read_to_string(&path).unwrap(), whole + &line("c", "fig"));
    }
}
