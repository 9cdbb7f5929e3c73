//! Tokenizers out of the vocabulary of a GGUF: the same ids as the tokenizer that the vocabulary came from.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use worldloom_render::{GgufVocabulary, Tokenizer};

use crate::support::OBSERVATIONS;

/// The lists that a GGUF made from this tokenizer would hold.
struct Lists {
    tokens: Vec<String>,
    kinds: Vec<i64>,
    merges: Vec<String>,
}

impl Lists {
    fn of(tokenizer: &Value) -> Lists {
        let mut tokens: Vec<(u64, String)> = Vec::new();
        for (token, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
            tokens.push((id.as_u64().unwrap(), token.clone()));
        }
        let added = tokenizer["added_tokens"].as_array().unwrap();
        let added_id = |token: &Value| token["id"].as_u64().unwrap();
        tokens.extend(added.iter().map(|token| (added_id(token), token["content"].as_str().unwrap().to_owned())));
        let by_id: BTreeMap<u64, String> = tokens.into_iter().collect();
        let ids = 0..=*by_id.keys().last().unwrap();
        let kind_of = |id: u64| match added.iter().find(|token| added_id(token) == id) {
            Some(token) if token["special"] == true => 3,
            Some(_) => 4,
            None if by_id.contains_key(&id) => 1,
            None => 5,
        };
        let kinds = ids.clone().map(kind_of).collect();
        // As converters do, ids that nothing has are padded.
        let tokens = ids.map(|id| by_id.get(&id).cloned().unwrap_or_else(|| format!("[PAD{id}]"))).collect();
        let merge = |merge: &Value| match merge {
            Value::String(text) => text.clone(),
            pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
        };
        let merges = tokenizer["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
        Lists { tokens, kinds, merges }
    }

    fn vocabulary<'a>(&'a self, pre: &'a str) -> GgufVocabulary<'a> {
        GgufVocabulary {
            path: "m.gguf".into(),
            model: "gpt2",
            pre,
            tokens: self.tokens.iter().map(String::as_str).collect(),
            kinds: self.kinds.clone(),
            merges: self.merges.iter().map(String::as_str).collect(),
            ..GgufVocabulary::default()
        }
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs_err::read_to_string(path).unwrap()).unwrap()
}

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared")
}

#[test]
fn a_vocabulary_gives_the_ids_of_the_tokenizer_it_came_from() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizer.json");
    let published = Tokenizer::open(&path).unwrap();
    let text = Lists::of(&json(&path)).vocabulary("qwen2").tokenizer_json().unwrap();
    let made = Tokenizer::from_bytes(text.as_bytes(), "made".as_ref()).unwrap();
    for text in OBSERVATIONS {
        assert_eq!(made.encode_trusted(text).unwrap(), published.encode_trusted(text).unwrap(), "{text:?}");
        assert_eq!(made.encode_untrusted(text).unwrap(), published.encode_untrusted(text).unwrap(), "{text:?}");
    }
    assert_eq!(made.vocab_size(), published.vocab_size());
}

#[test]
fn the_real_tokenizers_have_the_reference_ids_after_the_way_through_a_vocabulary() {
    let golden = shared().join("golden/text/tokenizers.json");
    if !golden.exists() {
        eprintln!("skipped: {} is not there", golden.display());
        return;
    }
    let golden = json(&golden);
    for (name, pre) in [("smollm2", "smollm"), ("qwen3", "qwen2")] {
        let published = json(&shared().join("tokenizers").join(name).join("tokenizer.json"));
        let text = Lists::of(&published).vocabulary(pre).tokenizer_json().unwrap();
        if name == "smollm2" {
            assert_eq!(
                serde_json::from_str::<Value>(&text).unwrap(),
                published,
                "the whole file, as converted elsewhere"
            );
        }
        let made = Tokenizer::from_bytes(text.as_bytes(), "made".as_ref()).unwrap();
        let rows = golden["by_tokenizer"][name]["rows"].as_array().unwrap();
        for row in rows {
            let ids: Vec<u32> = serde_json::from_value(row["ids"].clone()).unwrap();
            assert_eq!(made.encode_trusted(row["text"].as_str().unwrap()).unwrap(), ids, "{name}: {}", row["text"]);
        }
        assert!(rows.len() > 20);
    }
}

#[test]
fn what_a_vocabulary_cannot_mean_is_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizer.json");
    let lists = Lists::of(&json(&path));
    let refuses = |change: &dyn Fn(&mut GgufVocabulary<'_>), part: &str| {
        let mut vocabulary = lists.vocabulary("qwen2");
        change(&mut vocabulary);
        let error = vocabulary.tokenizer_json().unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("m.gguf"), "no `{part}` in: {error}");
    };
    refuses(&|vocabulary| vocabulary.model = "llama", "tokenizer.ggml.model");
    refuses(&|vocabulary| vocabulary.pre = "deepseek-llm", "deepseek-llm");
    refuses(&|vocabulary| vocabulary.kinds.truncate(5), "kinds of tokens");
    refuses(&|vocabulary| vocabulary.tokens[9] = vocabulary.tokens[8], "is there twice");
    refuses(&|vocabulary| vocabulary.merges[0] = "a b c", "no pair");
    refuses(&|vocabulary| vocabulary.merges[0] = "nowhere to-be-found", "");
}

#[test]
fn the_config_beside_it_names_tokens_and_keeps_the_template() {
    let vocabulary = GgufVocabulary {
        tokens: vec!["<e>", "<s>", "a"],
        bos: Some(1),
        eos: Some(0),
        padding: Some(77),
        chat_template: Some("{{ x }}"),
        max_length: 8192,
        ..GgufVocabulary::default()
    };
    let config: Value = serde_json::from_str(&vocabulary.tokenizer_config()).unwrap();
    assert_eq!((&config["bos_token"], &config["eos_token"]), (&"<s>".into(), &"<e>".into()));
    assert_eq!((&config["chat_template"], &config["model_max_length"]), (&"{{ x }}".into(), &8192.into()));
    assert!(config.get("pad_token").is_none(), "an id beyond the vocabulary names nothing");
}
