//! What must hold across crates.
