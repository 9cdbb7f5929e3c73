//! The client against a server that misbehaves by script.

#![expect(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use serde_json::json;
use worldloom_judge::endpoint::scripted::{Answer, Server};
use worldloom_judge::endpoint::{
    BlockingEndpoint, ChatRequest, CompletionPrompt, CompletionRequest, Endpoint, EndpointConfig, Failure, Message,
    Parameters,
};

fn blocking(config: EndpointConfig) -> BlockingEndpoint {
    BlockingEndpoint::new(Endpoint::new(config, None).unwrap()).unwrap()
}

fn question(text: &str) -> ChatRequest {
    ChatRequest::new(vec![Message::user(text)], Parameters::default())
}

/// What a chat comes to when the server answers by `script`, and how often it was asked.
fn ask(script: impl Fn(usize) -> Answer + Send + Sync + 'static) -> (Result<String, Failure>, usize) {
    let server = Server::start(move |seen| script(seen.number)).unwrap();
    let config = EndpointConfig { timeout_s: 0.2, attempts: 3, ..server.config("m") };
    let outcome = blocking(config).chat(&question("?"));
    (outcome.map(|reply| reply.choices[0].content.clone().unwrap_or_default()), server.seen().len())
}

#[test]
fn what_may_pass_is_tried_again_and_the_answer_taken() {
    let passing = [
        Answer::HangUp,
        Answer::Torn,
        Answer::Silence,
        Answer::error(429, "slow down"),
        Answer::error(500, "oops"),
        Answer::error(503, "loading"),
        Answer::error(529, "overloaded"),
        Answer::text(200, "{\"choices\": [{"),
        Answer::text(200, ""),
        Answer::text(200, "<html>bad gateway</html>"),
        Answer::json(&json!({"choices": []})),
        Answer::json(&json!({"error": {"message": "overloaded"}})),
    ];
    for answer in passing {
        let name = format!("{answer:?}");
        let (outcome, asked) = ask(move |number| if number < 2 { answer.clone() } else { Answer::chat("yes") });
        assert_eq!((outcome, asked), (Ok("yes".into()), 3), "{name}");
    }
}

#[test]
fn what_cannot_pass_fails_at_once_with_the_servers_words() {
    for status in [400, 401, 403, 404, 413, 422] {
        let (outcome, asked) = ask(move |_| Answer::error(status, "this will never do"));
        assert_eq!(asked, 1);
        assert_eq!(outcome, Err(Failure::Rejected { status, detail: "this will never do".into() }));
    }
}

#[test]
fn when_attempts_run_out_the_kind_and_the_last_reason_are_told() {
    let (outcome, asked) = ask(|_| Answer::error(500, "oops"));
    assert!(
        matches!(&outcome, Err(Failure::Unavailable { attempts: 3, detail, .. }) if detail.contains("500") && detail.contains("oops"))
    );
    assert_eq!(asked, 3);
    let (outcome, _) = ask(|_| Answer::text(200, "not json"));
    assert!(matches!(outcome, Err(Failure::Malformed { attempts: 3, .. })));
    let (outcome, _) = ask(|_| Answer::Silence);
    assert!(matches!(outcome, Err(Failure::Unavailable { attempts: 3, .. })));
    let gone =
        EndpointConfig { first_pause_s: 0.001, attempts: 2, ..EndpointConfig::new("http://127.0.0.1:1/v1", "m") };
    assert!(matches!(blocking(gone).chat(&question("?")), Err(Failure::Unavailable { attempts: 2, .. })));
}

#[test]
fn the_deadline_ends_it_before_the_attempts_do() {
    let server = Server::start(|_| Answer::error(500, "oops")).unwrap();
    let config = EndpointConfig { deadline_s: 0.3, attempts: 1000, longest_pause_s: 0.05, ..server.config("m") };
    let outcome = blocking(config).chat(&question("?"));
    assert!(matches!(outcome, Err(Failure::Unavailable { seconds, .. }) if seconds < 2.0));
    assert!(server.seen().len() < 1000);
}

#[test]
fn a_pause_the_server_asks_for_is_kept_and_one_beyond_the_deadline_is_not_waited_for() {
    let server = Server::start(|seen| match seen.number {
        0 => Answer::error(429, "slow down").with_header("retry-after", "0.2"),
        _ => Answer::chat("yes"),
    })
    .unwrap();
    let started = std::time::Instant::now();
    assert!(blocking(server.config("m")).chat(&question("?")).is_ok());
    assert!(started.elapsed() >= Duration::from_millis(200));

    for far in ["86400", "1e19", "Fri, 31 Dec 9999 23:59:59 GMT"] {
        let server = Server::start(move |_| Answer::error(429, "tomorrow").with_header("retry-after", far)).unwrap();
        let outcome = blocking(server.config("m")).chat(&question("?"));
        assert!(matches!(outcome, Err(Failure::Unavailable { attempts: 1, .. })), "{outcome:?}");
    }
}

#[test]
fn no_more_requests_are_under_way_than_allowed_and_answers_keep_their_places() {
    let server = Server::start(|seen| {
        let text = seen.body["messages"][0]["content"].as_str().unwrap().to_string();
        Answer::Slow(Duration::from_millis(20), Box::new(Answer::chat(&text)))
    })
    .unwrap();
    let endpoint = blocking(EndpointConfig { concurrency: 3, ..server.config("m") });
    let requests: Vec<ChatRequest> = (0..12).map(|number| question(&number.to_string())).collect();
    for (number, reply) in endpoint.chat_all(&requests).into_iter().enumerate() {
        assert_eq!(reply.unwrap().choices[0].content, Some(number.to_string()));
    }
    // Threads that share a client share its limit.
    std::thread::scope(|scope| {
        for number in 0..12 {
            let endpoint = endpoint.clone();
            scope.spawn(move || endpoint.chat(&question(&number.to_string())).unwrap());
        }
    });
    assert!((2..=3).contains(&server.most_at_once()), "{}", server.most_at_once());
}

#[test]
fn requests_start_no_faster_than_allowed() {
    let server = Server::start(|_| Answer::chat("yes")).unwrap();
    let started = std::time::Instant::now();
    let endpoint = blocking(EndpointConfig { requests_per_minute: Some(1200.0), ..server.config("m") });
    let requests: Vec<ChatRequest> = (0..5).map(|number| question(&number.to_string())).collect();
    assert!(endpoint.chat_all(&requests).iter().all(Result::is_ok));
    assert!(started.elapsed() >= Duration::from_millis(4 * 50));
    // 12 tokens at 3,600 a minute are a fifth of a second.
    let started = std::time::Instant::now();
    let endpoint = blocking(EndpointConfig { tokens_per_minute: Some(3600.0), ..server.config("m") });
    assert!(endpoint.chat(&question("one")).is_ok() && endpoint.chat(&question("two")).is_ok());
    assert!(started.elapsed() >= Duration::from_millis(200));
}

#[test]
fn a_killed_run_goes_on_from_its_cache_and_only_answers_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|seen| match seen.body["messages"][0]["content"].as_str() {
        Some("bad") => Answer::error(400, "no"),
        Some(text) => Answer::chat(text),
        None => Answer::HangUp,
    })
    .unwrap();
    let with_cache = |config: EndpointConfig| {
        let endpoint = Endpoint::new(config, None).unwrap().with_cache(&folder.path().join("cache")).unwrap();
        BlockingEndpoint::new(endpoint.with_log(&folder.path().join("log.jsonl")).unwrap()).unwrap()
    };
    let config = EndpointConfig { prompt_price: 1e6, answer_price: 2e6, ..server.config("m") };
    let first = with_cache(config.clone());
    assert!(first.chat(&question("one")).is_ok_and(|reply| !reply.is_cached));
    assert!(first.chat(&question("bad")).is_err());
    drop(first);

    let second = with_cache(config.clone());
    let requests = [question("one"), question("bad"), question("two"), ChatRequest { draw: 1, ..question("one") }];
    let cached: Vec<_> =
        second.chat_all(&requests).into_iter().map(|reply| reply.map(|reply| reply.is_cached).ok()).collect();
    assert_eq!(cached, [Some(true), None, Some(false), Some(false)]);
    let totals = second.totals();
    assert_eq!((totals.requests, totals.answered, totals.cached), (4, 2, 1));
    assert_eq!((totals.failed["rejected"], totals.attempts), (1, 3));
    assert_eq!((totals.prompt_tokens, totals.completion_tokens, totals.cost), (20, 4, 28.0));
    // Another model is another question.
    assert!(
        with_cache(EndpointConfig { model: "n".into(), ..config }).chat(&question("one")).is_ok_and(|r| !r.is_cached)
    );

    let log = fs_err::read_to_string(folder.path().join("log.jsonl")).unwrap();
    let outcomes: Vec<String> = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["outcome"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(outcomes.len(), 7);
    assert_eq!(outcomes.iter().filter(|outcome| *outcome == "rejected").count(), 2);
}

#[test]
fn the_key_is_sent_and_stands_in_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_| Answer::chat("yes")).unwrap();
    let endpoint = Endpoint::new(server.config("m"), Some("secret-key".into())).unwrap();
    let endpoint = endpoint.with_cache(folder.path()).unwrap().with_log(&folder.path().join("log.jsonl")).unwrap();
    BlockingEndpoint::new(endpoint).unwrap().chat(&question("?")).unwrap();
    assert_eq!(server.seen()[0].header("authorization"), Some("Bearer secret-key"));
    assert_eq!(server.seen()[0].path, "/v1/chat/completions");
    let mut files = 0;
    for entry in walk(folder.path()) {
        assert!(!fs_err::read_to_string(entry).unwrap().contains("secret-key"));
        files += 1;
    }
    assert_eq!(files, 2);
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

#[test]
fn completions_take_and_give_token_ids_with_log_probs() {
    let server = Server::start(|seen| {
        assert_eq!(seen.path, "/v1/completions");
        assert_eq!(seen.body["prompt"], json!([1, 2, 3]));
        let choice = |index: u32| {
            json!({"index": index, "text": "ab", "finish_reason": "stop", "token_ids": [4, 5], "stop_reason": 5,
                   "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-0.25, -0.5]}})
        };
        Answer::json(&json!({"choices": [choice(1), choice(0)], "usage": {"prompt_tokens": 3, "completion_tokens": 4}}))
    })
    .unwrap();
    let parameters = Parameters { n: Some(2), max_tokens: Some(8), ..Parameters::default() };
    let request = CompletionRequest {
        log_probs: Some(0),
        ..CompletionRequest::new(CompletionPrompt::Tokens(vec![1, 2, 3]), parameters)
    };
    let reply = blocking(server.config("m")).complete(&request).unwrap();
    assert_eq!(reply.choices.len(), 2);
    assert_eq!(reply.choices[0].token_ids, Some(vec![4, 5]));
    assert_eq!(reply.choices[0].log_probs, Some(vec![-0.25, -0.5]));
}

#[test]
fn an_answer_larger_than_allowed_is_not_read_to_its_end() {
    let server = Server::start(|_| Answer::chat(&"a".repeat(100_000))).unwrap();
    let config = EndpointConfig { largest_answer: 1000, attempts: 1, ..server.config("m") };
    let outcome = blocking(config).chat(&question("?"));
    assert!(matches!(outcome, Err(Failure::Malformed { detail, .. }) if detail.contains("1000 bytes")));
}
