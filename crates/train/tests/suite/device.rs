//! Where this suite computes: the CPU.

use burn::tensor::Device;

/// The device.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// What a golden number may be off here.
pub(crate) fn tolerance(on_cpu: f32) -> f32 {
    on_cpu
}
