//! OpenEnv's WebSocket: one connection, one episode at a time, JSON messages of `type` and `data`.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::session::{Refusal, Session, blocking};
use super::store::Shared;
use crate::app::App;
use crate::waiting::Waiting;

/// Messages that are kept while another is answered; further ones are not read yet.
const MOST_EARLY: usize = 16;

/// `GET /ws`
pub(crate) async fn upgrade(State(app): State<Arc<App>>, upgrade: WebSocketUpgrade) -> Response {
    let most = app.config.max_body_bytes;
    upgrade.max_message_size(most).on_upgrade(move |socket| talk(app, socket))
}

/// Until the client closes or is gone; its episode is closed then.
async fn talk(app: Arc<App>, socket: WebSocket) {
    let mut session: Option<Shared> = None;
    let mut line = Line { socket, early: VecDeque::new() };
    while let Some(text) = line.next().await {
        let answer = match read(&text) {
            Ok((kind, _)) if kind == "close" => break,
            Ok((kind, data)) => {
                let answering = answer(&app, &mut session, &kind, data);
                let Some(answer) = line.unless_gone(answering).await else { break };
                answer
            }
            Err(refusal) => Err(refusal),
        };
        let answer = answer.unwrap_or_else(
            |Refusal { code, message }| json!({"type": "error", "data": {"message": message, "code": code}}),
        );
        if line.socket.send(Message::Text(answer.to_string().into())).await.is_err() {
            break;
        }
    }
    if let Some(session) = session {
        let _ = blocking(app, move |app| app.episodes.close_this(&session)).await;
    }
}

/// The connection, and what came over it before its turn.
struct Line {
    socket: WebSocket,
    early: VecDeque<Utf8Bytes>,
}

impl Line {
    /// The next message; none once the client is gone.
    async fn next(&mut self) -> Option<Utf8Bytes> {
        match self.early.pop_front() {
            Some(text) => Some(text),
            None => self.receive().await,
        }
    }

    async fn receive(&mut self) -> Option<Utf8Bytes> {
        loop {
            match self.socket.recv().await?.ok()? {
                Message::Text(text) => return Some(text),
                Message::Close(_) => return None,
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    }

    /// What the work comes to; none, with the work dropped, where the client closes meanwhile.
    async fn unless_gone<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let has_room = self.early.len() < MOST_EARLY;
            tokio::select! {
                done = &mut work => return Some(done),
                received = self.receive(), if has_room => {
                    let text = received?;
                    if read(&text).is_ok_and(|(kind, _)| kind == "close") {
                        return None;
                    }
                    self.early.push_back(text);
                }
            }
        }
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
            *session = Some(blocking(app.clone(), move |app| app.episodes.insert(opened)).await??);
            Ok(json!({"type": "observation", "data": first}))
        }
        "step" => {
            let session = session.clone().ok_or_else(reset_first)?;
            // Dropped with this answer, when the client is gone.
            let waiting = Waiting::at_most(app.config.request_timeout);
            let seen = waiting.seen();
            let stepped = blocking(app.clone(), move |app| {
                session.lock().unwrap_or_else(PoisonError::into_inner).step(app, &data, &seen)
            });
            Ok(json!({"type": "observation", "data": stepped.await??}))
        }
        "state" => {
            let session = session.clone().ok_or_else(reset_first)?;
            let state = blocking(app.clone(), move |_| session.lock().unwrap_or_else(PoisonError::into_inner).state());
            Ok(json!({"type": "state", "data": state.await?}))
        }
        other => Err(Refusal::new("UNKNOWN_TYPE", format!("`{other}`: known are reset, step, state and close"))),
    }
}
