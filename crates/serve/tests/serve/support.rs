//! A tiny model, a server on a free port, and a client.

use std::sync::Arc;
use std::time::Duration;

use burn::tensor::Device;
use serde_json::Value;
use tokio::sync::oneshot;
use worldloom_model::{Decoder, ModelConfig};
use worldloom_render::{Renderer, Templates, Tokenizer, TokenizerConfig, WordSplit, run_tokenizer};
use worldloom_schema::{Domain, Pool, Trajectory, write_table};
use worldloom_serve::{App, ServeConfig, serve};
use worldloom_world::engine::{Engine, EngineConfig};
use worldloom_world::episode::{Episode, Play, Scenario};
use worldloom_world::{Asked, Limits, WorldModel};

pub(crate) const POSITIONS: usize = 600;

/// What kind of untrained model answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mind {
    /// Whatever random weights say.
    Random,
    /// The same, of a model so large that 500 tokens take a second or more: for tests of what happens meanwhile.
    Slow,
    /// Nothing: the most probable token is always the end.
    Silent,
}

fn tokenizer() -> Tokenizer {
    let folder = tempfile::tempdir().unwrap();
    let mut episode = Episode::start(Scenario::of(Domain::Terminal)).unwrap();
    for (action, observation) in
        [("ls", "a.txt\nb.txt"), ("pwd", "/home"), ("cat a.txt", "fig\nplum"), ("echo hi", "hi")]
    {
        episode.recall(action, observation);
    }
    let trajectory = Trajectory { pool: Some(Pool::Cpt), ..episode.trajectory() };
    write_table(&folder.path().join("cpt.parquet"), [trajectory]).unwrap();
    let config =
        TokenizerConfig { vocab_size: 400, min_frequency: 2, family: "compact".into(), split: WordSplit::Qwen };
    run_tokenizer(&config, folder.path(), folder.path(), &|_, _| ()).unwrap();
    Tokenizer::open(folder.path()).unwrap()
}

pub(crate) fn world_model(mind: Mind, limits: Limits) -> Arc<WorldModel> {
    let tokenizer = tokenizer();
    let (vocab_size, stops) = (tokenizer.vocab_size(), tokenizer.stop_tokens());
    let (hidden, inner, blocks) = if mind == Mind::Slow { (256, 1024, 8) } else { (16, 24, 2) };
    let config = ModelConfig::from_json(&format!(
        r#"{{"model_type": "qwen3", "vocab_size": {vocab_size}, "hidden_size": {hidden}, "intermediate_size": {inner},
            "num_hidden_layers": {blocks}, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": {POSITIONS},
            "tie_word_embeddings": false, "initializer_range": 0.2}}"#
    ));
    let config = config.unwrap();
    let mut decoder = Decoder::init(&config, 5, &Device::flex());
    if mind == Mind::Silent {
        // Every stream ends at the same point, and the head looks from there at the end of a turn alone.
        decoder = decoder.update_parameters(&mut |path, shape, values| match path {
            "model.norm.weight" => values.fill(1.0),
            "lm_head.weight" => {
                // Stored either way round: a row for each token, or a column.
                let (stop, by_row) = (stops[0] as usize, shape[0] == vocab_size);
                values.fill(0.0);
                values[if by_row { stop * shape[1] } else { stop }] = 100.0;
            }
            "model.embed_tokens.weight" => {
                values.chunks_mut(shape[1]).for_each(|row| {
                    row.fill(0.0);
                    row[0] = 50.0;
                });
            }
            _ => values.fill(0.0),
        });
    }
    let renderer = Renderer::new(tokenizer, Templates::compact().unwrap()).unwrap();
    Arc::new(WorldModel::new(&decoder, config, renderer).unwrap().with_limits(limits))
}

pub(crate) fn play() -> Play {
    Play { asked: Asked::Plain, max_new_tokens: 20, temperature: 0.0, attempts: 1 }
}

pub(crate) fn config() -> ServeConfig {
    ServeConfig {
        model_name: "tiny".into(),
        asked: Asked::Plain,
        api_key: None,
        max_body_bytes: 64 << 10,
        max_completions: 8,
        default_max_tokens: 24,
        request_timeout: Duration::from_secs(120),
        grace: Duration::from_secs(20),
        splits_reasoning: true,
        play: play(),
        scenario: Scenario::of(Domain::Terminal),
        max_episodes: 300,
        episode_idle: Duration::from_secs(3600),
        episodes: None,
    }
}

/// A running server; it stops when it is dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) client: reqwest::Client,
    pub(crate) model: Arc<WorldModel>,
    pub(crate) engine: Arc<Engine>,
    stop: Option<oneshot::Sender<()>>,
    pub(crate) ended: tokio::task::JoinHandle<worldloom_serve::Result<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::with(Mind::Random, config(), Limits::default(), EngineConfig::default()).await
    }

    pub(crate) async fn with(mind: Mind, config: ServeConfig, limits: Limits, engine: EngineConfig) -> Self {
        let model = world_model(mind, limits);
        let engine = Arc::new(Engine::start(model.clone(), engine).unwrap());
        let app = App::new(engine.clone(), config).unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (stop, stopped) = oneshot::channel();
        let ended = tokio::spawn(serve(app, listener, async move { _ = stopped.await }));
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { address, client, model, engine, stop: Some(stop), ended }
    }

    pub(crate) fn stop(&mut self) {
        self.stop.take().map(|stop| stop.send(()));
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Status and body.
    pub(crate) async fn get(&self, path: &str) -> (u16, String) {
        let answer = self.client.get(self.url(path)).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let answer = self.client.post(self.url(path)).json(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_str(&answer.text().await.unwrap()).unwrap())
    }

    pub(crate) async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// The data of a stream's events, `[DONE]` left off.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let answer = self.client.post(self.url(path)).json(body).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
        let text = answer.text().await.unwrap();
        let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"));
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }

    /// A number of `/metrics`.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let (_, text) = self.get("/metrics").await;
        let line = text.lines().find(|line| line.starts_with(&format!("worldloom_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Waits until a number of `/metrics` is as it should be.
    pub(crate) async fn until(&self, name: &str, expected: f64) {
        for _ in 0..1000 {
            if self.metric(name).await == expected {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("{name} is {} and not {expected}", self.metric(name).await);
    }
}
