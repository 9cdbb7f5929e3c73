//! Ctrl-C and SIGTERM, and who listens to them.
//!
//! Work that can save *listens*: the first signal asks it to stop, a second one ends the process. While nothing listens, the
//! first signal ends the process at once: steps publish their folder when they are done, so that nothing half made is left
//! where somebody would take it for whole. The exit code is the shell's for the signal: 130 or 143.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Whether the next signal ends the process.
static ENDS: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| Arc::new(AtomicBool::new(true)));

/// What signals have asked for.
pub(crate) struct Signals {
    /// To stop.
    pub(crate) stop: Arc<AtomicBool>,
    code: Arc<AtomicUsize>,
}

impl Signals {
    /// From now on signals are caught.
    pub(crate) fn catch() -> Self {
        let signals = Self { stop: Arc::default(), code: Arc::new(AtomicUsize::new(128 + SIGINT as usize)) };
        for signal in [SIGINT, SIGTERM] {
            let code = 128 + signal;
            // In this order: the signal that raises the flags is not yet the one that they end.
            let caught = flag::register_conditional_shutdown(signal, code, Arc::clone(&ENDS))
                .and(flag::register_usize(signal, Arc::clone(&signals.code), code as usize))
                .and(flag::register(signal, Arc::clone(&ENDS)))
                .and(flag::register(signal, Arc::clone(&signals.stop)));
            if caught.is_err() {
                tracing::warn!(signal, "cannot listen for the signal");
            }
        }
        signals
    }

    /// The exit code of work that stopped because it was asked to.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        self.stop.load(Ordering::Relaxed).then(|| self.code.load(Ordering::Relaxed) as u8)
    }
}

/// Work looks at the flag and saves, until this is dropped.
pub(crate) struct Listening;

/// The first signal from here on only raises the flag.
pub(crate) fn listen() -> Listening {
    ENDS.store(false, Ordering::Relaxed);
    Listening
}

impl Drop for Listening {
    fn drop(&mut self) {
        ENDS.store(true, Ordering::Relaxed);
    }
}
