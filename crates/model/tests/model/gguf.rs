//! GGUF files, written here byte by byte: what is read equals what was written, and damage is named.

use crate::support::{bits, random, small_config, small_config_of};
use burn::tensor::Device;
use half::f16;
use std::path::{Path, PathBuf};
use worldloom_model::{Decoder, Error, Gguf, GgufValue, ModelConfig, SaveDType, import_gguf, load};

enum Value<'a> {
    U32(u32),
    F32(f32),
    Text(&'a str),
    Texts(&'a [&'a str]),
}

struct Tensor {
    name: String,
    shape: Vec<usize>,
    kind: u32,
    bytes: Vec<u8>,
}

impl Tensor {
    fn floats(name: &str, shape: &[usize], values: &[f32]) -> Tensor {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor { name: name.to_owned(), shape: shape.to_vec(), kind: 0, bytes }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn gguf(metadata: &[(String, Value<'_>)], tensors: &[Tensor]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((metadata.len() as u64).to_le_bytes());
    for (key, value) in metadata {
        put_text(&mut out, key);
        match value {
            Value::U32(value) => out.extend([4u32, *value].iter().flat_map(|word| word.to_le_bytes())),
            Value::F32(value) => {
                out.extend(6u32.to_le_bytes());
                out.extend(value.to_le_bytes());
            }
            Value::Text(text) => {
                out.extend(8u32.to_le_bytes());
                put_text(&mut out, text);
            }
            Value::Texts(texts) => {
                out.extend([9u32, 8].iter().flat_map(|word| word.to_le_bytes()));
                out.extend((texts.len() as u64).to_le_bytes());
                texts.iter().for_each(|text| put_text(&mut out, text));
            }
        }
    }
    let mut offset = 0u64;
    for tensor in tensors {
        put_text(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|&axis| out.extend((axis as u64).to_le_bytes()));
        out.extend(tensor.kind.to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset = (offset + tensor.bytes.len() as u64).next_multiple_of(32);
    }
    for tensor in tensors {
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&tensor.bytes);
    }
    out
}

/// The metadata of a decoder of this shape.
fn metadata<'a>(family: &'a str, config: &ModelConfig) -> Vec<(String, Value<'a>)> {
    let sizes = [
        ("block_count", config.num_hidden_layers),
        ("context_length", config.max_position_embeddings),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.num_attention_heads),
        ("attention.head_count_kv", config.num_key_value_heads),
        ("attention.key_length", config.head_dim),
    ];
    let mut metadata = vec![("general.architecture".to_owned(), Value::Text(family))];
    metadata.extend(sizes.map(|(key, size)| (format!("{family}.{key}"), Value::U32(size as u32))));
    metadata.push((format!("{family}.attention.layer_norm_rms_epsilon"), Value::F32(1e-6)));
    metadata.push((format!("{family}.rope.freq_base"), Value::F32(10_000.0)));
    metadata.push(("tokenizer.ggml.tokens".to_owned(), Value::Texts(&["a", "b c", "ä"])));
    metadata
}

fn gguf_name(parameter: &str) -> String {
    let pairs = [
        ("model.layers.", "blk."),
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.o_proj", "attn_output"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.q_norm", "attn_q_norm"),
        ("self_attn.k_norm", "attn_k_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    pairs.iter().fold(parameter.to_owned(), |name, (published, gguf)| name.replace(published, gguf))
}

fn tensors(decoder: &Decoder) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    decoder
        .for_each_parameter(&mut |name, shape, values| tensors.push(Tensor::floats(&gguf_name(name), shape, values)));
    tensors
}

fn write(dir: &Path, bytes: &[u8]) -> PathBuf {
    let path = dir.join("model.gguf");
    fs_err::write(&path, bytes).unwrap();
    path
}

/// The decoder that comes out of a file.
fn imported(bytes: &[u8]) -> Result<(Decoder, ModelConfig), Error> {
    let dir = tempfile::tempdir().unwrap();
    let gguf = Gguf::open(&write(dir.path(), bytes))?;
    import_gguf(&gguf, &dir.path().join("out"), SaveDType::F32, &Device::flex())?;
    load(&dir.path().join("out"), &Device::flex())
}

#[test]
fn a_model_comes_out_of_a_gguf_as_it_went_in() {
    for tied in [true, false] {
        let config = small_config(tied);
        let decoder = Decoder::init(&config, 5, &Device::flex());
        let (found, read) = imported(&gguf(&metadata("qwen3", &config), &tensors(&decoder))).unwrap();
        assert_eq!(bits(&found), bits(&decoder));
        assert_eq!((read.rms_norm_eps, read.rope_theta), (1e-6, 10_000.0), "short decimals stay short");
        assert_eq!((read.head_dim, read.tie_word_embeddings), (10, tied));
    }
}

/// Rows of queries or keys as GGUF files of Llama have them: of every head first the first row of either half, then the
/// second of either.
fn in_rotary_pairs(tensor: &mut Tensor, head_dim: usize) {
    let row = 4 * tensor.shape[1];
    let half = head_dim / 2;
    let head = |head: &[u8]| -> Vec<u8> {
        let of = |place: usize| &head[place * row..][..row];
        (0..half).flat_map(|pair| [of(pair), of(half + pair)].concat()).collect()
    };
    tensor.bytes = tensor.bytes.chunks(head_dim * row).flat_map(head).collect();
}

#[test]
fn a_llama_comes_out_of_a_gguf_with_its_rows_in_halves_again() {
    let config = small_config_of("llama");
    assert_eq!((config.num_attention_heads, config.num_key_value_heads, config.head_dim), (6, 2, 8));
    let decoder = Decoder::init(&config, 5, &Device::flex());
    let mut tensors = tensors(&decoder);
    for tensor in &mut tensors {
        if tensor.name.ends_with("attn_q.weight") || tensor.name.ends_with("attn_k.weight") {
            let plain = tensor.bytes.clone();
            in_rotary_pairs(tensor, config.head_dim);
            assert!(tensor.bytes != plain, "{}", tensor.name);
        }
    }
    let (found, read) = imported(&gguf(&metadata("llama", &config), &tensors)).unwrap();
    assert_eq!(bits(&found), bits(&decoder));
    assert_eq!((read.model_type.as_str(), read.head_dim, read.rope_theta), ("llama", 8, 10_000.0));
}

#[test]
fn blocks_of_four_and_eight_bits_become_their_values() {
    // Sizes that are whole blocks of 32.
    let text = small_config(true).to_json().replace("\"hidden_size\": 40", "\"hidden_size\": 64");
    let config = ModelConfig::from_json(&text).unwrap();
    let mut tensors = tensors(&Decoder::init(&config, 5, &Device::flex()));
    let mut expected = Vec::new();
    for tensor in
        tensors.iter_mut().filter(|tensor| tensor.name.contains("token_embd") || tensor.name.contains("attn_v"))
    {
        let count: usize = tensor.shape.iter().product();
        let (mut bytes, mut values) = (Vec::new(), vec![0.0; count]);
        for (block, chunk) in values.chunks_mut(32).enumerate() {
            let [scale, least] = [1, 2].map(|salt| f16::from_f32(random(1, 7 * block as u64 + salt)[0]));
            bytes.extend(scale.to_le_bytes());
            let quants: Vec<u8> = (0..32).map(|i| ((i * 37 + block * 11) % 256) as u8).collect();
            if tensor.name.contains("token_embd") {
                tensor.kind = 8;
                bytes.extend(&quants);
                chunk.iter_mut().zip(&quants).for_each(|(value, &q)| *value = scale.to_f32() * f32::from(q as i8));
            } else {
                tensor.kind = 3;
                bytes.extend(least.to_le_bytes());
                bytes.extend((0..16).map(|i| (quants[i] & 15) | (quants[i + 16] & 15) << 4));
                let value = |q: u8| scale.to_f32() * f32::from(q & 15) + least.to_f32();
                chunk.iter_mut().zip(&quants).for_each(|(number, &q)| *number = value(q));
            }
        }
        tensor.bytes = bytes;
        expected.push((tensor.name.clone(), values));
    }
    let (found, _) = imported(&gguf(&metadata("qwen3", &config), &tensors)).unwrap();
    let mut checked = 0;
    found.for_each_parameter(&mut |name, _, values| {
        if let Some((_, expected)) = expected.iter().find(|(expected, _)| *expected == gguf_name(name)) {
            assert_eq!(values, expected, "{name}");
            checked += 1;
        }
    });
    assert_eq!(checked, 1 + config.num_hidden_layers);
}

#[test]
fn texts_of_the_metadata_are_the_callers() {
    let dir = tempfile::tempdir().unwrap();
    let gguf = Gguf::open(&write(dir.path(), &gguf(&metadata("qwen3", &small_config(true)), &[]))).unwrap();
    assert_eq!(gguf.texts("tokenizer.ggml.tokens").unwrap(), ["a", "b c", "ä"]);
    assert_eq!(gguf.text("general.architecture"), Some("qwen3"));
    assert_eq!(gguf.value("qwen3.block_count"), Some(&GgufValue::Integer(2)));
    assert_eq!((gguf.texts("general.architecture"), gguf.integers("tokenizer.ggml.tokens")), (None, None));
}

#[test]
fn a_gguf_of_another_kind_of_model_is_refused_by_what_differs() {
    let config = small_config(true);
    let decoder = Decoder::init(&config, 5, &Device::flex());
    let refuses = |metadata: &[(String, Value<'_>)], tensors: &[Tensor], part: &str| {
        let error = imported(&gguf(metadata, tensors)).unwrap_err().to_string();
        assert!(error.contains(part), "no `{part}` in: {error}");
    };
    refuses(&metadata("mamba", &config), &tensors(&decoder), "`general.architecture` is `mamba`");
    let mut scaled = metadata("qwen3", &config);
    scaled.push(("qwen3.rope.scaling.type".to_owned(), Value::Text("yarn")));
    refuses(&scaled, &tensors(&decoder), "qwen3.rope.scaling.type");
    let without: Vec<(String, Value<'_>)> =
        metadata("qwen3", &config).into_iter().filter(|(key, _)| key != "qwen3.block_count").collect();
    refuses(&without, &tensors(&decoder), "qwen3.block_count");
    let mut missing = tensors(&decoder);
    missing.retain(|tensor| tensor.name != "blk.1.ffn_up.weight");
    refuses(&metadata("qwen3", &config), &missing, "blk.1.ffn_up.weight");
    let mut more = tensors(&decoder);
    more.push(Tensor::floats("rope_freqs.weight", &[5], &[1.0; 5]));
    refuses(&metadata("qwen3", &config), &more, "rope_freqs.weight");
    let mut other_kind = tensors(&decoder);
    other_kind[0].kind = 12;
    refuses(&metadata("qwen3", &config), &other_kind, "kind 12");
}

#[test]
fn any_cut_of_a_gguf_is_an_error_and_no_panic() {
    let config = small_config(true);
    let whole = gguf(&metadata("qwen3", &config), &tensors(&Decoder::init(&config, 5, &Device::flex())));
    let dir = tempfile::tempdir().unwrap();
    let header = whole.len().min(4000);
    for len in (0..header).step_by(13).chain([whole.len() - 1]) {
        let error = Gguf::open(&write(dir.path(), &whole[..len])).map(drop).unwrap_err();
        assert!(error.to_string().contains("model.gguf"), "{len} bytes: {error}");
    }
    // Lengths beyond the file, in the number of values, of a text and of a list.
    for at in [16, 24, 40] {
        let mut damaged = whole.clone();
        damaged[at..at + 8].copy_from_slice(&[0xff; 8]);
        assert!(Gguf::open(&write(dir.path(), &damaged)).is_err(), "byte {at}");
    }
}
