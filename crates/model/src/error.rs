//! What can go wrong with files and requests, each a sentence with its facts.

use std::path::PathBuf;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed; the message names the path.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// `config.json` is not JSON or lacks a key.
    #[error("{origin}: {source}")]
    ConfigSyntax {
        /// The file, or "the text" where there is none.
        origin: String,
        /// What the parser found.
        source: serde_json::Error,
    },
    /// A key has a value that would change the computation in a way this decoder does not implement.
    #[error("config key `{key}` is {found}, and only {supported} is implemented")]
    Unsupported {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What would do.
        supported: String,
    },
    /// A key that decides a result is missing.
    #[error("config key `{key}` is missing")]
    MissingKey {
        /// The key.
        key: String,
    },
    /// A key has a value that no decoder could use.
    #[error("config key `{key}` is {found}, expected {expected}")]
    InvalidKey {
        /// The key.
        key: String,
        /// Its value.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// A token to add has no spelling, or one that the model does not know.
    #[error("new token {id} is spelled {pieces:?}, expected one token or more below {vocab_size}")]
    NewToken {
        /// Its id.
        id: u32,
        /// Its spelling.
        pieces: Vec<u32>,
        /// Tokens of the model.
        vocab_size: usize,
    },
    /// A folder holds neither one file of weights nor an index of several.
    #[error("{folder}: neither `model.safetensors` nor `model.safetensors.index.json` is there")]
    NoWeights {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder holds one file of weights and an index of several, and which of them counts is not said.
    #[error(
        "{folder}: both `model.safetensors` and `model.safetensors.index.json` are there; remove the one that is stale"
    )]
    TwoCheckpoints {
        /// The folder.
        folder: PathBuf,
    },
    /// The index is not what it should be.
    #[error("{path}: {reason}")]
    Index {
        /// The index.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The index names a tensor that its shard does not hold.
    #[error("{path}: the index puts tensor `{tensor}` there, but it is not")]
    NotInShard {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A shard holds a tensor that the index does not name.
    #[error("{path}: tensor `{tensor}` is there, but the index does not name it")]
    NotInIndex {
        /// The shard.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// Two shards hold the same tensor.
    #[error("tensor `{tensor}` is in two shards: {} and {}", paths[0].display(), paths[1].display())]
    InTwoShards {
        /// The tensor.
        tensor: String,
        /// The shards.
        paths: [PathBuf; 2],
    },
    /// A file of weights is damaged or cut.
    #[error("{path}: {source}")]
    Weights {
        /// The file.
        path: PathBuf,
        /// What the reader found.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the config asks for is not there.
    #[error("{folder}: tensor `{tensor}` is missing")]
    MissingTensor {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// Tensors are there that the config does not ask for.
    #[error("{folder}: {} not part of the model: {}", count(tensors.len()), tensors.join(", "))]
    UnexpectedTensors {
        /// The folder of the checkpoint.
        folder: PathBuf,
        /// Their names.
        tensors: Vec<String>,
    },
    /// A tensor has another shape than the config says.
    #[error("{path}: tensor `{tensor}` has shape {found:?}, expected {expected:?}")]
    WrongShape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// By the config.
        expected: Vec<usize>,
        /// In the file.
        found: Vec<usize>,
    },
    /// A tensor's numbers are of a kind that is not read.
    #[error("{path}: tensor `{tensor}` is {found}, expected F32, BF16 or F16")]
    WrongType {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its kind.
        found: String,
    },
    /// The device cannot hold the asked precision.
    #[error("the device {device} has no {precision} to hold matrices in; take f32")]
    Precision {
        /// What was asked for.
        precision: &'static str,
        /// The device.
        device: String,
    },
    /// A parameter has another type than the decoder computes with.
    #[error("parameter `{parameter}` is {found}, expected {expected}: cast it, or load the checkpoint again")]
    DType {
        /// Its published name.
        parameter: String,
        /// Its type.
        found: String,
        /// What it should be.
        expected: String,
    },
    /// Adapters that cannot be made.
    #[error("lora: {reason}")]
    Lora {
        /// Why not.
        reason: String,
    },
    /// A GGUF file is damaged, or holds what is not read.
    #[error("{path}: {reason}")]
    Gguf {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A number does not fit in the asked type.
    #[error("tensor `{tensor}` holds {value}, which {dtype} cannot")]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// The number.
        value: f32,
        /// The type.
        dtype: &'static str,
    },
    /// What was written is not what is read back.
    #[error("{folder}: read back, `{parameter}` holds {found} in place of {expected}")]
    ReadBack {
        /// The folder of the export.
        folder: PathBuf,
        /// The parameter's published name.
        parameter: String,
        /// What was written.
        expected: f32,
        /// What is there.
        found: f32,
    },
    /// The config says the output projection is its own, and it is not there.
    #[error("{folder}: `lm_head.weight` is missing and `tie_word_embeddings` is false")]
    HeadMissing {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
    /// The config says the output projection is the embedding, and the file holds another.
    #[error("{folder}: `tie_word_embeddings` is true, but `lm_head.weight` differs from `model.embed_tokens.weight`")]
    TiedHeadDiffers {
        /// The folder of the checkpoint.
        folder: PathBuf,
    },
}

fn count(tensors: usize) -> String {
    if tensors == 1 { "1 tensor".to_owned() } else { format!("{tensors} tensors") }
}
