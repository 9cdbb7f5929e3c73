//! Result buffers that are not cleared before they are written.

/// A vector of `len` values that `fill` writes.
///
/// `fill` must write every element before it reads it: clearing first would cost a pass over memory per result. Only
/// kernels of this crate call it.
pub(crate) fn filled(len: usize, fill: impl FnOnce(&mut [f32])) -> Vec<f32> {
    let mut values = uninitialised(len);
    fill(&mut values);
    values
}

/// A vector of `len` unspecified values, for scratch space and results that are written in full.
#[expect(clippy::uninit_vec, reason = "callers write every element before reading it; any bits are a valid number")]
pub(crate) fn uninitialised<T: bytemuck::Pod>(len: usize) -> Vec<T> {
    let mut values = Vec::with_capacity(len);
    // SAFETY: the capacity is there, a `Pod` has no invalid bit patterns and no destructor, and every caller writes each
    // element before reading it.
    unsafe { values.set_len(len) };
    values
}
