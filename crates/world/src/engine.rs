//! A model at work in a thread of its own, asked from any other: continuous batching behind a queue.
//!
//! An *ask* is a prompt with its group of completions. What comes of it is heard through a function that the engine
//! calls with each [`Delta`]; a [`Ticket`] dropped ends the ask, so that nobody computes for a client that is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use worldloom_model::generate::{Batch, End, Event, Request, Sampled, Ticket as BatchTicket};

use crate::error::{Error, Result};
use crate::model::WorldModel;
use crate::stream::TextStream;

/// How long an idle engine sleeps before it looks around.
const IDLE: Duration = Duration::from_millis(200);
/// How often one who waits looks whether the asker is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Bounds of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EngineConfig {
    /// Asks that wait for their first token, at most; more are refused as busy.
    pub max_waiting: usize,
    /// Positions of computed prompts that are kept for later prompts with the same beginning.
    pub prefix_tokens: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self { max_waiting: 1024, prefix_tokens: 1 << 16 }
    }
}

/// What is asked of the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Prompt, group, seed and sampling.
    pub request: Request,
    /// Alternatives that come with every token.
    pub num_most_probable: usize,
    /// Texts before which a completion ends.
    pub stop_texts: Vec<String>,
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct SampledToken {
    /// Its id.
    pub token: u32,
    /// Its log-prob.
    pub log_prob: f32,
    /// The most probable tokens at its place.
    pub most_probable: Vec<(u32, f32)>,
}

/// Why a completion ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// By itself.
    Stop,
    /// Before a stop text.
    StopText,
    /// By its length.
    Length,
    /// It could not go on.
    Failed(String),
}

/// What a step adds to a completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// Which completion of the group.
    pub completion: usize,
    /// Text that is sure now, without the stop token; may be empty.
    pub text: String,
    /// The token behind it; none where text came without one.
    pub token: Option<SampledToken>,
    /// Whether it is the last, and why.
    pub finish: Option<Finish>,
}

/// A whole completion.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completed {
    /// Its text.
    pub text: String,
    /// Its tokens, the stop token included.
    pub tokens: Vec<SampledToken>,
    /// Why it ended; none while it goes on.
    pub finish: Option<Finish>,
}

impl Completed {
    /// Adds what a step gave.
    pub fn add(&mut self, delta: Delta) {
        self.text.push_str(&delta.text);
        self.tokens.extend(delta.token);
        self.finish = delta.finish.or(self.finish.take());
    }

    /// Whether it ended by itself, which is what makes an answer whole.
    pub fn stopped(&self) -> bool {
        matches!(self.finish, Some(Finish::Stop | Finish::StopText))
    }
}

/// An ask in work. Dropping it ends the ask.
#[derive(Debug)]
pub struct Ticket {
    is_dropped: Arc<AtomicBool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.is_dropped.store(true, Ordering::Relaxed);
    }
}

/// How long an asker waits. By default for as long as it takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Patience<'a> {
    /// Until then.
    pub deadline: Option<Instant>,
    /// Until it is raised, by one who goes away.
    pub is_gone: Option<&'a AtomicBool>,
}

impl Patience<'_> {
    /// An error once it is over.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_gone.is_some_and(|is_gone| is_gone.load(Ordering::Relaxed)) {
            return Err(Error::GivenUp);
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Error::TimedOut);
        }
        Ok(())
    }

    /// How long may pass until the next [`Self::check`].
    fn pause(&self) -> Duration {
        let until = self.deadline.map_or(IDLE, |deadline| deadline.saturating_duration_since(Instant::now()));
        until.min(if self.is_gone.is_some() { LOOK_EVERY } else { IDLE })
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub struct Counters {
    /// Asks taken.
    pub asks: AtomicU64,
    /// Asks refused because too many waited.
    pub refused: AtomicU64,
    /// Asks whose asker went away before their end.
    pub abandoned: AtomicU64,
    /// Tokens sampled.
    pub sampled_tokens: AtomicU64,
    /// Prompt positions computed.
    pub prompt_tokens: AtomicU64,
    /// Prompt positions taken over from an earlier prompt.
    pub reused_tokens: AtomicU64,
    /// Completions in work.
    pub active: AtomicUsize,
    /// Asks that have no token yet.
    pub waiting: AtomicUsize,
}

type Hear = Box<dyn FnMut(Delta) + Send>;

struct Submission {
    ask: Ask,
    hear: Hear,
    is_dropped: Arc<AtomicBool>,
}

/// The running engine. Dropping it ends the thread after the step in work; asks that are not done are failed.
pub struct Engine {
    model: Arc<WorldModel>,
    config: EngineConfig,
    counters: Arc<Counters>,
    sender: Mutex<Option<Sender<Submission>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts the thread.
    pub fn start(model: Arc<WorldModel>, config: EngineConfig) -> Result<Self> {
        let (sender, receiver) = channel();
        let counters = Arc::new(Counters::default());
        let (for_thread, counted) = (model.clone(), counters.clone());
        let work = move || Work::new(&for_thread, &counted, config).run(&receiver);
        let thread = std::thread::Builder::new().name("engine".into()).spawn(work)?;
        Ok(Self { model, config, counters, sender: Mutex::new(Some(sender)), thread: Mutex::new(Some(thread)) })
    }

    /// The model.
    pub fn model(&self) -> &Arc<WorldModel> {
        &self.model
    }

    /// The counts.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether its thread is there: it ends with the engine, and with a defect of ours.
    pub fn is_running(&self) -> bool {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Takes an ask; `hear` is called from the engine's thread, in order, and should only hand on.
    pub fn submit(&self, ask: Ask, hear: impl FnMut(Delta) + Send + 'static) -> Result<Ticket> {
        self.model.generator().check(&ask.request)?;
        let is_dropped = Arc::new(AtomicBool::new(false));
        if ask.request.num_completions == 0 {
            return Ok(Ticket { is_dropped });
        }
        let waiting = &self.counters.waiting;
        if waiting.fetch_add(1, Ordering::Relaxed) >= self.config.max_waiting {
            waiting.fetch_sub(1, Ordering::Relaxed);
            self.counters.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Busy { waiting: self.config.max_waiting });
        }
        let submission = Submission { ask, hear: Box::new(hear), is_dropped: is_dropped.clone() };
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if sender.as_ref().is_none_or(|sender| sender.send(submission).is_err()) {
            waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::EngineStopped);
        }
        self.counters.asks.fetch_add(1, Ordering::Relaxed);
        Ok(Ticket { is_dropped })
    }

    /// Asks and waits for all completions. One that breaks off is an error: what there is of it is no answer.
    pub fn complete(&self, ask: Ask) -> Result<Vec<Completed>> {
        self.complete_until(ask, Patience::default())
    }

    /// As [`Self::complete`], for an asker whose patience ends; the ask ends with it.
    pub fn complete_until(&self, ask: Ask, patience: Patience<'_>) -> Result<Vec<Completed>> {
        let (sender, receiver) = channel();
        let mut completions = vec![Completed::default(); ask.request.num_completions];
        let mut left = completions.len();
        patience.check()?;
        let _ticket = self.submit(ask, move |delta| _ = sender.send(delta))?;
        while left > 0 {
            let delta = match receiver.recv_timeout(patience.pause()) {
                Ok(delta) => delta,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::EngineStopped),
                Err(RecvTimeoutError::Timeout) => {
                    patience.check()?;
                    continue;
                }
            };
            if let Some(Finish::Failed(detail)) = delta.finish {
                return Err(Error::Completion { detail });
            }
            left -= usize::from(delta.finish.is_some());
            completions[delta.completion].add(delta);
            if left > 0 {
                patience.check()?;
            }
        }
        Ok(completions)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.sender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

/// An ask in the batch.
struct InWork {
    hear: Hear,
    is_dropped: Arc<AtomicBool>,
    has_begun: bool,
    streams: Vec<Option<TextStream>>,
}

struct Work<'m> {
    model: &'m WorldModel,
    counters: &'m Counters,
    batch: Batch<'m>,
    asks: HashMap<BatchTicket, InWork>,
}

impl<'m> Work<'m> {
    fn new(model: &'m WorldModel, counters: &'m Counters, config: EngineConfig) -> Self {
        Self { model, counters, batch: model.generator().batch(config.prefix_tokens), asks: HashMap::new() }
    }

    /// Until the engine is dropped.
    fn run(mut self, submissions: &Receiver<Submission>) {
        loop {
            if self.batch.is_idle() {
                match submissions.recv_timeout(IDLE) {
                    Ok(submission) => self.take(submission),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
            loop {
                match submissions.try_recv() {
                    Ok(submission) => self.take(submission),
                    Err(std::sync::mpsc::TryRecvError::Empty) => break,
                    Err(std::sync::mpsc::TryRecvError::Disconnected) => return self.end(),
                }
            }
            self.drop_abandoned();
            if !self.batch.is_idle() {
                for event in self.batch.step() {
                    self.tell(event);
                }
            }
            let (computed, reused) = self.batch.prompt_tokens();
            self.counters.prompt_tokens.store(computed, Ordering::Relaxed);
            self.counters.reused_tokens.store(reused, Ordering::Relaxed);
            self.counters.active.store(self.batch.num_active(), Ordering::Relaxed);
        }
        self.end();
    }

    /// Nobody asks any more: what is not done is failed.
    fn end(mut self) {
        for ask in self.asks.values_mut() {
            for completion in 0..ask.streams.len() {
                if ask.streams[completion].take().is_some() {
                    let finish = Some(Finish::Failed("the server is stopping".into()));
                    (ask.hear)(Delta { completion, text: String::new(), token: None, finish });
                }
            }
        }
    }

    fn take(&mut self, submission: Submission) {
        let Submission { ask: Ask { request, num_most_probable, stop_texts }, mut hear, is_dropped } = submission;
        let num_completions = request.num_completions;
        match self.batch.submit(request, num_most_probable) {
            Ok(ticket) => {
                let tokenizer = self.model.renderer().tokenizer();
                let stream = |_| Some(TextStream::new(tokenizer.clone(), stop_texts.clone()));
                let streams = (0..num_completions).map(stream).collect();
                self.asks.insert(ticket, InWork { hear, is_dropped, has_begun: false, streams });
            }
            Err(error) => {
                self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
                for completion in 0..num_completions {
                    let finish = Some(Finish::Failed(error.to_string()));
                    hear(Delta { completion, text: String::new(), token: None, finish });
                }
            }
        }
    }

    fn drop_abandoned(&mut self) {
        let (batch, counters) = (&mut self.batch, self.counters);
        self.asks.retain(|ticket, ask| {
            let is_dropped = ask.is_dropped.load(Ordering::Relaxed);
            if is_dropped {
                batch.cancel(*ticket);
                counters.abandoned.fetch_add(1, Ordering::Relaxed);
                if !ask.has_begun {
                    counters.waiting.fetch_sub(1, Ordering::Relaxed);
                }
            }
            !is_dropped
        });
    }

    fn tell(&mut self, event: Event) {
        let ticket = match &event {
            Event::Token(sampled) => sampled.request,
            Event::Failed { request, .. } => *request,
        };
        let Some(ask) = self.asks.get_mut(&ticket) else { return };
        if !std::mem::replace(&mut ask.has_begun, true) {
            self.counters.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        let delta = match event {
            Event::Failed { completion, error, .. } => {
                ask.streams[completion] = None;
                let finish = Some(Finish::Failed(error.to_string()));
                Delta { completion, text: String::new(), token: None, finish }
            }
            Event::Token(sampled) => {
                self.counters.sampled_tokens.fetch_add(1, Ordering::Relaxed);
                let Some(delta) = delta_of(ask, sampled) else { return };
                if delta.finish == Some(Finish::StopText) {
                    self.batch.cancel_completion(ticket, delta.completion);
                }
                delta
            }
        };
        (ask.hear)(delta);
        if ask.streams.iter().all(Option::is_none) {
            self.asks.remove(&ticket);
        }
    }
}

/// The text of a token; none where its completion is over already.
fn delta_of(ask: &mut InWork, sampled: Sampled) -> Option<Delta> {
    let Sampled { completion, token, log_prob, most_probable, end, .. } = sampled;
    let stream = ask.streams[completion].as_mut()?;
    let pushed = if end == Some(End::Stop) { Ok(String::new()) } else { stream.push(token) };
    let text = pushed.and_then(|text| if end.is_some() { Ok(text + &stream.finish()?) } else { Ok(text) });
    let (text, finish) = match text {
        Err(error) => (String::new(), Some(Finish::Failed(error.to_string()))),
        Ok(text) if stream.is_stopped() => (text, Some(Finish::StopText)),
        Ok(text) => (
            text,
            end.map(|end| match end {
                End::Stop => Finish::Stop,
                End::Length => Finish::Length,
            }),
        ),
    };
    if finish.is_some() {
        ask.streams[completion] = None;
    }
    Some(Delta { completion, text, token: Some(SampledToken { token, log_prob, most_probable }), finish })
}
