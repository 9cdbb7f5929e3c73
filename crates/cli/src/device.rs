//! The one place that opens a device.

use burn::tensor::Device;

/// The device that everything runs on: the CPU.
pub(crate) fn open_device() -> Device {
    Device::flex()
}
