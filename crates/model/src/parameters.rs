//! A decoder's parameters as slices by published name, always in the order of the fields; and their gradients.

use crate::lora::Merge;
use crate::ops::has_kernels;
use crate::parts::Source;
use crate::{Decoder, ModelConfig, Precision};
use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients as Graph, Tensor, TensorData};
use half::bf16;
use std::convert::Infallible;
use worldloom_kernels as kernels;
use worldloom_kernels::precision::{narrowed, widened};

/// Reads one parameter: published name, shape, values.
pub type ReadParameter<'a> = &'a mut dyn FnMut(&str, &[usize], &[f32]);
/// Changes one parameter in place: published name, shape, values.
pub type ChangeParameter<'a> = &'a mut dyn FnMut(&str, &[usize], &mut [f32]);

impl Decoder {
    /// A decoder of zeros that take no memory, to look at its shape.
    pub(crate) fn without_numbers(config: &ModelConfig, device: &Device) -> Decoder {
        without_numbers(config, device, &mut |_, _| ())
    }

    /// Shows every published parameter, with what adapters add to it; without adapters there is no copy on the CPU.
    pub fn for_each_parameter(&self, read: ReadParameter<'_>) {
        let Some(merge) = Merge::of(self) else {
            self.visit(&mut Reader { path: Path::default(), shows: |_| true, read });
            return;
        };
        let read = &mut |name: &str, shape: &[usize], values: &[f32]| merge.show(name, shape, values, read);
        self.visit(&mut Reader { path: Path::default(), shows: |name| !is_adapter(name), read });
    }

    /// Shows what training changes: every parameter, or the adapters alone where there are any.
    pub fn for_each_trained(&self, read: ReadParameter<'_>) {
        self.visit(&mut Reader { path: Path::default(), shows: self.trained(), read });
    }

    /// Lets `change` rewrite every parameter that training changes, in place where the buffer has no other owner. What is
    /// held in bfloat16 is changed in single precision and rounded.
    pub fn update_parameters(self, change: ChangeParameter<'_>) -> Decoder {
        let changes = self.trained();
        self.map(&mut Changer { path: Path::default(), changes, change })
    }

    /// Shows name and shape of what training changes; no number is read.
    pub fn for_each_trained_shape(&self, show: &mut dyn FnMut(&str, &[usize])) {
        let is_trained = self.trained();
        for_each_dtype(self, &mut |name, shape, _| {
            if is_trained(name) {
                show(name, shape);
            }
        });
    }

    /// How many numbers training changes.
    pub fn num_trained(&self) -> usize {
        let mut count = 0;
        self.for_each_trained_shape(&mut |_, shape| count += shape.iter().product::<usize>());
        count
    }

    /// Whether training changes the parameter of a name.
    fn trained(&self) -> fn(&str) -> bool {
        if self.is_adapted() { is_adapter } else { |_| true }
    }

    /// How many numbers the decoder has; a tied head counts once.
    pub fn num_parameters(&self) -> usize {
        let mut count = 0;
        for_each_dtype(self, &mut |name, shape, _| {
            if !is_adapter(name) {
                count += shape.iter().product::<usize>();
            }
        });
        count
    }
}

/// A parameter's published name and shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterShape {
    /// Published name.
    pub name: String,
    /// Axes as published.
    pub shape: Vec<usize>,
}

impl ParameterShape {
    /// How many numbers it has.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The parameters of a decoder of this config, in the decoder's order, without making their numbers.
pub fn parameter_shapes(config: &ModelConfig, device: &Device) -> Vec<ParameterShape> {
    let mut shapes = Vec::new();
    without_numbers(config, device, &mut |name, shape| {
        shapes.push(ParameterShape { name: name.to_owned(), shape: shape.to_vec() });
    });
    shapes
}

fn without_numbers(config: &ModelConfig, device: &Device, show: &mut dyn FnMut(&str, &[usize])) -> Decoder {
    let values = &mut |name: &str, shape: &[usize]| {
        show(name, shape);
        Ok::<_, Infallible>(Vec::new())
    };
    match Decoder::from_values(config, Source { values, device, precision: Precision::F32 }) {
        Ok(decoder) => decoder,
        Err(never) => match never {},
    }
}

/// Sums of gradients, one buffer per parameter in the decoder's order.
#[derive(Clone, Debug)]
pub struct Gradients {
    buffers: Vec<(String, Vec<f32>)>,
}

impl Gradients {
    /// All zero, for what training changes in `decoder`.
    pub fn zeros(decoder: &Decoder) -> Gradients {
        let mut buffers = Vec::new();
        decoder.for_each_trained_shape(&mut |path, shape| {
            buffers.push((path.to_owned(), vec![0f32; shape.iter().product()]));
        });
        Gradients { buffers }
    }

    /// Runs the backward pass of `loss` and adds the gradients of `decoder`'s parameters.
    ///
    /// The decoder must be on an autodiff device and the same that `loss` came from.
    pub fn accumulate(&mut self, decoder: &Decoder, loss: Tensor<1>) {
        self.take(decoder, &mut loss.backward());
    }

    /// Adds what a backward pass left for `decoder`'s parameters, and takes it out of the graph.
    pub(crate) fn take(&mut self, decoder: &Decoder, graph: &mut Graph) {
        let (path, counts) = (Path::default(), decoder.trained());
        decoder.visit(&mut Accumulator { path, counts, next: 0, buffers: &mut self.buffers, graph });
    }

    /// All zero, for the same decoder.
    pub fn zeros_like(&self) -> Gradients {
        Gradients { buffers: self.iter().map(|(path, values)| (path.to_owned(), vec![0f32; values.len()])).collect() }
    }

    /// Adds other sums for the same decoder.
    pub fn add(&mut self, other: &Gradients) {
        for ((path, sum), (other_path, values)) in self.buffers.iter_mut().zip(&other.buffers) {
            assert_eq!(path, other_path, "gradients of two decoders");
            kernels::add_assign(sum, values);
        }
    }

    /// Sum of the squares of all entries, added in fixed order.
    pub fn squared_norm(&self) -> f64 {
        self.buffers.iter().map(|(_, values)| kernels::sum_of_squares(values)).sum()
    }

    /// Whether no entry is infinite or not a number.
    pub fn is_finite(&self) -> bool {
        self.buffers.iter().all(|(_, values)| values.iter().all(|value| value.is_finite()))
    }

    /// Multiplies every entry.
    pub fn scale(&mut self, factor: f32) {
        self.buffers.iter_mut().for_each(|(_, values)| kernels::scale(values, factor));
    }

    /// The sum of one parameter. Panics on a name that the decoder does not have.
    pub fn get(&self, path: &str) -> &[f32] {
        let found = self.buffers.iter().find(|(name, _)| name == path);
        &found.unwrap_or_else(|| panic!("no gradient of `{path}`: it is not a parameter")).1
    }

    /// Names and sums in the decoder's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[f32])> {
        self.buffers.iter().map(|(path, values)| (path.as_str(), values.as_slice()))
    }

    /// Names and sums in the decoder's order, to be rewritten (a sum over devices).
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut [f32])> {
        self.buffers.iter_mut().map(|(path, values)| (path.as_str(), values.as_mut_slice()))
    }

    /// Sets every entry to zero.
    pub fn reset(&mut self) {
        self.buffers.iter_mut().for_each(|(_, values)| values.fill(0.0));
    }
}

/// The published name of the parameter being visited.
#[derive(Default)]
struct Path(Vec<String>);

impl Path {
    /// The variant of an enum is no part of a name.
    fn enter(&mut self, name: &str, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.push(name.to_owned());
        }
    }

    fn exit(&mut self, container: &str) {
        if !container.starts_with("Enum:") {
            self.0.pop();
        }
    }

    /// An adapter's name is its projection's and its own: `model.layers.0.mlp.up_proj.lora_A`.
    fn name(&self) -> String {
        let name = self.0.join(".");
        match is_adapter(&name) {
            true => name.replace("_adapter.", "_proj.").replace(".adapter.", "."),
            false => name,
        }
    }
}

/// Keeps `self.path` on the parameter being visited, in a visitor or a mapper.
macro_rules! follow_path {
    () => {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.path.enter(name, container);
        }

        fn exit_module(&mut self, _: &str, container: &str) {
            self.path.exit(container);
        }
    };
}

fn is_adapter(name: &str) -> bool {
    name.ends_with(".lora_A") || name.ends_with(".lora_B")
}

struct Reader<'a> {
    path: Path,
    shows: fn(&str) -> bool,
    read: ReadParameter<'a>,
}

impl ModuleVisitor for Reader<'_> {
    follow_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let name = self.path.name();
        if (self.shows)(&name) {
            let tensor = param.val();
            let shape = tensor.dims();
            with_values(tensor, |values| (self.read)(&name, &shape, values));
        }
    }
}

/// Shows name, shape and type of every parameter, those of adapters included.
pub(crate) fn for_each_dtype(decoder: &Decoder, show: &mut dyn FnMut(&str, &[usize], DType)) {
    decoder.visit(&mut Types { path: Path::default(), show });
}

/// Casts every parameter to the type that its name and shape ask for.
pub(crate) fn change_types(decoder: Decoder, wanted: &dyn Fn(&str, &[usize]) -> DType) -> Decoder {
    decoder.map(&mut Caster { path: Path::default(), wanted })
}

struct Caster<'a> {
    path: Path,
    wanted: &'a dyn Fn(&str, &[usize]) -> DType,
}

impl ModuleMapper for Caster<'_> {
    follow_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let wanted = (self.wanted)(&self.path.name(), &param.dims());
        if param.dtype() == wanted {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let wants_gradient = tensor.is_require_grad();
        let is_tracked = tensor.device().is_autodiff();
        let inner = tensor.inner().cast(wanted);
        let tensor = match is_tracked {
            true => Tensor::from_inner(inner).set_require_grad(wants_gradient),
            false => inner,
        };
        Param::from_mapped_value(id, tensor, mapper)
    }
}

struct Types<'a> {
    path: Path,
    show: &'a mut dyn FnMut(&str, &[usize], DType),
}

impl ModuleVisitor for Types<'_> {
    follow_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        (self.show)(&self.path.name(), &param.dims(), param.dtype());
    }
}

struct Changer<'a> {
    path: Path,
    changes: fn(&str) -> bool,
    change: ChangeParameter<'a>,
}

impl ModuleMapper for Changer<'_> {
    follow_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !(self.changes)(&self.path.name()) {
            return param;
        }
        let (id, tensor, mapper) = param.consume();
        let (shape, device) = (tensor.dims(), tensor.device());
        let inner = match has_kernels(&device) {
            true => {
                let primitive = tensor.inner().try_into_primitive::<Flex>().expect("a tensor of the CPU");
                Tensor::<D>::from_primitive::<Flex>(self.change_in_place(primitive, &shape))
            }
            false => self.change_on_host(tensor.inner()),
        };
        let tensor = if device.is_autodiff() { Tensor::from_inner(inner).require_grad() } else { inner };
        Param::from_mapped_value(id, tensor, mapper)
    }
}

impl Changer<'_> {
    /// A tensor of a device is changed in a copy on the host and sent back.
    fn change_on_host<const D: usize>(&mut self, tensor: Tensor<D>) -> Tensor<D> {
        let (shape, device, dtype) = (tensor.dims(), tensor.device(), tensor.dtype());
        let mut values = on_host(tensor);
        (self.change)(&self.path.name(), &shape, &mut values);
        match dtype {
            DType::BF16 => Tensor::from_data(TensorData::new(narrowed(&values), shape), (&device, dtype)),
            _ => Tensor::from_data(TensorData::new(values, shape), (&device, dtype)),
        }
    }

    fn change_in_place(&mut self, mut primitive: FlexTensor, shape: &[usize]) -> FlexTensor {
        if primitive.dtype() == DType::BF16 {
            let mut values = widened(primitive.to_contiguous().storage::<bf16>());
            (self.change)(&self.path.name(), shape, &mut values);
            return FlexTensor::from_data(TensorData::new(narrowed(&values), shape.to_vec()));
        }
        // A view of another buffer becomes its own; the old handle must be gone before the buffer is taken.
        if primitive.as_slice::<f32>().is_none_or(|values| values.len() != primitive.storage::<f32>().len()) {
            primitive = primitive.to_contiguous();
        }
        (self.change)(&self.path.name(), shape, primitive.storage_mut::<f32>());
        primitive
    }
}

struct Accumulator<'a> {
    path: Path,
    counts: fn(&str) -> bool,
    next: usize,
    buffers: &'a mut [(String, Vec<f32>)],
    graph: &'a mut Graph,
}

impl ModuleVisitor for Accumulator<'_> {
    follow_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !(self.counts)(&self.path.name()) {
            return;
        }
        let (_, sum) = &mut self.buffers[self.next];
        self.next += 1;
        if let Some(gradient) = param.val().grad_remove(self.graph) {
            with_values(gradient, |values| kernels::add_assign(sum, values));
        }
    }
}

/// Calls `read` with a tensor's numbers in single precision, without a copy if they are, and on the CPU.
fn with_values<const D: usize>(tensor: Tensor<D>, read: impl FnOnce(&[f32])) {
    if !has_kernels(&tensor.device()) {
        return read(&on_host(tensor.inner()));
    }
    let primitive = tensor.inner().try_into_primitive::<Flex>().expect("a tensor of the CPU").to_contiguous();
    match primitive.as_slice::<bf16>() {
        Some(values) => read(&widened(values)),
        None => read(primitive.as_slice::<f32>().expect("parameters are in single precision or in bfloat16")),
    }
}

/// A copy of a device's numbers in single precision.
fn on_host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let single = if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(DType::F32) };
    single.into_data().try_into_vec::<f32>().expect("cast to single precision")
}
