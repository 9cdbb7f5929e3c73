//! The run: queries of a pool, a chunk at a time, each finished one a line on disk.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::json;
use worldloom_judge::asked::Respondent;
use worldloom_judge::endpoint::Message;
use worldloom_judge::{Judge, JudgeContext, JudgeOutcome, JudgeQuery, told};
use worldloom_render::{BenchTurn, Stage, Templates, check_taggable, turn_texts};
use worldloom_schema::{Trajectory, hash_json, read_table, write_table};

use super::candidate::{Candidate, Known, UNAVAILABLE, candidate, fault};
use super::choice::{Field, Scored, best};
use super::report::{TRACE_REPORT_FILE, TraceReport};
use crate::error::{Error, Result};
use crate::judges::{JudgeConfig, JudgePlace};
use crate::teacher::{Reply, Teacher, TeacherConfig, check_answered, check_share, write_report};

/// File with a line for each finished query.
const LINES_FILE: &str = "traces.jsonl";
/// Queries that are asked together.
const QUERIES_AT_ONCE: usize = 32;
const KEPT: &str = "kept";
const UNJUDGED: &str = "judge_unavailable";

/// What decides the traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// Who thinks.
    pub teacher: TeacherConfig,
    /// Who scores the predictions; where it is one model, it compares them pairwise too. Default: code.
    #[serde(default)]
    pub judge: JudgeConfig,
    /// Answers to each query. Default: 3, as published.
    #[serde(default = "candidates")]
    pub candidates: u32,
    /// Least mean of the five scores, 1 to 5, of a prediction whose thinking is kept.
    pub min_score: f64,
    /// Share of the true observation that a trace may write out, in whole lines it was not shown. Default: 0.5.
    #[serde(default = "max_copied_share")]
    pub max_copied_share: f64,
    /// The same for traces that are there already; 1 lets all of them stay. Default: 1.
    #[serde(default = "any_share")]
    pub max_copied_share_of_notes: f64,
    /// Bundled templates of the teacher's prompts. Default: `full`.
    #[serde(default = "family")]
    pub family: String,
    /// A folder of templates of the user's, in place of a family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub templates: Option<PathBuf>,
    /// Share of queries without an answer of teacher or judge, 0 to 1, above which the run refuses. Default: 0.05.
    #[serde(default = "max_unavailable_share")]
    pub max_unavailable_share: f64,
}

fn candidates() -> u32 {
    3
}

fn max_copied_share() -> f64 {
    0.5
}

fn any_share() -> f64 {
    1.0
}

fn family() -> String {
    "full".into()
}

fn max_unavailable_share() -> f64 {
    0.05
}

impl TraceConfig {
    fn check(&self) -> Result<()> {
        if self.candidates == 0 {
            return Err(Error::config("candidates", "0, expected at least 1"));
        }
        if !(1.0..=5.0).contains(&self.min_score) {
            return Err(Error::config("min_score", format!("{}, expected 1 to 5", self.min_score)));
        }
        for (field, share) in [
            ("max_copied_share", self.max_copied_share),
            ("max_copied_share_of_notes", self.max_copied_share_of_notes),
            ("max_unavailable_share", self.max_unavailable_share),
        ] {
            check_share(field, share)?;
        }
        Ok(())
    }

    fn load_templates(&self) -> Result<Templates> {
        Ok(match &self.templates {
            Some(folder) => Templates::from_folder(folder)?,
            None => Templates::bundled(&self.family)?,
        })
    }
}

/// What a run is given.
pub struct TraceInputs<'a> {
    /// Parquet file of trajectories, with the turn mask of `curate`.
    pub pool: &'a Path,
    /// Hash of what the config's paths name: models and prompts that decide answers.
    pub files: &'a str,
    /// Where judge and teacher are opened.
    pub place: &'a JudgePlace<'a>,
    /// Set to stop after the queries under way.
    pub stop: &'a AtomicBool,
    /// Hears how many queries are done, and of how many.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// A turn to be traced.
struct Query {
    /// Number of the trajectory in the pool.
    trajectory: usize,
    turn: usize,
    texts: BenchTurn,
    /// Hash of all that decides its trace.
    key: String,
}

/// A finished query.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Line {
    /// Of the query: settings, models, conversation and truth. Lines of others are passed over.
    key: String,
    trajectory_id: String,
    turn: usize,
    trace: Option<String>,
    score: Option<f64>,
    /// Candidates by what became of them.
    candidates: BTreeMap<String, u64>,
}

/// Writes the pool with traces to `out/NAME` (the pool's own name), `traces.jsonl` and the report into the existing folder `out`.
pub fn trace(config: &TraceConfig, inputs: &TraceInputs<'_>, out: &Path) -> Result<TraceReport> {
    config.check()?;
    let mut trajectories: Vec<Trajectory> = read_table(inputs.pool)?;
    let mut report = TraceReport::default();
    let queries = queries(config, inputs.files, &mut trajectories, &mut report)?;
    let mut run = Run::open(config, inputs.place, out)?;
    let open: Vec<&Query> = queries.iter().filter(|query| !run.lines.contains_key(&query.key)).collect();
    let (total, mut done) = (queries.len() as u64, (queries.len() - open.len()) as u64);
    for chunk in open.chunks(QUERIES_AT_ONCE) {
        if inputs.stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped { done, total });
        }
        run.ask(&trajectories, chunk)?;
        done += chunk.len() as u64;
        (inputs.progress)(done, total);
    }
    let mut scores = Vec::new();
    for query in &queries {
        let line = run.lines.get(&query.key);
        report.add(trajectories[query.trajectory].domain.as_str(), line);
        if let Some(line) = line.cloned() {
            scores.extend(line.score);
            trajectories[query.trajectory].turns[query.turn].trace = line.trace;
        }
    }
    report.mean_score = (!scores.is_empty()).then(|| scores.iter().sum::<f64>() / scores.len() as f64);
    let (unavailable, limit) = (report.unavailable, config.max_unavailable_share);
    check_answered(unavailable, report.queries, limit, run.why.as_deref(), inputs.place.folder)?;
    let name = inputs.pool.file_name().unwrap_or_default();
    write_table(&out.join(name), trajectories)?;
    write_report(&out.join(TRACE_REPORT_FILE), &report)?;
    Ok(report)
}

impl TraceReport {
    fn add(&mut self, domain: &str, line: Option<&Line>) {
        let of = self.domains.entry(domain.into()).or_default();
        of.queries += 1;
        self.queries += 1;
        let Some(line) = line else {
            self.unavailable += 1;
            return;
        };
        let is_traced = u64::from(line.trace.is_some());
        of.traced += is_traced;
        self.traced += is_traced;
        self.untraced += 1 - is_traced;
        for (fate, count) in &line.candidates {
            *self.candidates.entry(fate.clone()).or_default() += count;
        }
    }
}

/// Kept turns without a trace that SFT could train on. A trace that is none is taken away.
fn queries(
    config: &TraceConfig,
    files: &str,
    trajectories: &mut [Trajectory],
    report: &mut TraceReport,
) -> Result<Vec<Query>> {
    let templates = config.load_templates()?;
    let version = templates.first_of(Stage::Sft)?;
    // What changes no trace of a query is no part of its key.
    let settings = TraceConfig { max_unavailable_share: 0.0, max_copied_share_of_notes: 0.0, ..config.clone() };
    let settings = serde_json::to_value(&settings).map_err(std::io::Error::from)?;
    let settings = hash_json(&json!([settings, files]));
    let mut queries = Vec::new();
    for (number, trajectory) in trajectories.iter_mut().enumerate() {
        for at in (0..trajectory.turns.len()).filter(|&at| trajectory.turns[at].keep == Some(true)).collect::<Vec<_>>()
        {
            let texts = |trajectory: &Trajectory| turn_texts(&templates, version, trajectory, at);
            if trajectory.turns[at].trace.as_deref().is_some_and(|trace| !trace.trim().is_empty()) {
                match fault_of_note(config, trajectory, at, texts)? {
                    None => {
                        report.had_before += 1;
                        continue;
                    }
                    Some(fault) => *report.notes_rejected.entry(fault.into()).or_default() += 1,
                }
                trajectory.turns[at].trace = None;
            }
            match texts(trajectory)? {
                Some(texts) if check_taggable(trajectory, at).is_ok() => {
                    let key = key_of(&settings, trajectory, at, &texts);
                    queries.push(Query { trajectory: number, turn: at, texts, key });
                }
                _ => report.not_trainable += 1,
            }
        }
    }
    Ok(queries)
}

/// What is wrong with a trace that is there already.
fn fault_of_note(
    config: &TraceConfig,
    trajectory: &Trajectory,
    at: usize,
    texts: impl Fn(&Trajectory) -> worldloom_render::Result<Option<BenchTurn>>,
) -> Result<Option<&'static str>> {
    let turn = &trajectory.turns[at];
    let max_copied = config.max_copied_share_of_notes;
    // What its writer was shown is looked up only where that matters.
    let shown = match max_copied < 1.0 {
        true => texts(trajectory)?.map(|texts| shown(&conversation(&texts, at))).unwrap_or_default(),
        false => String::new(),
    };
    let known = Known { truth: &turn.observation, shown: &shown, max_copied };
    Ok(fault(turn.trace.as_deref().unwrap_or_default(), &known))
}

fn key_of(settings: &str, trajectory: &Trajectory, at: usize, texts: &BenchTurn) -> String {
    let BenchTurn { system, prompts, responses, .. } = texts;
    let id = &trajectory.trajectory_id;
    // The judge is told the domain and the state at the beginning; the last response is the truth.
    let judged = json!([trajectory.domain, trajectory.system.initial_state]);
    hash_json(&json!([settings, id, at, system, prompts, responses, judged]))[..16].to_string()
}

/// The prompt that SFT gives for the turn.
fn conversation(texts: &BenchTurn, turn: usize) -> Vec<Message> {
    let BenchTurn { system, prompts, responses, .. } = texts;
    let mut messages = vec![Message::system(system.as_str())];
    for (at, prompt) in prompts.iter().enumerate() {
        messages.push(Message::user(prompt.as_str()));
        if at < turn {
            messages.push(Message::assistant(responses[at].as_str()));
        }
    }
    messages
}

/// All of a conversation, each message on lines of its own.
fn shown(conversation: &[Message]) -> String {
    conversation.iter().map(|message| format!("{}\n", message.content)).collect()
}

/// Who is asked, and what was answered before.
struct Run<'a> {
    config: &'a TraceConfig,
    teacher: Teacher,
    judge: Box<dyn Judge>,
    comparing: Option<Arc<dyn Respondent>>,
    /// Lines by the keys of their queries.
    lines: HashMap<String, Line>,
    file: fs_err::File,
    /// Why the teacher gave no answer, the last time.
    why: Option<String>,
}

impl<'a> Run<'a> {
    fn open(config: &'a TraceConfig, place: &JudgePlace<'_>, out: &Path) -> Result<Self> {
        let path = out.join(LINES_FILE);
        let lines = read_lines(&path)?;
        let file = append_to(&path)?;
        let (judge, comparing) = config.judge.open_with_respondent(place)?;
        Ok(Self { config, teacher: config.teacher.open(place)?, judge, comparing, lines, file, why: None })
    }

    /// Asks about a chunk of queries and writes a line for each that was answered.
    fn ask(&mut self, trajectories: &[Trajectory], queries: &[&Query]) -> Result<()> {
        let conversations: Vec<Vec<Message>> =
            queries.iter().map(|query| conversation(&query.texts, query.turn)).collect();
        let mut replies: Vec<Vec<Reply>> = vec![Vec::new(); queries.len()];
        for draw in 0..self.config.candidates {
            let drawn = self.teacher.ask(&conversations, draw)?;
            let missing = drawn.iter().rev().find_map(|reply| match reply {
                Reply::Unavailable { why } => Some(why.clone()),
                _ => None,
            });
            self.why = missing.or(self.why.take());
            replies.iter_mut().zip(drawn).for_each(|(replies, reply)| replies.push(reply));
        }
        let asked = queries.iter().zip(&conversations).zip(replies);
        let asked: Vec<Asked<'_>> = asked
            .map(|((query, conversation), replies)| {
                Asked::new(&trajectories[query.trajectory], query.turn, conversation, replies, self.config)
            })
            .collect();
        let scored = self.judged(asked);
        let keys = queries.iter().map(|query| &query.key);
        let fields: Vec<Field<'_>> = scored
            .iter()
            .filter(|asked| !asked.scored.is_empty())
            .map(|asked| Field { context: asked.context(), truth: asked.truth(), candidates: &asked.scored })
            .collect();
        let mut winners = best(self.comparing.as_deref(), &fields).into_iter();
        for (asked, key) in scored.iter().zip(keys) {
            let winner = if asked.scored.is_empty() { None } else { winners.next() };
            if let Some(line) = asked.line(key, winner) {
                self.file.write_all((serde_json::to_string(&line).map_err(std::io::Error::from)? + "\n").as_bytes())?;
                self.lines.insert(line.key.clone(), line);
            }
        }
        Ok(self.file.flush()?)
    }

    /// Scores all candidates together; those below the threshold go.
    fn judged<'t>(&self, mut asked: Vec<Asked<'t>>) -> Vec<Asked<'t>> {
        let queries: Vec<JudgeQuery<'_>> = asked
            .iter()
            .flat_map(|asked| {
                let (context, truth) = (asked.context(), asked.truth());
                asked.open.iter().map(move |open| JudgeQuery { context, truth, prediction: &open.prediction })
            })
            .collect();
        let mut outcomes = self.judge.score_all(&queries).into_iter();
        for asked in &mut asked {
            for open in std::mem::take(&mut asked.open) {
                match outcomes.next() {
                    Some(JudgeOutcome::Scored(scores)) if scores.mean() >= self.config.min_score => {
                        let Candidate { trace, prediction } = open;
                        asked.scored.push(Scored { trace, prediction, score: scores.mean() });
                    }
                    Some(JudgeOutcome::Scored(_)) => asked.count("below_min_score"),
                    Some(JudgeOutcome::Refused) => asked.count("judge_refused"),
                    _ => asked.count(UNJUDGED),
                }
            }
        }
        asked
    }
}

/// A query with its answers, on their way through the judge.
struct Asked<'t> {
    trajectory: &'t Trajectory,
    turn: usize,
    history: Vec<(&'t str, &'t str)>,
    open: Vec<Candidate>,
    scored: Vec<Scored>,
    fates: BTreeMap<String, u64>,
}

impl<'t> Asked<'t> {
    fn new(
        trajectory: &'t Trajectory,
        turn: usize,
        conversation: &[Message],
        replies: Vec<Reply>,
        config: &TraceConfig,
    ) -> Self {
        let history = told(&trajectory.turns[..turn]);
        let (open, scored) = (Vec::new(), Vec::new());
        let mut asked = Self { trajectory, turn, history, open, scored, fates: BTreeMap::new() };
        let shown = shown(conversation);
        for reply in replies {
            let known = Known { truth: asked.truth(), shown: &shown, max_copied: config.max_copied_share };
            match candidate(reply, &known) {
                Ok(candidate) => asked.open.push(candidate),
                Err(fate) => asked.count(fate),
            }
        }
        asked
    }

    fn count(&mut self, fate: &str) {
        *self.fates.entry(fate.into()).or_default() += 1;
    }

    fn truth(&self) -> &'t str {
        &self.trajectory.turns[self.turn].observation
    }

    fn context(&self) -> JudgeContext<'_> {
        JudgeContext::of(self.trajectory, self.turn, &self.history)
    }

    /// The line; none where nobody answered, or a judge was missing and nothing was kept: a later run asks again.
    fn line(&self, key: &str, winner: Option<usize>) -> Option<Line> {
        let missing = |fate: &str| self.fates.get(fate).copied().unwrap_or(0);
        let unanswered = missing(UNAVAILABLE) == self.fates.values().sum::<u64>() || missing(UNJUDGED) > 0;
        if winner.is_none() && unanswered {
            return None;
        }
        let mut candidates = self.fates.clone();
        let kept = winner.map(|winner| &self.scored[winner]);
        if kept.is_some() {
            candidates.insert(KEPT.into(), 1);
            if self.scored.len() > 1 {
                candidates.insert("not_the_best".into(), self.scored.len() as u64 - 1);
            }
        }
        Some(Line {
            key: key.into(),
            trajectory_id: self.trajectory.trajectory_id.clone(),
            turn: self.turn,
            trace: kept.map(|kept| kept.trace.clone()),
            score: kept.map(|kept| kept.score),
            candidates,
        })
    }
}

/// The file at its end, on a line of its own: a kill may have cut the last one.
fn append_to(path: &Path) -> Result<fs_err::File> {
    let is_cut = path.exists() && fs_err::read(path)?.last().is_some_and(|&last| last != b'\n');
    let mut file = fs_err::OpenOptions::new().create(true).append(true).open(path)?;
    if is_cut {
        file.write_all(b"\n")?;
    }
    Ok(file)
}

/// Lines by their keys; one that a kill cut off is passed over.
fn read_lines(path: &Path) -> Result<HashMap<String, Line>> {
    if !path.exists() {
        return Ok(HashMap::new());
    }
    let mut lines = HashMap::new();
    for line in BufReader::new(fs_err::File::open(path)?).lines() {
        let Ok(line) = serde_json::from_str::<Line>(&line?) else { continue };
        lines.insert(line.key.clone(), line);
    }
    Ok(lines)
}
