//! OpenEnv's WebSocket: one connection, one episode at a time, JSON messages of `type` and `data`.

use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::session::{Refusal, Session, blocking};
use super::store::Shared;
use crate::app::App;

/// `GET /ws`
pub(crate) async fn upgrade(State(app): State<Arc<App>>, upgrade: WebSocketUpgrade) -> Response {
    let most = app.config.max_body_bytes;
    upgrade.max_message_size(most).on_upgrade(move |socket| talk(app, socket))
}

/// Until the client closes or is gone; its episode is closed then.
async fn talk(app: Arc<App>, mut socket: WebSocket) {
    let mut session: Option<Shared> = None;
    while let Some(Ok(message)) = socket.recv().await {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(_) => break,
            Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => continue,
        };
        let answer = match read(&text) {
            Ok((kind, _)) if kind == "close" => break,
            Ok((kind, data)) => answer(&app, &mut session, &kind, data).await,
            Err(refusal) => Err(refusal),
        };
        let answer = answer.unwrap_or_else(
            |Refusal { code, message }| json!({"type": "error", "data": {"message": message, "code": code}}),
        );
        if socket.send(Message::Text(answer.to_string().into())).await.is_err() {
            break;
        }
    }
    if let Some(session) = session {
        let _ = blocking(app, move |app| app.episodes.close_this(&session)).await;
    }
}

fn read(text: &str) -> Result<(String, Map<String, Value>), Refusal> {
    let message: Value =
        serde_json::from_str(text).map_err(|error| Refusal::new("INVALID_JSON", format!("not JSON: {error}")))?;
    let kind = message.get("type").and_then(Value::as_str).unwrap_or_default().to_string();
    let data = match message.get("data") {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(data)) => data.clone(),
        Some(other) => return Err(Refusal::invalid(format!("`data` is {other}, expected an object"))),
    };
    Ok((kind, data))
}

async fn answer(
    app: &Arc<App>,
    session: &mut Option<Shared>,
    kind: &str,
    data: Map<String, Value>,
) -> Result<Value, Refusal> {
    let reset_first = || Refusal::new("SESSION_ERROR", "no episode is open; reset first");
    match kind {
        "reset" => {
            let opened = Session::reset(app, data)?;
            let first = opened.first();
            if let Some(before) = session.take() {
                blocking(app.clone(), move |app| app.episodes.close_this(&before)).await?;
            }
            *session = Some(app.episodes.insert(opened)?);
            Ok(json!({"type": "observation", "data": first}))
        }
        "step" => {
            let session = session.clone().ok_or_else(reset_first)?;
            let stepped = blocking(app.clone(), move |app| {
                session.lock().unwrap_or_else(PoisonError::into_inner).step(app, &data)
            });
            Ok(json!({"type": "observation", "data": stepped.await??}))
        }
        "state" => {
            let session = session.as_ref().ok_or_else(reset_first)?;
            Ok(json!({"type": "state", "data": session.lock().unwrap_or_else(PoisonError::into_inner).state()}))
        }
        other => Err(Refusal::new("UNKNOWN_TYPE", format!("`{other}`: known are reset, step, state and close"))),
    }
}
