//! Parameters made of what a source of values answers: a file, or a seed.

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};

/// Answers the values of a parameter by its published name and shape; an empty answer stands for zeros that take no
/// memory.
pub(crate) type Values<'a, E> = &'a mut dyn FnMut(&str, &[usize]) -> Result<Vec<f32>, E>;

/// Asks for one parameter after the other and puts it on the device.
pub(crate) struct Source<'a, E> {
    pub(crate) values: Values<'a, E>,
    pub(crate) device: &'a Device,
}

impl<E> Source<'_, E> {
    /// The parameter of this published name.
    pub(crate) fn parameter<const D: usize>(&mut self, path: &str, shape: [usize; D]) -> Result<Param<Tensor<D>>, E> {
        let values = (self.values)(path, &shape)?;
        let tensor = match values.is_empty() {
            true => Tensor::<D>::zeros([1; D], self.device).expand(shape),
            false => Tensor::from_data(TensorData::new(values, shape), self.device),
        };
        let tensor = if self.device.is_autodiff() { tensor.require_grad() } else { tensor };
        Ok(Param::from_tensor(tensor))
    }
}
