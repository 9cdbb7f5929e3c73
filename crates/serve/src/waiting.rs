//! A client that waits, and how the work for it learns that it does no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use worldloom_world::engine::Patience;

/// Held by the request of a client. Once it is dropped, when the client has hung up, the work ends.
#[derive(Debug)]
pub(crate) struct Waiting {
    deadline: Instant,
    is_gone: Arc<AtomicBool>,
}

impl Waiting {
    /// From now on, for as long as a request may take.
    pub(crate) fn at_most(limit: Duration) -> Self {
        Self { deadline: Instant::now() + limit, is_gone: Arc::default() }
    }

    /// What the work is given of it.
    pub(crate) fn seen(&self) -> Seen {
        Seen { deadline: self.deadline, is_gone: self.is_gone.clone() }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_gone.store(true, Ordering::Relaxed);
    }
}

/// A [`Waiting`] as the work sees it.
#[derive(Debug)]
pub(crate) struct Seen {
    deadline: Instant,
    is_gone: Arc<AtomicBool>,
}

impl Seen {
    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { deadline: Some(self.deadline), is_gone: Some(&self.is_gone) }
    }
}
