//! The published configurations: both spellings, defaults, and refusals by the key.

use crate::support::{FAMILIES, golden_dir, small_config, small_config_of};
use burn::tensor::Device;
use worldloom_model::{Decoder, FeedForwardKind, Layout, Mixer, ModelConfig, RopeScaling};

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
        (
            "rope_parameters",
            serde_json::json!({"rope_type": "dynamic", "rope_theta": 1e6}),
            "rope_parameters.rope_type",
        ),
        ("rope_scaling", serde_json::json!({"rope_type": "linear"}), "rope_scaling.factor"),
        ("rope_scaling", serde_json::json!({"rope_type": "default", "factor": 2.0}), "rope_scaling.factor"),
        ("rope_scaling", serde_json::json!({"type": "linear", "factor": 2.0, "beta": 1}), "rope_scaling.beta"),
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
        ("rope_parameters", serde_json::json!({"rope_theta": "large"}), "rope_parameters.rope_theta"),
        ("rope_scaling", serde_json::json!({"rope_type": "default", "rope_theta": 5e6}), "rope_scaling.rope_theta"),
        ("rope_scaling", serde_json::json!({"type": "linear", "factor": 2.0}), "rope_scaling"),
        ("sliding_window", serde_json::json!("wide"), "sliding_window"),
        ("use_sliding_window", serde_json::json!("yes"), "use_sliding_window"),
        ("max_window_layers", serde_json::json!("all"), "max_window_layers"),
        ("max_window_layers", serde_json::json!(-1), "max_window_layers"),
        ("layer_types", serde_json::json!("full_attention"), "layer_types"),
        ("intermediate_size", serde_json::Value::Null, "intermediate_size"),
    ];
    for (key, value, named) in refused {
        let error = changed(key, value.clone()).expect_err(&format!("{key} = {value}"));
        assert!(error.contains(&format!("`{named}`")), "{key} = {value}: {error}");
    }
    assert!(changed("some_new_key", serde_json::json!({"a": 1})).is_ok());
    assert!(ModelConfig::from_json("{").unwrap_err().to_string().starts_with("config: "));
}

/// A small config of a family with other values of some keys.
fn changed(family: &str, changes: serde_json::Value) -> Result<ModelConfig, String> {
    let mut config: serde_json::Value = serde_json::from_str(&small_config_of(family).to_json()).unwrap();
    let keys = config.as_object_mut().unwrap();
    for (key, value) in changes.as_object().unwrap() {
        keys.insert(key.clone(), value.clone());
    }
    ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string())
}

#[test]
fn a_window_is_refused_where_the_reference_would_have_one() {
    use serde_json::json;
    let windows = [
        // Four layers: a window from the third on, in none, in all of Qwen3-MoE whatever `max_window_layers` says.
        ("qwen3", json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 2}), true),
        ("qwen3", json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 4}), false),
        ("qwen3", json!({"use_sliding_window": true, "sliding_window": 8}), false),
        ("qwen3_moe", json!({"use_sliding_window": true, "sliding_window": 8, "max_window_layers": 28}), true),
        ("qwen3_moe", json!({"use_sliding_window": true}), true),
        // Absent, a window is 4,096 tokens; null, there is none.
        ("qwen2", json!({"use_sliding_window": true, "max_window_layers": 1}), true),
        ("qwen2", json!({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 1}), false),
        ("qwen3_moe", json!({"use_sliding_window": true, "sliding_window": null}), false),
        ("qwen3_moe", json!({"use_sliding_window": false, "sliding_window": 8}), false),
        ("qwen3_moe", json!({"sliding_window": 8}), false),
    ];
    for (family, keys, is_refused) in windows {
        match changed(family, keys.clone()) {
            Ok(_) => assert!(!is_refused, "{family}: {keys}"),
            Err(error) => assert!(is_refused && error.contains("`use_sliding_window`"), "{family}: {keys}: {error}"),
        }
    }
}

#[test]
fn a_rotary_number_is_the_same_wherever_it_stands_and_is_not_lost() {
    use serde_json::json;
    for (keys, named) in [
        (json!({"rope_scaling": {"rope_type": "default", "rope_theta": 5e6}}), "rope_theta"),
        (json!({"rope_parameters": {"rope_theta": 5e6}}), "rope_theta"),
        (
            json!({"rope_theta": null, "rope_parameters": {"rope_theta": 1e6}, "rope_scaling": {"rope_theta": 1e7}}),
            "rope_scaling.rope_theta",
        ),
        (
            json!({"partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.25}}),
            "partial_rotary_factor",
        ),
        (json!({"partial_rotary_factor": "half"}), "partial_rotary_factor"),
    ] {
        let error = changed("qwen3_next", keys.clone()).expect_err(&keys.to_string());
        assert!(error.contains(&format!("`{named}`")), "{keys}: {error}");
    }
    let nested = json!({"rope_type": "default", "rope_theta": 5e6, "partial_rotary_factor": 0.5});
    for place in ["rope_parameters", "rope_scaling"] {
        let keys = json!({"rope_theta": null, "partial_rotary_factor": null, place: nested});
        let config = changed("qwen3_next", keys).unwrap();
        assert_eq!((config.rope_theta, config.partial_rotary_factor), (5e6, 0.5), "{place}");
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config, "{place}: written and read again");
        let axes = json!({"mrope_section": [1, 1, 2], "mrope_interleaved": true});
        let config = changed("qwen3_5_text", json!({"rope_parameters": null, place: axes, "rope_theta": 5e6})).unwrap();
        let written: serde_json::Value = serde_json::from_str(&config.to_json()).unwrap();
        assert_eq!(written["rope_parameters"]["mrope_section"], axes["mrope_section"], "{place}: kept");
    }
}

#[test]
fn every_family_is_read_written_and_read_again_as_the_same_model() {
    for family in FAMILIES {
        let config = small_config_of(family);
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config, "{family}");
        let written: serde_json::Value = serde_json::from_str(&config.to_json()).unwrap();
        assert_eq!(written["model_type"], family);
        // Qwen3.5 is published with its rotary constants together, the others with them at the top.
        let place = if family.starts_with("qwen3_5") { &written["rope_parameters"] } else { &written };
        assert_eq!(place["rope_theta"], 10_000.0, "{family}");
    }
    for case in ["qwen3-moe-norm", "qwen3-moe-nonorm", "qwen3-next", "qwen3_5-dense", "qwen3_5-moe"] {
        let [ours, hub] = ["config.json", "config.hub.json"]
            .map(|file| ModelConfig::from_file(&golden_dir(case).join(file)).unwrap());
        assert_eq!(ModelConfig { other: hub.other.clone(), ..ours.clone() }, hub, "{case}");
        assert_eq!(ModelConfig::from_json(&ours.to_json()).unwrap(), ours, "{case}");
        assert_eq!(ModelConfig::from_json(&hub.to_json()).unwrap(), hub, "{case}");
    }
}

#[test]
fn what_surrounds_a_text_model_is_written_back() {
    let path = golden_dir("qwen3_5-moe-vl").join("config.json");
    let published: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
    let config = ModelConfig::from_file(&path).unwrap();
    let written: serde_json::Value = serde_json::from_str(&config.to_json()).unwrap();
    for (key, value) in published.as_object().unwrap() {
        if key != "text_config" {
            assert_eq!(&written[key], value, "{key}");
        }
    }
    for (key, value) in published["text_config"].as_object().unwrap() {
        assert_eq!(&written["text_config"][key], value, "text_config.{key}");
    }
    let mut broken = published.clone();
    broken["text_config"] = 5.into();
    assert!(ModelConfig::from_json(&broken.to_string()).unwrap_err().to_string().contains("`text_config`"));
    let mut quantised = published;
    quantised["quantization_config"] = serde_json::json!({"bits": 4});
    assert!(ModelConfig::from_json(&quantised.to_string()).unwrap_err().to_string().contains("quantization_config"));
}

#[test]
fn layers_are_of_the_kinds_that_the_config_says() {
    let kinds = |text: &str, of: &str| {
        let mut config: serde_json::Value = serde_json::from_str(&small_config_of(of).to_json()).unwrap();
        let changes: serde_json::Value = serde_json::from_str(text).unwrap();
        changes.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
        let layers = ModelConfig::from_json(&config.to_string()).map_err(|error| error.to_string())?.design.layers;
        let letter = |mixer, feed_forward| match (mixer, feed_forward) {
            (Mixer::Attention, FeedForwardKind::Dense) => 'a',
            (Mixer::Attention, FeedForwardKind::Experts) => 'A',
            (Mixer::DeltaNet, FeedForwardKind::Dense) => 'd',
            (Mixer::DeltaNet, FeedForwardKind::Experts) => 'D',
        };
        Ok::<String, String>(layers.iter().map(|layer| letter(layer.mixer, layer.feed_forward)).collect())
    };
    let found = |text, of| kinds(text, of).unwrap();
    assert_eq!(found("{}", "qwen3_5_text"), "dada");
    assert_eq!(found(r#"{"full_attention_interval": 4}"#, "qwen3_5_text"), "ddda");
    assert_eq!(found("{}", "qwen3_next"), "DADA");
    assert_eq!(found(r#"{"mlp_only_layers": [0, 3]}"#, "qwen3_next"), "dADa");
    assert_eq!(found(r#"{"decoder_sparse_step": 2}"#, "qwen3_moe"), "aAaA");
    let types = r#"{"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]}"#;
    assert_eq!(found(types, "qwen3_5_moe_text"), "ADDA");
    assert!(kinds(types, "qwen3").unwrap_err().contains("`layer_types[1]`"), "no hybrid");
    for (change, family, named) in [
        (r#"{"num_hidden_layers": 1000000000000}"#, "qwen3_moe", "num_hidden_layers"),
        (r#"{"decoder_sparse_step": 0}"#, "qwen3_moe", "decoder_sparse_step"),
        (r#"{"num_experts_per_tok": 6}"#, "qwen3_moe", "num_experts_per_tok"),
        (r#"{"num_experts": null}"#, "qwen3_moe", "num_experts"),
        (r#"{"num_local_experts": 6}"#, "qwen3_moe", "num_local_experts"),
        (r#"{"moe_intermediate_size": 0}"#, "qwen3_moe", "moe_intermediate_size"),
        (r#"{"norm_topk_prob": false}"#, "qwen3_5_moe_text", "norm_topk_prob"),
        (r#"{"attn_output_gate": false}"#, "qwen3_5_text", "attn_output_gate"),
        (r#"{"linear_num_value_heads": 3}"#, "qwen3_5_text", "linear_num_value_heads"),
        (r#"{"linear_key_head_dim": null}"#, "qwen3_next", "linear_key_head_dim"),
        (r#"{"full_attention_interval": 0}"#, "qwen3_next", "full_attention_interval"),
        (r#"{"partial_rotary_factor": 0.1}"#, "qwen3_next", "head_dim"),
        (r#"{"shared_expert_intermediate_size": null}"#, "qwen3_next", "shared_expert_intermediate_size"),
    ] {
        let error = kinds(change, family).expect_err(&format!("{family}: {change}"));
        assert!(error.contains(&format!("`{named}`")), "{family}: {change}: {error}");
    }
}

/// The frequencies of a config, read off the tables of position 1 (angles of 0.3 and less keep their bits well).
fn frequencies(config: &ModelConfig) -> Vec<f32> {
    let device = Device::flex();
    let decoder = Decoder::init(config, 1, &device);
    let tables = decoder.rotary(&Layout::new(&[1], &[0], 1, 1, &device));
    tables.sin.into_data().iter::<f32>().map(f32::asin).collect()
}

#[test]
fn stretched_frequencies_are_those_of_the_published_formulas() {
    let base = small_config_of("llama");
    let with = |rope_scaling| {
        let config = ModelConfig { rope_scaling, head_dim: 64, ..base.clone() };
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config, "written and read again");
        frequencies(&config)
    };
    let plain = with(RopeScaling::None);
    for (stretched, plain) in with(RopeScaling::Linear { factor: 4.0 }).iter().zip(&plain).skip(1) {
        assert!((stretched * 4.0 / plain - 1.0).abs() < 1e-5);
    }
    let llama3 = with(RopeScaling::Llama3 {
        factor: 8.0,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position_embeddings: 8192.0,
    });
    let mut seen = [0; 3];
    for (i, (stretched, plain)) in llama3.iter().zip(&plain).enumerate().skip(1) {
        // In float64: turns of the old context per frequency.
        let frequency = 10_000f64.powf(-(i as f64) / 32.0);
        let turns = 8192.0 * frequency / (2.0 * std::f64::consts::PI);
        let smooth = ((turns - 1.0) / 3.0).clamp(0.0, 1.0);
        let expected = frequency * ((1.0 - smooth) / 8.0 + smooth);
        assert!((f64::from(*stretched) / expected - 1.0).abs() < 1e-4, "{i}: {stretched} {expected}, plain {plain}");
        seen[if smooth == 0.0 {
            0
        } else if smooth == 1.0 {
            1
        } else {
            2
        }] += 1;
    }
    assert!(seen.iter().all(|&count| count > 0), "low, high and between: {seen:?}");
}
