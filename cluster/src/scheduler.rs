//! The scheduler: Ballista's, with our functions.

use std::net::SocketAddr;
use std::sync::Arc;

use ballista_scheduler::cluster::BallistaCluster;
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::start_server;

use crate::error::Result;
use crate::{MESSAGE_BYTES, config, session};

/// How a scheduler runs.
#[derive(Debug, Clone)]
pub struct Scheduler {
    /// Where it listens.
    pub listen: SocketAddr,
    /// Seconds without a word from an executor after which its work is given to others.
    pub executor_timeout_seconds: u64,
}

/// Runs a scheduler until the process ends.
pub async fn run_scheduler(scheduler: &Scheduler) -> Result<()> {
    let timeout = scheduler.executor_timeout_seconds;
    let settings = SchedulerConfig {
        namespace: "worldloom".into(),
        external_host: scheduler.listen.ip().to_string(),
        bind_host: scheduler.listen.ip().to_string(),
        bind_port: scheduler.listen.port(),
        task_distribution: TaskDistributionPolicy::RoundRobin,
        executor_timeout_seconds: timeout,
        expire_dead_executor_interval_seconds: (timeout / 3).max(1),
        no_executors_grace_period_seconds: 4 * timeout,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES,
        grpc_client_max_message_size: MESSAGE_BYTES,
        override_config_producer: Some(Arc::new(config)),
        override_session_builder: Some(Arc::new(session)),
        ..SchedulerConfig::default()
    };
    let cluster = BallistaCluster::new_from_config(&settings).await?;
    Ok(start_server(cluster, scheduler.listen, Arc::new(settings)).await?)
}
