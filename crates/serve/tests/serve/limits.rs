//! Many clients, clients that go away, full queues, time-outs and the end.

use std::time::Duration;

use serde_json::{Value, json};
use worldloom_world::engine::{Ask, EngineConfig};
use worldloom_world::{Limits, Request, Sampling};

use crate::support::{Mind, Server, config};

const CHAT: &str = "/v1/chat/completions";

fn long(more: Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "ls"}], "max_tokens": 500, "seed": 1});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_clients_are_answered_as_if_alone() {
    let server = Server::start().await;
    let body = |seed: usize| {
        json!({"messages": [{"role": "user", "content": format!("ls {}", seed % 7)}],
        "max_tokens": 8, "seed": seed, "stream": seed.is_multiple_of(2)})
    };
    let ask = async |seed: usize| {
        let answer = server.client.post(server.url(CHAT)).json(&body(seed)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let all = futures::future::join_all((0..200).map(ask)).await;
    assert!(all.iter().all(|(status, text)| *status == 200 && !text.contains("\"error\"")));
    let text = |text: &str| -> Value { serde_json::from_str(text).unwrap() };
    for seed in [1, 77, 199] {
        let alone = ask(seed).await;
        assert_eq!(text(&alone.1)["choices"], text(&all[seed].1)["choices"]);
    }
    server.until("completions_active", 0.0).await;
    assert_eq!(server.metric("asks_waiting").await, 0.0);
    assert_eq!(server.metric("asks_total").await, 203.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_frees_its_place() {
    let limits = Limits { max_active_sequences: 2, max_cache_tokens: 1 << 12 };
    let server = Server::with(Mind::Slow, config(), limits, EngineConfig::default()).await;
    let mut stream =
        server.client.post(server.url(CHAT)).json(&long(json!({"stream": true, "n": 2}))).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some());
    // The first chunk names the role and may come while the ask itself still waits.
    server.until("completions_active", 2.0).await;
    let whole = tokio::spawn(server.client.post(server.url(CHAT)).json(&long(json!({"n": 4}))).send());
    server.until("asks_waiting", 1.0).await;
    drop(stream);
    whole.abort();
    // The second may become active in the moment in which the first has gone: what has been given up is counted at the end.
    server.until("asks_abandoned_total", 2.0).await;
    server.until("completions_active", 0.0).await;
    server.until("asks_waiting", 0.0).await;
    server.ok(CHAT, &json!({"messages": [{"role": "user", "content": "ls"}], "max_tokens": 4})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_so_and_does_not_grow() {
    let limits = Limits { max_active_sequences: 1, max_cache_tokens: 1 << 12 };
    let engine = EngineConfig { max_waiting: 2, prefix_tokens: 0 };
    let server = Server::with(Mind::Slow, config(), limits, engine).await;
    let body = long(json!({}));
    let mut held = Vec::new();
    let mut refused = 0;
    for _ in 0..8 {
        let request = server.client.post(server.url(CHAT)).json(&body);
        held.push(tokio::spawn(async move { request.send().await.unwrap().status().as_u16() }));
    }
    for answer in held {
        match answer.await.unwrap() {
            200 => {}
            429 => refused += 1,
            status => panic!("{status}"),
        }
    }
    assert_eq!(server.metric("asks_refused_total").await, f64::from(refused));
    assert_eq!(server.metric("asks_waiting").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_ever() {
    let config = worldloom_serve::ServeConfig { request_timeout: Duration::from_millis(20), ..config() };
    let server = Server::with(Mind::Slow, config, Limits::default(), EngineConfig::default()).await;
    let (status, answer) = server.post(CHAT, &long(json!({"n": 8}))).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (504, Some("timeout")));
    let events = server.stream(CHAT, &long(json!({"n": 8, "stream": true}))).await;
    assert_eq!(events.last().unwrap()["error"]["code"], "timeout");
    server.until("completions_active", 0.0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_in_progress_ends_before_the_server_does() {
    let mut server = Server::start().await;
    let request = server.client.post(server.url(CHAT)).json(&long(json!({"n": 2, "stream": true})));
    let mut answer = request.send().await.unwrap();
    let mut text = Vec::from(answer.chunk().await.unwrap().unwrap());
    server.stop();
    while let Some(chunk) = answer.chunk().await.unwrap() {
        text.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(text).unwrap();
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    assert_eq!(text.matches("\"finish_reason\":\"").count(), 2, "{text}");
    (&mut server.ended).await.unwrap().unwrap();
    assert!(server.client.get(server.url("/health")).send().await.is_err(), "nobody listens");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_engine_has_died_says_so() {
    let server = Server::start().await;
    assert_eq!(server.get("/health").await.0, 200);
    let request =
        Request { prompt: vec![20, 30], num_completions: 1, seed: 1, sampling: Sampling::greedy(4, Vec::new()) };
    let ask = Ask { request, num_most_probable: 0, stop_texts: Vec::new() };
    let _ticket = server.engine.submit(ask, |_| panic!("a defect in the engine's thread")).unwrap();
    while server.engine.is_running() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(server.get("/health").await.0, 503);
    let waiting = server.metric("asks_waiting").await;
    let body = json!({"messages": [{"role": "user", "content": "ls"}], "max_tokens": 4});
    let (status, answer) = server.post(CHAT, &body).await;
    assert_eq!((status, answer["error"]["code"].as_str()), (503, Some("engine_stopped")));
    assert_eq!(server.metric("asks_waiting").await, waiting, "who is turned away does not wait");
    let (_, first) = server.post("/reset", &json!({})).await;
    let step = json!({"action": {"text": "ls"}, "episode_id": first["observation"]["episode_id"]});
    assert_eq!(server.post("/step", &step).await.0, 503);
}
