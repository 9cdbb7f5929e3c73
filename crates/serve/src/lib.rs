//! The world model over HTTP and MCP.
//!
//! Three doors to one [`Engine`](worldloom_world::engine::Engine): OpenAI's API ([`openai`]), simulated environments in
//! the wire convention of OpenEnv ([`environment`]), and the tool `predict` over MCP ([`mcp`]). Whatever a client does,
//! the server stays up: bad requests get an error in the API's own shape, a client that hangs up frees its place, more
//! than fits waits in a bounded queue, and nobody waits longer than `request_timeout`.

mod app;
mod body;
pub mod environment;
mod error;
pub mod mcp;
mod metrics;
pub mod openai;
mod waiting;

pub use app::{App, ServeConfig, router, serve};
pub use error::{Error, Result};
