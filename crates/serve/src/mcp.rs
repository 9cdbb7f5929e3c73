//! The tool `predict` over MCP: what would this action return? So an agent can look before it leaps.

use std::sync::Arc;
use std::time::Duration;

use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServiceExt, schemars, tool, tool_router};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use worldloom_schema::Domain;
use worldloom_world::engine::Engine;
use worldloom_world::episode::{Episode, Play, Scenario};

use crate::error::Error;
use crate::waiting::{Seen, Waiting};

/// What is asked of `predict`.
#[derive(Debug, Deserialize, JsonSchema)]
struct PredictParameters {
    /// The action whose result is predicted: a command line, a tool call as JSON, a gesture, as the environment takes it.
    action: String,
    /// mcp, search, terminal, swe, android, web or os. Default: what the server was started with.
    domain: Option<String>,
    /// The state before the first action of `history`.
    initial_state: Option<String>,
    /// The tools of the environment, as text or as JSON.
    tools: Option<String>,
    /// What was done before, in order, and what came of it.
    #[serde(default)]
    history: Vec<PastTurn>,
}

/// An action and its observation.
#[derive(Debug, Deserialize, JsonSchema)]
struct PastTurn {
    /// What was done.
    action: String,
    /// What the environment answered.
    observation: String,
}

/// The server behind one conversation.
#[derive(Clone)]
struct Predictor {
    engine: Arc<Engine>,
    scenario: Scenario,
    play: Play,
    limit: Duration,
}

#[tool_router(server_handler)]
impl Predictor {
    #[tool(
        name = "predict",
        description = "Predicts what an action would return, by a world model, without performing it. Give the actions \
                       and observations so far in `history`. The prediction can be wrong; nothing is changed by it.",
        annotations(read_only_hint = true)
    )]
    async fn predict(
        &self,
        Parameters(parameters): Parameters<PredictParameters>,
        context: RequestContext<RoleServer>,
    ) -> CallToolResult {
        // Dropped with this call, when the client is gone, or where it cancels.
        let waiting = Waiting::at_most(self.limit);
        let (server, seen) = (self.clone(), waiting.seen());
        let mut work = tokio::task::spawn_blocking(move || server.answer(parameters, &seen));
        let done = tokio::select! {
            done = &mut work => done,
            () = context.ct.cancelled() => {
                drop(waiting);
                work.await
            }
        };
        let failed = |message: String| CallToolResult::error(vec![ContentBlock::text(message)]);
        match done {
            Ok(Ok(result)) => result,
            Ok(Err(message)) => failed(message),
            Err(error) => failed(error.to_string()),
        }
    }
}

impl Predictor {
    fn answer(&self, parameters: PredictParameters, seen: &Seen) -> Result<CallToolResult, String> {
        let PredictParameters { action, domain, initial_state, tools, history } = parameters;
        let mut scenario = self.scenario.clone();
        if let Some(domain) = domain {
            scenario.domain = domain.parse::<Domain>()?;
        }
        scenario.initial_state = initial_state.or(scenario.initial_state);
        scenario.tools = tools.map(serde_json::Value::String).or(scenario.tools);
        scenario.max_turns = None;
        let mut episode = Episode::start(scenario).map_err(|error| error.to_string())?;
        for turn in history {
            episode.recall(&turn.action, &turn.observation);
        }
        let step = episode.step_until(&self.engine, &self.play, &action, seen.patience());
        let step = step.map_err(|error| error.to_string())?;
        match step.observation {
            Ok(observation) => {
                let mut result = CallToolResult::success(vec![ContentBlock::text(observation.clone())]);
                result.structured_content = Some(json!({"observation": observation, "thinking": step.thinking}));
                Ok(result)
            }
            Err(fault) => Err(format!("the model gave no usable prediction ({})", fault.as_str())),
        }
    }
}

/// Speaks MCP until the client closes its end. No prediction takes longer than `limit`; one that the client cancels ends,
/// and so does what is not done a few seconds after it has gone.
pub async fn serve(
    engine: Arc<Engine>,
    scenario: Scenario,
    play: Play,
    limit: Duration,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
) -> crate::error::Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Mcp { detail: error.to_string() };
    let running = Predictor { engine, scenario, play, limit }.serve((input, output)).await;
    let running = running.map_err(|error| failed(&error))?;
    running.waiting().await.map_err(|error| failed(&error))?;
    Ok(())
}
