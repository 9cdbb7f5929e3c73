//! The tool `predict` over a pair of streams.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex};
use worldloom_schema::Domain;
use worldloom_world::Limits;
use worldloom_world::engine::{Engine, EngineConfig};
use worldloom_world::episode::Scenario;

use crate::support::{Mind, play, world_model};

/// Sends messages one by one and gives the answers of those that have an `id`.
async fn talk(mind: Mind, messages: &[Value]) -> Vec<Value> {
    let engine = Arc::new(Engine::start(world_model(mind, Limits::default()), EngineConfig::default()).unwrap());
    let (mut to_server, input) = duplex(1 << 16);
    let (output, from_server) = duplex(1 << 16);
    let served =
        tokio::spawn(worldloom_serve::mcp::serve(engine, Scenario::of(Domain::Terminal), play(), input, output));
    let mut lines = BufReader::new(from_server).lines();
    let mut answers = Vec::new();
    for message in messages {
        to_server.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        if message.get("id").is_some() {
            answers.push(serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap());
        }
    }
    drop(to_server);
    served.await.unwrap().unwrap();
    answers
}

fn opening() -> Vec<Value> {
    let client =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    vec![
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
    ]
}

fn call(arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "predict", "arguments": arguments}})
}

#[tokio::test(flavor = "multi_thread")]
async fn predict_is_listed_and_answers() {
    let history = json!([{"action": "touch x", "observation": ""}]);
    let mut messages = opening();
    messages.push(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    messages.push(call(json!({"action": "ls", "history": history})));
    let answers = talk(Mind::Silent, &messages).await;
    let tools = answers[1]["result"]["tools"].as_array().unwrap();
    assert_eq!((tools.len(), tools[0]["name"].as_str()), (1, Some("predict")));
    assert_eq!(tools[0]["inputSchema"]["required"], json!(["action"]));
    let result = &answers[2]["result"];
    assert_ne!(result["isError"], true, "{result}");
    assert_eq!(result["content"][0]["text"], "");
    assert_eq!(result["structuredContent"]["observation"], "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_domain_and_a_useless_model_are_told_as_errors_of_the_tool() {
    for (mind, arguments, word) in [
        (Mind::Silent, json!({"action": "ls", "domain": "kitchen"}), "kitchen"),
        (Mind::Silent, json!({"action": " "}), "empty"),
        (Mind::Random, json!({"action": "ls"}), "cut_by_length"),
    ] {
        let mut messages = opening();
        messages.push(call(arguments));
        let answers = talk(mind, &messages).await;
        let result = &answers[1]["result"];
        assert_eq!(result["isError"], true, "{result}");
        assert!(result["content"][0]["text"].as_str().unwrap().contains(word), "{result}");
    }
}
