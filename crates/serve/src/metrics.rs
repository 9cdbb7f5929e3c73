//! Counts and times in the text format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use worldloom_world::engine::Counters;

/// Upper ends of the buckets, in seconds.
const BUCKETS: [f64; 12] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// What the server counts by itself.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// By route and status.
    requests: BTreeMap<(String, u16), u64>,
    duration: Histogram,
    first_token: Histogram,
    steps: u64,
    faults: u64,
}

#[derive(Debug, Default)]
struct Histogram {
    counts: [u64; BUCKETS.len()],
    total: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, time: Duration) {
        let seconds = time.as_secs_f64();
        for (count, bucket) in self.counts.iter_mut().zip(BUCKETS) {
            *count += u64::from(seconds <= bucket);
        }
        self.total += 1;
        self.sum += seconds;
    }
}

impl Metrics {
    fn with<T>(&self, work: impl FnOnce(&mut Inner) -> T) -> T {
        work(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A request that was answered; of a stream, its head.
    pub(crate) fn answered(&self, route: &str, status: u16, time: Duration) {
        self.with(|inner| {
            *inner.requests.entry((route.into(), status)).or_default() += 1;
            inner.duration.add(time);
        });
    }

    /// The first token of a request.
    pub(crate) fn began(&self, time: Duration) {
        self.with(|inner| inner.first_token.add(time));
    }

    /// A step of a simulated environment.
    pub(crate) fn stepped(&self, is_fault: bool) {
        self.with(|inner| {
            inner.steps += 1;
            inner.faults += u64::from(is_fault);
        });
    }

    /// All of it.
    pub(crate) fn text(&self, engine: &Counters, episodes: usize) -> String {
        let mut out = String::new();
        let mut family = |name: &str, kind: &str, help: &str| {
            let _ = writeln!(out, "# HELP worldloom_{name} {help}\n# TYPE worldloom_{name} {kind}");
        };
        family("requests_total", "counter", "Requests answered, by route and status");
        self.with(|inner| {
            for ((route, status), count) in &inner.requests {
                let _ = writeln!(out, "worldloom_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}");
            }
        });
        let one = |out: &mut String, name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                out,
                "# HELP worldloom_{name} {help}\n# TYPE worldloom_{name} {kind}\nworldloom_{name} {value}"
            );
        };
        let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let now = |gauge: &std::sync::atomic::AtomicUsize| gauge.load(Ordering::Relaxed) as u64;
        one(&mut out, "asks_total", "counter", "Prompts given to the engine", read(&engine.asks));
        one(&mut out, "asks_refused_total", "counter", "Prompts refused, the queue was full", read(&engine.refused));
        one(&mut out, "asks_abandoned_total", "counter", "Prompts whose asker went away", read(&engine.abandoned));
        one(&mut out, "sampled_tokens_total", "counter", "Tokens sampled", read(&engine.sampled_tokens));
        one(&mut out, "prompt_tokens_total", "counter", "Prompt positions computed", read(&engine.prompt_tokens));
        let reused = read(&engine.reused_tokens);
        one(&mut out, "prompt_tokens_reused_total", "counter", "Prompt positions taken from the prefix cache", reused);
        one(&mut out, "completions_active", "gauge", "Completions in work", now(&engine.active));
        one(&mut out, "asks_waiting", "gauge", "Prompts without a first token", now(&engine.waiting));
        one(&mut out, "episodes_open", "gauge", "Simulated episodes that are open", episodes as u64);
        self.with(|inner| {
            one(&mut out, "steps_total", "counter", "Steps of simulated environments", inner.steps);
            one(&mut out, "step_faults_total", "counter", "Steps without a usable prediction", inner.faults);
            let histograms = [
                ("request_seconds", "Time to the answer, of streams to their head", &inner.duration),
                ("first_token_seconds", "Time to the first token", &inner.first_token),
            ];
            for (name, help, histogram) in histograms {
                let _ = writeln!(out, "# HELP worldloom_{name} {help}\n# TYPE worldloom_{name} histogram");
                for (bucket, count) in BUCKETS.iter().zip(histogram.counts) {
                    let _ = writeln!(out, "worldloom_{name}_bucket{{le=\"{bucket}\"}} {count}");
                }
                let (total, sum) = (histogram.total, histogram.sum);
                let _ = writeln!(out, "worldloom_{name}_bucket{{le=\"+Inf\"}} {total}");
                let _ = writeln!(out, "worldloom_{name}_sum {sum}\nworldloom_{name}_count {total}");
            }
        });
        out
    }
}
