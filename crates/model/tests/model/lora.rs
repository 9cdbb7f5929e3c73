//! Adapters: nothing changes at first, only they are trained, merged they say the same, and files carry them whole.

use crate::support::{
    Tensors, bits, golden_dir, largest_difference, random, random_tokens, read_tensors, relative_norm, write_tensors,
};
use burn::tensor::{Device, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use worldloom_model::generate::{Generator, Request, Sampling};
use worldloom_model::{
    Decoder, Error, Gradients, Layout, LoraConfig, ModelConfig, SaveDType, load, save, token_tensor,
};

const EVERYWHERE: &str = "proj";

fn config(targets: &str) -> LoraConfig {
    LoraConfig { rank: 3, alpha: 6.0, dropout: 0.0, targets: targets.to_owned() }
}

fn golden(case: &str) -> (Decoder, ModelConfig, Device) {
    let device = Device::flex().autodiff();
    let (decoder, model) = load(&golden_dir(case), &device).unwrap();
    (decoder, model, device)
}

/// Adapters with numbers of every size in both matrices, as training leaves them.
fn trained(decoder: Decoder, config: &LoraConfig, device: &Device) -> Decoder {
    let mut seed = 100;
    decoder.with_lora(config, 5, device).unwrap().update_parameters(&mut |_, _, values| {
        seed += 1;
        let numbers = random(values.len(), seed);
        values.iter_mut().zip(numbers).for_each(|(value, number)| *value = 0.1 * number);
    })
}

fn logits(decoder: &Decoder, model: &ModelConfig, device: &Device) -> Vec<f32> {
    let tokens = token_tensor(&random_tokens(24, model.vocab_size as u32, 9), 2, 12, device);
    decoder.logits(tokens, &Layout::causal(2, 12, device)).into_data().iter::<f32>().collect()
}

fn loss(decoder: &Decoder, model: &ModelConfig, device: &Device) -> Tensor<1> {
    let ids = random_tokens(24, model.vocab_size as u32, 9);
    let tokens = token_tensor(&ids, 2, 12, device);
    decoder.weighted_nll(tokens, &Layout::causal(2, 12, device), &ids, &[1.0 / 24.0; 24], 1.0)
}

/// Every case with its attention, delta-net, dense and expert projections.
const CASES: [&str; 6] = ["qwen3-tied", "qwen2-untied", "qwen3-moe-norm", "qwen3-next", "qwen3_5-dense", "qwen3_5-moe"];

#[test]
fn fresh_adapters_change_no_logit_and_are_all_that_is_trained() {
    for case in CASES {
        let (decoder, model, device) = golden(case);
        let (before, parameters) = (logits(&decoder, &model, &device), bits(&decoder));
        let adapted = decoder.with_lora(&config(EVERYWHERE), 5, &device).unwrap();
        assert_eq!(logits(&adapted, &model, &device), before, "{case}");
        let mut gradients = Gradients::zeros(&adapted);
        gradients.accumulate(&adapted, loss(&adapted, &model, &device));
        for (name, gradient) in gradients.iter() {
            // With B at zero, only B has a gradient.
            let moves = gradient.iter().any(|&value| value != 0.0);
            assert_eq!(moves, name.ends_with(".lora_B"), "{case}: {name}");
        }
        assert!(gradients.iter().count() >= 14, "{case}");
        assert_eq!(adapted.num_trained(), gradients.iter().map(|(_, values)| values.len()).sum::<usize>());
        assert_eq!(bits(&adapted), parameters, "{case}: published names and numbers stay");
    }
}

/// What the golden files of a family allow, for logits and gradients alike.
fn tolerance(case: &str) -> f64 {
    if case.contains("next") || case.contains("3_5") { 2e-3 } else { 1e-4 }
}

/// `left · right` for `[rows, inner]` and `[inner, columns]`, in double precision.
fn product(left: &[f32], right: &[f32], inner: usize) -> Vec<f32> {
    let (rows, columns) = (left.len() / inner, right.len() / inner);
    let at = |row: usize, column: usize| {
        (0..inner).map(|i| f64::from(left[row * inner + i]) * f64::from(right[i * columns + column])).sum::<f64>()
    };
    (0..rows * columns).map(|place| at(place / columns, place % columns) as f32).collect()
}

fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    let rows = matrix.len() / columns;
    (0..matrix.len()).map(|place| matrix[place % rows * columns + place / rows]).collect()
}

/// The gradient of a projection's merged weight; of the experts, that of the last one.
fn gradient_of_weight(gradients: &Gradients, path: &str, outputs: usize, inputs: usize) -> Vec<f32> {
    let Some((layer, projection)) = path.split_once(".experts.") else {
        return gradients.get(&format!("{path}.weight")).to_vec();
    };
    let (fused, from_the_end) = match projection {
        "gate_proj" => ("gate_up_proj", 2),
        "up_proj" => ("gate_up_proj", 1),
        other => (other, 1),
    };
    let all = gradients.get(&format!("{layer}.experts.{fused}"));
    all[all.len() - from_the_end * outputs * inputs..][..outputs * inputs].to_vec()
}

#[test]
fn gradients_of_adapters_follow_from_those_of_the_merged_weight() {
    for case in CASES {
        let (decoder, model, device) = golden(case);
        let adapted = trained(decoder, &config(EVERYWHERE), &device);
        let mut gradients = Gradients::zeros(&adapted);
        gradients.accumulate(&adapted, loss(&adapted, &model, &device));
        let dir = tempfile::tempdir().unwrap();
        save(&adapted, &model, dir.path(), SaveDType::F32).unwrap();
        let (merged, _) = load(dir.path(), &device).unwrap();
        let mut of_weights = Gradients::zeros(&merged);
        of_weights.accumulate(&merged, loss(&merged, &model, &device));
        let mut factors = BTreeMap::new();
        adapted.for_each_trained(&mut |name, shape, values| {
            drop(factors.insert(name.to_owned(), (shape.to_vec(), values.to_vec())))
        });
        let mut checked = 0;
        for path in factors.keys().filter_map(|name| name.strip_suffix(".lora_A")) {
            let ((a_shape, a), (b_shape, b)) =
                (&factors[&format!("{path}.lora_A")], &factors[&format!("{path}.lora_B")]);
            let (inputs, outputs, rank) = (a_shape[a_shape.len() - 1], b_shape[b_shape.len() - 2], 3);
            let last = |values: &[f32], len: usize| values[values.len() - len..].to_vec();
            let (a, b) = (last(a, rank * inputs), last(b, outputs * rank));
            let weight = gradient_of_weight(&of_weights, path, outputs, inputs);
            // W + s B A: dA = s Bᵀ dW and dB = s dW Aᵀ, with s = 2.
            let expected_a: Vec<f32> =
                product(&transposed(&b, rank), &weight, outputs).iter().map(|v| 2.0 * v).collect();
            let expected_b: Vec<f32> =
                product(&weight, &transposed(&a, inputs), inputs).iter().map(|v| 2.0 * v).collect();
            for (matrix, expected) in [("lora_A", expected_a), ("lora_B", expected_b)] {
                let found = last(gradients.get(&format!("{path}.{matrix}")), expected.len());
                let error = relative_norm(&found, &expected);
                assert!(error < tolerance(case), "{case}: {path}.{matrix}: relative norm of the error {error}");
                checked += 1;
            }
        }
        assert!(checked >= 14, "{case}: {checked}");
    }
}

#[test]
fn merged_weights_have_the_logits_of_the_adapters() {
    for case in CASES {
        let (decoder, model, device) = golden(case);
        let plain = logits(&decoder, &model, &device);
        let adapted = trained(decoder, &config(EVERYWHERE), &device);
        let expected = logits(&adapted, &model, &device);
        assert!(largest_difference(&plain, &expected) > 0.01, "{case}: the adapters do something");
        let dir = tempfile::tempdir().unwrap();
        save(&adapted, &model, dir.path(), SaveDType::F32).unwrap();
        let (merged, _) = load(dir.path(), &device).unwrap();
        assert!(!merged.is_adapted());
        let error = largest_difference(&logits(&merged, &model, &device), &expected);
        assert!(f64::from(error) < tolerance(case), "{case}: merged logits differ by {error}");
    }
}

#[test]
fn generation_follows_the_adapters() {
    let (decoder, model, device) = golden("qwen3-tied");
    let adapted = trained(decoder, &config(EVERYWHERE), &device);
    let prompt = random_tokens(7, model.vocab_size as u32, 3);
    let request =
        Request { prompt: prompt.clone(), num_completions: 1, seed: 0, sampling: Sampling::greedy(6, vec![]) };
    let generator = Generator::new(&adapted, &model).unwrap();
    let answer = generator.generate(&[request], &mut |_, _| ()).unwrap().remove(0).remove(0);
    let ids = [&prompt[..], &answer.tokens].concat();
    let tokens = token_tensor(&ids, 1, ids.len(), &device);
    let all: Vec<f32> =
        adapted.logits(tokens, &Layout::causal(1, ids.len(), &device)).into_data().iter::<f32>().collect();
    for (step, &token) in answer.tokens.iter().enumerate() {
        let row = &all[(prompt.len() + step - 1) * model.vocab_size..][..model.vocab_size];
        let best = (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
        assert_eq!(best as u32, token, "token {step}");
    }
}

#[test]
fn adapters_come_back_from_their_files_to_the_bit_and_have_the_names_of_peft() {
    for case in CASES {
        let (decoder, model, device) = golden(case);
        let adapted = trained(decoder.clone(), &config(EVERYWHERE), &device);
        let dir = tempfile::tempdir().unwrap();
        adapted.save_adapter(dir.path(), "base").unwrap();
        let again = decoder.with_adapter(dir.path(), &device).unwrap();
        assert_eq!(logits(&again, &model, &device), logits(&adapted, &model, &device), "{case}");
        let tensors = read_tensors(&dir.path().join("adapter_model.safetensors"));
        let numbers: usize = tensors.values().map(|(_, shape, _)| shape.iter().product::<usize>()).sum();
        assert_eq!(numbers, adapted.num_trained(), "{case}: the adapters and nothing else");
        let prefix = "base_model.model.model.layers.0.";
        let expected: &[(&str, &[usize])] = match case {
            "qwen3-moe-norm" => &[
                ("mlp.experts.7.up_proj.lora_A.weight", &[3, 48]),
                ("mlp.experts.7.down_proj.lora_B.weight", &[48, 3]),
            ],
            "qwen3_5-moe" => &[
                ("mlp.experts.3.gate_proj.lora_B.weight", &[16, 3]),
                ("linear_attn.in_proj_qkv.lora_A.weight", &[3, 40]),
            ],
            "qwen3-next" => &[
                ("linear_attn.in_proj_qkvz.lora_B.weight", &[128, 3]),
                ("linear_attn.out_proj.lora_A.weight", &[3, 48]),
            ],
            "qwen3_5-dense" => &[("linear_attn.in_proj_z.lora_A.weight", &[3, 40])],
            _ => &[("self_attn.q_proj.lora_A.weight", &[3, 48]), ("mlp.down_proj.lora_B.weight", &[48, 3])],
        };
        for (name, shape) in expected {
            let found = tensors.get(&format!("{prefix}{name}"));
            assert_eq!(found.unwrap_or_else(|| panic!("{case}: no {name}")).1, *shape, "{case}: {name}");
        }
    }
}

#[test]
fn the_config_beside_them_is_the_one_that_peft_reads() {
    let (decoder, _, device) = golden("qwen3-tied");
    let adapted = decoder.with_lora(&config(r"layers\.[01]\.self_attn\.[qv]_proj"), 5, &device).unwrap();
    let dir = tempfile::tempdir().unwrap();
    adapted.save_adapter(dir.path(), "base").unwrap();
    let text = fs_err::read_to_string(dir.path().join("adapter_config.json")).unwrap();
    let config: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&config["peft_type"], &config["r"], &config["lora_alpha"]), (&"LORA".into(), &3.into(), &6.0.into()));
    let modules: BTreeSet<String> = serde_json::from_value(config["target_modules"].clone()).unwrap();
    let expected = ["0.self_attn.q_proj", "0.self_attn.v_proj", "1.self_attn.q_proj", "1.self_attn.v_proj"];
    assert_eq!(modules, expected.map(|path| format!("model.layers.{path}")).into());
}

fn change_config(dir: &Path, key: &str, value: serde_json::Value) {
    let path = dir.join("adapter_config.json");
    let mut config: serde_json::Value = serde_json::from_str(&fs_err::read_to_string(&path).unwrap()).unwrap();
    config[key] = value;
    fs_err::write(&path, config.to_string()).unwrap();
}

#[test]
fn damaged_adapters_are_refused_by_what_is_wrong() {
    let (decoder, _, device) = golden("qwen3-tied");
    let adapted = trained(decoder.clone(), &config(EVERYWHERE), &device);
    let refuses = |change: &dyn Fn(&Path, &mut Tensors), part: &str| {
        let dir = tempfile::tempdir().unwrap();
        adapted.save_adapter(dir.path(), "base").unwrap();
        let path = dir.path().join("adapter_model.safetensors");
        let mut tensors = read_tensors(&path);
        change(dir.path(), &mut tensors);
        write_tensors(&path, &tensors);
        let error = decoder.clone().with_adapter(dir.path(), &device).unwrap_err().to_string();
        assert!(error.contains(part), "no `{part}` in: {error}");
    };
    let name = "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight";
    refuses(&|_, tensors| drop(tensors.remove(name)), name);
    refuses(&|_, tensors| tensors.get_mut(name).unwrap().1.reverse(), "has shape");
    refuses(
        &|_, tensors| drop(tensors.insert("lm_head.lora_A.weight".into(), tensors[name].clone())),
        "lm_head.lora_A",
    );
    let beyond = name.replace("layers.1", "layers.77");
    refuses(&|_, tensors| drop(tensors.insert(beyond.clone(), tensors[name].clone())), "layers.77");
    refuses(&|dir, _| change_config(dir, "r", 4.into()), "has shape");
    refuses(&|dir, _| change_config(dir, "use_dora", true.into()), "use_dora");
    refuses(&|dir, _| change_config(dir, "lora_alpha", "much".into()), "lora_alpha");
    refuses(&|dir, _| change_config(dir, "lora_alpha", serde_json::Value::Null), "lora_alpha");
    refuses(&|dir, _| change_config(dir, "r", 2.5.into()), "`r`");
    refuses(&|dir, _| change_config(dir, "lora_dropout", "some".into()), "lora_dropout");
    refuses(&|dir, _| change_config(dir, "alora_invocation_tokens", vec![5, 6].into()), "alora_invocation_tokens");
}

#[test]
fn a_choice_that_cannot_be_meant_is_refused() {
    let (decoder, _, device) = golden("qwen3-moe-norm");
    let refuses = |config: LoraConfig, part: &str| {
        let error = decoder.clone().with_lora(&config, 1, &device).map(drop).unwrap_err();
        assert!(matches!(error, Error::Lora { .. }) && error.to_string().contains(part), "no `{part}` in: {error}");
    };
    refuses(LoraConfig { rank: 0, ..config(EVERYWHERE) }, "rank");
    refuses(LoraConfig { alpha: f64::NAN, ..config(EVERYWHERE) }, "alpha");
    refuses(LoraConfig { dropout: 1.0, ..config(EVERYWHERE) }, "dropout");
    refuses(config("q_proj("), "targets");
    refuses(config("c_attn"), "self_attn.q_proj");
    refuses(config("lm_head|embed_tokens"), "targets");
    refuses(LoraConfig { dropout: 0.1, ..config("experts") }, "train without");
}

#[test]
fn dropout_depends_on_the_seed_alone_and_is_off_without_one() {
    let (decoder, model, device) = golden("qwen3-tied");
    let adapted = trained(decoder, &LoraConfig { dropout: 0.5, ..config(EVERYWHERE) }, &device);
    let whole = logits(&adapted, &model, &device);
    let with = |seed: Option<u64>| {
        adapted.set_dropout(seed);
        logits(&adapted, &model, &device)
    };
    let (first, second) = (with(Some(1)), with(Some(2)));
    assert_eq!(with(Some(1)), first);
    assert!(largest_difference(&first, &second) > 0.0 && largest_difference(&first, &whole) > 0.0);
    assert_eq!(with(None), whole);
}
