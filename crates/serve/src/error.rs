//! Errors of the server, and errors as the API shows them.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket or a file failed; `fs_err` names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// An episode cannot be written or read.
    #[error(transparent)]
    World(#[from] worldloom_world::Error),
    /// The MCP conversation broke off.
    #[error("mcp: {detail}")]
    Mcp {
        /// What happened.
        detail: String,
    },
}

/// Shorthand.
pub type Result<T> = std::result::Result<T, Error>;

/// An error in the shape of OpenAI's API.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Self {
        Self { status, kind, message: message.into(), param: None, code: None }
    }

    /// The request is wrong at `param`.
    pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "invalid_request_error", message);
        Self { param: (!param.is_empty()).then(|| param.into()), ..error }
    }

    pub(crate) fn code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn timeout(seconds: f64) -> Self {
        let message = format!("the request took longer than {seconds} s");
        Self::new(StatusCode::GATEWAY_TIMEOUT, "timeout_error", message).code("timeout")
    }

    /// What went wrong below: the asker's doing where the request names it, else the server's.
    pub(crate) fn of(error: &worldloom_world::Error, param: &str) -> Self {
        use worldloom_world::{Error, GenerateError};
        match error {
            Error::Busy { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "rate_limit_error", error.to_string()).code("queue_full")
            }
            Error::EngineStopped => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "server_error", error.to_string()).code("engine_stopped")
            }
            Error::Generate(GenerateError::TooLong { .. } | GenerateError::CacheLimit { .. }) => {
                Self::invalid(param, without_number(&error.to_string())).code("context_length_exceeded")
            }
            Error::Generate(GenerateError::Sampling { parameter, found, expected, .. }) => {
                Self::invalid(parameter, format!("`{parameter}` is {found}, expected {expected}"))
            }
            Error::Generate(GenerateError::NotFinite { .. }) => {
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", without_number(&error.to_string()))
            }
            Error::Generate(_) => Self::invalid(param, without_number(&error.to_string())),
            Error::Episode { field, .. } => Self::invalid(field, error.to_string()),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "server_error", other.to_string()),
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        let Self { kind, message, param, code, .. } = self;
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    }
}

/// The generator counts requests in a batch; over HTTP there is one.
fn without_number(message: &str) -> String {
    message.strip_prefix("request 0: ").or(message.strip_prefix("request 0")).unwrap_or(message).trim().into()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.to_json())).into_response();
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        // The body is not read to its end, so nothing can follow it on this connection.
        if self.status == StatusCode::PAYLOAD_TOO_LARGE {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}
