//! The executor: Ballista's, with our functions.

use std::net::{IpAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ballista_executor::executor_process::{ExecutorProcessConfig, start_executor_process};

use crate::client::Ballista;
use crate::error::Result;
use crate::{MESSAGE_BYTES, config, functions};

/// How long an executor waits for its scheduler to start; Ballista's own wait has no end.
const PATIENCE: Duration = Duration::from_secs(30);

/// How an executor runs.
#[derive(Debug, Clone)]
pub struct Executor {
    /// The cluster it belongs to.
    pub cluster: Ballista,
    /// The address of this machine as scheduler, client and other executors see it.
    pub listen: IpAddr,
    /// Tasks at once.
    pub num_threads: usize,
    /// What its tasks may hold together before they spill to disk.
    pub memory_bytes: u64,
    /// Where it keeps rows between tasks.
    pub folder: PathBuf,
    /// Seconds between two signs of life.
    pub heartbeat_seconds: u64,
}

/// Runs an executor until the process ends or the scheduler ends it.
pub async fn run_executor(executor: &Executor) -> Result<()> {
    let started = Instant::now();
    while let Err(error) = executor.cluster.reach() {
        if started.elapsed() >= PATIENCE {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let (host, port) = executor.cluster.scheduler();
    let [flight, calls] = free_ports(executor.listen)?;
    fs_err::create_dir_all(&executor.folder)?;
    let settings = ExecutorProcessConfig {
        bind_host: executor.listen.to_string(),
        external_host: Some(executor.listen.to_string()),
        port: flight,
        grpc_port: calls,
        scheduler_host: host.into(),
        scheduler_port: port,
        vcores: executor.num_threads,
        work_dir: Some(std::path::absolute(&executor.folder)?.to_string_lossy().into_owned()),
        grpc_max_decoding_message_size: MESSAGE_BYTES,
        grpc_max_encoding_message_size: MESSAGE_BYTES,
        executor_heartbeat_interval_seconds: executor.heartbeat_seconds,
        memory_pool_size: Some(executor.memory_bytes),
        override_function_registry: Some(functions()?),
        override_config_producer: Some(Arc::new(config)),
        ..ExecutorProcessConfig::default()
    };
    Ok(start_executor_process(Arc::new(settings)).await?)
}

/// Two ports that nobody listens on: Ballista tells the scheduler the numbers before it binds them.
fn free_ports(listen: IpAddr) -> Result<[u16; 2]> {
    let held = [TcpListener::bind((listen, 0))?, TcpListener::bind((listen, 0))?];
    Ok([held[0].local_addr()?.port(), held[1].local_addr()?.port()])
}
