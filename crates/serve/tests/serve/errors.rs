//! Bad requests get the API's own error shape, and leave the server as it was.

use serde_json::{Value, json};
use worldloom_world::Limits;
use worldloom_world::engine::EngineConfig;

use crate::support::{Mind, POSITIONS, Server, config};

const CHAT: &str = "/v1/chat/completions";

fn check(found: (u16, Value), status: u16, param: Option<&str>, code: Option<&str>) {
    let (found_status, body) = found;
    let error = &body["error"];
    assert_eq!(found_status, status, "{body}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
    assert!(error["type"].is_string(), "{body}");
    assert_eq!(error["param"].as_str(), param, "{body}");
    assert_eq!(error["code"].as_str(), code, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_mistake_is_named() {
    let server = Server::start().await;
    let with = |more: Value| {
        let mut body = json!({"messages": [{"role": "user", "content": "ls"}], "max_tokens": 4});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    for (more, param) in [
        (json!({"temperature": -1}), "temperature"),
        (json!({"top_p": 0}), "top_p"),
        (json!({"top_k": 0}), "top_k"),
        (json!({"n": 0}), "n"),
        (json!({"n": 9}), "n"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"max_completion_tokens": -5}), "max_completion_tokens"),
        (json!({"top_logprobs": 21, "logprobs": true}), "top_logprobs"),
        (json!({"top_logprobs": 2}), "top_logprobs"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), "messages[0].role"),
        (json!({"messages": [{"role": "user"}]}), "messages[0].content"),
        (json!({"stop": vec!["x"; 17]}), "stop"),
    ] {
        check(server.post(CHAT, &with(more)).await, 400, Some(param), None);
    }
    for (more, param) in [
        (json!({"tools": [{"type": "function"}]}), "tools"),
        (json!({"presence_penalty": 1.0}), "presence_penalty"),
        (json!({"logit_bias": {"5": 1}}), "logit_bias"),
        (json!({"response_format": {"type": "json_object"}}), "response_format"),
        (json!({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}), "messages[0].content"),
    ] {
        check(server.post(CHAT, &with(more)).await, 400, Some(param), Some("unsupported"));
    }
    check(server.post(CHAT, &with(json!({"model": "gpt"}))).await, 404, Some("model"), Some("model_not_found"));
    check(server.post(CHAT, &json!({"max_tokens": 4})).await, 400, Some("messages"), None);
    check(server.post("/v1/completions", &json!({"prompt": [999_999]})).await, 400, Some("prompt"), None);
    check(server.post("/v1/completions", &json!({"prompt": []})).await, 400, Some("prompt"), None);
    check(server.post("/v1/nothing", &json!({})).await, 404, None, Some("unknown_url"));
    let (status, _) = server.get(CHAT).await;
    assert_eq!(status, 405);
    let broken = server.client.post(server.url(CHAT)).body("{\"messages\": [").send().await.unwrap();
    assert_eq!(broken.status().as_u16(), 400);
    let broken: Value = serde_json::from_str(&broken.text().await.unwrap()).unwrap();
    assert_eq!(broken["error"]["type"], "invalid_request_error");
    assert_eq!(server.ok(CHAT, &with(json!({}))).await["object"], "chat.completion", "it is up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_too_large_and_a_prompt_too_long_are_refused() {
    let server = Server::start().await;
    let of = |len: usize| json!({"messages": [{"role": "user", "content": "x ".repeat(len)}], "max_tokens": 4});
    check(server.post(CHAT, &of(64 << 10)).await, 413, None, Some("body_too_large"));
    check(server.post(CHAT, &of(4 * POSITIONS)).await, 400, Some("messages"), Some("context_length_exceeded"));
    // Without a length announced, the limit holds all the same.
    let chunks = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>(vec![b' '; 4096])));
    let body = reqwest::Body::wrap_stream(chunks);
    match server.client.post(server.url(CHAT)).body(body).send().await {
        Ok(answer) => {
            assert_eq!((answer.status().as_u16(), answer.headers()["connection"].as_bytes()), (413, &b"close"[..]));
        }
        // The server need not read on: a client may see the closed connection before the answer.
        Err(error) => assert!(error.is_request() && !error.is_timeout(), "{error}"),
    }
    assert_eq!(server.metric("asks_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_lets_in_and_nothing_else_does() {
    let with_key = worldloom_serve::ServeConfig { api_key: Some("secret".into()), ..config() };
    let server = Server::with(Mind::Random, with_key, Limits::default(), EngineConfig::default()).await;
    let status = async |key: Option<&str>, path: &str| {
        let request = server.client.get(server.url(path));
        let request = if let Some(key) = key { request.bearer_auth(key) } else { request };
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(status(None, "/v1/models").await, 401);
    assert_eq!(status(Some("secreT"), "/v1/models").await, 401);
    assert_eq!(status(Some("secret"), "/v1/models").await, 200);
    for (user, given, expected) in [("agent", "secret", 200), ("", "secret", 200), ("secret", "", 401), ("a", "x", 401)]
    {
        let request = server.client.get(server.url("/v1/models")).basic_auth(user, Some(given));
        assert_eq!(request.send().await.unwrap().status().as_u16(), expected, "{user}:{given}");
    }
    for odd in ["Basic", "Basic ???", "Basic c2VjcmV0", "Digest secret"] {
        let request = server.client.get(server.url("/v1/models")).header("authorization", odd);
        assert_eq!(request.send().await.unwrap().status().as_u16(), 401, "{odd}");
    }
    assert_eq!(status(None, "/health").await, 200);
    assert_eq!(status(None, "/metrics").await, 401);
    check(server.post(CHAT, &json!({})).await, 401, None, Some("invalid_api_key"));
}
