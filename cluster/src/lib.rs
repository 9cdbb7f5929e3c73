//! Curation on a Ballista cluster: the client's session, the scheduler and the executor.
//!
//! Words: the *scheduler* cuts plans into tasks and hands them to *executors*; the *client* is the curation, which decides
//! between plans and writes every file. All of them see input and output folders under the same paths, and know the
//! functions of `worldloom-curate` by name. A package of its own, outside the workspace, so that the program is built
//! without any of it.

mod client;
mod error;
mod executor;
mod scheduler;

use std::sync::Arc;

use ballista_core::utils::{default_config_producer, default_session_builder};
use datafusion::execution::SessionState;
use datafusion::prelude::{SessionConfig, SessionContext};

pub use client::Ballista;
pub use error::{Error, Result};
pub use executor::{Executor, run_executor};
pub use scheduler::{Scheduler, run_scheduler};

/// What a message between the parts may hold; a batch is about 16 MB and has at least one row.
const MESSAGE_BYTES: u32 = 1 << 30;

/// A session of scheduler or executor, with our functions.
fn session(config: SessionConfig) -> datafusion::error::Result<SessionState> {
    let context = SessionContext::new_with_state(default_session_builder(config)?);
    worldloom_curate::register(&context);
    Ok(context.state())
}

/// A scheduler's or executor's config before a client's is laid over it.
fn config() -> SessionConfig {
    default_config_producer()
}

/// The functions an executor knows.
fn functions() -> datafusion::error::Result<Arc<ballista_core::registry::BallistaFunctionRegistry>> {
    Ok(Arc::new((&session(config())?).into()))
}
