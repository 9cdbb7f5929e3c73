//! OpenAI's API: models, chat completions and completions.

mod choice;
mod request;
mod respond;

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::app::App;
use crate::body::read_json;
use crate::error::ApiError;
use request::{ChatRequest, CompletionRequest};

/// `GET /v1/models`
pub(crate) async fn models(State(app): State<Arc<App>>) -> Json<Value> {
    Json(json!({"object": "list", "data": [described(&app)]}))
}

/// `GET /v1/models/{id}`
pub(crate) async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Response {
    match check_model(&app, Some(&id)) {
        Ok(()) => Json(described(&app)).into_response(),
        Err(error) => error.into_response(),
    }
}

fn described(app: &App) -> Value {
    json!({
        "id": app.config.model_name,
        "object": "model",
        "created": app.started,
        "owned_by": "worldloom",
        "max_model_len": app.engine.model().config().max_position_embeddings,
    })
}

fn check_model(app: &App, asked: Option<&str>) -> Result<(), ApiError> {
    let served = &app.config.model_name;
    match asked.filter(|asked| !asked.is_empty() && asked != served) {
        None => Ok(()),
        Some(asked) => {
            let message = format!("there is no model `{asked}`; `{served}` is served");
            let error = ApiError::new(StatusCode::NOT_FOUND, "invalid_request_error", message);
            Err(ApiError { param: Some("model".into()), ..error }.code("model_not_found"))
        }
    }
}

/// `POST /v1/chat/completions`
pub(crate) async fn chat(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let prepared = async {
        let request: ChatRequest = read_json(request, app.config.max_body_bytes).await?;
        check_model(&app, request.common.model.as_deref())?;
        request.prepare(&app)
    };
    match prepared.await {
        Ok(job) => respond::respond(app, job).await,
        Err(error) => error.into_response(),
    }
}

/// `POST /v1/completions`
pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request<Body>) -> Response {
    let prepared = async {
        let request: CompletionRequest = read_json(request, app.config.max_body_bytes).await?;
        check_model(&app, request.common.model.as_deref())?;
        request.prepare(&app)
    };
    match prepared.await {
        Ok(job) => respond::respond(app, job).await,
        Err(error) => error.into_response(),
    }
}
