//! CPU kernels on slices: safe functions with fixed order of additions.
