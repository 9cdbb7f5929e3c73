//! Trajectories, a tokenizer of their text and decoders that know nothing.

use std::path::{Path, PathBuf};

use burn::tensor::Device;
use worldloom_model::{Decoder, ModelConfig, SaveDType};
use worldloom_render::{Renderer, Templates, Tokenizer, TokenizerConfig, WordSplit, run_tokenizer};
use worldloom_schema::{
    ActionKind, Domain, ObservationKind, Outcome, Pool, System, Trajectory, Turn, trajectory_id, write_table,
};

/// Action, observation, class and family of a turn.
pub(crate) type Words = (&'static str, &'static str, &'static str, &'static str);

pub(crate) fn trajectory(name: &str, pool: Pool, turns: &[Words]) -> Trajectory {
    let turn = |(index, (action, observation, class, family)): (usize, &Words)| Turn {
        index: index as u32,
        action: action.to_string(),
        action_kind: ActionKind::Command,
        observation: observation.to_string(),
        observation_kind: ObservationKind::Text,
        reasoning: None,
        pre_state: None,
        trace: Some(format!("cwd: ~ | {name}")),
        is_error: Some(*class == "error"),
        truncated: false,
        flags: vec![format!("class:{class}"), format!("family:{family}")],
        keep_class: None,
        keep: Some(true),
    };
    let turns: Vec<Turn> = turns.iter().enumerate().map(turn).collect();
    let system = System { initial_state: Some(name.into()), ..System::default() };
    Trajectory {
        trajectory_id: trajectory_id(&system, &turns),
        source: "test".into(),
        source_path: "test.jsonl".into(),
        source_row: 0,
        format: "test".into(),
        domain: Domain::Terminal,
        task_group: "test".into(),
        licence: None,
        system,
        turns,
        outcome: Outcome::default(),
        pool: Some(pool),
    }
}

/// Two episodes to evaluate on: eight turns.
pub(crate) fn eval_episodes() -> Vec<Trajectory> {
    let first: &[Words] = &[
        ("echo hi", "hi", "echo", "text"),
        ("echo hi", "hi", "echo", "text"),
        ("pwd", "/home", "state", "navigate"),
        ("touch x", "", "empty", "create"),
    ];
    let second: &[Words] = &[
        ("ls", "a.txt\nb.txt", "state", "list"),
        ("cat nothing", "cat: nothing: No such file or directory", "error", "read"),
        ("pwd", "/tmp", "state", "navigate"),
        ("rm a.txt", "", "empty", "remove"),
    ];
    vec![trajectory("first", Pool::Eval, first), trajectory("second", Pool::Eval, second)]
}

/// What training saw: `pwd` answers `/home` twice and `/tmp` once.
pub(crate) fn training_episodes() -> Vec<Trajectory> {
    let turns: &[Words] = &[
        ("pwd", "/tmp", "state", "navigate"),
        ("cd", "", "empty", "navigate"),
        ("pwd", "/home", "state", "navigate"),
        ("pwd", "/home", "state", "navigate"),
        ("echo hi", "hi", "echo", "text"),
        ("touch y", "", "empty", "create"),
        ("rm y", "", "empty", "remove"),
        ("ls", "c.txt", "state", "list"),
    ];
    vec![trajectory("training", Pool::Cpt, turns)]
}

/// A folder with pools, a tokenizer and models.
pub(crate) struct Workplace {
    folder: tempfile::TempDir,
}

impl Workplace {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pools = folder.path();
        write_table(&pools.join("eval.parquet"), eval_episodes()).unwrap();
        write_table(&pools.join("cpt.parquet"), training_episodes()).unwrap();
        let tokenizer = pools.join("tokenizer");
        fs_err::create_dir(&tokenizer).unwrap();
        let config =
            TokenizerConfig { vocab_size: 400, min_frequency: 2, family: "compact".into(), split: WordSplit::Qwen };
        run_tokenizer(&config, pools, &tokenizer, &|_, _| ()).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn renderer(&self) -> Renderer {
        let tokenizer = Tokenizer::open(&self.path("tokenizer")).unwrap();
        Renderer::new(tokenizer, Templates::compact().unwrap()).unwrap()
    }

    pub(crate) fn decoder(&self, seed: u64, positions: usize) -> (Decoder, ModelConfig) {
        let config = tiny_config(self.renderer().tokenizer().vocab_size(), positions);
        (Decoder::init(&config, seed, &device()), config)
    }

    /// A folder with an untrained model and the tokenizer.
    pub(crate) fn model(&self, name: &str, seed: u64, positions: usize) -> PathBuf {
        let folder = self.path(name);
        fs_err::create_dir(&folder).unwrap();
        let (decoder, config) = self.decoder(seed, positions);
        worldloom_model::save(&decoder, &config, &folder, SaveDType::F32).unwrap();
        copy_tokenizer(&self.path("tokenizer"), &folder);
        folder
    }
}

fn copy_tokenizer(from: &Path, to: &Path) {
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs_err::copy(from.join(name), to.join(name)).unwrap();
    }
}

pub(crate) fn device() -> Device {
    Device::flex()
}

pub(crate) fn tiny_config(vocab_size: usize, positions: usize) -> ModelConfig {
    ModelConfig::from_json(&format!(
        r#"{{"model_type": "qwen3", "vocab_size": {vocab_size}, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": {positions},
            "tie_word_embeddings": true, "initializer_range": 0.2}}"#
    ))
    .unwrap()
}
