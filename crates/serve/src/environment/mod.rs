//! Simulated environments for agents, in the wire convention of OpenEnv (`openenv-core`): reset, step, state, close,
//! over a WebSocket with one episode each, or over HTTP with the episode named in each request.
//!
//! `reset` takes the fields of a [`Scenario`](worldloom_world::episode::Scenario), all of them optional, beside
//! OpenEnv's `seed` and `episode_id`. `step` takes an action: `{"text": …}`, or a tool call `{"name": …, "arguments":
//! {…}}`; `{"control": …}` beside it tells the simulation something from this turn on. The observation's `text` is what
//! the environment answers; its `fault` says that the model gave no usable answer, and that the turn does not count.
//! Episodes that end are appended to a file, one trajectory a line.

pub(crate) mod http;
mod session;
pub(crate) mod socket;
mod store;

pub(crate) use store::Episodes;
