//! Simulated environments over HTTP and over OpenEnv's WebSocket.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};
use worldloom_schema::Trajectory;
use worldloom_world::Limits;
use worldloom_world::engine::EngineConfig;
use worldloom_world::episode::Play;

use crate::support::{Mind, Server, config, play};

struct Client {
    socket: WebSocketStream<TcpStream>,
}

impl Client {
    async fn connect(server: &Server) -> Self {
        let stream = TcpStream::connect(&server.address).await.unwrap();
        let (socket, _) = client_async(format!("ws://{}/ws", server.address), stream).await.unwrap();
        Self { socket }
    }

    async fn ask(&mut self, message: &str) -> Value {
        self.socket.send(Message::text(message)).await.unwrap();
        match self.socket.next().await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        }
    }
}

async fn silent(folder: Option<&std::path::Path>) -> Server {
    let config = worldloom_serve::ServeConfig { episodes: folder.map(Into::into), ..config() };
    Server::with(Mind::Silent, config, Limits::default(), EngineConfig::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_episode_over_the_socket_is_reset_stepped_seen_and_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = silent(Some(folder.path())).await;
    let mut client = Client::connect(&server).await;
    let reset = json!({"type": "reset", "data": {"seed": 4, "episode_id": "one", "initial_state": "cwd: ~",
        "hidden_state": "the disk is full", "max_turns": 2,
        "perturbations": [{"kind": "timeout", "turn": 1}]}});
    let first = client.ask(&reset.to_string()).await;
    assert_eq!(first["type"], "observation");
    assert_eq!(first["data"]["observation"]["text"], "cwd: ~");
    assert!(!first.to_string().contains("disk"), "what is hidden stays hidden");
    let step = client.ask(r#"{"type": "step", "data": {"text": "touch x"}}"#).await;
    let data = &step["data"];
    assert_eq!(
        (&data["observation"]["text"], &data["observation"]["fault"], &data["done"]),
        (&json!(""), &json!(null), &json!(false))
    );
    let step = client.ask(r#"{"type": "step", "data": {"text": "touch y"}}"#).await;
    assert_eq!(step["data"]["observation"]["flags"], json!(["perturbation:timeout", "perturbation:timeout:unmet"]));
    assert_eq!(step["data"]["done"], true);
    let over = client.ask(r#"{"type": "step", "data": {"text": "ls"}}"#).await;
    assert_eq!((over["type"].as_str(), over["data"]["code"].as_str()), (Some("error"), Some("EXECUTION_ERROR")));
    let state = client.ask(r#"{"type": "state"}"#).await;
    assert_eq!((&state["data"]["episode_id"], &state["data"]["step_count"]), (&json!("one"), &json!(2)));
    assert!(!state.to_string().contains("disk"));
    client.socket.send(Message::text(r#"{"type": "close"}"#)).await.unwrap();
    server.until("episodes_open", 0.0).await;
    let log = fs_err::File::open(folder.path().join("episodes.jsonl"));
    let log = std::io::read_to_string(log.unwrap()).unwrap();
    let trajectory: Trajectory = serde_json::from_str(log.trim()).unwrap();
    assert_eq!((trajectory.source_path.as_str(), trajectory.turns.len()), ("one", 2));
    assert!(trajectory.system.simulation_instruction.unwrap().contains("the disk is full"));
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn mistakes_over_the_socket_leave_it_open() {
    let server = silent(None).await;
    let mut client = Client::connect(&server).await;
    for (message, code) in [
        ("{", "INVALID_JSON"),
        (r#"{"type": "jump"}"#, "UNKNOWN_TYPE"),
        (r#"{"type": "step", "data": {"text": "ls"}}"#, "SESSION_ERROR"),
        (r#"{"type": "reset", "data": {"domain": "kitchen"}}"#, "VALIDATION_ERROR"),
        (r#"{"type": "reset", "data": {"colour": "red"}}"#, "VALIDATION_ERROR"),
        (r#"{"type": "reset", "data": []}"#, "VALIDATION_ERROR"),
    ] {
        let answer = client.ask(message).await;
        assert_eq!((answer["type"].as_str(), answer["data"]["code"].as_str()), (Some("error"), Some(code)), "{answer}");
    }
    assert_eq!(client.ask(r#"{"type": "reset"}"#).await["type"], "observation");
    assert_eq!(client.ask(r#"{"type": "step", "data": {}}"#).await["data"]["code"], "VALIDATION_ERROR");
    assert_eq!(
        client.ask(r#"{"type": "step", "data": {"name": "get", "arguments": {"a": 1}}}"#).await["type"],
        "observation"
    );
    drop(client);
    server.until("episodes_open", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_episodes_over_http_keep_apart() {
    let server = silent(None).await;
    let play = async |number: usize| {
        let first = server.ok("/reset", &json!({"initial_state": format!("cwd: {number}")})).await;
        let id = first["observation"]["episode_id"].as_str().unwrap().to_string();
        assert_eq!(first["observation"]["text"], format!("cwd: {number}"));
        for turn in 1..=number % 3 + 1 {
            let step = server.ok("/step", &json!({"action": {"text": "ls"}, "episode_id": id})).await;
            assert_eq!(step["observation"]["turn"], turn);
        }
        let (_, state) = server.get(&format!("/state?episode_id={id}")).await;
        assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["turns"], number % 3 + 1);
        assert_eq!(server.ok("/close", &json!({"episode_id": id})).await["closed"], true);
    };
    futures::future::join_all((0..60).map(play)).await;
    server.until("episodes_open", 0.0).await;
    let (status, answer) = server.post("/step", &json!({"action": {"text": "ls"}, "episode_id": "gone"})).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (404, Some("SESSION_ERROR")));
    let (status, _) = server.post("/step", &json!({"action": {"text": "ls"}})).await;
    assert_eq!(status, 422);
    for path in ["/metadata", "/schema"] {
        assert_eq!(server.get(path).await.0, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_gives_nothing_usable_is_a_fault_that_does_not_count() {
    let server = Server::start().await;
    let mut client = Client::connect(&server).await;
    client.ask(r#"{"type": "reset"}"#).await;
    let step = client.ask(r#"{"type": "step", "data": {"text": "ls"}}"#).await;
    let observation = &step["data"]["observation"];
    assert_eq!((observation["fault"].as_str(), observation["turn"].as_u64()), (Some("cut_by_length"), Some(0)));
    assert_eq!(server.metric("step_faults_total").await, 1.0);
}

/// A server whose steps take seconds.
async fn slow(request_timeout: Duration) -> Server {
    let play = Play { max_new_tokens: 500, ..play() };
    let config = worldloom_serve::ServeConfig { request_timeout, play, ..config() };
    Server::with(Mind::Slow, config, Limits::default(), EngineConfig::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever_for_a_step() {
    let server = slow(Duration::from_millis(20)).await;
    let mut client = Client::connect(&server).await;
    client.ask(r#"{"type": "reset"}"#).await;
    let late = client.ask(r#"{"type": "step", "data": {"text": "ls"}}"#).await;
    assert_eq!((late["type"].as_str(), late["data"]["code"].as_str()), (Some("error"), Some("TIMEOUT")));
    let state = client.ask(r#"{"type": "state"}"#).await;
    assert_eq!((&state["data"]["turns"], &state["data"]["step_count"]), (&json!(0), &json!(0)));
    server.ok("/reset", &json!({"episode_id": "h"})).await;
    let (status, answer) = server.post("/step", &json!({"action": {"text": "ls"}, "episode_id": "h"})).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (504, Some("TIMEOUT")));
    server.until("completions_active", 0.0).await;
    server.until("asks_waiting", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_in_a_step_frees_its_place() {
    let server = slow(Duration::from_secs(600)).await;
    let mut client = Client::connect(&server).await;
    client.ask(r#"{"type": "reset"}"#).await;
    client.socket.send(Message::text(r#"{"type": "step", "data": {"text": "ls"}}"#)).await.unwrap();
    server.ok("/reset", &json!({"episode_id": "h"})).await;
    let body = json!({"action": {"text": "ls"}, "episode_id": "h"});
    let step = tokio::spawn(server.client.post(server.url("/step")).json(&body).send());
    server.until("asks_total", 2.0).await;
    drop(client);
    step.abort();
    server.until("asks_abandoned_total", 2.0).await;
    server.until("completions_active", 0.0).await;
    server.until("episodes_open", 1.0).await;
    let (_, state) = server.get("/state?episode_id=h").await;
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["turns"], 0, "nothing was done");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_sent_before_the_last_is_answered_waits_its_turn() {
    let server = silent(None).await;
    let mut client = Client::connect(&server).await;
    for message in [r#"{"type": "reset"}"#, r#"{"type": "step", "data": {"text": "ls"}}"#, r#"{"type": "state"}"#] {
        client.socket.send(Message::text(message)).await.unwrap();
    }
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let answer: Value = match client.socket.next().await.unwrap().unwrap() {
            Message::Text(text) => serde_json::from_str(&text).unwrap(),
            other => panic!("{other:?}"),
        };
        kinds.push(answer["type"].as_str().unwrap().to_string());
    }
    assert_eq!(kinds, ["observation", "observation", "state"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn episodes_that_nobody_uses_make_room_and_others_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for (idle, status, open) in [(Duration::ZERO, 200, 1.0), (Duration::from_secs(3600), 503, 2.0)] {
        let config = worldloom_serve::ServeConfig {
            max_episodes: 2,
            episode_idle: idle,
            episodes: Some(folder.path().join(open.to_string())),
            ..config()
        };
        let server = Server::with(Mind::Silent, config, Limits::default(), EngineConfig::default()).await;
        for id in ["a", "b"] {
            server.ok("/reset", &json!({"episode_id": id})).await;
            server.ok("/step", &json!({"action": {"text": "ls"}, "episode_id": id})).await;
        }
        assert_eq!(server.post("/reset", &json!({"episode_id": "c"})).await.0, status);
        server.until("episodes_open", open).await;
        let log = fs_err::read_to_string(folder.path().join(open.to_string()).join("episodes.jsonl")).unwrap();
        assert_eq!(log.lines().count(), if status == 200 { 2 } else { 0 }, "what makes room is written down");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_puts_nobody_out() {
    let server = silent(None).await;
    server.ok("/reset", &json!({"episode_id": "mine"})).await;
    server.ok("/step", &json!({"action": {"text": "ls"}, "episode_id": "mine"})).await;
    let (status, answer) = server.post("/reset", &json!({"episode_id": "mine"})).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (409, Some("ALREADY_OPEN")));
    let mut client = Client::connect(&server).await;
    let taken = client.ask(r#"{"type": "reset", "data": {"episode_id": "mine"}}"#).await;
    assert_eq!(taken["data"]["code"], "ALREADY_OPEN");
    let (_, state) = server.get("/state?episode_id=mine").await;
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["turns"], 1);
    // Its own episode a client may begin anew.
    for _ in 0..2 {
        let own = client.ask(r#"{"type": "reset", "data": {"episode_id": "own"}}"#).await;
        assert_eq!(own["type"], "observation");
    }
    assert_eq!(server.ok("/close", &json!({"episode_id": "mine"})).await["closed"], true);
    server.ok("/reset", &json!({"episode_id": "mine"})).await;
}
