//! Weights and configurations in and out: identity, and every kind of damage with its own error.

use crate::support::{Tensors, bits, golden_dir, read_tensors as read, small_config, write_tensors as write};
use burn::tensor::Device;
use safetensors::{Dtype, SafeTensors};
use std::path::Path;
use tempfile::TempDir;
use worldloom_model::{Decoder, Error, ModelConfig, SaveDType, SaveOptions, export, load, save, save_with};

fn saved(tied: bool) -> TempDir {
    let (dir, config) = (tempfile::tempdir().unwrap(), small_config(tied));
    save(&Decoder::init(&config, 3, &Device::flex()), &config, dir.path(), SaveDType::F32).unwrap();
    dir
}

/// Loads a saved model whose tensors were changed.
fn load_changed(tied: bool, change: impl FnOnce(&mut Tensors)) -> Result<(Decoder, ModelConfig), Error> {
    let dir = saved(tied);
    let path = dir.path().join("model.safetensors");
    let mut tensors = read(&path);
    change(&mut tensors);
    write(&path, &tensors);
    load(dir.path(), &Device::flex())
}

/// Splits a saved model in two shards with an index.
fn shard(dir: &Path) -> serde_json::Value {
    let path = dir.join("model.safetensors");
    let tensors = read(&path);
    fs_err::remove_file(&path).unwrap();
    let (mut shards, mut map) = ([Tensors::new(), Tensors::new()], serde_json::Map::new());
    for (index, (name, tensor)) in tensors.into_iter().enumerate() {
        map.insert(name.clone(), format!("model-{}.safetensors", index % 2).into());
        shards[index % 2].insert(name, tensor);
    }
    for (index, shard) in shards.iter().enumerate() {
        write(&dir.join(format!("model-{index}.safetensors")), shard);
    }
    serde_json::json!({ "metadata": {}, "weight_map": map })
}

fn write_index(dir: &Path, index: &serde_json::Value) {
    fs_err::write(dir.join("model.safetensors.index.json"), index.to_string()).unwrap();
}

#[test]
fn save_then_load_is_the_identity() {
    for tied in [true, false] {
        let (dir, config) = (tempfile::tempdir().unwrap(), small_config(tied));
        let decoder = Decoder::init(&config, 9, &Device::flex().autodiff());
        save(&decoder, &config, dir.path(), SaveDType::F32).unwrap();
        let (loaded, found) = load(dir.path(), &Device::flex()).unwrap();
        assert_eq!(bits(&decoder), bits(&loaded));
        assert_eq!(found.tie_word_embeddings, tied);
        assert_eq!(read(&dir.path().join("model.safetensors")).contains_key("lm_head.weight"), !tied);
    }
}

#[test]
fn a_published_checkpoint_saved_again_has_the_same_tensors() {
    let dense = ["qwen3-tied", "qwen3-untied", "qwen2-untied", "qwen3_5-dense"];
    let with_experts = ["qwen3-moe-norm", "qwen3-moe-nonorm", "qwen3-next", "qwen3_5-moe"];
    for case in dense.into_iter().chain(with_experts) {
        let (decoder, config) = load(&golden_dir(case), &Device::flex()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        save(&decoder, &config, dir.path(), SaveDType::F32).unwrap();
        assert_eq!(read(&golden_dir(case).join("model.safetensors")), read(&dir.path().join("model.safetensors")));
        let bytes = fs_err::read(dir.path().join("model.safetensors")).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["format"], "pt");
    }
}

#[test]
fn experts_load_alike_from_two_tensors_for_all_and_from_three_for_each() {
    let (fused, _) = load(&golden_dir("qwen3_5-moe"), &Device::flex()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let from = golden_dir("qwen3_5-moe");
    fs_err::copy(from.join("config.json"), dir.path().join("config.json")).unwrap();
    fs_err::copy(from.join("model.per_expert.safetensors"), dir.path().join("model.safetensors")).unwrap();
    let (each, config) = load(dir.path(), &Device::flex()).unwrap();
    assert_eq!(bits(&each), bits(&fused));
    // The family's published layout comes out, whichever came in.
    let out = tempfile::tempdir().unwrap();
    save(&each, &config, out.path(), SaveDType::F32).unwrap();
    assert_eq!(read(&from.join("model.safetensors")), read(&out.path().join("model.safetensors")));
    // An expert too few is missing, one too many unexpected.
    let path = dir.path().join("model.safetensors");
    let whole = read(&path);
    let name = "model.layers.2.mlp.experts.3.up_proj.weight";
    let mut changed = whole.clone();
    let tensor = changed.remove(name).unwrap();
    write(&path, &changed);
    let error = load(dir.path(), &Device::flex()).unwrap_err();
    assert!(matches!(&error, Error::MissingTensor { tensor, .. } if tensor == name), "{error}");
    let mut changed = whole;
    changed.insert(name.replace("experts.3", "experts.4"), tensor);
    write(&path, &changed);
    let error = load(dir.path(), &Device::flex()).unwrap_err();
    assert!(matches!(&error, Error::UnexpectedTensors { tensors, .. } if tensors.len() == 1), "{error}");
}

#[test]
fn a_vision_language_checkpoint_comes_back_whole_when_asked_and_as_its_text_model_otherwise() {
    let from = golden_dir("qwen3_5-moe-vl");
    let (decoder, config) = load(&from, &Device::flex()).unwrap();
    let [whole, text] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let options = SaveOptions { other_parts: Some(from.clone()), ..SaveOptions::new(SaveDType::F32) };
    save_with(&decoder, &config, whole.path(), &options).unwrap();
    let tensors = |dir: &Path| read(&dir.join("model.safetensors"));
    assert_eq!(tensors(whole.path()), tensors(&from));
    let (again, read_config) = load(whole.path(), &Device::flex()).unwrap();
    assert_eq!((bits(&again), read_config.outer.is_some()), (bits(&decoder), true));
    save(&decoder, &config, text.path(), SaveDType::F32).unwrap();
    let (alone, read_config) = load(text.path(), &Device::flex()).unwrap();
    assert_eq!((bits(&alone), read_config.outer), (bits(&decoder), None));
    assert!(tensors(text.path()).keys().all(|name| !name.contains("visual") && !name.contains("language_model")));
    let written = fs_err::read_to_string(text.path().join("config.json")).unwrap();
    assert!(written.contains("Qwen3_5MoeForCausalLM") && written.contains("qwen3_5_moe_text"), "{written}");
    // From the text model alone, the whole is made again with the parts of the original.
    let again = tempfile::tempdir().unwrap();
    save_with(&alone, &ModelConfig { outer: None, ..config }, again.path(), &options).unwrap();
    assert_eq!(tensors(again.path()), tensors(&from));
}

#[test]
fn a_whole_vision_language_checkpoint_says_the_type_it_was_written_in() {
    let from = golden_dir("qwen3_5-moe-vl");
    let (decoder, config) = load(&from, &Device::flex()).unwrap();
    for dtype in [SaveDType::BF16, SaveDType::F32] {
        let dir = tempfile::tempdir().unwrap();
        let options = SaveOptions { other_parts: Some(from.clone()), ..SaveOptions::new(dtype) };
        save_with(&decoder, &config, dir.path(), &options).unwrap();
        let text = fs_err::read_to_string(dir.path().join("config.json")).unwrap();
        let written: serde_json::Value = serde_json::from_str(&text).unwrap();
        for keys in [&written, &written["text_config"]] {
            assert_eq!((&keys["torch_dtype"], keys.get("dtype")), (&dtype.name().into(), None), "{text}");
        }
    }
}

#[test]
fn an_export_is_what_a_decoder_would_have_written_in_every_layout_and_type() {
    let device = Device::flex();
    for case in ["qwen2-untied", "qwen3-tied", "qwen3-moe-norm", "qwen3_5-moe", "qwen3_5-moe-vl"] {
        let from = golden_dir(case);
        let (decoder, config) = load(&from, &device).unwrap();
        for dtype in [SaveDType::F32, SaveDType::BF16, SaveDType::F16] {
            let [ours, expected] = [(); 2].map(|()| tempfile::tempdir().unwrap());
            let other_parts = case.ends_with("-vl").then(|| from.clone());
            let options = SaveOptions { max_shard_bytes: 100_000, other_parts, ..SaveOptions::new(dtype) };
            let numbers = export(&from, ours.path(), &options, &device).unwrap();
            assert_eq!(numbers, decoder.num_parameters() as u64, "{case}");
            save_with(&decoder, &config, expected.path(), &options).unwrap();
            for entry in fs_err::read_dir(expected.path()).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap();
                let bytes = fs_err::read(ours.path().join(name)).unwrap();
                assert!(bytes == fs_err::read(&path).unwrap(), "{case}: {}", path.display());
            }
        }
    }
}

#[test]
fn half_precision_is_read_as_its_value() {
    let dir = saved(true);
    let decoder = load(dir.path(), &Device::flex()).unwrap().0;
    let config = small_config(true);
    let rounded = tempfile::tempdir().unwrap();
    save(&decoder, &config, rounded.path(), SaveDType::BF16).unwrap();
    let (loaded, _) = load(rounded.path(), &Device::flex()).unwrap();
    for ((_, exact), (_, loaded)) in bits(&decoder).iter().zip(bits(&loaded)) {
        for (&exact, loaded) in exact.iter().zip(loaded) {
            assert_eq!(half::bf16::from_f32(f32::from_bits(exact)).to_f32().to_bits(), loaded);
        }
    }
    let (halves, _) = load_changed(true, |tensors| {
        for (dtype, _, bytes) in tensors.values_mut() {
            let floats = bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()));
            *bytes = floats.flat_map(|value| half::f16::from_f32(value).to_le_bytes()).collect();
            *dtype = Dtype::F16;
        }
    })
    .unwrap();
    for ((_, exact), (_, loaded)) in bits(&decoder).iter().zip(bits(&halves)) {
        for (&exact, loaded) in exact.iter().zip(loaded) {
            assert_eq!(half::f16::from_f32(f32::from_bits(exact)).to_f32().to_bits(), loaded);
        }
    }
}

#[test]
fn shards_load_as_one_file_does() {
    let dir = saved(false);
    let whole = load(dir.path(), &Device::flex()).unwrap().0;
    let index = shard(dir.path());
    write_index(dir.path(), &index);
    assert_eq!(bits(&whole), bits(&load(dir.path(), &Device::flex()).unwrap().0));
}

#[test]
fn a_shard_that_lacks_an_indexed_tensor_is_named() {
    let dir = saved(false);
    let mut index = shard(dir.path());
    index["weight_map"]["model.norm.weight"] = "model-0.safetensors".into();
    let moved = read(&dir.path().join("model-0.safetensors")).contains_key("model.norm.weight");
    if moved {
        index["weight_map"]["model.norm.weight"] = "model-1.safetensors".into();
    }
    write_index(dir.path(), &index);
    match load(dir.path(), &Device::flex()) {
        Err(Error::NotInShard { path, tensor }) => {
            assert_eq!(tensor, "model.norm.weight");
            assert!(path.ends_with(if moved { "model-1.safetensors" } else { "model-0.safetensors" }));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tensor_in_two_shards_and_one_that_the_index_does_not_name_are_named() {
    let dir = saved(false);
    let mut index = shard(dir.path());
    let name = "model.norm.weight";
    let paths = [0, 1].map(|number| dir.path().join(format!("model-{number}.safetensors")));
    let (here, there) = if read(&paths[0]).contains_key(name) { (0, 1) } else { (1, 0) };
    // The same tensor in both shards.
    let alone = read(&paths[there]);
    let mut both = alone.clone();
    both.insert(name.to_owned(), read(&paths[here])[name].clone());
    write(&paths[there], &both);
    write_index(dir.path(), &index);
    match load(dir.path(), &Device::flex()) {
        Err(Error::InTwoShards { tensor, paths: found }) => assert_eq!((tensor.as_str(), found), (name, paths.clone())),
        other => panic!("{other:?}"),
    }
    // A tensor that the index does not name at all.
    write(&paths[there], &alone);
    index["weight_map"].as_object_mut().unwrap().remove(name);
    write_index(dir.path(), &index);
    match load(dir.path(), &Device::flex()) {
        Err(Error::NotInIndex { path, tensor }) => assert_eq!((path, tensor.as_str()), (paths[here].clone(), name)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_missing_shard_a_broken_index_and_a_path_in_it_are_named() {
    let dir = saved(false);
    let index = shard(dir.path());
    write_index(dir.path(), &index);
    fs_err::remove_file(dir.path().join("model-1.safetensors")).unwrap();
    let error = load(dir.path(), &Device::flex()).unwrap_err();
    assert!(matches!(error, Error::Io(_)) && error.to_string().contains("model-1.safetensors"), "{error}");
    for (text, part) in [
        ("{", "EOF"),
        ("{\"weight_map\": {}}", "empty"),
        ("{\"weight_map\": {\"a\": \"../model.safetensors\"}}", "plain file name"),
    ] {
        fs_err::write(dir.path().join("model.safetensors.index.json"), text).unwrap();
        let error = load(dir.path(), &Device::flex()).unwrap_err();
        assert!(matches!(error, Error::Index { .. }) && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_missing_tensor_is_named() {
    let error = load_changed(true, |tensors| drop(tensors.remove("model.layers.1.mlp.up_proj.weight"))).unwrap_err();
    assert!(matches!(&error, Error::MissingTensor { tensor, .. } if tensor == "model.layers.1.mlp.up_proj.weight"));
}

#[test]
fn an_unexpected_tensor_is_named() {
    let error = load_changed(true, |tensors| {
        let tensor = tensors["model.norm.weight"].clone();
        tensors.insert("model.layers.2.input_layernorm.weight".to_owned(), tensor);
    })
    .unwrap_err();
    assert!(
        matches!(&error, Error::UnexpectedTensors { tensors, .. } if tensors == &["model.layers.2.input_layernorm.weight"])
    );
    assert!(error.to_string().contains("1 tensor not part of the model"), "{error}");
}

#[test]
fn a_wrong_shape_and_a_wrong_kind_are_named() {
    let error = load_changed(true, |tensors| {
        tensors.get_mut("model.layers.0.mlp.down_proj.weight").unwrap().1 = vec![56, 40];
    })
    .unwrap_err();
    match error {
        Error::WrongShape { tensor, expected, found, .. } => {
            assert_eq!(
                (tensor.as_str(), expected, found),
                ("model.layers.0.mlp.down_proj.weight", vec![40, 56], vec![56, 40])
            );
        }
        other => panic!("{other:?}"),
    }
    let error = load_changed(true, |tensors| tensors.get_mut("model.norm.weight").unwrap().0 = Dtype::I32).unwrap_err();
    assert!(matches!(&error, Error::WrongType { tensor, .. } if tensor == "model.norm.weight"), "{error}");
}

#[test]
fn a_head_must_be_there_or_tied_and_a_repeated_tied_head_must_be_equal() {
    let missing = load_changed(false, |tensors| drop(tensors.remove("lm_head.weight"))).unwrap_err();
    assert!(matches!(missing, Error::HeadMissing { .. }), "{missing}");
    let repeat = |tensors: &mut Tensors| {
        let embedding = tensors["model.embed_tokens.weight"].clone();
        tensors.insert("lm_head.weight".to_owned(), embedding);
    };
    assert!(load_changed(true, repeat).is_ok());
    let differs = load_changed(true, |tensors| {
        repeat(tensors);
        tensors.get_mut("lm_head.weight").unwrap().2[0] ^= 1;
    })
    .unwrap_err();
    assert!(matches!(differs, Error::TiedHeadDiffers { .. }), "{differs}");
}

#[test]
fn a_cut_file_and_an_empty_folder_are_named() {
    let dir = saved(true);
    let path = dir.path().join("model.safetensors");
    let bytes = fs_err::read(&path).unwrap();
    for len in [0, 7, 100, bytes.len() - 1] {
        fs_err::write(&path, &bytes[..len]).unwrap();
        let error = load(dir.path(), &Device::flex()).unwrap_err();
        assert!(error.to_string().contains("model.safetensors"), "{len} bytes: {error}");
    }
    fs_err::remove_file(&path).unwrap();
    assert!(matches!(load(dir.path(), &Device::flex()).unwrap_err(), Error::NoWeights { .. }));
    fs_err::remove_file(dir.path().join("config.json")).unwrap();
    assert!(load(dir.path(), &Device::flex()).unwrap_err().to_string().contains("config.json"));
}
