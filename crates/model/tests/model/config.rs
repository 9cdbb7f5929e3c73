//! The published configurations: both spellings, defaults, and refusals by the key.

use crate::support::{golden_dir, small_config};
use worldloom_model::ModelConfig;

#[test]
fn both_published_spellings_of_a_config_are_the_same_model() {
    for case in ["qwen3-tied", "qwen3-untied", "qwen2-untied"] {
        let [ours, hub] = ["config.json", "config.hub.json"]
            .map(|file| ModelConfig::from_file(&golden_dir(case).join(file)).unwrap());
        assert_eq!(ModelConfig { other: hub.other.clone(), ..ours.clone() }, hub);
        assert_eq!(ours.rope_theta, if case == "qwen3-untied" { 1e4 } else { 1e6 });
        assert_eq!(ModelConfig::from_json(&ours.to_json()).unwrap(), ours);
        assert_eq!(ours.other["max_window_layers"], 28, "unused keys are kept");
    }
}

#[test]
fn token_ids_of_a_config_may_be_none_one_or_several() {
    let config = |ids: &str| {
        let text = small_config(true).to_json().replace("\"eos_token_id\": null", &format!("\"eos_token_id\": {ids}"));
        ModelConfig::from_json(&text)
    };
    for (text, ids) in [("null", vec![]), ("7", vec![7]), ("[7, 9]", vec![7, 9])] {
        let read = config(text).unwrap();
        assert_eq!(read.eos_token_id, ids);
        assert_eq!(ModelConfig::from_json(&read.to_json()).unwrap(), read);
    }
    assert!(config("\"seven\"").unwrap_err().to_string().contains("eos_token_id"));
}

#[test]
fn a_config_that_asks_for_another_computation_is_refused_by_the_key() {
    let text = fs_err::read_to_string(golden_dir("qwen3-tied").join("config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    let changed = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config[key] = value;
        ModelConfig::from_json(&config.to_string()).map(drop).map_err(|error| error.to_string())
    };
    let refused = [
        ("model_type", serde_json::json!("gpt2"), "model_type"),
        ("hidden_act", serde_json::json!("gelu"), "hidden_act"),
        ("attention_bias", serde_json::json!(true), "attention_bias"),
        ("attention_dropout", serde_json::json!(0.1), "attention_dropout"),
        ("rope_scaling", serde_json::json!({"rope_type": "yarn", "factor": 4.0}), "rope_scaling.rope_type"),
        ("rope_parameters", serde_json::json!({"rope_type": "linear", "rope_theta": 1e6}), "rope_parameters.rope_type"),
        ("partial_rotary_factor", serde_json::json!(0.5), "partial_rotary_factor"),
        ("quantization_config", serde_json::json!({"bits": 4}), "quantization_config"),
        ("layer_types", serde_json::json!(["full_attention", "sliding_attention", "full_attention"]), "layer_types[1]"),
        ("layer_types", serde_json::json!(["full_attention"]), "layer_types"),
        ("num_key_value_heads", serde_json::json!(3), "num_key_value_heads"),
        ("head_dim", serde_json::json!(15), "head_dim"),
        ("hidden_size", serde_json::json!(0), "hidden_size"),
        ("vocab_size", serde_json::json!("many"), "vocab_size"),
        ("vocab_size", serde_json::Value::Null, "vocab_size"),
        ("rope_theta", serde_json::json!(5.0), "rope_theta"),
    ];
    for (key, value, named) in refused {
        let error = changed(key, value.clone()).expect_err(&format!("{key} = {value}"));
        assert!(error.contains(&format!("`{named}`")), "{key} = {value}: {error}");
    }
    let mut sliding = config.clone();
    sliding["use_sliding_window"] = true.into();
    sliding["sliding_window"] = 4096.into();
    sliding["max_window_layers"] = 2.into();
    let error = ModelConfig::from_json(&sliding.to_string()).unwrap_err().to_string();
    assert!(error.contains("`use_sliding_window`"), "{error}");
    // A window that no layer uses changes nothing.
    sliding["max_window_layers"] = 28.into();
    assert!(ModelConfig::from_json(&sliding.to_string()).is_ok());
    assert!(changed("some_new_key", serde_json::json!({"a": 1})).is_ok());
    assert!(ModelConfig::from_json("{").unwrap_err().to_string().starts_with("config: "));
}
