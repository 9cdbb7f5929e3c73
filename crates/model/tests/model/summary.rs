//! The summary of a checkpoint: parts add up, what is passed over is named, and what would not load is no summary.

use crate::support::golden_dir;
use burn::tensor::Device;
use worldloom_model::{
    Decoder, LoraConfig, ModelConfig, ModelSummary, Precision, memory_needs, summarise, training_memory,
};

fn lora() -> LoraConfig {
    LoraConfig { rank: 2, alpha: 4.0, dropout: 0.0, targets: "proj".to_owned() }
}

fn of(case: &str) -> ModelSummary {
    summarise(&golden_dir(case), 64, &lora(), &Device::flex()).unwrap()
}

#[test]
fn the_parts_of_every_family_add_up_to_its_parameters() {
    let cases = [
        ("qwen2-untied", 68_496, "feed-forward"),
        ("qwen3-tied", 70_320, "embedding"),
        ("qwen3-moe-norm", 124_752, "experts"),
        ("qwen3-next", 97_524, "delta-net"),
        ("qwen3_5-dense", 84_964, "delta-net"),
        ("qwen3_5-moe", 97_524, "shared expert"),
    ];
    for (case, parameters, part) in cases {
        let summary = of(case);
        assert_eq!(summary.parameters, parameters, "{case}");
        assert_eq!(summary.parts.iter().map(|part| part.parameters).sum::<u64>(), parameters, "{case}");
        assert!(summary.parts.iter().any(|found| found.part == part), "{case}: {:?}", summary.parts);
        assert_eq!(summary.stored_as, [("F32".to_owned(), parameters)].into(), "{case}");
        let config = ModelConfig::from_file(&golden_dir(case).join("config.json")).unwrap();
        assert_eq!(summary.is_tied, config.tie_word_embeddings, "{case}");
        assert!(summary.passed_over.is_empty() && summary.inside.is_none());
    }
}

#[test]
fn what_is_beside_the_text_decoder_is_listed_with_its_shape() {
    let summary = of("qwen3_5-moe-vl");
    assert_eq!((summary.family.as_str(), summary.inside.as_deref()), ("qwen3_5_moe_text", Some("qwen3_5_moe")));
    assert_eq!((summary.parameters, summary.passed_over.len()), (97_524, 23));
    let patch = summary.passed_over.iter().find(|tensor| tensor.tensor == "model.visual.patch_embed.proj.weight");
    assert_eq!(patch.unwrap().shape, [16, 3, 2, 4, 4]);
}

#[test]
fn memory_is_counted_from_the_weights_and_grows_with_the_context() {
    for case in ["qwen3-tied", "qwen3-moe-norm", "qwen3_5-dense"] {
        let config = ModelConfig::from_file(&golden_dir(case).join("config.json")).unwrap();
        let device = Device::flex();
        let at = |context: usize| memory_needs(&config, context, &lora(), &device).unwrap();
        let (short, long) = (at(100), at(200));
        let decoder = Decoder::init(&config, 1, &device);
        assert_eq!(short.weights, 4 * decoder.num_parameters() as u64);
        let adapted = decoder.with_lora(&lora(), 1, &device).unwrap();
        assert_eq!(short.adapter_parameters, adapted.num_trained() as u64);
        assert_eq!(long.activations, 2 * short.activations);
        assert!(short.cache < long.cache && short.weights == long.weights);
        assert!(short.inference < short.lora && short.lora < short.training, "{case}: {short:?}");
    }
}

#[test]
fn experts_that_are_made_whole_for_their_adapters_are_counted() {
    let config = ModelConfig::from_file(&golden_dir("qwen3-moe-norm").join("config.json")).unwrap();
    let (device, experts) = (Device::flex(), config.design.experts.unwrap());
    let matrix = (4 * experts.num_experts * experts.moe_intermediate_size * config.hidden_size) as u64;
    let layers = config.num_hidden_layers as u64;
    let with = |targets: &str| {
        let lora = LoraConfig { targets: targets.to_owned(), ..lora() };
        let needs = memory_needs(&config, 8, &lora, &device).unwrap();
        let training = |recompute| {
            let memory = training_memory(&config, Some(&lora), 8, recompute, Precision::F32, &device).unwrap();
            assert_eq!(memory.gradients, 4 * needs.adapter_parameters, "{targets}");
            memory.backward
        };
        (needs.lora - 16 * needs.adapter_parameters, training(false), training(true))
    };
    let without = with("self_attn");
    // Kept for every layer, or for one where blocks are computed again, and the gradient of one. An adapter on the gates
    // alone makes the rows of both.
    for (targets, matrices) in
        [("experts", 3), ("experts.gate_proj", 2), ("experts.down_proj", 1), ("experts.(up|gate)_proj", 2)]
    {
        let (needs, kept, again) = with(targets);
        let made = matrices * matrix;
        assert_eq!(needs - without.0, (layers + 1) * made, "{targets}");
        assert!((layers * made..=(layers + 1) * made).contains(&(kept - without.1)), "{targets}");
        assert!(again > 2 * made && again < kept, "{targets}");
    }
    // All weights: nothing is made for adapters.
    let full = training_memory(&config, None, 8, false, Precision::F32, &device).unwrap();
    assert_eq!(full.gradients, full.weights);
}

#[test]
fn a_checkpoint_that_would_not_load_has_no_summary() {
    let dir = tempfile::tempdir().unwrap();
    fs_err::copy(golden_dir("qwen3-tied").join("config.json"), dir.path().join("config.json")).unwrap();
    fs_err::copy(golden_dir("qwen2-untied").join("model.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let error = summarise(dir.path(), 64, &lora(), &Device::flex()).unwrap_err();
    assert!(error.to_string().contains("lm_head.weight") || error.to_string().contains("missing"), "{error}");
}
