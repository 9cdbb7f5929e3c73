//! Panics of a library that are answers like another: caught, and not told to the program's panic hook.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Whether a panic of this thread is caught and told by us.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// What the work gives, or what its panic says. The first call puts a hook before the one there is, which from then on is
/// told of all panics but those that are caught here.
pub(crate) fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_CAUGHT.try_with(Cell::get).unwrap_or(false) {
                before(panic);
            }
        }));
    });
    let is_within = IS_CAUGHT.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    IS_CAUGHT.set(is_within);
    result.map_err(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        said.unwrap_or("it panicked").to_string()
    })
}
