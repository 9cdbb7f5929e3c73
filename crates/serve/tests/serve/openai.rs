//! Models, chat completions and completions.

use serde_json::{Value, json};
use worldloom_world::{Asked, Request, Role, Sampling};

use crate::support::Server;

const CHAT: &str = "/v1/chat/completions";

fn chat(more: Value) -> Value {
    let mut body = json!({
        "model": "tiny",
        "messages": [{"role": "system", "content": "You are a bash terminal."}, {"role": "user", "content": "ls"}],
        "seed": 3,
        "max_tokens": 16,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn content(choice: &Value) -> String {
    choice["message"]["content"].as_str().unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_listed_and_named() {
    let server = Server::start().await;
    let (status, list) = server.get("/v1/models").await;
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!((status, list["data"][0]["id"].as_str()), (200, Some("tiny")));
    assert_eq!(server.get("/v1/models/tiny").await.0, 200);
    assert_eq!(server.get("/v1/models/other/model").await.0, 404);
    assert_eq!(server.get("/health").await, (200, r#"{"status":"healthy"}"#.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seed_gives_the_completions_of_the_generator() {
    let server = Server::start().await;
    let answer = server.ok(CHAT, &chat(json!({"n": 4, "return_token_ids": true}))).await;
    let messages = [(Role::System, "You are a bash terminal."), (Role::User, "ls")];
    let prompt = server.model.chat_prompt(&messages, Asked::Plain).unwrap().unwrap();
    assert_eq!(answer["usage"]["prompt_tokens"], prompt.len());
    assert_eq!(answer["prompt_token_ids"], json!(prompt));
    let stop_ids = server.model.renderer().tokenizer().stop_tokens();
    let request = Request { prompt, num_completions: 4, seed: 3, sampling: Sampling::plain(16, 1.0, stop_ids) };
    let expected = server.model.generator().generate(&[request], &mut |_, _| ()).unwrap().remove(0);
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 4);
    for (index, (choice, expected)) in choices.iter().zip(&expected).enumerate() {
        assert_eq!(choice["index"], index);
        assert_eq!(choice["token_ids"], json!(expected.tokens));
        let text = server.model.renderer().completion_text(&expected.tokens).unwrap();
        assert_eq!(content(choice), text);
        assert_eq!(choice["finish_reason"], if expected.stopped { "stop" } else { "length" });
    }
    let distinct: std::collections::BTreeSet<String> = choices.iter().map(content).collect();
    assert_eq!(distinct.len(), 4, "completions of a group differ");
    let total: usize = expected.iter().map(|completion| completion.tokens.len()).sum();
    assert_eq!(answer["usage"]["completion_tokens"], total);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_adds_up_to_the_whole_answer() {
    let server = Server::start().await;
    for more in [json!({"n": 3}), json!({"n": 2, "logprobs": true, "top_logprobs": 2}), json!({"stop": "e"})] {
        let whole = server.ok(CHAT, &chat(more.clone())).await;
        let mut streamed = more;
        streamed["stream"] = true.into();
        streamed["stream_options"] = json!({"include_usage": true});
        let mut chunks = server.stream(CHAT, &chat(streamed)).await;
        let usage = chunks.pop().unwrap();
        assert_eq!((usage["choices"].as_array().unwrap().len(), &usage["usage"]), (0, &whole["usage"]));
        for choice in whole["choices"].as_array().unwrap() {
            let pieces = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
            let pieces: Vec<&Value> = pieces.filter(|piece| piece["index"] == choice["index"]).collect();
            assert_eq!(pieces[0]["delta"]["role"], "assistant");
            let text: String = pieces.iter().filter_map(|piece| piece["delta"]["content"].as_str()).collect();
            assert_eq!(text, content(choice));
            assert_eq!(pieces.last().unwrap()["finish_reason"], choice["finish_reason"]);
            assert!(pieces[..pieces.len() - 1].iter().all(|piece| piece["finish_reason"].is_null()));
            let log_probs = pieces.iter().filter_map(|piece| piece["logprobs"]["content"].as_array()).flatten();
            let log_probs: Vec<&Value> = log_probs.collect();
            let expected: Vec<&Value> = choice["logprobs"]["content"].as_array().into_iter().flatten().collect();
            assert_eq!(log_probs, expected);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_probs_come_with_their_alternatives() {
    let server = Server::start().await;
    let answer = server.ok(CHAT, &chat(json!({"logprobs": true, "top_logprobs": 5, "temperature": 0}))).await;
    let entries = answer["choices"][0]["logprobs"]["content"].as_array().unwrap();
    assert_eq!(entries.len(), 16);
    for entry in entries {
        let top = entry["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 5);
        assert_eq!((&top[0]["logprob"], &top[0]["token_id"]), (&entry["logprob"], &entry["token_id"]), "greedy");
        assert!(entry["logprob"].as_f64().unwrap() <= 0.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_text_ends_the_completion_before_it() {
    let server = Server::start().await;
    let whole = server.ok(CHAT, &chat(json!({"temperature": 0}))).await;
    let text = content(&whole["choices"][0]);
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let before = text.split(&stop).next().unwrap();
    let cut = server.ok(CHAT, &chat(json!({"temperature": 0, "stop": [stop, "never there"]}))).await;
    assert_eq!((content(&cut["choices"][0]).as_str(), &cut["choices"][0]["finish_reason"]), (before, &json!("stop")));
    assert!(cut["usage"]["completion_tokens"].as_u64() <= whole["usage"]["completion_tokens"].as_u64());
}

#[tokio::test(flavor = "multi_thread")]
async fn completions_take_and_give_token_ids() {
    let server = Server::start().await;
    let ids = vec![20u32, 30, 40, 50];
    let body = json!({"prompt": ids, "max_tokens": 6, "temperature": 0, "logprobs": 1, "return_token_ids": true});
    let answer = server.ok("/v1/completions", &body).await;
    let stop_ids = server.model.renderer().tokenizer().stop_tokens();
    let request = Request { prompt: ids.clone(), num_completions: 1, seed: 0, sampling: Sampling::greedy(6, stop_ids) };
    let expected = server.model.generator().generate(&[request], &mut |_, _| ()).unwrap().remove(0).remove(0);
    let choice = &answer["choices"][0];
    assert_eq!((&choice["token_ids"], &choice["prompt_token_ids"]), (&json!(expected.tokens), &json!(ids)));
    assert_eq!(choice["logprobs"]["tokens"].as_array().unwrap().len(), 6);
    for (found, expected) in choice["logprobs"]["token_logprobs"].as_array().unwrap().iter().zip(&expected.log_probs) {
        assert!((found.as_f64().unwrap() - f64::from(*expected)).abs() < 1e-6);
    }
    let several = json!({"prompt": [[20, 30], [40]], "n": 2, "max_tokens": 3, "seed": 1});
    let answer = server.ok("/v1/completions", &several).await;
    assert_eq!(answer["choices"].as_array().unwrap().len(), 4);
    assert_eq!(answer["usage"]["prompt_tokens"], 3);
    let text = json!({"prompt": "<|im_start|>user\nls<|im_end|>\n", "max_tokens": 2, "return_token_ids": true});
    let answer = server.ok("/v1/completions", &text).await;
    let trusted = server.model.renderer().tokenizer().encode_trusted("<|im_start|>user\nls<|im_end|>\n").unwrap();
    assert_eq!(answer["choices"][0]["prompt_token_ids"], json!(trusted));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_benchmarks_script_sends_is_answered() {
    let server = Server::start().await;
    let history = [("system", "s"), ("user", "a"), ("assistant", "**Environment Observation:**\nb"), ("user", "c")];
    let messages: Vec<Value> =
        history.iter().map(|(role, content)| json!({"role": role, "content": content})).collect();
    let body = json!({"model": "tiny", "messages": messages, "max_tokens": 32768, "temperature": 0.6});
    let answer = server.ok(CHAT, &body).await;
    assert!(answer["choices"][0]["message"]["content"].is_string());
    let used = answer["usage"]["total_tokens"].as_u64().unwrap() as usize;
    assert!(used <= crate::support::POSITIONS, "as long as there is room");
}
