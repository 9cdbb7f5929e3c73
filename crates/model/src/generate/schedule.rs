//! Continuous batching: waiting completions enter as active ones finish, and all active ones advance together.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use worldloom_kernels::decode::{KeyValueCache, View};

use super::delta_net::RecurrentState;
use super::forward::{Caches, Workspace, decode};
use super::prefix::{Prompt, Prompts};
use super::sampling::{choose_token, most_probable, stream};
use super::weights::Weights;
use super::{Completion, Error, Limits, Request};

/// Fewer rows per thread than this are better shared: each thread then reads a part of the weights, not all of them.
const MIN_ROWS_PER_CHUNK: usize = 12;

/// Generates all completions of all requests.
pub(super) fn run(
    weights: &Weights,
    limits: Limits,
    requests: &[Request],
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Vec<Vec<Completion>>, Error> {
    for (place, request) in requests.iter().enumerate() {
        check(weights, limits, place, request)?;
    }
    let mut completions: Vec<Vec<Completion>> =
        requests.iter().map(|request| vec![Completion::default(); request.num_completions]).collect();
    let total = completions.iter().map(Vec::len).sum();
    let mut batch = Batch::new(weights, limits, 0);
    for request in requests {
        batch.submit(request.clone(), 0)?;
    }
    let mut num_finished = 0;
    while num_finished < total {
        let before = num_finished;
        for event in batch.step() {
            let Event::Token(sampled) = event else {
                let Event::Failed { error, .. } = event else { continue };
                return Err(error);
            };
            let completion = &mut completions[sampled.request.0][sampled.completion];
            completion.tokens.push(sampled.token);
            completion.log_probs.push(sampled.log_prob);
            completion.stopped = sampled.end == Some(End::Stop);
            num_finished += usize::from(sampled.end.is_some());
        }
        if num_finished > before {
            progress(num_finished, total);
        }
    }
    Ok(completions)
}

pub(super) fn check(
    weights: &Weights,
    limits: Limits,
    request: usize,
    Request { prompt, sampling, .. }: &Request,
) -> Result<(), Error> {
    if limits.max_active_sequences == 0 {
        return Err(Error::NoActiveSequences);
    }
    let (vocab_size, positions) = (weights.config.vocab_size, weights.config.max_position_embeddings);
    let max_new_tokens = sampling.max_new_tokens;
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt { request });
    }
    if max_new_tokens == 0 {
        return Err(Error::NoNewTokens { request });
    }
    if prompt.len().saturating_add(max_new_tokens) > positions {
        return Err(Error::TooLong { request, prompt: prompt.len(), max_new_tokens, positions });
    }
    if let Some(position) = prompt.iter().position(|token| *token as usize >= vocab_size) {
        return Err(Error::UnknownToken { request, position, token: prompt[position], vocab_size });
    }
    sampling.check(request)?;
    let needed = positions_of(weights, prompt.len()) + positions_of(weights, max_new_tokens);
    if needed > limits.max_cache_tokens {
        return Err(Error::CacheLimit { request, needed, limit: limits.max_cache_tokens });
    }
    Ok(())
}

/// Positions that a prompt or a completion of so many tokens counts for: each has states of its own beside them.
pub(super) fn positions_of(weights: &Weights, tokens: usize) -> usize {
    tokens.saturating_add(weights.state_positions())
}

/// A request in a batch; they are numbered from 0 in the order of their submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub usize);

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A stop token.
    Stop,
    /// Its length.
    Length,
}

/// A token of a completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Of which request.
    pub request: Ticket,
    /// Which completion of its group.
    pub completion: usize,
    /// The token.
    pub token: u32,
    /// As in [`Completion::log_probs`].
    pub log_prob: f32,
    /// The most probable tokens with their log-probs, as many as were asked for.
    pub most_probable: Vec<(u32, f32)>,
    /// Whether it is the last one, and why.
    pub end: Option<End>,
}

/// What a step of a batch says.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A completion is a token longer.
    Token(Sampled),
    /// A completion cannot go on; the others of its group can.
    Failed {
        /// Of which request.
        request: Ticket,
        /// Which completion of its group.
        completion: usize,
        /// Why.
        error: Error,
    },
}

/// Completions in work, to which requests are added at any time: what a server runs.
///
/// A completion is the same whatever else is in the batch, and the same as [`Generator::generate`](super::Generator::generate)
/// gives.
pub struct Batch<'g> {
    weights: &'g Weights,
    limits: Limits,
    waiting: VecDeque<Waiting>,
    active: Vec<Sequence>,
    workspaces: Vec<Workspace>,
    prompts: Prompts,
    submitted: usize,
}

/// A request not all of whose completions have begun.
struct Waiting {
    ticket: Ticket,
    source: Arc<Request>,
    num_most_probable: usize,
    next_index: usize,
    /// Once the first has begun.
    prompt: Option<Arc<Prompt>>,
}

impl<'g> Batch<'g> {
    /// An empty batch that remembers `prefix_tokens` positions of prompts it computed.
    pub(super) fn new(weights: &'g Weights, limits: Limits, prefix_tokens: usize) -> Self {
        Batch {
            weights,
            limits,
            waiting: VecDeque::new(),
            active: Vec::new(),
            workspaces: Vec::new(),
            prompts: Prompts::new(prefix_tokens),
            submitted: 0,
        }
    }

    /// Adds a request behind those that wait; each token of it comes with its `num_most_probable` alternatives.
    pub fn submit(&mut self, request: Request, num_most_probable: usize) -> Result<Ticket, Error> {
        check(self.weights, self.limits, self.submitted, &request)?;
        let ticket = Ticket(self.submitted);
        self.submitted += 1;
        if request.num_completions > 0 {
            let source = Arc::new(request);
            self.waiting.push_back(Waiting { ticket, source, num_most_probable, next_index: 0, prompt: None });
        }
        Ok(ticket)
    }

    /// Ends a request: what of it waits or is in work is dropped, and its place is free.
    pub fn cancel(&mut self, ticket: Ticket) {
        self.waiting.retain(|waiting| waiting.ticket != ticket);
        self.active.retain(|sequence| sequence.ticket != ticket);
    }

    /// Ends one completion of a request.
    pub fn cancel_completion(&mut self, ticket: Ticket, completion: usize) {
        self.active.retain(|sequence| sequence.ticket != ticket || sequence.index != completion);
    }

    /// Whether there is nothing to do.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.active.is_empty()
    }

    /// Completions in work.
    pub fn num_active(&self) -> usize {
        self.active.len()
    }

    /// Completions that have not begun.
    pub fn num_waiting(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.source.num_completions - waiting.next_index).sum()
    }

    /// Positions of prompts that were computed, and that were taken over from earlier prompts.
    pub fn prompt_tokens(&self) -> (u64, u64) {
        (self.prompts.computed, self.prompts.reused)
    }

    /// Lets waiting completions enter and all active ones advance by a token.
    pub fn step(&mut self) -> Vec<Event> {
        let mut events = self.admit();
        events.extend(advance(self.weights, &mut self.active, &mut self.workspaces));
        self.active.retain(|sequence| !sequence.is_over);
        events
    }

    /// Begins waiting completions as far as the limits allow and samples their first tokens.
    fn admit(&mut self) -> Vec<Event> {
        let entrants = self.choose();
        let mut groups: Vec<Vec<Entrant>> = Vec::new();
        for entrant in entrants {
            match groups.last_mut() {
                Some(group) if group[0].ticket == entrant.ticket => group.push(entrant),
                _ => groups.push(vec![entrant]),
            }
        }
        let (weights, prompts) = (self.weights, &self.prompts);
        let found: Vec<(Arc<Prompt>, usize)> = groups
            .par_iter()
            .map_init(Workspace::default, |workspace, group| {
                let Entrant { source, prompt, .. } = &group[0];
                match prompt {
                    Some(prompt) => (prompt.clone(), usize::MAX),
                    None => prompts.make(weights, &source.prompt, workspace),
                }
            })
            .collect();
        for (prompt, reused) in &found {
            if *reused != usize::MAX {
                self.prompts.keep(weights, prompt, *reused);
            }
        }
        if let (Some(group), Some((prompt, _)), Some(waiting)) = (groups.last(), found.last(), self.waiting.front_mut())
            && group[0].ticket == waiting.ticket
        {
            waiting.prompt = Some(prompt.clone());
        }
        let mut events = Vec::new();
        for (group, (prompt, _)) in groups.into_iter().zip(found) {
            for entrant in group {
                let (sequence, event) = begin(weights, entrant, prompt.clone());
                events.push(event);
                self.active.push(sequence);
            }
        }
        events
    }

    /// The completions that fit beside the active ones, in their order.
    fn choose(&mut self) -> Vec<Entrant> {
        let weights = self.weights;
        let of_completion = |source: &Request| positions_of(weights, source.sampling.max_new_tokens);
        let mut reserved: usize = self.active.iter().map(|sequence| of_completion(&sequence.source)).sum();
        let mut previous = None;
        for sequence in &self.active {
            if previous.replace(sequence.ticket) != Some(sequence.ticket) {
                reserved += positions_of(weights, sequence.prompt.len());
            }
        }
        let mut entrants: Vec<Entrant> = Vec::new();
        while let Some(waiting) = self.waiting.front_mut() {
            let Waiting { ticket, source, num_most_probable, next_index, prompt } = waiting;
            if *next_index == source.num_completions {
                self.waiting.pop_front();
                continue;
            }
            let is_begun = previous == Some(*ticket);
            let of_prompt = if is_begun { 0 } else { positions_of(weights, source.prompt.len()) };
            let needed = of_completion(source) + of_prompt;
            let num_active = self.active.len() + entrants.len();
            let Limits { max_active_sequences, max_cache_tokens } = self.limits;
            if num_active >= max_active_sequences || reserved + needed > max_cache_tokens {
                break;
            }
            reserved += needed;
            previous = Some(*ticket);
            entrants.push(Entrant {
                ticket: *ticket,
                index: *next_index,
                source: source.clone(),
                num_most_probable: *num_most_probable,
                prompt: prompt.clone(),
            });
            *next_index += 1;
        }
        entrants
    }
}

/// One completion in work.
struct Sequence {
    ticket: Ticket,
    index: usize,
    source: Arc<Request>,
    num_most_probable: usize,
    prompt: Arc<Prompt>,
    /// Keys and values of the tokens of the completion that went through the model.
    own: KeyValueCache,
    /// What the delta-nets know after them.
    state: RecurrentState,
    stream: ChaCha8Rng,
    tokens: Vec<u32>,
    is_over: bool,
}

impl Sequence {
    /// Adds the token that these logits give.
    fn take(&mut self, logits: &mut [f32]) -> Event {
        let sampling = &self.source.sampling;
        let most_probable = match self.num_most_probable {
            0 => Vec::new(),
            count => most_probable(logits, sampling.temperature, count),
        };
        let seen = [self.source.prompt.as_slice(), &self.tokens];
        let Some((token, log_prob)) = choose_token(logits, seen, sampling, &mut self.stream) else {
            self.is_over = true;
            let (request, completion, position) = (self.ticket, self.index, self.tokens.len());
            let error = Error::NotFinite { request: request.0, completion, position };
            return Event::Failed { request, completion, error };
        };
        self.tokens.push(token);
        let end = match sampling.stop_ids.contains(&token) {
            true => Some(End::Stop),
            false => (self.tokens.len() == sampling.max_new_tokens).then_some(End::Length),
        };
        self.is_over = end.is_some();
        Event::Token(Sampled { request: self.ticket, completion: self.index, token, log_prob, most_probable, end })
    }
}

/// A completion that may begin, with its prompt where that is computed already.
struct Entrant {
    ticket: Ticket,
    index: usize,
    source: Arc<Request>,
    num_most_probable: usize,
    prompt: Option<Arc<Prompt>>,
}

fn begin(weights: &Weights, entrant: Entrant, prompt: Arc<Prompt>) -> (Sequence, Event) {
    let Entrant { ticket, index, source, num_most_probable, .. } = entrant;
    let (mut logits, state) = (prompt.prefilled.logits.clone(), prompt.prefilled.state.clone());
    // The last token of a completion needs no place: nothing comes after it.
    let own = KeyValueCache::new(weights.cache_shape(), source.sampling.max_new_tokens - 1);
    let stream = stream(source.seed, index);
    let (tokens, is_over) = (Vec::new(), false);
    let mut sequence =
        Sequence { ticket, index, source, num_most_probable, prompt, own, state, stream, tokens, is_over };
    let event = sequence.take(&mut logits);
    (sequence, event)
}

/// One step: a further token for every active sequence that is not over. The events are in the order of the sequences.
fn advance(weights: &Weights, active: &mut [Sequence], workspaces: &mut Vec<Workspace>) -> Vec<Event> {
    let mut rows: Vec<&mut Sequence> = active.iter_mut().filter(|sequence| !sequence.is_over).collect();
    let rows_per_chunk = rows.len().div_ceil(rayon::current_num_threads()).max(MIN_ROWS_PER_CHUNK);
    workspaces.resize_with(rows.len().div_ceil(rows_per_chunk).max(workspaces.len()), Workspace::default);
    rows.par_chunks_mut(rows_per_chunk)
        .zip(workspaces.par_iter_mut())
        .flat_map_iter(|(rows, workspace)| advance_rows(weights, rows, workspace))
        .collect()
}

fn advance_rows(weights: &Weights, rows: &mut [&mut Sequence], workspace: &mut Workspace) -> Vec<Event> {
    let tokens: Vec<u32> = rows.iter().filter_map(|row| row.tokens.last().copied()).collect();
    let positions: Vec<usize> = rows.iter().map(|row| row.prompt.len() + row.tokens.len() - 1).collect();
    let logits = decode(weights, &tokens, &positions, &mut OwnCaches(rows), workspace);
    let vocab_size = weights.config.vocab_size;
    rows.par_iter_mut()
        .zip(logits.par_chunks_exact_mut(vocab_size))
        .with_min_len(4)
        .map(|(row, logits)| row.take(logits))
        .collect()
}

/// Rows that are the last tokens of different sequences.
struct OwnCaches<'r, 'q>(&'r mut [&'q mut Sequence]);

impl Caches for OwnCaches<'_, '_> {
    fn write(&mut self, layer: usize, row: usize, keys: &[f32], values: &[f32]) {
        let sequence = &mut self.0[row];
        sequence.own.write(layer, sequence.tokens.len() - 1, keys, values);
    }

    fn views(&self) -> Vec<View<'_>> {
        let own_len = |sequence: &Sequence| sequence.tokens.len();
        let sequences = self.0.iter().map(|sequence| &**sequence);
        sequences
            .map(|sequence| View {
                shared: &sequence.prompt.prefilled.cache,
                shared_len: sequence.prompt.len(),
                own: Some((&sequence.own, own_len(sequence))),
            })
            .collect()
    }

    fn states(&mut self) -> Vec<(Range<usize>, &mut RecurrentState)> {
        self.0.iter_mut().enumerate().map(|(row, sequence)| (row..row + 1, &mut sequence.state)).collect()
    }
}
