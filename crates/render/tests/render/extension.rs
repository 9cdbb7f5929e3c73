//! More tokens: new ids for the tags, every old id as it was; and the published tokenizers, text for text.

use serde_json::Value;
use worldloom_render::{Control, Error, Tokenizer, extend_tokenizer};

use crate::rows::tokenizer_json;
use crate::support::{OBSERVATIONS, shared};

/// Adds two tokens to the tokenizer in a copy of its folder and compares before and after.
fn check(bytes: &[u8], texts: [&str; 2]) {
    let folder = tempfile::tempdir().unwrap();
    fs_err::write(folder.path().join("tokenizer.json"), bytes).unwrap();
    fs_err::write(folder.path().join("tokenizer_config.json"), r#"{"added_tokens_decoder": {}}"#).unwrap();
    let before = Tokenizer::open(folder.path()).unwrap();
    let added = extend_tokenizer(folder.path(), &texts.map(String::from)).unwrap();
    let after = Tokenizer::open(folder.path()).unwrap();
    let first = before.vocab_size() as u32;
    assert_eq!(added.iter().map(|token| token.id).collect::<Vec<_>>(), [first, first + 1]);
    assert_eq!(after.vocab_size(), before.vocab_size() + 2);
    for token in &added {
        assert_eq!(before.decode(&token.pieces).unwrap(), token.text);
        assert_eq!(after.decode(&[token.id]).unwrap(), token.text);
        assert_eq!(after.encode_untrusted(&token.text).unwrap().unwrap(), token.pieces, "from outside it stays text");
    }
    for text in OBSERVATIONS.into_iter().filter(|text| !texts.contains(text)) {
        assert_eq!(before.encode_trusted(text).unwrap(), after.encode_trusted(text).unwrap());
    }
    let config: Value =
        serde_json::from_slice(&fs_err::read(folder.path().join("tokenizer_config.json")).unwrap()).unwrap();
    assert_eq!(config["added_tokens_decoder"][first.to_string()]["content"], texts[0]);
    for wrong in ["<|im_end|>", "", texts[1]] {
        let error = extend_tokenizer(folder.path(), &[wrong.to_string()]).unwrap_err();
        assert!(matches!(error, Error::Config { field: "tokens", .. }), "{wrong}: {error}");
    }
}

#[test]
fn new_tokens_become_one_id_each_and_every_old_id_stays() {
    check(tokenizer_json().as_bytes(), ["<tool_call>", "<note>"]);
    if let Some(qwen3) = shared("tokenizers/qwen3/tokenizer.json") {
        let tags = [Control::ObservationOpen, Control::ObservationClose];
        check(&fs_err::read(qwen3).unwrap(), tags.map(Control::as_str));
    }
}

#[test]
fn published_tokenizers_give_the_reference_ids_and_their_texts_back() {
    let Some(golden) = shared("golden/text/tokenizers.json") else { return };
    let golden: Value = serde_json::from_slice(&fs_err::read(golden).unwrap()).unwrap();
    let mut compared = 0;
    for (name, of) in golden["by_tokenizer"].as_object().unwrap() {
        let folder = if name == "stories260k" { "models/stories260k" } else { &format!("tokenizers/{name}") };
        let tokenizer = Tokenizer::open(&shared(folder).unwrap()).unwrap();
        let mut same = 0;
        for row in of["rows"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            let ids: Vec<u32> = row["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
            assert_eq!(tokenizer.encode_trusted(text).unwrap(), ids, "{name}: {text:?}");
            let decoded = tokenizer.decode(&ids).unwrap();
            assert_eq!(decoded, row["decoded"].as_str().unwrap(), "{name}: {text:?}");
            same += u64::from(decoded == text);
            compared += 1;
        }
        assert_eq!(same, of["same_after_decode"].as_u64().unwrap(), "{name}");
        println!("{name}: {same} of {} texts come back as they were", of["rows"].as_array().unwrap().len());
    }
    assert!(compared > 80);
}
