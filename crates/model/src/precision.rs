//! The type that a decoder holds its matrices in, the border where types must agree, and how exact devices are.
//!
//! The policy, on every device:
//!
//! | what | type |
//! |---|---|
//! | weights that are trained, moments, gradient sums | float32, on the host; updates are made there in a fixed order |
//! | matrices that compute | float32, or bfloat16 where `precision` asks for it and the device can hold it |
//! | activations, softmaxes, norms, sums | float32 |
//! | products | float32; on CUDA in TensorFloat-32, which burn does not ask about ([`Products`]) |
//! | gradients of matrices in bfloat16 | float32 on the CPU; on other devices rounded to bfloat16 by burn's graph before they are summed |
//!
//! Activations, sums, norms, biases, convolutions, routers, decays, rotary tables, softmaxes and adapters are in single
//! precision always. The matrices, which are nearly all of a model, may be held in bfloat16: half the memory. A product
//! reads them exactly and adds up in single precision, so that a checkpoint published in bfloat16 gives the same numbers
//! either way.

use crate::parameters::{change_types, for_each_dtype};
use crate::{Decoder, Error};
use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

/// Parts of the names of matrices that are in single precision always.
const IN_SINGLE: [&str; 5] = [".lora_A", ".lora_B", ".conv1d.", ".mlp.gate.", ".shared_expert_gate."];

/// What the matrices of a decoder are held in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Brain floating point of 16 bits.
    BF16,
}

impl Precision {
    /// The name in configs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::BF16 => "bf16",
        }
    }

    /// Whether it is single precision.
    pub fn is_single(&self) -> bool {
        *self == Precision::F32
    }

    /// Bytes of a number of a matrix.
    pub fn size(self) -> usize {
        self.dtype().size()
    }

    /// Refuses a precision that the device cannot hold and convert.
    pub fn check(self, device: &Device) -> Result<(), Error> {
        match device.supports_dtype(self.dtype()) {
            true => Ok(()),
            false => Err(Error::Precision { precision: self.name(), device: format!("{device:?}") }),
        }
    }

    /// The type of a parameter of this published name and shape.
    pub(crate) fn of(self, name: &str, shape: &[usize]) -> DType {
        let is_single = shape.len() == 1 || IN_SINGLE.iter().any(|part| name.contains(part));
        if is_single { DType::F32 } else { self.dtype() }
    }

    fn dtype(self) -> DType {
        match self {
            Precision::F32 => DType::F32,
            Precision::BF16 => DType::BF16,
        }
    }
}

/// How exactly a device multiplies numbers of single precision, which decides what its results may be apart from the
/// reference's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// As they are; sums are added in another order.
    Single,
    /// Rounded to 10 bits after the point before they are multiplied (TensorFloat-32, on NVIDIA's tensor cores).
    TensorFloat,
}

impl Products {
    /// Largest error that passes in a self-test, in units of the largest number of the reference, or of 1.
    pub fn bound(self) -> f32 {
        match self {
            Products::Single => 2e-5,
            Products::TensorFloat => 5e-3,
        }
    }
}

impl Decoder {
    /// What the matrices are held in.
    pub fn precision(&self) -> Precision {
        match self.model.embed_tokens.weight.dtype() {
            DType::BF16 => Precision::BF16,
            _ => Precision::F32,
        }
    }

    /// The same decoder with its matrices held in `precision`: rounded to the nearest where that has fewer bits.
    pub fn held_in(self, precision: Precision) -> Decoder {
        change_types(self, &|name, shape| precision.of(name, shape))
    }

    /// Refuses parameters of another type than they have by [`Decoder::precision`]: nothing computes with them.
    pub fn check_dtypes(&self) -> Result<(), Error> {
        let precision = self.precision();
        let mut wrong = None;
        for_each_dtype(self, &mut |name, shape, found| {
            let expected = precision.of(name, shape);
            if found != expected && wrong.is_none() {
                let (found, expected) = (format!("{found:?}"), format!("{expected:?}"));
                wrong = Some(Error::DType { parameter: name.to_owned(), found, expected });
            }
        });
        wrong.map_or(Ok(()), Err)
    }
}
