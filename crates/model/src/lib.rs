//! The decoder: its configuration, its weights in and out, its losses and gradients, generation on token ids.
//!
//! Knows tokens as numbers only: no tokenizer, no template, no reward. The device is the caller's.

mod accumulate;
mod config;
mod counted;
mod decoder;
mod design;
mod error;
mod families;
pub mod generate;
mod init;
mod layout;
mod lora;
mod memory;
pub mod ops;
mod parameters;
mod parts;
mod precision;
mod routers;
mod self_test;
mod vocabulary;
mod weights;

pub use accumulate::{Losses, Objective, Weigh};
pub use config::{ModelConfig, RopeScaling};
pub use decoder::{Backbone, Block, Decoder, FeedForward};
pub use design::{DeltaNetShape, Design, ExpertShape, FeedForwardKind, LayerDesign, Mixer};
pub use error::Error;
pub use init::Start;
pub use layout::{Layout, token_tensor, visible_keys};
pub use lora::LoraConfig;
pub use memory::{LargestTensor, MemoryNeeds, TrainingMemory, largest_tensor, memory_needs, training_memory};
pub use parameters::{ChangeParameter, Gradients, ParameterShape, ReadParameter, parameter_shapes};
pub use parts::{
    Adapter, Attention, Convolution, ExpertAdapter, Experts, GatedDeltaNet, Linear, Mlp, Moe, Norm, Routing,
};
pub use precision::{Precision, Products};
pub use routers::{ExpertLoad, RouterLoss, RouterTerm};
pub use self_test::{SelfCheck, self_test};
pub use vocabulary::NewToken;
pub use weights::{
    Gguf, GgufValue, ModelSummary, PartSummary, PassedOver, SaveDType, SaveOptions, ShowParameters, export,
    import_gguf, load, load_in, save, save_parameters, save_with, summarise,
};
pub use worldloom_kernels::cross_entropy::RowStatistics;
pub use worldloom_kernels::matmul::{MatmulPrecision, bf16_unit};
