//! JSON bodies with a bound on size and time.

use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::error::ApiError;

/// How long a body may take to come.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Reads a JSON body of at most `limit` bytes. An empty one is read as `{}`.
pub(crate) async fn read_json<T: DeserializeOwned>(request: Request<Body>, limit: usize) -> Result<T, ApiError> {
    let too_large = || {
        let message = format!("the body is larger than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "invalid_request_error", message).code("body_too_large")
    };
    let announced = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    if announced.and_then(|length| length.parse::<usize>().ok()).is_some_and(|length| length > limit) {
        return Err(too_large());
    }
    let reading = tokio::time::timeout(BODY_TIME, to_bytes(request.into_body(), limit)).await;
    let bytes = reading.map_err(|_| ApiError::timeout(BODY_TIME.as_secs_f64()))?.map_err(|error| {
        // What the limit says has no type of its own that we could name.
        let text = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        if text.contains("limit") { too_large() } else { ApiError::invalid("", format!("the body breaks off: {text}")) }
    })?;
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}".as_slice() } else { &bytes[..] };
    serde_json::from_slice(bytes).map_err(|error| {
        let param = unknown_field(&error.to_string());
        ApiError::invalid(&param.unwrap_or_default(), format!("the body cannot be read: {error}"))
    })
}

/// The field that serde names between back quotes.
fn unknown_field(message: &str) -> Option<String> {
    let named = message.starts_with("missing field") || message.starts_with("unknown field");
    named.then(|| message.split('`').nth(1).map(String::from)).flatten()
}
