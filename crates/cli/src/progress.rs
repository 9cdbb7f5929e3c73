//! Progress for people: a bar on a terminal, a line now and then elsewhere. Everything goes to stderr.

use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Progress of one step.
pub(crate) struct Progress {
    label: String,
    /// Whether another process of the job speaks.
    is_silent: bool,
    bar: Option<ProgressBar>,
    last: Mutex<Instant>,
    started: Instant,
    /// When the first word came and what was done then, perhaps by a process before: the pace is that of what came after.
    first: OnceLock<(Instant, u64)>,
}

const LINE_EVERY: Duration = Duration::from_secs(10);

impl Progress {
    pub(crate) fn new(label: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{msg:12} {bar:32} {pos}/{len} {per_sec} left {eta} {prefix}");
            let bar = ProgressBar::no_length();
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_message(label.to_string());
            bar
        });
        let now = Instant::now();
        let (is_silent, first) = (false, OnceLock::new());
        Self { label: label.into(), is_silent, bar, last: Mutex::new(now), started: now, first }
    }

    /// Of a process that leaves speaking to another one.
    pub(crate) fn silent(label: &str) -> Self {
        let mut progress = Self::new(label);
        (progress.is_silent, progress.bar) = (true, None);
        progress
    }

    /// The step's name.
    pub(crate) fn label(&self) -> &str {
        &self.label
    }

    /// Reports `done` of `total`.
    pub(crate) fn update(&self, done: u64, total: u64) {
        self.update_with(done, total, String::new);
    }

    /// Reports `done` of `total` with a note, such as the loss.
    pub(crate) fn update_with(&self, done: u64, total: u64, note: impl FnOnce() -> String) {
        if self.is_silent {
            return;
        }
        let (since, before) = *self.first.get_or_init(|| (Instant::now(), done));
        if let Some(bar) = &self.bar {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_prefix(note());
            return;
        }
        let Ok(mut last) = self.last.lock() else { return };
        if last.elapsed() >= LINE_EVERY || (done == total && self.started.elapsed() >= LINE_EVERY) {
            *last = Instant::now();
            let left = time_left(since.elapsed(), done.saturating_sub(before), total.saturating_sub(done));
            eprintln!("  {} {done}/{total}{left} {}", self.label, note());
        }
    }

    /// Says something of several lines, above the bar where there is one.
    pub(crate) fn say(&self, text: &str) {
        match &self.bar {
            _ if self.is_silent => {}
            Some(bar) => bar.suspend(|| eprint!("{text}")),
            None => eprint!("{text}"),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What `remaining` will take at the pace of what was done in a time; nothing where nothing was.
fn time_left(elapsed: Duration, done: u64, remaining: u64) -> String {
    match done {
        0 => String::new(),
        done => format!(", about {} left", duration(elapsed.as_secs_f64() / done as f64 * remaining as f64)),
    }
}

/// Seconds as a person writes them.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 10.0 => format!("{s:.1} s"),
        s if s < 100.0 => format!("{s:.0} s"),
        s => format!("{} min {:02} s", (s / 60.0) as u64, (s % 60.0) as u64),
    }
}

/// Bytes as a person writes them.
pub(crate) fn size(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        b if b < 1024.0 * 1024.0 => format!("{:.1} KiB", b / 1024.0),
        b if b < 1024.0 * 1024.0 * 1024.0 => format!("{:.1} MiB", b / (1024.0 * 1024.0)),
        b => format!("{:.2} GiB", b / (1024.0 * 1024.0 * 1024.0)),
    }
}

/// 1234567 as 1,234,567.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let with_commas = digits.char_indices().flat_map(|(at, digit)| {
        let comma = (at > 0 && (digits.len() - at).is_multiple_of(3)).then_some(',');
        comma.into_iter().chain([digit])
    });
    with_commas.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_of_what_was_done_since_the_first_word() {
        assert_eq!(time_left(Duration::from_secs(9), 0, 70), "");
        assert_eq!(time_left(Duration::from_secs(20), 10, 70), ", about 2 min 20 s left");
    }

    #[test]
    fn numbers_and_sizes_read_as_people_write_them() {
        assert_eq!([0, 999, 1000, 134_515_008].map(grouped), ["0", "999", "1,000", "134,515,008"]);
        assert_eq!([512, 3 << 20, 5 << 29].map(size), ["0.5 KiB", "3.0 MiB", "2.50 GiB"]);
    }
}
