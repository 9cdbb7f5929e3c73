//! Numbers as bytes of a file, little-endian: single precision, bfloat16 and half precision.

use half::{bf16, f16};
use safetensors::Dtype;

/// How numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveDType {
    /// Single precision: exact.
    F32,
    /// Rounded to bfloat16, to nearest, ties to even.
    BF16,
    /// Rounded to half precision, to nearest, ties to even; numbers beyond 65,504 are refused.
    F16,
}

impl SaveDType {
    /// The name in a `config.json`.
    pub fn name(self) -> &'static str {
        match self {
            SaveDType::F32 => "float32",
            SaveDType::BF16 => "bfloat16",
            SaveDType::F16 => "float16",
        }
    }

    /// The number that is read back.
    pub fn round(self, value: f32) -> f32 {
        match self {
            SaveDType::F32 => value,
            SaveDType::BF16 => bf16::from_f32(value).to_f32(),
            SaveDType::F16 => f16::from_f32(value).to_f32(),
        }
    }

    /// Bytes of a number.
    pub fn size(self) -> usize {
        size_of(self.stored())
    }

    pub(super) fn stored(self) -> Dtype {
        match self {
            SaveDType::F32 => Dtype::F32,
            SaveDType::BF16 => Dtype::BF16,
            SaveDType::F16 => Dtype::F16,
        }
    }

    /// Appends the bytes of `values`, or answers the first that is finite and would not be.
    pub(super) fn extend(self, bytes: &mut Vec<u8>, values: &[f32]) -> Result<(), f32> {
        if let Some(&lost) = values.iter().find(|value| value.is_finite() && !self.round(**value).is_finite()) {
            return Err(lost);
        }
        match self {
            SaveDType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            SaveDType::BF16 => bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes())),
            SaveDType::F16 => bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes())),
        }
        Ok(())
    }
}

/// Whether weights may be stored this way.
pub(super) fn is_read(dtype: Dtype) -> bool {
    matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16)
}

/// Bytes of a number that [`is_read`].
pub(super) fn size_of(dtype: Dtype) -> usize {
    if dtype == Dtype::F32 { 4 } else { 2 }
}

/// Appends numbers in single precision, which holds every one of them.
pub(super) fn extend(values: &mut Vec<f32>, dtype: Dtype, bytes: &[u8]) {
    let halves = bytes.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
    match dtype {
        Dtype::F32 => {
            values.extend(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])));
        }
        Dtype::BF16 => values.extend(halves.map(|pair| bf16::from_le_bytes(pair).to_f32())),
        Dtype::F16 => values.extend(halves.map(|pair| f16::from_le_bytes(pair).to_f32())),
        other => unreachable!("{other:?} is refused before it is read"),
    }
}
