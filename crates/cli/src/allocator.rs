//! The program's allocator.
//!
//! Data steps give back what they free: what one plan held is not there beside what the next one takes. Training allocates
//! the same large buffers every step and keeps them: pages that come back from the system are cleared anew each time.

use std::sync::Once;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of the bundled mimalloc; -1: never give pages back.
const PURGE_DELAY: i32 = 15;

#[expect(unsafe_code, reason = "the allocator's option has no safe name in its crate")]
unsafe extern "C" {
    fn mi_option_set(option: i32, value: std::ffi::c_long);
}

/// From here on freed memory is kept.
pub(crate) fn keep_freed_memory() {
    static ONCE: Once = Once::new();
    #[expect(unsafe_code, reason = "a whole number that the allocator reads each time it frees pages")]
    ONCE.call_once(|| unsafe { mi_option_set(PURGE_DELAY, -1) });
}
