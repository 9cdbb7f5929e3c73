//! The tool `predict` over a pair of streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex};
use worldloom_schema::Domain;
use worldloom_world::engine::{Ask, Engine, EngineConfig};
use worldloom_world::episode::Scenario;
use worldloom_world::{Limits, Request, Sampling};

use crate::support::{Mind, play, world_model};

/// Sends messages one by one and gives the answers of those that have an `id`.
async fn talk(mind: Mind, messages: &[Value]) -> Vec<Value> {
    let engine = Arc::new(Engine::start(world_model(mind, Limits::default()), EngineConfig::default()).unwrap());
    let (mut to_server, input) = duplex(1 << 16);
    let (output, from_server) = duplex(1 << 16);
    let limit = Duration::from_secs(600);
    let scenario = Scenario::of(Domain::Terminal);
    let served = tokio::spawn(worldloom_serve::mcp::serve(engine, scenario, play(), limit, input, output));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_prediction_ends_by_its_limit_and_where_its_client_cancels() {
    let limits = Limits { max_active_sequences: 1, ..Limits::default() };
    let model = world_model(Mind::Slow, limits);
    for (limit, cancels) in [(Duration::from_millis(20), false), (Duration::from_secs(600), true)] {
        let engine = Arc::new(Engine::start(model.clone(), EngineConfig::default()).unwrap());
        // Others are at work, so that the prediction has to wait.
        let sampling = Sampling::plain(500, 1.0, Vec::new());
        let request = Request { prompt: vec![20, 30], num_completions: 50, seed: 1, sampling };
        let others = engine.submit(Ask { request, num_most_probable: 0, stop_texts: Vec::new() }, |_| ()).unwrap();
        let (mut to_server, input) = duplex(1 << 16);
        let (output, from_server) = duplex(1 << 16);
        let scenario = Scenario::of(Domain::Terminal);
        let served = tokio::spawn(worldloom_serve::mcp::serve(engine.clone(), scenario, play(), limit, input, output));
        let mut lines = BufReader::new(from_server).lines();
        for message in opening().into_iter().chain([call(json!({"action": "ls"}))]) {
            to_server.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }
        lines.next_line().await.unwrap().unwrap();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        if cancels {
            while count(&engine.counters().asks) < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let gone = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 3}});
            to_server.write_all(format!("{gone}\n").as_bytes()).await.unwrap();
        } else {
            let answer: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
            assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("time limit"), "{answer}");
        }
        // A busy machine may reach its limit before it asks.
        while count(&engine.counters().abandoned) + 1 < count(&engine.counters().asks) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop((others, to_server));
        served.await.unwrap().unwrap();
    }
}
