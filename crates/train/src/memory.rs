//! What a run takes of the machine's memory: counted beforehand, and as the system has it.

use burn::tensor::Device;
use serde::Serialize;
use worldloom_model::TrainingMemory;

/// What a run is expected to take, and takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Counted from the model's shape.
    pub estimate: TrainingMemory,
    /// Tokens of the largest micro-batch, padding included.
    pub tokens: u64,
    /// Resident bytes of the process after the discarded pass, where the system says; none before it. What was freed stays
    /// with the program, so that this is the peak so far.
    pub resident: Option<u64>,
}

/// Resident bytes of this process, where the system says.
pub(crate) fn resident_bytes() -> Option<u64> {
    const PAGE: u64 = 4096;
    let text = fs_err::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// Bytes that burn's pool holds on the device, where it has one.
pub(crate) fn device_bytes(device: &Device) -> Option<u64> {
    device.memory_pool_usage().map(|usage| usage.bytes_reserved)
}
