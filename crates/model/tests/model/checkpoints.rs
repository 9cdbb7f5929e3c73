//! Checkpoints in several files and types: the identity whatever the files, and what does not fit is refused.

use crate::support::{bits, read_tensors as read, small_config};
use burn::tensor::Device;
use proptest::prelude::*;
use safetensors::Dtype;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use worldloom_model::{Decoder, Error, SaveDType, SaveOptions, load, parameter_shapes, save, save_with};

const INDEX: &str = "model.safetensors.index.json";

fn in_files_of(max_shard_bytes: u64, dtype: SaveDType) -> SaveOptions {
    SaveOptions { max_shard_bytes, ..SaveOptions::new(dtype) }
}

fn weight_files(dir: &Path) -> Vec<PathBuf> {
    let paths = fs_err::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect();
    paths.sort();
    paths
}

/// Every tensor of a folder with the index's word on where it lies.
fn all_tensors(dir: &Path) -> BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)> {
    weight_files(dir).iter().flat_map(|file| read(file)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn load_export_load_is_the_identity_for_any_size_of_files(
        tied: bool,
        seed: u64,
        first_bytes in 1u64..60_000,
        second_bytes in 1u64..60_000,
        dtype in prop_oneof![Just(SaveDType::F32), Just(SaveDType::BF16), Just(SaveDType::F16)],
    ) {
        let (config, device) = (small_config(tied), Device::flex());
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        save_with(&Decoder::init(&config, seed, &device), &config, folders[0].path(), &in_files_of(first_bytes, dtype))
            .unwrap();
        let (once, read_config) = load(folders[0].path(), &device).unwrap();
        save_with(&once, &read_config, folders[1].path(), &in_files_of(second_bytes, dtype)).unwrap();
        let (twice, read_again) = load(folders[1].path(), &device).unwrap();
        prop_assert_eq!(bits(&once), bits(&twice));
        prop_assert_eq!(read_config, read_again);
        prop_assert_eq!(all_tensors(folders[0].path()), all_tensors(folders[1].path()));
    }
}

#[test]
fn files_are_filled_in_order_and_the_index_names_every_tensor() {
    let (config, dir) = (small_config(false), tempfile::tempdir().unwrap());
    let decoder = Decoder::init(&config, 3, &Device::flex());
    save_with(&decoder, &config, dir.path(), &in_files_of(40_000, SaveDType::F32)).unwrap();
    let files = weight_files(dir.path());
    assert!(files.len() > 2, "{files:?}");
    let index: serde_json::Value =
        serde_json::from_str(&fs_err::read_to_string(dir.path().join(INDEX)).unwrap()).unwrap();
    let mut total = 0;
    for (number, file) in files.iter().enumerate() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert_eq!(name, format!("model-{:05}-of-{:05}.safetensors", number + 1, files.len()));
        let tensors = read(file);
        let bytes: usize = tensors.values().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(bytes <= 40_000 || tensors.len() == 1, "{name} holds {bytes} bytes");
        assert!(tensors.keys().all(|tensor| index["weight_map"][tensor] == name));
        total += bytes;
    }
    assert_eq!(total, 4 * decoder.num_parameters());
    assert_eq!(index["metadata"]["total_size"], total);
    assert_eq!(index["weight_map"].as_object().unwrap().len(), all_tensors(dir.path()).len());
}

#[test]
fn a_folder_saved_again_in_another_number_of_files_reads_as_the_new_one() {
    let (config, dir, device) = (small_config(true), tempfile::tempdir().unwrap(), Device::flex());
    for (seed, bytes) in [(1, 40_000), (2, u64::MAX), (3, 30_000)] {
        let decoder = Decoder::init(&config, seed, &device);
        save_with(&decoder, &config, dir.path(), &in_files_of(bytes, SaveDType::F32)).unwrap();
        assert_eq!(bits(&decoder), bits(&load(dir.path(), &device).unwrap().0));
    }
}

#[test]
fn one_file_and_an_index_together_are_refused() {
    let (config, dir, device) = (small_config(true), tempfile::tempdir().unwrap(), Device::flex());
    save(&Decoder::init(&config, 1, &device), &config, dir.path(), SaveDType::F32).unwrap();
    fs_err::write(dir.path().join(INDEX), "{\"weight_map\": {\"a\": \"b.safetensors\"}}").unwrap();
    assert!(matches!(load(dir.path(), &device).unwrap_err(), Error::TwoCheckpoints { .. }));
}

#[test]
fn a_number_beyond_half_precision_is_refused_with_its_tensor() {
    let (config, dir, device) = (small_config(true), tempfile::tempdir().unwrap(), Device::flex());
    let decoder = Decoder::init(&config, 1, &device).update_parameters(&mut |name, _, values| {
        if name == "model.layers.1.mlp.up_proj.weight" {
            values[7] = 70_000.0;
        }
    });
    match save(&decoder, &config, dir.path(), SaveDType::F16).unwrap_err() {
        Error::TooLarge { tensor, value, dtype } => {
            assert_eq!((tensor.as_str(), value, dtype), ("model.layers.1.mlp.up_proj.weight", 70_000.0, "float16"));
        }
        other => panic!("{other:?}"),
    }
    save(&decoder, &config, dir.path(), SaveDType::BF16).unwrap();
}

#[test]
fn the_parts_beside_the_text_decoder_are_passed_over_and_exported_untouched_when_asked() {
    let (config, device) = (small_config(false), Device::flex());
    let [with, without, copied] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    save(&Decoder::init(&config, 5, &device), &config, with.path(), SaveDType::F32).unwrap();
    let path = with.path().join("model.safetensors");
    let mut tensors = read(&path);
    let others = ["model.visual.blocks.0.attn.qkv.bias", "mtp.fc.weight"];
    tensors.insert(others[0].to_owned(), (Dtype::BF16, vec![3], vec![1, 2, 3, 4, 5, 6]));
    tensors.insert(others[1].to_owned(), (Dtype::I64, vec![1], vec![9; 8]));
    crate::support::write_tensors(&path, &tensors);
    let (decoder, config) = load(with.path(), &device).unwrap();
    save(&decoder, &config, without.path(), SaveDType::BF16).unwrap();
    assert!(others.iter().all(|name| !all_tensors(without.path()).contains_key(*name)));
    for max_shard_bytes in [u64::MAX, 30_000] {
        let other_parts = Some(with.path().to_owned());
        let options = SaveOptions { max_shard_bytes, other_parts, ..SaveOptions::new(SaveDType::BF16) };
        save_with(&decoder, &config, copied.path(), &options).unwrap();
        let found = all_tensors(copied.path());
        assert!(others.iter().all(|name| found[*name] == tensors[*name]), "they are copied byte for byte");
        assert_eq!(found.len(), tensors.len());
        load(copied.path(), &device).unwrap();
    }
}

#[test]
fn the_parameters_of_a_config_are_known_without_their_numbers() {
    let (config, device) = (small_config(false), Device::flex());
    let mut made = Vec::new();
    Decoder::init(&config, 1, &device)
        .for_each_parameter(&mut |name, shape, _| made.push((name.to_owned(), shape.to_vec())));
    let listed = parameter_shapes(&config, &device).into_iter().map(|parameter| (parameter.name, parameter.shape));
    assert_eq!(listed.collect::<Vec<_>>(), made);
}
