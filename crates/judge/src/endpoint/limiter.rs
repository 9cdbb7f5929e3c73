//! When a request may start: so many in a minute, so many tokens in a minute, and none while the server asks for a
//! pause.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

pub(super) struct Limiter {
    between_requests: Duration,
    seconds_per_token: f64,
    state: Mutex<State>,
}

struct State {
    next_request: Instant,
    next_token: Instant,
    paused_until: Instant,
}

impl Limiter {
    pub(super) fn new(requests_per_minute: Option<f64>, tokens_per_minute: Option<f64>) -> Self {
        let seconds = |per_minute: Option<f64>| per_minute.map_or(0.0, |limit| 60.0 / limit);
        let now = Instant::now();
        Self {
            between_requests: Duration::from_secs_f64(seconds(requests_per_minute)),
            seconds_per_token: seconds(tokens_per_minute),
            state: Mutex::new(State { next_request: now, next_token: now, paused_until: now }),
        }
    }

    /// Waits for a turn. False, at once, where it would come after `latest`.
    pub(super) async fn turn(&self, latest: Instant) -> bool {
        let Some(start) = self.with(|state| {
            let start = Instant::now().max(state.next_request).max(state.next_token).max(state.paused_until);
            (start <= latest).then(|| {
                state.next_request = start + self.between_requests;
                start
            })
        }) else {
            return false;
        };
        sleep_until(start).await;
        // Meanwhile the server may have asked for a pause.
        loop {
            let until = self.with(|state| state.paused_until);
            if until > latest {
                return false;
            }
            if until <= Instant::now() {
                return true;
            }
            sleep_until(until).await;
        }
    }

    /// Counts tokens that were used: later turns wait for them.
    pub(super) fn use_tokens(&self, tokens: u64) {
        let pause = Duration::from_secs_f64(tokens as f64 * self.seconds_per_token);
        self.with(|state| state.next_token = state.next_token.max(Instant::now()) + pause);
    }

    /// Nobody starts before `pause` has passed.
    pub(super) fn hold_back(&self, pause: Duration) {
        self.with(|state| state.paused_until = state.paused_until.max(Instant::now() + pause));
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
