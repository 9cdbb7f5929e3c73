//! Golden files and seeded numbers for the tests.

use burn::tensor::{Device, Int, Tensor};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use worldloom_model::{Decoder, Layout, ModelConfig};

/// A case under `tests/golden`.
pub(crate) fn golden_dir(case: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(case)
}

/// One file of golden tensors.
pub(crate) struct Golden(Vec<u8>);

impl Golden {
    pub(crate) fn open(case: &str, file: &str) -> Golden {
        Golden(fs_err::read(golden_dir(case).join(file)).unwrap())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        SafeTensors::deserialize(&self.0).unwrap().names().into_iter().map(str::to_owned).collect()
    }

    pub(crate) fn shape(&self, name: &str) -> Vec<usize> {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).unwrap().shape().to_vec()
    }

    pub(crate) fn floats(&self, name: &str) -> Vec<f32> {
        self.words(name, Dtype::F32).into_iter().map(f32::from_le_bytes).collect()
    }

    pub(crate) fn integers(&self, name: &str) -> Vec<i32> {
        self.words(name, Dtype::I32).into_iter().map(i32::from_le_bytes).collect()
    }

    pub(crate) fn tokens(&self, name: &str) -> Vec<u32> {
        self.integers(name).into_iter().map(|id| id as u32).collect()
    }

    fn words(&self, name: &str, dtype: Dtype) -> Vec<[u8; 4]> {
        let file = SafeTensors::deserialize(&self.0).unwrap();
        let view = file.tensor(name).unwrap();
        assert_eq!(view.dtype(), dtype, "{name}");
        view.data().chunks_exact(4).map(|word| word.try_into().unwrap()).collect()
    }
}

/// Type, shape and bytes by name.
pub(crate) type Tensors = BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>;

pub(crate) fn read_tensors(path: &Path) -> Tensors {
    let bytes = fs_err::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    file.tensors()
        .into_iter()
        .map(|(name, view)| (name, (view.dtype(), view.shape().to_vec(), view.data().to_vec())))
        .collect()
}

pub(crate) fn write_tensors(path: &Path, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs_err::write(path, safetensors::serialize(views, None).unwrap()).unwrap();
}

/// Every parameter's numbers, to the bit.
pub(crate) fn bits(decoder: &Decoder) -> Vec<(String, Vec<u32>)> {
    let mut bits = Vec::new();
    decoder.for_each_parameter(&mut |name, _, values| {
        bits.push((name.to_owned(), values.iter().map(|value| value.to_bits()).collect()));
    });
    bits
}

pub(crate) fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, |max, d| if d > max || d.is_nan() { d } else { max })
}

/// `|a − b| / |b|` over all entries.
pub(crate) fn relative_norm(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>();
    let difference = square(&mut a.iter().zip(b).map(|(a, b)| f64::from(a - b)));
    (difference / square(&mut b.iter().map(|&b| f64::from(b)))).sqrt()
}

/// Seeded numbers in −1..1.
pub(crate) fn random(len: usize, seed: u64) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| generator.random_range(-1.0..1.0)).collect()
}

pub(crate) fn random_tokens(len: usize, vocabulary: u32, seed: u64) -> Vec<u32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    (0..len).map(|_| generator.random_range(0..vocabulary)).collect()
}

/// A small config with odd sizes: three query heads on one key head, head width not `hidden / heads`.
pub(crate) fn small_config(tied: bool) -> ModelConfig {
    ModelConfig::from_json(&format!(
        r#"{{"model_type": "qwen3", "vocab_size": 97, "hidden_size": 40, "intermediate_size": 56,
            "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 256,
            "tie_word_embeddings": {tied}, "initializer_range": 0.2}}"#
    ))
    .unwrap()
}

/// Every family at odd sizes. Hybrids are two delta-nets and two attentions.
pub(crate) const FAMILIES: [&str; 7] =
    ["llama", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"];

/// A small config of a family, with the vocabulary, widths and positions of [`small_config`].
pub(crate) fn small_config_of(family: &str) -> ModelConfig {
    let head_dim = if family == "qwen2" || family == "llama" { "" } else { r#""head_dim": 16,"# };
    let hidden = if head_dim.is_empty() { 48 } else { 40 };
    ModelConfig::from_json(&format!(
        r#"{{"model_type": "{family}", "vocab_size": 97, "hidden_size": {hidden}, "intermediate_size": 56,
            "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2, {head_dim}
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 256,
            "tie_word_embeddings": false, "initializer_range": 0.2, "full_attention_interval": 2,
            "num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
            "shared_expert_intermediate_size": 20, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8,
            "linear_value_head_dim": 6, "linear_num_key_heads": 2, "linear_num_value_heads": 4}}"#
    ))
    .unwrap()
}

/// Fresh weights whose delta-nets forget slowly, so that what leaks from one document into the next cannot hide.
pub(crate) fn slow_decoder(config: &ModelConfig, seed: u64, device: &Device) -> Decoder {
    Decoder::init(config, seed, device).update_parameters(&mut |path, _, values| {
        if path.ends_with("A_log") {
            values.iter_mut().enumerate().for_each(|(i, value)| *value = (0.001 * (i + 1) as f32).ln());
        }
    })
}

/// Runs `work` in a rayon pool of its own.
pub(crate) fn with_threads<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(work)
}

/// The loss of every position that has a weight, 0 elsewhere.
pub(crate) fn row_nll(
    decoder: &Decoder,
    tokens: Tensor<2, Int>,
    layout: &Layout,
    targets: &[u32],
    weights: &[f32],
) -> Vec<f32> {
    let counts: Vec<bool> = weights.iter().map(|&weight| weight != 0.0).collect();
    decoder.token_log_probs(tokens, layout, targets, &counts, 1.0).into_iter().map(|log_prob| -log_prob).collect()
}
