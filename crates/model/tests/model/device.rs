//! Where this suite computes: the CPU.

use burn::tensor::Device;

/// The device.
pub(crate) fn device() -> Device {
    Device::flex()
}

/// Whether a golden case is computed here: all are.
pub(crate) fn is_taken(_: &str) -> bool {
    true
}

/// What a golden number may be off here.
pub(crate) fn tolerance(on_cpu: f32) -> f32 {
    on_cpu
}
