//! `evaluate bench`: AgentWorldBench over row files, in three steps that go on where they stopped.

mod infer;
mod rows;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};
use worldloom_judge::bench::{
    self, BenchRow, BenchScores, Bootstrap, COLUMNS, Counts, DOMAINS, JudgePrompts, judge_rows, judge_rows_builtin,
    read_rows, write_rows,
};
use worldloom_judge::endpoint::{Endpoint, EndpointConfig, Parameters};

pub(crate) use rows::{command as rows_command, write_bench_rows};

use super::world::model_args;
use crate::config::UserError;
use crate::progress::Progress;
use crate::signals::listen;

const PREDICTIONS_FILE: &str = "predictions.jsonl";
const JUDGED_FILE: &str = "judged.jsonl";
const SCORES_FILE: &str = "scores.json";
/// How often the signal is looked for while an endpoint works.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const AFTER: &str = "\
Three steps, each into a file of --out: infer (predictions.jsonl), judge (judged.jsonl), score (scores.json and the
table). Run it again and it goes on where it stopped: answers that were had are not asked for twice.

The model under test is a checkpoint (--model DIR) or any OpenAI-compatible endpoint (--endpoint URL --model-name NAME).
The judge is such an endpoint (--judge URL --judge-model NAME); `--judge builtin` scores by rules, which is no score of
the benchmark. Without the authors' judge prompts (--judge-prompts, --judge-user-template) ours are used, and scores are
not comparable with published ones either; the table says so.";

/// The command line.
pub(crate) fn command() -> Command {
    let text =
        |id: &'static str, name: &'static str, help: &'static str| Arg::new(id).long(id).value_name(name).help(help);
    let path = |id: &'static str, name: &'static str, help: &'static str| {
        text(id, name, help).value_parser(value_parser!(PathBuf))
    };
    let command = Command::new("bench")
        .about("Score a model as AgentWorldBench does, over its row files or your own (see `bench-rows`)")
        .after_help(AFTER)
        .arg(path("rows", "PATH", "Row file, or a folder of *_test.jsonl; only judge and score do without"))
        .arg(path("out", "DIR", "Folder for what comes out").required(true))
        .arg(text("step", "STEP", "Do only this step; default: all three").value_parser(["infer", "judge", "score"]))
        .arg(text("domain", "DOMAIN", "Only this domain; may be given more than once").action(ArgAction::Append))
        .arg(text("limit", "N", "Only the first rows of each domain").value_parser(value_parser!(usize)))
        .arg(text("endpoint", "URL", "Endpoint of the model under test, up to and with /v1").conflicts_with("model"))
        .arg(text("model-name", "NAME", "Its name there").requires("endpoint"))
        .arg(text("key-env", "VARIABLE", "Environment variable with the endpoint's key"))
        .arg(text("judge", "URL", "Endpoint of the judge, or `builtin`"))
        .arg(text("judge-model", "NAME", "The judge's name there"))
        .arg(text("judge-key-env", "VARIABLE", "Environment variable with the judge's key"))
        .arg(path("judge-prompts", "DIR", "The authors' system prompts: DOMAIN.txt, or DOMAIN/judge_system_prompt.txt"))
        .arg(path("judge-user-template", "FILE", "The authors' user template, a Python format string"))
        .arg(
            text("temperature", "T", "Temperature of both, as published")
                .default_value("0.6")
                .value_parser(value_parser!(f64)),
        )
        .arg(
            text("max-tokens", "N", "Longest answer of both, as published")
                .default_value("32768")
                .value_parser(value_parser!(u32)),
        )
        .arg(
            text("attempts", "N", "Replies of the judge until one can be read")
                .default_value("3")
                .value_parser(value_parser!(u32)),
        )
        .arg(
            text("concurrency", "N", "Requests under way at once, for each endpoint")
                .default_value("8")
                .value_parser(value_parser!(usize)),
        )
        .arg(
            text("seed", "S", "Seed of a local model's sampling and of the intervals")
                .default_value("7")
                .value_parser(value_parser!(u64)),
        )
        .arg(text("resamples", "N", "Bootstrap resamples").default_value("1000").value_parser(value_parser!(usize)));
    model_args(command, false)
}

/// Runs the steps.
pub(super) fn evaluate_bench(matches: &ArgMatches, stop: &AtomicBool) -> Result<()> {
    let _listening = listen();
    let path = |id: &str| matches.get_one::<PathBuf>(id).cloned().unwrap_or_default();
    let out = path("out");
    let wants = |step: &str| matches.get_one::<String>("step").is_none_or(|wanted| wanted == step);
    fs_err::create_dir_all(&out)?;
    // Before hours of inference: what the judge cannot be asked with, and rows that are not there.
    let judge = if wants("judge") { Some(JudgeSetup::new(matches, &out)?) } else { None };
    let rows = if wants("infer") { Some(rows_to_infer(matches)?) } else { None };
    let (predictions, judged) = (out.join(PREDICTIONS_FILE), out.join(JUDGED_FILE));
    if let Some(mut rows) = rows {
        let counts = infer::infer(matches, &mut rows, &out, stop)?;
        write_rows(&predictions, &rows)?;
        print_counts("infer", &counts, &predictions);
    }
    if let Some(judge) = judge {
        let mut rows = read_step(&predictions, "infer")?;
        let (counts, who) = judge.judge(&mut rows, stop)?;
        write_rows(&judged, &rows)?;
        fs_err::write(out.join("judge.txt"), format!("{who}\n"))?;
        print_counts("judge", &counts, &judged);
    }
    if wants("score") {
        let rows = read_step(&judged, "judge")?;
        let number = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
        let seed = matches.get_one::<u64>("seed").copied().unwrap_or_default();
        let scores = bench::aggregate(&rows, Bootstrap { resamples: number("resamples"), seed })?;
        let who = fs_err::read_to_string(out.join("judge.txt")).unwrap_or_default();
        let report = as_json(&scores, who.trim());
        fs_err::write(out.join(SCORES_FILE), format!("{report:#}\n"))?;
        println!("{}", bench::to_text(&scores));
        println!("judge: {}", who.trim());
    }
    Ok(())
}

fn read_step(path: &Path, step: &str) -> Result<Vec<BenchRow>> {
    if !path.exists() {
        let error = UserError::new(format!("`{}` does not exist", path.display()));
        return Err(error.hint(format!("run with --step {step} first, or without --step")).into());
    }
    Ok(read_rows(path)?)
}

fn rows_to_infer(matches: &ArgMatches) -> Result<Vec<BenchRow>> {
    let path = matches.get_one::<PathBuf>("rows");
    let path = path.ok_or_else(|| {
        UserError::new("--rows is missing")
            .hint("a row file, or a folder of *_test.jsonl; --step judge|score need none")
    })?;
    choose(read_rows(path)?, matches)
}

/// The rows of the wanted domains, the first of each.
fn choose(rows: Vec<BenchRow>, matches: &ArgMatches) -> Result<Vec<BenchRow>> {
    let wanted: Vec<&String> = matches.get_many("domain").unwrap_or_default().collect();
    let limit = matches.get_one::<usize>("limit").copied().unwrap_or(usize::MAX);
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut kept = Vec::new();
    for row in rows {
        let domain = row.domain().map(String::from).unwrap_or_default();
        let count = taken.entry(domain.clone()).or_default();
        if (wanted.is_empty() || wanted.contains(&&domain)) && *count < limit {
            *count += 1;
            kept.push(row);
        }
    }
    if kept.is_empty() {
        return Err(UserError::new("no rows are left").hint(format!("domains there: {:?}", taken.keys())).into());
    }
    Ok(kept)
}

/// A client with its cache and log in `out`.
fn endpoint(matches: &ArgMatches, url: &str, model: &str, key: &str, out: &Path, name: &str) -> Result<Endpoint> {
    let mut config = EndpointConfig::new(url, model);
    config.concurrency = matches.get_one::<usize>("concurrency").copied().unwrap_or(8);
    let key = match matches.get_one::<String>(key) {
        Some(variable) => Some(std::env::var(variable).map_err(|_| {
            UserError::new(format!("the variable {variable} is not set")).hint("it holds the endpoint's key")
        })?),
        None => None,
    };
    let endpoint = Endpoint::new(config, key)?.with_cache(&out.join("cache"))?;
    Ok(endpoint.with_log(&out.join(format!("{name}-requests.jsonl")))?)
}

fn parameters(matches: &ArgMatches) -> Parameters {
    Parameters {
        temperature: matches.get_one("temperature").copied(),
        max_tokens: matches.get_one("max-tokens").copied(),
        ..Parameters::default()
    }
}

/// Who judges.
enum JudgeSetup {
    Builtin,
    Model(Box<ModelJudge>),
}

/// A model as a judge.
struct ModelJudge {
    client: Endpoint,
    name: String,
    prompts: JudgePrompts,
    parameters: Parameters,
    attempts: u32,
}

impl JudgeSetup {
    fn new(matches: &ArgMatches, out: &Path) -> Result<Self> {
        let url = matches.get_one::<String>("judge").map(String::as_str);
        let url = url.ok_or_else(|| UserError::new("--judge is missing").hint("an endpoint's URL, or `builtin`"))?;
        if url == "builtin" {
            return Ok(JudgeSetup::Builtin);
        }
        let name = matches.get_one::<String>("judge-model");
        let name =
            name.ok_or_else(|| UserError::new("--judge-model is missing").hint("the judge's name at the endpoint"))?;
        Ok(JudgeSetup::Model(Box::new(ModelJudge {
            prompts: judge_prompts(matches)?,
            client: endpoint(matches, url, name, "judge-key-env", out, "judge")?,
            name: name.clone(),
            parameters: parameters(matches),
            attempts: matches.get_one::<u32>("attempts").copied().unwrap_or(3),
        })))
    }

    /// Judges, and says who did.
    fn judge(&self, rows: &mut [BenchRow], stop: &AtomicBool) -> Result<(Counts, String)> {
        let ModelJudge { client, name, prompts, parameters, attempts } = match self {
            JudgeSetup::Builtin => {
                return Ok((judge_rows_builtin(rows), "built-in rules; this is no score of the benchmark".into()));
            }
            JudgeSetup::Model(judge) => judge.as_ref(),
        };
        let domains: BTreeSet<String> = rows.iter().filter_map(|row| row.known_domain().map(String::from)).collect();
        let progress = Progress::new("judge");
        let mut hear = |done: u64, total: u64| progress.update(done, total);
        let counts = unless_stopped(judge_rows(client, rows, prompts, parameters, *attempts, &mut hear), stop)?;
        Ok((counts, format!("{name}; {}", prompts.whose(&domains))))
    }
}

fn judge_prompts(matches: &ArgMatches) -> Result<JudgePrompts> {
    let mut prompts = JudgePrompts::default();
    if let Some(folder) = matches.get_one::<PathBuf>("judge-prompts") {
        let mut systems = BTreeMap::new();
        for domain in DOMAINS {
            let places = [
                folder.join(format!("{domain}.txt")),
                folder.join(format!("{domain}.md")),
                folder.join(domain).join("judge_system_prompt.txt"),
            ];
            if let Some(file) = places.iter().find(|file| file.exists()) {
                systems.insert(domain.to_string(), fs_err::read_to_string(file)?);
            }
        }
        if systems.is_empty() {
            let error = UserError::new(format!("`{}` holds no judge prompts", folder.display()));
            return Err(error.hint("expected DOMAIN.txt, or DOMAIN/judge_system_prompt.txt").into());
        }
        prompts = prompts.with_systems(systems);
        for domain in prompts.missing() {
            tracing::warn!(domain, "no judge prompt: its rows get an empty system message, as published");
        }
    }
    if let Some(file) = matches.get_one::<PathBuf>("judge-user-template") {
        let template = fs_err::read_to_string(file)?;
        let replaced = prompts.with_template(&template);
        prompts = replaced.map_err(|fault| UserError::new(format!("`{}`: {fault}", file.display())))?;
    }
    Ok(prompts)
}

/// Work that asks an endpoint, until it is done or a signal came. What was answered by then is in the cache.
fn unless_stopped<T>(work: impl Future<Output = T>, stop: &AtomicBool) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    runtime.block_on(async {
        tokio::select! {
            done = work => Ok(done),
            () = stopped => bail!("stopped; what was answered is kept, the same command goes on from there"),
        }
    })
}

fn print_counts(step: &str, counts: &Counts, path: &Path) {
    let counts: Vec<String> = counts.iter().map(|(reason, count)| format!("{reason} {count}")).collect();
    eprintln!("{step}: {}; written to {}", counts.join(", "), path.display());
}

fn as_json(scores: &BenchScores, judge: &str) -> Value {
    let interval = |found: &Option<worldloom_judge::Interval>| json!(found);
    let domain = |domain: &bench::DomainScores| {
        let columns = domain.scores.map(|scores| COLUMNS.into_iter().zip(scores).collect::<BTreeMap<&str, f64>>());
        json!({
            "domain": domain.domain,
            "valid": domain.valid,
            "failed": domain.failed(),
            "total": domain.total,
            "scores": columns,
            "failures_as_0": domain.strict,
            "interval": interval(&domain.interval),
        })
    };
    json!({
        "judge": judge,
        "domains": scores.domains.iter().map(domain).collect::<Vec<_>>(),
        "pooled": scores.pooled,
        "pooled_interval": interval(&scores.pooled_interval),
        "macro": scores.macro_mean,
        "macro_interval": interval(&scores.macro_interval),
        "macro_scores": COLUMNS.into_iter().zip(scores.macro_columns).collect::<BTreeMap<&str, Option<f64>>>(),
        "left_out": scores.left_out,
        "failures_as_0_pooled": scores.strict_pooled,
        "failures_as_0_pooled_interval": interval(&scores.strict_pooled_interval),
        "failures_as_0_macro": scores.strict_macro,
        "failures_as_0_macro_interval": interval(&scores.strict_macro_interval),
        "total": scores.total,
        "valid": scores.valid,
        "failed": scores.failed(),
        "failures": scores.failures,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use worldloom_judge::bench::infer_rows;
    use worldloom_judge::endpoint::scripted::{Answer, Server};

    use super::*;

    #[test]
    fn a_signal_ends_what_waits_for_an_endpoint_and_keeps_what_was_answered() {
        let folder = tempfile::tempdir().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = stop.clone();
        let server = Server::start(move |seen| match seen.body.to_string().contains("hangs") {
            true => {
                raised.store(true, Ordering::Relaxed);
                Answer::Silence
            }
            false => Answer::chat("fig"),
        });
        let server = server.unwrap();
        let row = |text: &str| {
            let row = format!("{{\"task\": \"mcp\", \"prompt\": [\"{text}\"], \"response\": [\"\"], \"turn_idx\": 1}}");
            BenchRow::parse(&row).unwrap()
        };
        let mut config = server.config("m");
        config.concurrency = 1;
        let client = Endpoint::new(config, None).unwrap().with_cache(&folder.path().join("cache")).unwrap();
        let mut rows = [row("answers"), row("hangs")];
        let stopped = unless_stopped(infer_rows(&client, &mut rows, &Parameters::default(), &mut |_, _| ()), &stop);
        assert!(stopped.unwrap_err().to_string().starts_with("stopped"));
        assert_eq!(fs_err::read_dir(folder.path().join("cache")).unwrap().count(), 1);
    }
}
