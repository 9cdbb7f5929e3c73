//! The tokenizer: trained the same every time, lossless on any text, its added tokens where they belong.

use proptest::prelude::*;
use worldloom_render::{
    Control, Error, Renderer, Templates, Tokenizer, TokenizerConfig, WordSplit, run_tokenizer, train_tokenizer,
};
use worldloom_schema::{DOCUMENT_FILE, Document, Trajectory, hash_file, write_table};

use crate::support::{episode, own_tokenizer, qwen_tokenizer};

fn texts() -> impl Iterator<Item = String> + Send {
    (0..80).flat_map(|seed| episode(seed).turns).map(|turn| format!("{} {}", turn.action, turn.observation))
}

#[test]
fn training_is_deterministic_and_gives_the_size_asked_for() {
    let train = || train_tokenizer(300, 2, WordSplit::Qwen, texts()).unwrap().to_string(true).unwrap();
    let first = train();
    for _ in 0..3 {
        assert!(train() == first, "another training of the same texts differs");
    }
    let tokenizer = Tokenizer::from_bytes(first.as_bytes(), "t".as_ref()).unwrap();
    assert_eq!(tokenizer.vocab_size(), 300);
    for (id, control) in Control::ALL.into_iter().enumerate() {
        assert_eq!(tokenizer.control(control), Some(id as u32 + 1), "{}", control.as_str());
    }
    assert_eq!(tokenizer.stop_tokens(), [2, 0]);
    assert!(matches!(
        train_tokenizer(263, 2, WordSplit::Qwen, texts()),
        Err(Error::Config { field: "vocab_size", .. })
    ));
}

#[test]
fn added_tokens_are_single_ids_in_trusted_text_and_plain_text_otherwise() {
    for tokenizer in [own_tokenizer(), qwen_tokenizer()] {
        for control in Control::ALL {
            let Some(id) = tokenizer.control(control) else {
                assert!(matches!(control, Control::ObservationOpen | Control::ObservationClose));
                continue;
            };
            assert_eq!(tokenizer.encode_trusted(control.as_str()).unwrap(), [id]);
            let plain = tokenizer.encode_untrusted(control.as_str()).unwrap().unwrap();
            assert!(plain.len() > 1 && plain.iter().all(|&token| !tokenizer.is_added(token)));
            assert_eq!(tokenizer.decode(&plain).unwrap(), control.as_str());
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_encoded_without_loss(text in any::<String>()) {
        let tokenizer = own_tokenizer();
        let tokens = tokenizer.encode_untrusted(&text).unwrap().unwrap();
        prop_assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    }
}

#[test]
fn with_words_apart_a_name_has_the_same_tokens_wherever_it_stands() {
    let trained = train_tokenizer(600, 2, WordSplit::Words, texts()).unwrap().to_string(false).unwrap();
    let tokenizer = Tokenizer::from_bytes(trained.as_bytes(), std::path::Path::new("tokenizer.json")).unwrap();
    let tokens = |text: &str| tokenizer.encode_untrusted(text).unwrap().unwrap();
    for name in ["coast", "notes", "zebra"] {
        let alone = tokens(name);
        for before in [" ", "/", "'", "\"", "\\n", ",", "=", "./", "\n", "7"] {
            assert_eq!(tokens(&format!("{before}{name}")), [tokens(before), alone.clone()].concat(), "{before}{name}");
        }
    }
}

#[test]
fn with_words_apart_headings_and_fences_of_a_turn_are_one_token_each() {
    let trained = train_tokenizer(
        600,
        2,
        WordSplit::Words,
        (0..9).map(|at| {
            format!("\n### Turn {at}\n\n**Action:**\n```bash\nls\n``` **Environment Observation:**\nnotes\n")
        }),
    );
    let tokenizer = trained.unwrap().to_string(false).unwrap();
    let tokenizer = Tokenizer::from_bytes(tokenizer.as_bytes(), std::path::Path::new("tokenizer.json")).unwrap();
    for text in ["### Turn ", "**Action:**\n", "```bash\n", "\n```", "**Environment Observation:**\n", "notes"] {
        assert_eq!(tokenizer.encode_untrusted(text).unwrap().unwrap().len(), 1, "{text:?}");
    }
}

#[test]
fn a_tokenizer_is_trained_on_the_cpt_pool() {
    let folder = tempfile::tempdir().unwrap();
    let pools = folder.path();
    write_table::<Trajectory>(&pools.join("cpt.parquet"), (0..300).map(episode)).unwrap();
    let config =
        TokenizerConfig { vocab_size: 900, min_frequency: 2, family: "compact".into(), split: WordSplit::Qwen };
    let seen = std::sync::Mutex::new(Vec::new());
    let progress = |done, total| seen.lock().unwrap().push((done, total));
    let report = run_tokenizer(&config, pools, pools, &progress).unwrap();
    assert_eq!(report.counts["trajectories"], 300);
    assert_eq!(report.tokenizer, hash_file(&pools.join("tokenizer.json")).unwrap());
    assert_eq!(seen.lock().unwrap().last(), Some(&(600, 600)));
    let bytes_per_token = report.bytes_per_token["terminal"];
    assert!(bytes_per_token > 3.0, "{bytes_per_token}");
    let tokenizer = Tokenizer::open(pools).unwrap();
    assert_eq!(report.counts["vocab_size"], tokenizer.vocab_size() as u64);
    let settings: serde_json::Value =
        serde_json::from_slice(&fs_err::read(pools.join("tokenizer_config.json")).unwrap()).unwrap();
    assert_eq!(settings["eos_token"], "<|im_end|>");
    let templates = Templates::compact().unwrap();
    for version in 0..12 {
        let mut system = episode(1).system;
        system.initial_state = None;
        let prompt = templates.system_prompt(version, worldloom_schema::Domain::Terminal, &system).unwrap();
        let tokens = tokenizer.encode_untrusted(&prompt).unwrap().unwrap().len();
        assert!(tokens <= 66, "v{version}: {tokens} tokens\n{prompt}");
    }
}

#[test]
fn texts_beside_the_pool_are_trained_on_and_measured() {
    let folder = tempfile::tempdir().unwrap();
    let pools = folder.path();
    write_table::<Trajectory>(&pools.join("cpt.parquet"), (0..60).map(episode)).unwrap();
    let config =
        TokenizerConfig { vocab_size: 900, min_frequency: 2, family: "compact".into(), split: WordSplit::Qwen };
    let word = "quixotically";
    let tokens = || {
        let report = run_tokenizer(&config, pools, pools, &|_, _| {}).unwrap();
        (Tokenizer::open(pools).unwrap().encode_untrusted(&format!(" {word}")).unwrap().unwrap().len(), report)
    };
    let (without, report) = tokens();
    assert!(without > 4 && report.counts["texts"] == 0 && !report.bytes_per_token.contains_key("documents"));
    let text = format!("They went {word} on. ").repeat(50);
    let document = |number: u64| Document {
        document_id: number.to_string(),
        source: "texts".into(),
        source_path: "t.md".into(),
        source_row: number,
        licence: None,
        title: None,
        text: text.clone(),
    };
    write_table(&pools.join(DOCUMENT_FILE), (0..3).map(document)).unwrap();
    let (with, report) = tokens();
    assert_eq!((with, report.counts["texts"], report.counts["trajectories"]), (1, 3, 60));
    assert!(report.bytes_per_token["documents"] > 4.0 && report.bytes_per_token["terminal"] > 2.0);
}

#[test]
fn a_file_that_is_no_chatml_tokenizer_is_refused_with_its_name() {
    let bad = Tokenizer::from_bytes(b"{}", "some/tokenizer.json".as_ref()).unwrap_err();
    assert!(bad.to_string().contains("some/tokenizer.json"), "{bad}");
    assert!(Tokenizer::open("no/such/folder".as_ref()).unwrap_err().to_string().contains("no/such/folder"));
    let mut json: serde_json::Value = serde_json::from_slice(include_bytes!("../golden/tokenizer.json")).unwrap();
    json["added_tokens"].as_array_mut().unwrap().retain(|token| token["content"] != "<|im_start|>");
    json["model"]["vocab"].as_object_mut().unwrap().remove("<|im_start|>").unwrap();
    let tokenizer = Tokenizer::from_bytes(json.to_string().as_bytes(), "x.json".as_ref()).unwrap();
    let error = Renderer::new(tokenizer, Templates::compact().unwrap()).unwrap_err().to_string();
    assert_eq!(error, "tokenizer `x.json` has no token `<|im_start|>`: the chat form needs it as one id");
}

#[test]
fn added_tokens_that_would_be_renumbered_are_refused() {
    let mut json: serde_json::Value = serde_json::from_slice(include_bytes!("../golden/tokenizer.json")).unwrap();
    json["model"]["vocab"].as_object_mut().unwrap().remove("<|im_end|>").unwrap();
    let error = Tokenizer::from_bytes(json.to_string().as_bytes(), "x.json".as_ref()).unwrap_err().to_string();
    assert!(error.contains("`<|im_end|>` has id 151645 in the file, but reads as"), "{error}");
}
