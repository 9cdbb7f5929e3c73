//! Continuous batching: waiting completions enter as active ones finish, and all active ones advance together.

use std::ops::Range;
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use worldloom_kernels::decode::{KeyValueCache, View};

use super::delta_net::RecurrentState;
use super::forward::{Caches, Prefilled, Workspace, decode, prefill};
use super::sampling::{choose_token, stream};
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
    check(weights, limits, requests)?;
    let mut completions: Vec<Vec<Completion>> =
        requests.iter().map(|request| vec![Completion::default(); request.num_completions]).collect();
    let total = completions.iter().map(Vec::len).sum();
    let mut num_finished = 0;
    let mut waiting = Waiting::new(requests);
    let mut active: Vec<Sequence> = Vec::new();
    let mut workspaces: Vec<Workspace> = Vec::new();
    while num_finished < total {
        admit(weights, limits, &mut waiting, &mut active)?;
        advance(weights, &mut active, &mut workspaces)?;
        let before = num_finished;
        for finished in active.extract_if(.., |sequence| sequence.is_finished()) {
            num_finished += 1;
            completions[finished.request][finished.index] = finished.completion;
        }
        if num_finished > before {
            progress(num_finished, total);
        }
    }
    Ok(completions)
}

fn check(weights: &Weights, limits: Limits, requests: &[Request]) -> Result<(), Error> {
    if limits.max_active_sequences == 0 {
        return Err(Error::NoActiveSequences);
    }
    let (vocab_size, positions) = (weights.config.vocab_size, weights.config.max_position_embeddings);
    for (request, Request { prompt, sampling, .. }) in requests.iter().enumerate() {
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
        let needed = prompt.len() + max_new_tokens;
        if needed > limits.max_cache_tokens {
            return Err(Error::CacheLimit { request, needed, limit: limits.max_cache_tokens });
        }
    }
    Ok(())
}

/// A prompt in work: what its sequences share.
struct Prompt {
    len: usize,
    prefilled: Prefilled,
}

/// One completion in work.
struct Sequence<'a> {
    request: usize,
    index: usize,
    source: &'a Request,
    prompt: Arc<Prompt>,
    /// Keys and values of the tokens of the completion that went through the model.
    own: KeyValueCache,
    /// What the delta-nets know after them.
    state: RecurrentState,
    stream: ChaCha8Rng,
    completion: Completion,
}

impl Sequence<'_> {
    fn is_finished(&self) -> bool {
        self.completion.stopped || self.completion.tokens.len() == self.source.sampling.max_new_tokens
    }

    fn reserved_tokens(&self) -> usize {
        self.source.sampling.max_new_tokens
    }

    /// Adds the token that these logits give.
    fn take(&mut self, logits: &mut [f32]) -> Result<(), Error> {
        let sampling = &self.source.sampling;
        let seen = [self.source.prompt.as_slice(), &self.completion.tokens];
        let chosen = choose_token(logits, seen, sampling, &mut self.stream);
        let (token, log_prob) = chosen.ok_or(Error::NotFinite {
            request: self.request,
            completion: self.index,
            position: self.completion.tokens.len(),
        })?;
        self.completion.tokens.push(token);
        self.completion.log_probs.push(log_prob);
        self.completion.stopped = sampling.stop_ids.contains(&token);
        Ok(())
    }
}

/// The completions not yet begun, in order, and the prompt of the group that is partly begun.
struct Waiting<'a> {
    requests: &'a [Request],
    next: usize,
    next_index: usize,
    prompt: Option<Arc<Prompt>>,
}

impl<'a> Waiting<'a> {
    fn new(requests: &'a [Request]) -> Waiting<'a> {
        Waiting { requests, next: 0, next_index: 0, prompt: None }
    }

    /// The next completion's request, passing over requests without (further) completions.
    fn peek(&mut self) -> Option<(usize, &'a Request)> {
        while let Some(request) = self.requests.get(self.next) {
            if self.next_index < request.num_completions {
                return Some((self.next, request));
            }
            (self.next, self.next_index, self.prompt) = (self.next + 1, 0, None);
        }
        None
    }
}

/// A completion that may begin, with its prompt where that is computed already.
struct Entrant<'a> {
    request: usize,
    index: usize,
    source: &'a Request,
    prompt: Option<Arc<Prompt>>,
}

/// Begins waiting completions as far as the limits allow and samples their first tokens.
fn admit<'a>(
    weights: &Weights,
    limits: Limits,
    waiting: &mut Waiting<'a>,
    active: &mut Vec<Sequence<'a>>,
) -> Result<(), Error> {
    let entrants = choose(limits, waiting, active);
    let mut groups: Vec<Vec<Entrant>> = Vec::new();
    for entrant in entrants {
        match groups.last_mut() {
            Some(group) if group[0].request == entrant.request => group.push(entrant),
            _ => groups.push(vec![entrant]),
        }
    }
    let prompts: Vec<Arc<Prompt>> = groups
        .par_iter()
        .map_init(Workspace::default, |workspace, group| prompt_of(weights, group, workspace))
        .collect();
    if let (Some(group), Some(prompt)) = (groups.last(), prompts.last())
        && group[0].request == waiting.next
    {
        waiting.prompt = Some(prompt.clone());
    }
    for (group, prompt) in groups.into_iter().zip(prompts) {
        for entrant in group {
            active.push(begin(weights, entrant, prompt.clone())?);
        }
    }
    Ok(())
}

/// The completions that fit beside the active ones, in their order.
fn choose<'a>(limits: Limits, waiting: &mut Waiting<'a>, active: &[Sequence]) -> Vec<Entrant<'a>> {
    let mut reserved: usize = active.iter().map(Sequence::reserved_tokens).sum();
    let mut previous = None;
    for sequence in active {
        if previous.replace(sequence.request) != Some(sequence.request) {
            reserved += sequence.prompt.len;
        }
    }
    let mut entrants: Vec<Entrant> = Vec::new();
    while let Some((request, source)) = waiting.peek() {
        let is_begun = previous == Some(request);
        let needed = source.sampling.max_new_tokens + if is_begun { 0 } else { source.prompt.len() };
        let num_active = active.len() + entrants.len();
        if num_active == limits.max_active_sequences || reserved + needed > limits.max_cache_tokens {
            break;
        }
        reserved += needed;
        previous = Some(request);
        entrants.push(Entrant { request, index: waiting.next_index, source, prompt: waiting.prompt.clone() });
        waiting.next_index += 1;
    }
    entrants
}

fn prompt_of(weights: &Weights, group: &[Entrant], workspace: &mut Workspace) -> Arc<Prompt> {
    let Entrant { source, prompt, .. } = &group[0];
    prompt.clone().unwrap_or_else(|| {
        Arc::new(Prompt { len: source.prompt.len(), prefilled: prefill(weights, &source.prompt, workspace) })
    })
}

fn begin<'a>(weights: &Weights, entrant: Entrant<'a>, prompt: Arc<Prompt>) -> Result<Sequence<'a>, Error> {
    let Entrant { request, index, source, .. } = entrant;
    let (mut logits, state) = (prompt.prefilled.logits.clone(), prompt.prefilled.state.clone());
    // The last token of a completion needs no place: nothing comes after it.
    let own = KeyValueCache::new(weights.cache_shape(), source.sampling.max_new_tokens - 1);
    let stream = stream(source.seed, index);
    let mut sequence =
        Sequence { request, index, source, prompt, own, state, stream, completion: Completion::default() };
    sequence.take(&mut logits)?;
    Ok(sequence)
}

/// One step: a further token for every active sequence that is not finished.
fn advance(weights: &Weights, active: &mut [Sequence], workspaces: &mut Vec<Workspace>) -> Result<(), Error> {
    let mut rows: Vec<&mut Sequence> = active.iter_mut().filter(|sequence| !sequence.is_finished()).collect();
    let rows_per_chunk = rows.len().div_ceil(rayon::current_num_threads()).max(MIN_ROWS_PER_CHUNK);
    workspaces.resize_with(rows.len().div_ceil(rows_per_chunk).max(workspaces.len()), Workspace::default);
    rows.par_chunks_mut(rows_per_chunk)
        .zip(workspaces.par_iter_mut())
        .map(|(rows, workspace)| advance_rows(weights, rows, workspace))
        // The first error in the order of the rows, not in that of time.
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

fn advance_rows(weights: &Weights, rows: &mut [&mut Sequence], workspace: &mut Workspace) -> Result<(), Error> {
    let tokens: Vec<u32> = rows.iter().filter_map(|row| row.completion.tokens.last().copied()).collect();
    let positions: Vec<usize> = rows.iter().map(|row| row.prompt.len + row.completion.tokens.len() - 1).collect();
    let logits = decode(weights, &tokens, &positions, &mut OwnCaches(rows), workspace);
    let vocab_size = weights.config.vocab_size;
    rows.par_iter_mut()
        .zip(logits.par_chunks_exact_mut(vocab_size))
        .with_min_len(4)
        .map(|(row, logits)| row.take(logits))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// Rows that are the last tokens of different sequences.
struct OwnCaches<'r, 'q, 'a>(&'r mut [&'q mut Sequence<'a>]);

impl Caches for OwnCaches<'_, '_, '_> {
    fn write(&mut self, layer: usize, row: usize, keys: &[f32], values: &[f32]) {
        let sequence = &mut self.0[row];
        sequence.own.write(layer, sequence.completion.tokens.len() - 1, keys, values);
    }

    fn views(&self) -> Vec<View<'_>> {
        let own_len = |sequence: &Sequence| sequence.completion.tokens.len();
        let sequences = self.0.iter().map(|sequence| &**sequence);
        sequences
            .map(|sequence| View {
                shared: &sequence.prompt.prefilled.cache,
                shared_len: sequence.prompt.len,
                own: Some((&sequence.own, own_len(sequence))),
            })
            .collect()
    }

    fn states(&mut self) -> Vec<(Range<usize>, &mut RecurrentState)> {
        self.0.iter_mut().enumerate().map(|(row, sequence)| (row..row + 1, &mut sequence.state)).collect()
    }
}
