//! `doctor`: what is built in, what is there, and whether it computes what it should.

use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Serialize;
use serde_json::Value;
use worldloom_model::{Products, self_test};

use crate::device::open_device;
use crate::machine;
use crate::pipeline::{Missing, Pipeline, plan};
use crate::progress::{grouped, size};

/// How long an endpoint may take to pick up.
const PATIENCE: Duration = Duration::from_secs(5);
/// Less memory or disk than this is told as a fault: the quickstart needs it.
const LEAST_BYTES: u64 = 1 << 30;

/// The command line.
pub(crate) fn command() -> Command {
    Command::new("doctor")
        .about("Say what is built in and what is there, test that devices compute rightly, and end with a verdict")
        .arg(
            Arg::new("PIPELINE")
                .value_parser(value_parser!(PathBuf))
                .help("Pipeline file whose endpoints (judges, teachers) are to be reached"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print it as JSON"))
}

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    devices_built_in: Vec<&'static str>,
    processor: Option<String>,
    threads: usize,
    instruction_sets: BTreeMap<&'static str, bool>,
    memory_total: Option<u64>,
    memory_available: Option<u64>,
    disk_free: u64,
    self_tests: Vec<Tested>,
    endpoints: Vec<Reached>,
    /// What is broken; empty: nothing that is needed.
    faults: Vec<String>,
}

/// One operation on one device.
#[derive(Debug, Serialize)]
struct Tested {
    device: &'static str,
    operation: &'static str,
    error: f32,
    passes: bool,
}

/// One endpoint of the pipeline.
#[derive(Debug, Serialize)]
struct Reached {
    step: String,
    url: String,
    /// None: it answers.
    error: Option<String>,
}

/// Looks, tests, prints; an error where something needed is broken.
pub(super) fn doctor(matches: &ArgMatches) -> Result<()> {
    let endpoints = match matches.get_one::<PathBuf>("PIPELINE") {
        Some(file) => endpoints_of(file)?,
        None => Vec::new(),
    };
    let started = Instant::now();
    let findings = look(endpoints)?;
    if matches.get_flag("json") {
        println!("{}", serde_json::to_string_pretty(&findings)?);
    } else {
        print(&findings, started.elapsed().as_secs_f64());
    }
    match findings.faults.as_slice() {
        [] => Ok(()),
        faults => bail!("{}", faults.join("; ")),
    }
}

fn look(endpoints: Vec<Reached>) -> Result<Findings> {
    let cpu = open_device();
    let tested = self_test(&cpu, &cpu).into_iter().map(|check| Tested {
        device: "cpu",
        operation: check.name,
        error: check.error,
        passes: check.passes(Products::Single),
    });
    let mut findings = Findings {
        version: env!("CARGO_PKG_VERSION"),
        devices_built_in: vec!["cpu"],
        processor: machine::processor(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        instruction_sets: machine::instruction_sets().into_iter().collect(),
        memory_total: machine::total_bytes(),
        memory_available: machine::available_bytes(),
        disk_free: machine::free_bytes(Path::new("."))?,
        self_tests: tested.collect(),
        endpoints,
        faults: Vec::new(),
    };
    findings.faults = faults(&findings);
    Ok(findings)
}

fn faults(findings: &Findings) -> Vec<String> {
    let mut faults = Vec::new();
    let wrong = findings.self_tests.iter().filter(|test| !test.passes);
    faults.extend(wrong.map(|test| format!("{} computes `{}` wrongly", test.device, test.operation)));
    let gone = findings.endpoints.iter().filter_map(|endpoint| Some((endpoint, endpoint.error.as_ref()?)));
    faults.extend(gone.map(|(endpoint, error)| format!("step `{}`: {} {error}", endpoint.step, endpoint.url)));
    if findings.memory_available.is_some_and(|bytes| bytes < LEAST_BYTES) {
        faults.push("less than 1 GiB of memory is free".into());
    }
    if findings.disk_free < LEAST_BYTES {
        faults.push("less than 1 GiB of disk is free here".into());
    }
    faults
}

/// The endpoints that the steps of a pipeline ask, each once, tried.
fn endpoints_of(file: &Path) -> Result<Vec<Reached>> {
    let pipeline = Pipeline::read(file, &[])?;
    let mut found = BTreeMap::new();
    for step in plan(&pipeline, file, Path::new("runs"), Missing::Shown)? {
        endpoints(&step.config, &mut |url, key| {
            found.entry((url.to_string(), key.map(String::from))).or_insert_with(|| step.name.clone());
        });
    }
    let reached = found.into_iter().map(|((url, key), step)| {
        let missing = key.filter(|key| std::env::var_os(key).is_none());
        let error = match (reach(&url), missing) {
            (Err(error), _) => Some(format!("does not answer: {error:#}")),
            (Ok(()), Some(key)) => Some(format!("wants a key, and the variable {key} is not set")),
            (Ok(()), None) => None,
        };
        Reached { step, url, error }
    });
    Ok(reached.collect())
}

/// Every `url` beside a `model` in a config, which is what an endpoint is, and the variable of its key.
fn endpoints(config: &Value, take: &mut dyn FnMut(&str, Option<&str>)) {
    match config {
        Value::Object(keys) => {
            if let (Some(Value::String(url)), Some(_)) = (keys.get("url"), keys.get("model")) {
                take(url, keys.get("api_key_env").and_then(Value::as_str));
            }
            keys.values().for_each(|value| endpoints(value, take));
        }
        Value::Array(values) => values.iter().for_each(|value| endpoints(value, take)),
        _ => {}
    }
}

/// Connects and hangs up: a question might cost money.
fn reach(url: &str) -> Result<()> {
    let url = url::Url::parse(url)?;
    let (host, port) = (url.host_str().context("no host")?, url.port_or_known_default().context("no port")?);
    let addresses = (host, port).to_socket_addrs()?;
    let mut last = anyhow::anyhow!("no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => return Ok(()),
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

fn print(findings: &Findings, seconds: f64) {
    let line = |name: &str, text: &str| println!("{name:12} {text}");
    line(
        "program",
        &format!("worldloom {}, devices built in: {}", findings.version, findings.devices_built_in.join(", ")),
    );
    let has = |wanted: bool| -> Vec<&str> {
        findings.instruction_sets.iter().filter(|(_, has)| **has == wanted).map(|(name, _)| *name).collect()
    };
    let processor = findings.processor.as_deref().unwrap_or("unknown");
    line("processor", &format!("{processor}, {} threads", grouped(findings.threads as u64)));
    line("", &format!("has {}; lacks {}", list(&has(true)), list(&has(false))));
    let told = |bytes: Option<u64>| bytes.map_or("unknown".to_string(), size);
    line("memory", &format!("{} free of {}", told(findings.memory_available), told(findings.memory_total)));
    line("disk", &format!("{} free here", size(findings.disk_free)));
    line("precision", "weights float32, matrices bfloat16 on request; sums, norms, masters and moments float32");
    println!("self-test: largest error of output and gradients, in units of the largest number ({seconds:.1} s)");
    for test in &findings.self_tests {
        let verdict = if test.passes { "ok" } else { "WRONG" };
        println!("  {:4} {:30} {:.1e}  {verdict}", test.device, test.operation, test.error);
    }
    for endpoint in &findings.endpoints {
        let verdict = endpoint.error.as_deref().unwrap_or("answers");
        println!("endpoint     {} (step `{}`): {verdict}", endpoint.url, endpoint.step);
    }
    if findings.faults.is_empty() {
        println!("verdict      everything needed is here and computes rightly");
    }
}

fn list(names: &[&str]) -> String {
    if names.is_empty() { "none of them".into() } else { names.join(", ") }
}
