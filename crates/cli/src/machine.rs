//! What this machine is and what is free on it, where the system says.

use std::path::Path;

use anyhow::{Context, Result};

/// Memory that the system has.
pub(crate) fn total_bytes() -> Option<u64> {
    memory("MemTotal:")
}

/// Memory that the system could give.
pub(crate) fn available_bytes() -> Option<u64> {
    memory("MemAvailable:")
}

fn memory(name: &str) -> Option<u64> {
    let text = fs_err::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}

/// Bytes that may still be written where a folder lies.
pub(crate) fn free_bytes(folder: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(folder).with_context(|| format!("`{}`", folder.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The processor's name.
pub(crate) fn processor() -> Option<String> {
    let text = fs_err::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

/// Instruction sets that the kernels care for, and whether the processor has them.
#[cfg(target_arch = "x86_64")]
pub(crate) fn instruction_sets() -> Vec<(&'static str, bool)> {
    use std::arch::is_x86_feature_detected as has;
    vec![
        ("avx2", has!("avx2")),
        ("fma", has!("fma")),
        ("avx512f", has!("avx512f")),
        ("avx512_bf16", has!("avx512bf16")),
    ]
}

/// Instruction sets that the kernels care for, and whether the processor has them.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn instruction_sets() -> Vec<(&'static str, bool)> {
    Vec::new()
}
