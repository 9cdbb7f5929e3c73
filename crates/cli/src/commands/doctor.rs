//! `doctor`: what is built in, what is there, and whether it computes what it should.

use std::collections::BTreeMap;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use burn::tensor::Device;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde::Serialize;
use serde_json::Value;
use worldloom_model::self_test;

use super::parity::{self, Apart, apart_from_cpu};
use crate::device::{BackEnd, Limits, Place, cpu, is_software};
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
        .arg(
            Arg::new("parity")
                .long("parity")
                .action(ArgAction::SetTrue)
                .help("Also train small models on every device, and tell how far it is from the CPU"),
        )
}

/// What was found.
#[derive(Debug, Serialize)]
struct Findings {
    version: &'static str,
    devices_built_in: Vec<&'static str>,
    devices: Vec<Listed>,
    processor: Option<String>,
    threads: usize,
    instruction_sets: BTreeMap<&'static str, bool>,
    memory_total: Option<u64>,
    memory_available: Option<u64>,
    disk_free: u64,
    self_tests: Vec<Tested>,
    /// Empty unless asked for.
    parity: Vec<Apart>,
    endpoints: Vec<Reached>,
    /// What is broken; empty: nothing that is needed.
    faults: Vec<String>,
}

/// A device that is there.
#[derive(Debug, Serialize)]
struct Listed {
    /// How it is named in `--device`.
    place: String,
    name: String,
    largest_buffer: Option<u64>,
    workgroups: Option<u32>,
    holds_bf16: bool,
    /// A graphics driver that computes on the CPU, minutes for what a card does in a second: tested only where it is named.
    is_software: bool,
}

/// One operation on one device.
#[derive(Debug, Serialize)]
struct Tested {
    device: String,
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
    let chosen = matches.get_one::<Place>("device").copied();
    let findings = look(endpoints, chosen, matches.get_flag("parity"))?;
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

/// Everything that is there, or one device and the CPU.
fn look(endpoints: Vec<Reached>, chosen: Option<Place>, parity: bool) -> Result<Findings> {
    let mut devices = vec![(Place::CPU, cpu())];
    match chosen {
        Some(place) if place.is_cpu() => {}
        Some(place) => devices.push((place, place.find()?)),
        None => devices.extend(others()),
    }
    let mut apart = Vec::new();
    if parity {
        for (place, device) in &devices[1..] {
            apart.extend(apart_from_cpu(*place, device)?);
        }
    }
    let mut findings = Findings {
        version: env!("CARGO_PKG_VERSION"),
        devices_built_in: BackEnd::ALL.into_iter().filter(|it| it.is_built_in()).map(BackEnd::name).collect(),
        devices: devices.iter().map(|(place, device)| list_device(*place, device)).collect(),
        processor: machine::processor(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
        instruction_sets: machine::instruction_sets().into_iter().collect(),
        memory_total: machine::total_bytes(),
        memory_available: machine::available_bytes(),
        disk_free: machine::free_bytes(Path::new("."))?,
        self_tests: devices
            .iter()
            .filter(|(_, device)| chosen.is_some() || !is_software(device))
            .flat_map(|(place, device)| tested(*place, device))
            .collect(),
        parity: apart,
        endpoints,
        faults: Vec::new(),
    };
    findings.faults = faults(&findings);
    Ok(findings)
}

/// All devices but the CPU.
fn others() -> impl Iterator<Item = (Place, Device)> {
    let back_ends = BackEnd::ALL.into_iter().filter(|&back_end| back_end != BackEnd::Cpu);
    back_ends.flat_map(|back_end| {
        let numbered = back_end.present().into_iter().enumerate();
        numbered.map(move |(index, device)| (Place { back_end, index: Some(index) }, device))
    })
}

fn list_device(place: Place, device: &Device) -> Listed {
    let Limits { name, largest_buffer, workgroups, holds_bf16 } = Limits::of(device);
    let is_software = is_software(device);
    Listed { place: place.to_string(), name, largest_buffer, workgroups, holds_bf16, is_software }
}

fn tested(place: Place, device: &Device) -> Vec<Tested> {
    if is_software(device) {
        eprintln!("{place}: testing, which takes minutes where a driver compiles for the CPU");
    }
    let products = place.back_end.products();
    let checks = self_test(device, &cpu()).into_iter();
    checks
        .map(|check| Tested {
            device: place.to_string(),
            operation: check.name,
            error: check.error,
            passes: check.passes(products),
        })
        .collect()
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
    for step in plan(&pipeline, file, Path::new("runs"), Missing::Shown, None)? {
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
    for device in &findings.devices {
        let buffer = device.largest_buffer.map(|bytes| format!(", buffers up to {}", size(bytes))).unwrap_or_default();
        let groups =
            device.workgroups.map(|count| format!(", {} workgroups", grouped(count.into()))).unwrap_or_default();
        let bf16 = if device.holds_bf16 { "bfloat16" } else { "no bfloat16" };
        let software = match device.is_software {
            true => format!("; computes on the CPU, tested with --device {}", device.place),
            false => String::new(),
        };
        line("device", &format!("{:8} {}{buffer}{groups}, {bf16}{software}", device.place, device.name));
    }
    line("precision", "weights float32, matrices bfloat16 on request; sums, norms, masters and moments float32");
    line("", "products on cuda are rounded to TensorFloat-32; everywhere else they are float32");
    let unit =
        worldloom_model::bf16_unit().map_or("this processor has no unit for it".into(), |unit| format!("on {unit}"));
    line("", &format!("products of bfloat16 on request (matmul_precision): {unit}"));
    println!("self-test: largest error of output and gradients, in units of the largest number ({seconds:.1} s)");
    for test in &findings.self_tests {
        let verdict = if test.passes { "ok" } else { "WRONG" };
        println!("  {:8} {:30} {:.1e}  {verdict}", test.device, test.operation, test.error);
    }
    if !findings.parity.is_empty() {
        parity::print(&findings.parity);
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
