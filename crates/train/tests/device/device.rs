//! Where this suite computes: the first device of wgpu, or of CUDA where `WORLDLOOM_TEST_DEVICE` is `cuda`.

use std::io::Write;

use burn::tensor::{Device, DeviceType};
use worldloom_model::Products;

/// Whether everything is computed, and not a part.
pub(crate) fn takes_all() -> bool {
    std::env::var("WORLDLOOM_DEVICE_TESTS").is_ok_and(|wanted| wanted == "all")
}

fn is_cuda() -> bool {
    std::env::var("WORLDLOOM_TEST_DEVICE").is_ok_and(|wanted| wanted == "cuda")
}

fn devices() -> Vec<Device> {
    #[cfg(feature = "cuda")]
    if is_cuda() {
        return Device::enumerate(DeviceType::Cuda).into_vec();
    }
    #[cfg(feature = "wgpu")]
    return Device::enumerate(DeviceType::Wgpu).into_vec();
    #[cfg(not(feature = "wgpu"))]
    Vec::new()
}

/// The device. Where there is none the suite ends here, in peace: it says so past the test harness, which would keep it.
pub(crate) fn device() -> Device {
    if let Some(device) = devices().into_iter().next() {
        return device;
    }
    std::io::stderr().write_all(b"skipped: there is no device here (for wgpu: no Vulkan driver)\n").unwrap();
    std::process::exit(0);
}

/// How exactly it multiplies.
pub(crate) fn products() -> Products {
    if is_cuda() { Products::TensorFloat } else { Products::Single }
}

/// Golden cases that are computed here.
pub(crate) fn is_taken(case: &str) -> bool {
    takes_all() || matches!(case, "qwen3-tied" | "qwen3_5-dense")
}

/// What a golden number may be off here, where the CPU's may be off by `on_cpu`.
pub(crate) fn tolerance(on_cpu: f32) -> f32 {
    match products() {
        Products::Single => on_cpu,
        Products::TensorFloat => on_cpu.max(2e-2),
    }
}
