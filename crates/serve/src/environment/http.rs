//! Reset, step, state and close over HTTP. Requests name their episode; `reset` makes the name where none is given.

use std::sync::{Arc, PoisonError};

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use super::session::{Refusal, Session, blocking};
use crate::app::App;
use crate::body::read_json;
use crate::error::ApiError;
use crate::waiting::Waiting;

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self.code {
            "VALIDATION_ERROR" => StatusCode::UNPROCESSABLE_ENTITY,
            "SESSION_ERROR" => StatusCode::NOT_FOUND,
            "ALREADY_OPEN" => StatusCode::CONFLICT,
            "CAPACITY_REACHED" | "ENGINE_STOPPED" => StatusCode::SERVICE_UNAVAILABLE,
            "TIMEOUT" => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let error = ApiError::new(status, "environment_error", self.message);
        ApiError { code: Some(self.code), ..error }.into_response()
    }
}

async fn object(app: &App, request: Request<Body>) -> Result<Map<String, Value>, ApiError> {
    read_json(request, app.config.max_body_bytes).await
}

/// `POST /reset`
pub(crate) async fn reset(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let data = match object(&app, request).await {
        Ok(data) => data,
        Err(error) => return error.into_response(),
    };
    let opened = blocking(app, move |app| {
        let session = Session::reset(app, data)?;
        let first = session.first();
        app.episodes.insert(session).map(|_| first)
    });
    match opened.await.and_then(|opened| opened) {
        Ok(first) => Json(first).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /step`
pub(crate) async fn step(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let data = match object(&app, request).await {
        Ok(data) => data,
        Err(error) => return error.into_response(),
    };
    let action = match data.get("action") {
        Some(Value::Object(action)) => action.clone(),
        Some(other) => Map::from_iter([("text".to_string(), other.clone())]),
        None => return Refusal::invalid("`action` is missing").into_response(),
    };
    let session = match episode_id(&data, &action).and_then(|id| app.episodes.get(&id)) {
        Ok(session) => session,
        Err(refusal) => return refusal.into_response(),
    };
    // Dropped with this request: a client that hangs up waits no longer.
    let waiting = Waiting::at_most(app.config.request_timeout);
    let seen = waiting.seen();
    let stepped =
        blocking(app, move |app| session.lock().unwrap_or_else(PoisonError::into_inner).step(app, &action, &seen));
    match stepped.await.and_then(|stepped| stepped) {
        Ok(step) => Json(step).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

fn episode_id(data: &Map<String, Value>, action: &Map<String, Value>) -> Result<String, Refusal> {
    let found = data.get("episode_id").or_else(|| action.get("episode_id")).and_then(Value::as_str);
    let hint = "`episode_id` is missing: over HTTP each step names the episode that `reset` answered with";
    found.map(String::from).ok_or_else(|| Refusal::invalid(hint))
}

/// `GET /state?episode_id=…`
pub(crate) async fn state(State(app): State<Arc<App>>, uri: Uri) -> Response {
    let query = uri.query().unwrap_or_default().split('&').find_map(|pair| pair.strip_prefix("episode_id="));
    match query.ok_or_else(|| Refusal::invalid("`episode_id` is missing")).and_then(|id| app.episodes.get(id)) {
        Ok(session) => {
            let state = blocking(app, move |_| session.lock().unwrap_or_else(PoisonError::into_inner).state()).await;
            state.map_or_else(IntoResponse::into_response, |state| Json(state).into_response())
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `POST /close`
pub(crate) async fn close(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let data = match object(&app, request).await {
        Ok(data) => data,
        Err(error) => return error.into_response(),
    };
    match episode_id(&data, &Map::new()) {
        Ok(id) => {
            let closed = blocking(app, move |app| app.episodes.close(&id)).await;
            closed.map_or_else(IntoResponse::into_response, |closed| Json(json!({"closed": closed})).into_response())
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// `GET /metadata`
pub(crate) async fn metadata(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({
        "name": app.config.model_name,
        "description": "An environment simulated by a world model",
        "version": env!("CARGO_PKG_VERSION"),
        "readme_content": null,
        "author": null,
        "documentation_url": null,
    }))
}

/// `GET /schema`
pub(crate) async fn schema() -> Json<Value> {
    let text = json!({"type": "string"});
    Json(json!({
        "action": {
            "type": "object",
            "properties": {
                "text": text, "name": text, "arguments": {"type": "object"}, "control": text,
            },
        },
        "observation": {
            "type": "object",
            "properties": {
                "text": text, "episode_id": text, "turn": {"type": "integer"},
                "fault": {"type": ["string", "null"]}, "flags": {"type": "array", "items": text},
            },
            "required": ["text", "episode_id", "turn", "fault", "flags"],
        },
        "state": {
            "type": "object",
            "properties": {
                "episode_id": text, "step_count": {"type": "integer"}, "turns": {"type": "integer"},
                "domain": text, "done": {"type": "boolean"},
            },
        },
    }))
}
