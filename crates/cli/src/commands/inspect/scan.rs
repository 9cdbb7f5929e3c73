//! Reads the data set in the background, so that the list fills while a person looks at it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use worldloom_report::data::{DataSet, Filter, Place};
use worldloom_schema::{Domain, Pool, Trajectory};

/// Characters of a task in the list.
const TASK_CHARS: usize = 200;
/// How often the list grows.
const BATCH_TIME: Duration = Duration::from_millis(50);

/// A trajectory in the list.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    pub(super) place: Place,
    pub(super) domain: Domain,
    pub(super) source: String,
    pub(super) pool: Option<Pool>,
    pub(super) task: String,
    pub(super) turns: usize,
}

impl Summary {
    pub(super) fn new(place: Place, trajectory: &Trajectory) -> Self {
        let words = trajectory.system.task_description.split_whitespace().collect::<Vec<_>>().join(" ");
        Self {
            place,
            domain: trajectory.domain,
            source: trajectory.source.clone(),
            pool: trajectory.pool,
            task: super::text::clean(&words).chars().take(TASK_CHARS).collect(),
            turns: trajectory.turns.len(),
        }
    }
}

/// What a scan tells.
pub(super) enum News {
    Found(Vec<Summary>),
    /// All was read.
    Done,
    Failed(String),
}

/// A running scan; dropped, it stops.
pub(super) struct Scan {
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
}

impl Scan {
    /// Starts reading what the filter lets through.
    pub(super) fn start(set: &DataSet, filter: &Filter) -> Self {
        let (send, news) = sync_channel(16);
        let stop = Arc::new(AtomicBool::new(false));
        let (set, filter, is_stopped) = (set.clone(), filter.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let (mut found, mut sent) = (Vec::new(), Instant::now());
            let result = set.visit(&Filter::default(), |place, trajectory| {
                if filter.lets_through(&trajectory) {
                    found.push(Summary::new(place, &trajectory));
                }
                let is_due = sent.elapsed() >= BATCH_TIME && !found.is_empty();
                let is_open = !is_due || send.send(News::Found(std::mem::take(&mut found))).is_ok();
                if is_due {
                    sent = Instant::now();
                }
                match is_open && !is_stopped.load(Ordering::Relaxed) {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            // A view that is gone hears nothing.
            let _ = send.send(News::Found(found)).and_then(|()| match result {
                Ok(_) => send.send(News::Done),
                Err(error) => send.send(News::Failed(error.to_string())),
            });
        });
        Self { news, stop }
    }

    /// What is new, if anything.
    pub(super) fn poll(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
