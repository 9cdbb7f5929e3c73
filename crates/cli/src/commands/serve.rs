//! `serve`: the model behind OpenAI's API, as environments for agents, and as an MCP tool.

use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use worldloom_serve::{App, ServeConfig};

use super::play::{play, play_args, scenario};
use super::world::{model_args, start_engine};
use crate::config::UserError;
use crate::signals::listen;

/// Where the key is looked for.
const KEY_VARIABLE: &str = "WORLDLOOM_API_KEY";
/// How often the signal is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

const AFTER: &str = "\
  POST /v1/chat/completions, /v1/completions · GET /v1/models      OpenAI's API
  WS /ws · POST /reset, /step, /close · GET /state                 environments for agents, as OpenEnv has them
  GET /health, /metrics                                            for those who watch

With WORLDLOOM_API_KEY set, clients must send it: as bearer, as x-api-key, or in the address as http://user:KEY@host.
Other addresses than loopback need a key, or --no-key.";

/// The command line.
pub(crate) fn command() -> Command {
    let text =
        |id: &'static str, name: &'static str, help: &'static str| Arg::new(id).long(id).value_name(name).help(help);
    let count = |id: &'static str, value: &'static str, help: &'static str| {
        text(id, "N", help).default_value(value).value_parser(value_parser!(usize))
    };
    let seconds = |id: &'static str, value: &'static str, help: &'static str| {
        text(id, "S", help).default_value(value).value_parser(value_parser!(f64))
    };
    let flag = |id: &'static str, help: &'static str| Arg::new(id).long(id).action(ArgAction::SetTrue).help(help);
    let command = Command::new("serve")
        .about("Serve a model: OpenAI's API, simulated environments for agents, MCP")
        .after_help(AFTER)
        .arg(
            text("host", "ADDRESS", "Address to listen on")
                .default_value("127.0.0.1")
                .value_parser(value_parser!(IpAddr)),
        )
        .arg(text("port", "PORT", "Port; 0 takes a free one").default_value("8000").value_parser(value_parser!(u16)))
        .arg(text("name", "NAME", "Name of the model; default: the folder's"))
        .arg(flag("no-key", "Let everybody in, on every address"))
        .arg(count("max-body-bytes", "16777216", "Largest body"))
        .arg(count("max-n", "64", "Largest `n`"))
        .arg(count("default-max-tokens", "1024", "Longest completion where the request names none"))
        .arg(count("max-waiting", "1024", "Prompts that wait; more are answered with 429"))
        .arg(count("max-episodes", "1024", "Simulated episodes open at one time"))
        .arg(seconds("episode-idle", "3600", "An episode that nobody has used for so long makes room for another"))
        .arg(seconds("request-timeout", "600", "Nobody waits longer"))
        .arg(seconds("grace", "30", "Time for work in progress after SIGINT or SIGTERM"))
        .arg(flag("inline-thinking", "Leave the thinking in the content, not in reasoning_content"))
        .arg(
            text("episodes", "DIR", "Append finished episodes there, one trajectory a line")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(flag("mcp", "Offer the tool `predict` over stdin and stdout, and nothing else"));
    model_args(play_args(command), true)
}

/// Serves until a signal, or with --mcp until the input ends.
pub(super) fn serve(matches: &ArgMatches, stop: &Arc<AtomicBool>) -> Result<()> {
    let _listening = listen();
    let count = |id: &str| matches.get_one::<usize>(id).copied().unwrap_or_default();
    let seconds = |id: &str| -> Result<Duration> {
        let seconds = matches.get_one::<f64>(id).copied().unwrap_or_default();
        let duration = Duration::try_from_secs_f64(seconds);
        duration.map_err(|_| UserError::new(format!("--{id} {seconds}, expected 0 or more")).into())
    };
    let api_key = std::env::var(KEY_VARIABLE).ok().filter(|key| !key.is_empty());
    let host = matches.get_one::<IpAddr>("host").copied().unwrap_or(IpAddr::from([127, 0, 0, 1]));
    let is_mcp = matches.get_flag("mcp");
    if !is_mcp && !host.is_loopback() && api_key.is_none() && !matches.get_flag("no-key") {
        let error = UserError::new(format!("--host {host} lets other machines in, and no key is set"));
        return Err(error.hint(format!("set {KEY_VARIABLE}, or add --no-key")).into());
    }
    let (scenario, play) = (scenario(matches)?, play(matches));
    let folder = matches.get_one::<PathBuf>("model").cloned().unwrap_or_default();
    let folder_name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let config = ServeConfig {
        model_name: matches.get_one::<String>("name").cloned().or(folder_name).unwrap_or_else(|| "worldloom".into()),
        asked: play.asked,
        api_key,
        max_body_bytes: count("max-body-bytes"),
        max_completions: count("max-n"),
        default_max_tokens: count("default-max-tokens").max(1),
        request_timeout: seconds("request-timeout")?,
        grace: seconds("grace")?,
        splits_reasoning: !matches.get_flag("inline-thinking"),
        play,
        scenario,
        max_episodes: count("max-episodes"),
        episode_idle: seconds("episode-idle")?,
        episodes: matches.get_one::<PathBuf>("episodes").cloned(),
    };
    let engine = Arc::new(start_engine(matches, count("max-waiting"))?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    if is_mcp {
        let (input, output, writer) = standard_streams();
        let ServeConfig { scenario, play, request_timeout, .. } = config;
        runtime.block_on(worldloom_serve::mcp::serve(engine, scenario, play, request_timeout, input, output))?;
        // A thread may still wait for input that never comes; what was answered is written.
        runtime.shutdown_background();
        let _ = writer.join();
        return Ok(());
    }
    let port = matches.get_one::<u16>("port").copied().unwrap_or_default();
    let stop = Arc::clone(stop);
    runtime.block_on(async move {
        let listener = tokio::net::TcpListener::bind((host, port)).await.map_err(|error| {
            UserError::new(format!("listen on {host} port {port}: {error}")).hint("choose another with --port")
        })?;
        let address = listener.local_addr().context("the listener's address")?;
        println!("`{}` is served on http://{address}", config.model_name);
        std::io::stdout().flush()?;
        let app = App::new(engine, config)?;
        let signal = async move {
            while !stop.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            eprintln!("stopping: work in progress ends first");
        };
        worldloom_serve::serve(app, listener, signal).await.context("serve")
    })?;
    runtime.shutdown_timeout(Duration::from_secs(1));
    Ok(())
}

/// stdin and stdout as asynchronous streams, by two threads of blocking copies; the second ends when all is written.
fn standard_streams() -> (tokio::io::DuplexStream, tokio::io::DuplexStream, JoinHandle<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    const BUFFER: usize = 1 << 16;
    let (input, mut to_input) = tokio::io::duplex(BUFFER);
    let (mut from_output, output) = tokio::io::duplex(BUFFER);
    let runtime = || tokio::runtime::Builder::new_current_thread().build();
    std::thread::spawn(move || {
        let (Ok(runtime), mut buffer, mut stdin) = (runtime(), [0; 8192], std::io::stdin()) else { return };
        while let Ok(read @ 1..) = stdin.read(&mut buffer) {
            if runtime.block_on(to_input.write_all(&buffer[..read])).is_err() {
                break;
            }
        }
    });
    let writer = std::thread::spawn(move || {
        let (Ok(runtime), mut buffer, mut stdout) = (runtime(), [0; 8192], std::io::stdout()) else { return };
        while let Ok(read @ 1..) = runtime.block_on(from_output.read(&mut buffer)) {
            if stdout.write_all(&buffer[..read]).and_then(|()| stdout.flush()).is_err() {
                break;
            }
        }
    });
    (input, output, writer)
}
