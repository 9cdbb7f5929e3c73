//! The program `worldloom-cluster`: what `worldloom` calls for `curate --cluster`, `worker` and `scheduler`.
//!
//! `curate` takes a [`Job`] as JSON on its input and answers with one [`Answer`] a line.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;
use worldloom_cluster::{Ballista, Executor, Scheduler, run_executor, run_scheduler};
use worldloom_curate::{Answer, Job, Resources};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(name = "worldloom-cluster", version, about = "Curation on a Ballista cluster")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Log more (-vv: all).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Subcommand)]
enum Command {
    /// Hand out the tasks of curations to workers.
    Scheduler {
        /// Address to listen on.
        #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 50050)))]
        listen: SocketAddr,
        /// Seconds without a word from a worker after which its work is given to others.
        #[arg(long, value_name = "SECONDS", default_value_t = 60)]
        worker_timeout: u64,
    },
    /// Do tasks of curations for a scheduler.
    Worker {
        /// The scheduler.
        #[arg(long, value_name = "ballista://HOST:PORT")]
        cluster: String,
        /// Address of this machine as the others see it.
        #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
        listen: IpAddr,
        /// Tasks at once; unless given, one for each core.
        #[arg(long, value_name = "N")]
        threads: Option<usize>,
        /// Megabytes that its tasks may hold together before they spill to disk.
        #[arg(long, value_name = "MB", default_value_t = 1024)]
        memory: u64,
        /// Folder for rows between tasks; unless given, one that goes with the process.
        #[arg(long, value_name = "DIR")]
        folder: Option<PathBuf>,
        /// Seconds between two signs of life.
        #[arg(long, value_name = "SECONDS", default_value_t = 15)]
        heartbeat: u64,
    },
    /// Curate a job that comes as JSON on the input.
    #[command(hide = true)]
    Curate,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(arguments.verbose);
    let result = match arguments.command {
        Command::Curate => return curate(),
        Command::Scheduler { listen, worker_timeout } => {
            wait(run_scheduler(&Scheduler { listen, executor_timeout_seconds: worker_timeout.max(1) }))
        }
        Command::Worker { cluster, listen, threads, memory, folder, heartbeat } => {
            work(&cluster, listen, threads, memory, folder, heartbeat)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.downcast_ref::<worldloom_cluster::Error>().and_then(|error| error.hint()) {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn work(
    cluster: &str,
    listen: IpAddr,
    threads: Option<usize>,
    memory: u64,
    folder: Option<PathBuf>,
    heartbeat: u64,
) -> Result<()> {
    let temporary = tempfile::tempdir()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    wait(run_executor(&Executor {
        cluster: Ballista::parse(cluster)?,
        listen,
        num_threads: threads.unwrap_or(cores).max(1),
        memory_bytes: memory.max(64) << 20,
        folder: folder.unwrap_or_else(|| temporary.path().into()),
        heartbeat_seconds: heartbeat.max(1),
    }))
}

fn wait(work: impl Future<Output = worldloom_cluster::Result<()>>) -> Result<()> {
    let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    Ok(threads.block_on(work)?)
}

fn curate() -> ExitCode {
    match run_job() {
        Ok(()) => {
            say(&Answer::Done);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let curation = error.downcast_ref::<worldloom_curate::Error>().and_then(worldloom_curate::Error::hint);
            let cluster = error.downcast_ref::<worldloom_cluster::Error>().and_then(worldloom_cluster::Error::hint);
            let hint = curation.or(cluster.map(String::from));
            say(&Answer::Failed { error: error.to_string(), hint });
            ExitCode::FAILURE
        }
    }
}

fn run_job() -> Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let job: Job = serde_json::from_str(&text)?;
    let cluster = Ballista::parse(&job.address)?;
    cluster.reach()?;
    let resources = Resources { cluster: Some(&cluster), ..Resources::default() };
    let progress = |done, total| say(&Answer::Progress { done, total });
    worldloom_curate::run(&job.config, &job.trajectories, &job.documents, &job.out, resources, &progress)?;
    Ok(())
}

fn say(answer: &Answer) {
    if let Ok(text) = serde_json::to_string(answer) {
        println!("{text}");
    }
}

fn start_log(verbosity: u8) {
    let filter = match verbosity {
        0 => "warn",
        1 => "info",
        _ => "debug",
    };
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(EnvFilter::new(filter)).init();
}
