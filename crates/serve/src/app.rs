//! The routes, what stands before all of them, and the running server.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, State};
use axum::http::{Request, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use tokio::net::TcpListener;
use worldloom_world::Asked;
use worldloom_world::engine::Engine;
use worldloom_world::episode::{Play, Scenario};

use crate::environment::Episodes;
use crate::error::{ApiError, Result};
use crate::metrics::Metrics;
use crate::{environment, openai};

/// What decides how the server behaves.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The name under which the model is served.
    pub model_name: String,
    /// How the model was trained to be asked.
    pub asked: Asked,
    /// What clients must show; without it, everybody is let in.
    pub api_key: Option<String>,
    /// Largest body.
    pub max_body_bytes: usize,
    /// Largest `n`.
    pub max_completions: usize,
    /// Longest completion where the request names none.
    pub default_max_tokens: usize,
    /// Nobody waits longer.
    pub request_timeout: Duration,
    /// How long work in progress may go on after the shutdown was asked for.
    pub grace: Duration,
    /// Whether thinking comes as `reasoning_content`, apart from the content.
    pub splits_reasoning: bool,
    /// How simulated environments ask the model.
    pub play: Play,
    /// What an environment is that is reset without a scenario.
    pub scenario: Scenario,
    /// Episodes open at one time.
    pub max_episodes: usize,
    /// An episode that nobody has used for so long makes room for another.
    pub episode_idle: Duration,
    /// Folder for finished episodes, one trajectory a line.
    pub episodes: Option<PathBuf>,
}

/// The server's state.
pub struct App {
    pub(crate) engine: Arc<Engine>,
    pub(crate) config: ServeConfig,
    pub(crate) metrics: Metrics,
    pub(crate) episodes: Episodes,
    pub(crate) started: u64,
}

impl App {
    /// A server of one engine.
    pub fn new(engine: Arc<Engine>, config: ServeConfig) -> Result<Arc<Self>> {
        let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs();
        let episodes = Episodes::new(config.max_episodes, config.episode_idle, config.episodes.as_deref())?;
        Ok(Arc::new(Self { engine, config, metrics: Metrics::default(), episodes, started }))
    }
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{*id}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completions))
        .route("/reset", post(environment::http::reset))
        .route("/step", post(environment::http::step))
        .route("/state", get(environment::http::state))
        .route("/close", post(environment::http::close))
        .route("/metadata", get(environment::http::metadata))
        .route("/schema", get(environment::http::schema))
        .route("/ws", get(environment::socket::upgrade))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .fallback(unknown)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(app.clone(), before))
        .with_state(app)
}

/// Serves until `shutdown` is done, then lets work in progress end for the time of grace.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let (sender, mut asked) = tokio::sync::watch::channel(false);
    let grace = app.config.grace;
    let graceful = async move {
        shutdown.await;
        let _ = sender.send(true);
    };
    let server = axum::serve(listener, router(app.clone())).with_graceful_shutdown(graceful);
    let last_call = async move {
        let _ = asked.wait_for(|asked| *asked).await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        ended = server.into_future() => ended?,
        () = last_call => tracing::warn!(grace_s = grace.as_secs_f64(), "work in progress was cut off"),
    }
    app.episodes.close_all();
    Ok(())
}

/// Who may enter, and the count of all that was answered.
async fn before(State(app): State<Arc<App>>, request: Request<Body>, next: Next) -> Response {
    let started = Instant::now();
    let matched = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string());
    let route = matched.unwrap_or_else(|| "other".into());
    let response = match (route.as_str(), check_key(&app.config, &request)) {
        ("/health", _) | (_, Ok(())) => next.run(request).await,
        (_, Err(error)) => error.into_response(),
    };
    app.metrics.answered(&route, response.status().as_u16(), started.elapsed());
    response
}

fn check_key(config: &ServeConfig, request: &Request<Body>) -> std::result::Result<(), ApiError> {
    let Some(key) = &config.api_key else { return Ok(()) };
    let sent = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let given = sent(header::AUTHORIZATION.as_str()).and_then(authorised).or_else(|| sent("x-api-key").map(Into::into));
    if given.as_ref().is_some_and(|given| is_same(given, key.as_bytes())) {
        return Ok(());
    }
    let message = if given.is_some() { "the API key is not the server's" } else { "an API key is needed" };
    Err(ApiError::new(StatusCode::UNAUTHORIZED, "authentication_error", message).code("invalid_api_key"))
}

/// The key of an `Authorization`: a bearer's token, or the password of `user:password`, which is what addresses such as
/// `ws://user:key@host` become.
fn authorised(value: &str) -> Option<Vec<u8>> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(rest.trim().into());
    }
    let pair = base64::engine::general_purpose::STANDARD.decode(rest.trim()).ok()?;
    let colon = pair.iter().position(|byte| *byte == b':').filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    Some(pair[colon + 1..].to_vec())
}

/// Compares without telling by its time where two keys differ.
fn is_same(given: &[u8], key: &[u8]) -> bool {
    given.len() == key.len() && given.iter().zip(key).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

async fn health(State(app): State<Arc<App>>) -> Response {
    let (status, word) = match app.engine.is_running() {
        true => (StatusCode::OK, "healthy"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "the engine has stopped"),
    };
    (status, axum::Json(serde_json::json!({"status": word}))).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = app.metrics.text(app.engine.counters(), app.episodes.len());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn unknown(request: Request<Body>) -> ApiError {
    let message = format!("there is nothing at {}", request.uri().path());
    ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message).code("unknown_url")
}

async fn wrong_method(request: Request<Body>) -> ApiError {
    let message = format!("{} is not how {} is asked", request.method(), request.uri().path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "invalid_request_error", message)
}
