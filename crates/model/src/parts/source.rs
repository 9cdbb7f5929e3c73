//! Parameters made of what a source of values answers: a file, or a seed.

use crate::Precision;
use burn::module::Param;
use burn::tensor::{DType, Device, Tensor, TensorData};
use worldloom_kernels::precision::narrowed;

/// Answers the values of a parameter by its published name and shape; an empty answer stands for zeros that take no
/// memory.
pub(crate) type Values<'a, E> = &'a mut dyn FnMut(&str, &[usize]) -> Result<Vec<f32>, E>;

/// Asks for one parameter after the other and puts it on the device.
pub(crate) struct Source<'a, E> {
    pub(crate) values: Values<'a, E>,
    pub(crate) device: &'a Device,
    pub(crate) precision: Precision,
}

impl<E> Source<'_, E> {
    /// The parameter of this published name.
    pub(crate) fn parameter<const D: usize>(&mut self, path: &str, shape: [usize; D]) -> Result<Param<Tensor<D>>, E> {
        let values = (self.values)(path, &shape)?;
        // Types are said outright: a device may have been set to make other ones by itself.
        let dtype = self.precision.of(path, &shape);
        let tensor = match (values.is_empty(), dtype) {
            (true, _) => Tensor::<D>::zeros([1; D], (self.device, dtype)).expand(shape),
            (false, DType::BF16) => Tensor::from_data(TensorData::new(narrowed(&values), shape), (self.device, dtype)),
            (false, _) => Tensor::from_data(TensorData::new(values, shape), (self.device, dtype)),
        };
        let tensor = if self.device.is_autodiff() { tensor.require_grad() } else { tensor };
        Ok(Param::from_tensor(tensor))
    }
}
