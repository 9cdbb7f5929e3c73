//! Flex tensors as slices with their shapes, and slices as tensors.

use burn::backend::flex::FlexTensor;
use burn::tensor::TensorData;
use std::borrow::Cow;
use worldloom_kernels::attention::Heads;
use worldloom_kernels::cross_entropy::Loss;

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

/// Ids, positions and targets come as i32 or i64, by the device's setting.
pub(super) fn integers(tensor: &FlexTensor) -> Vec<u32> {
    let tensor = tensor.to_contiguous();
    match tensor.as_slice::<i32>() {
        Some(values) => values.iter().map(|&value| value as u32).collect(),
        None => {
            let values = tensor.as_slice::<i64>().expect("integer tensors are i32 or i64");
            values.iter().map(|&value| u32::try_from(value).unwrap_or(u32::MAX)).collect()
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
