//! What the decoder must obey: golden numbers, isolation of documents, fused against plain, weights in and out.

mod golden;
mod gradients;
mod isolation;
mod ops;
mod support;
mod weights;
