//! Flex tensors as slices with their shapes, and slices as tensors.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::backend::ops::IntTensorOps;
use burn::tensor::{DType, IntDType, TensorData};
use half::bf16;
use std::borrow::Cow;
use worldloom_kernels::attention::Heads;
use worldloom_kernels::cross_entropy::Loss;
use worldloom_kernels::precision::widened;

/// Numbers of a weight in single precision: a view where they are, one copy of one matrix where they are in bfloat16.
pub(super) fn weights(tensor: &FlexTensor) -> Cow<'_, [f32]> {
    match tensor.as_slice::<bf16>() {
        Some(values) => widened(values).into(),
        None if tensor.dtype() == DType::BF16 => widened(tensor.to_contiguous().storage::<bf16>()).into(),
        None => floats(tensor),
    }
}

/// A contiguous view; only a strided tensor is copied.
pub(super) fn floats(tensor: &FlexTensor) -> Cow<'_, [f32]> {
    match tensor.as_slice::<f32>() {
        Some(values) => values.into(),
        None => {
            let contiguous = tensor.to_contiguous();
            contiguous.as_slice::<f32>().expect("the decoder computes in f32").to_vec().into()
        }
    }
}

/// Ids, positions and targets, of whatever type of integers; what is negative or too large is no id and is refused by the
/// kernels.
pub(super) fn integers(tensor: &FlexTensor) -> Vec<u32> {
    let tensor = tensor.to_contiguous();
    match tensor.as_slice::<i32>() {
        Some(values) => values.iter().map(|&value| value as u32).collect(),
        None => {
            let wide = Flex::int_cast(tensor, IntDType::I64);
            wide.storage::<i64>().iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect()
        }
    }
}

pub(super) fn shape(tensor: &FlexTensor) -> &[usize] {
    tensor.layout().shape()
}

pub(super) fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    shape(tensor).try_into().expect("the rank is fixed by the operation's signature")
}

pub(super) fn last(tensor: &FlexTensor) -> usize {
    *shape(tensor).last().expect("tensors have at least one axis")
}

pub(super) fn with_last(tensor: &FlexTensor, width: usize) -> Vec<usize> {
    let mut shape = shape(tensor).to_vec();
    *shape.last_mut().expect("tensors have at least one axis") = width;
    shape
}

pub(super) fn heads(q: &FlexTensor, k: &FlexTensor) -> Heads {
    let [batch, seq, query_heads, head_dim] = dims(q);
    let [_, _, kv_heads, _] = dims(k);
    Heads { batch, seq, query_heads, kv_heads, head_dim }
}

pub(super) fn tensor(values: Vec<f32>, shape: &[usize]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(values, shape.to_vec()))
}

pub(super) fn like(values: Vec<f32>, other: &FlexTensor) -> FlexTensor {
    tensor(values, shape(other))
}

pub(super) fn flat(values: Vec<f32>) -> FlexTensor {
    let len = values.len();
    tensor(values, &[len])
}

pub(super) fn total_then_rows(loss: Loss) -> FlexTensor {
    let mut values = loss.nll;
    values.insert(0, loss.total);
    flat(values)
}
