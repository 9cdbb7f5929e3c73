//! Documents that are longer than a row: dropped, cut at a turn's border, or continued in further rows.

use std::ops::Range;

use crate::config::Long;
use crate::document::{ContextReason, Reason, TrainReason};
use crate::renderer::Rendered;

/// A document of a row's length at most.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fitted {
    pub(crate) tokens: Vec<u32>,
    pub(crate) weights: Vec<f32>,
    /// Why each token has the weight it has.
    pub(crate) reasons: Vec<Reason>,
    /// What it is made of, in order: one piece, but for documents that share a history.
    pub(crate) pieces: Vec<Piece>,
}

/// A run of a document's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) length: usize,
    /// The piece it goes on from; none for the beginning.
    pub(crate) continues: Option<usize>,
}

impl Fitted {
    /// One piece.
    pub(crate) fn whole(tokens: Vec<u32>, weights: Vec<f32>, reasons: Vec<Reason>) -> Self {
        let pieces = vec![Piece { length: tokens.len(), continues: None }];
        Self { tokens, weights, reasons, pieces }
    }

    /// One piece whose weights say why.
    #[cfg(test)]
    pub(crate) fn plain(tokens: Vec<u32>, weights: Vec<f32>) -> Self {
        let reason = |&weight: &f32| match weight {
            0.0 => Reason::Context(ContextReason::History),
            _ => Reason::Trained(TrainReason::Observation),
        };
        let reasons = weights.iter().map(reason).collect();
        Self::whole(tokens, weights, reasons)
    }
}

/// A document with a weight and a reason for each token, to be cut.
struct Marked<'a> {
    tokens: &'a [u32],
    weights: Vec<f32>,
    reasons: Vec<Reason>,
}

impl<'a> Marked<'a> {
    fn new(rendered: &'a Rendered) -> Self {
        Self { tokens: &rendered.tokens, weights: rendered.weights(), reasons: rendered.reasons() }
    }

    /// One piece of two stretches, one of which may be empty.
    fn cut(&self, first: Range<usize>, then: Range<usize>) -> Fitted {
        let (mut tokens, mut weights, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for stretch in [first, then] {
            tokens.extend_from_slice(&self.tokens[stretch.clone()]);
            weights.extend_from_slice(&self.weights[stretch.clone()]);
            reasons.extend_from_slice(&self.reasons[stretch]);
        }
        Fitted::whole(tokens, weights, reasons)
    }
}

/// What became of a rendered document. `rendered + repeated = tokens in parts + dropped`.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Fit {
    pub(crate) parts: Vec<Fitted>,
    /// Tokens written more than once: the system context of further rows.
    pub(crate) repeated: usize,
    /// Tokens left out because of the length.
    pub(crate) dropped: usize,
    /// Tokens of parts in which nothing would be trained.
    pub(crate) untrained: usize,
    /// Those parts.
    pub(crate) untrained_parts: usize,
}

/// Makes a document whose target is its last turn fit: the first turns go, the system context stays.
pub(crate) fn fit_target(rendered: &Rendered, max_tokens: usize, long: Long) -> Fit {
    let length = rendered.tokens.len();
    if length <= max_tokens || long != Long::CutTurns {
        return fit(rendered, max_tokens, Long::Drop);
    }
    let context = rendered.turn_starts.first().copied().unwrap_or(length);
    let starts = rendered.turn_starts.iter().copied();
    let Some(start) = starts.into_iter().find(|start| context + length - start <= max_tokens) else {
        return Fit { dropped: length, ..Fit::default() };
    };
    let part = Marked::new(rendered).cut(0..context, start..length);
    Fit { parts: vec![part], dropped: start - context, ..Fit::default() }
}

/// Makes a text fit: cut after what fits, or continued in further rows, each begun with the last token of the one before
/// it, so that every token but the first is trained once.
pub(crate) fn fit_text(rendered: &Rendered, row_tokens: usize, long: Long) -> Fit {
    let length = rendered.tokens.len();
    if length <= row_tokens || long == Long::Drop {
        return fit(rendered, row_tokens, Long::Drop);
    }
    let marked = Marked::new(rendered);
    let mut fit = Fit::default();
    let mut start = 0;
    while start + 1 < length {
        let end = length.min(start + row_tokens);
        let mut part = marked.cut(0..0, start..end);
        (part.weights[0], part.reasons[0]) = (0.0, Reason::Context(ContextReason::Opening));
        fit.repeated += usize::from(start > 0);
        fit.keep(part);
        if long == Long::CutTurns {
            fit.dropped = length - end;
            break;
        }
        start = end - 1;
    }
    fit
}

/// Makes a document fit.
pub(crate) fn fit(rendered: &Rendered, row_tokens: usize, long: Long) -> Fit {
    let length = rendered.tokens.len();
    if length <= row_tokens {
        let whole = Fitted::whole(rendered.tokens.clone(), rendered.weights(), rendered.reasons());
        return Fit { parts: vec![whole], ..Fit::default() };
    }
    match long {
        Long::Drop => Fit { dropped: length, ..Fit::default() },
        Long::CutTurns => cut_turns(rendered, row_tokens),
        Long::Window => window(rendered, row_tokens),
    }
}

fn cut_turns(rendered: &Rendered, row_tokens: usize) -> Fit {
    let length = rendered.tokens.len();
    let fits = rendered.turn_starts.iter().skip(1).copied().filter(|&end| end <= row_tokens).max();
    let Some(end) = fits else { return Fit { dropped: length, ..Fit::default() } };
    let mut fit = Fit { dropped: length - end, ..Fit::default() };
    fit.keep(Marked::new(rendered).cut(0..0, 0..end));
    fit
}

fn window(rendered: &Rendered, row_tokens: usize) -> Fit {
    let length = rendered.tokens.len();
    let marked = Marked::new(rendered);
    let context = rendered.turn_starts.first().copied().unwrap_or(length);
    if context >= row_tokens {
        return Fit { dropped: length, ..Fit::default() };
    }
    let mut fit = Fit::default();
    let mut ends: Vec<usize> = rendered.turn_starts.iter().skip(1).copied().collect();
    ends.push(length);
    let mut start = context;
    while start < length {
        let room = row_tokens - context;
        let border = ends.iter().copied().filter(|&end| end > start && end - start <= room).max();
        let whole_turn = ends.iter().copied().find(|&end| end > start).unwrap_or(length);
        let (end, next) = border.map_or((start + room, whole_turn), |end| (end, end));
        let mut part = marked.cut(0..context, start..end);
        if border.is_none() {
            forget_stop(rendered, start..end, context, &mut part);
        }
        fit.repeated += if start == context { 0 } else { context };
        fit.dropped += next - end;
        fit.keep(part);
        start = next;
    }
    fit
}

/// A cut turn does not end: if the cut fell between its stop token and the line break, the stop is no target.
fn forget_stop(rendered: &Rendered, cut: Range<usize>, context: usize, part: &mut Fitted) {
    let masked = Reason::Context(ContextReason::Masked);
    for span in rendered.spans.iter().filter(|span| span.reason == Reason::Trained(TrainReason::Stop)) {
        for at in span.range.clone().filter(|at| cut.contains(at)) {
            let at = context + at - cut.start;
            (part.weights[at], part.reasons[at]) = (masked.weight(), masked);
        }
    }
}

impl Fit {
    fn keep(&mut self, part: Fitted) {
        if part.weights.iter().any(|&weight| weight > 0.0) {
            self.parts.push(part);
        } else {
            self.untrained += part.tokens.len();
            self.untrained_parts += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Long, Rendered, fit, fit_target, fit_text};
    use crate::document::{ContextReason, Reason, TrainReason};
    use crate::renderer::Span;

    /// System context, then turns of an action, an observation, a stop token (numbered 1) and a line break.
    fn rendered(context: usize, turns: &[(usize, usize, bool)]) -> Rendered {
        let mut rendered = Rendered::default();
        let push = |rendered: &mut Rendered, token: u32, count: usize, reason: Reason| {
            let start = rendered.tokens.len();
            rendered.tokens.extend(std::iter::repeat_n(token, count));
            rendered.spans.push(Span { range: start..start + count, reason });
        };
        push(&mut rendered, 2, context, Reason::Context(ContextReason::Prompt));
        for &(action, observation, keep) in turns {
            let start = rendered.tokens.len();
            rendered.turn_starts.push(start);
            let masked = Reason::Context(ContextReason::Masked);
            let reason = |trained| if keep { Reason::Trained(trained) } else { masked };
            push(&mut rendered, 3, action, Reason::Context(ContextReason::Action));
            push(&mut rendered, 4, observation, reason(TrainReason::Observation));
            push(&mut rendered, 1, 1, reason(TrainReason::Stop));
            push(&mut rendered, 5, 1, Reason::Context(ContextReason::Separator));
        }
        rendered
    }

    proptest! {
        #[test]
        fn no_token_is_lost_and_no_part_overflows(
            context in 1usize..30, turns in prop::collection::vec((1usize..20, 0usize..60, any::<bool>()), 1..8),
            row_tokens in 2usize..150, long in prop::sample::select(vec![Long::Drop, Long::CutTurns, Long::Window]),
        ) {
            let rendered = rendered(context, &turns);
            let fit = fit(&rendered, row_tokens, long);
            let out: usize = fit.parts.iter().map(|part| part.tokens.len()).sum();
            prop_assert_eq!(rendered.tokens.len() + fit.repeated, out + fit.dropped + fit.untrained);
            for part in &fit.parts {
                prop_assert!(part.tokens.len() <= row_tokens);
                prop_assert_eq!(part.tokens.len(), part.weights.len());
                let weights: Vec<f32> = part.reasons.iter().map(|reason| reason.weight()).collect();
                prop_assert_eq!(&weights, &part.weights, "a reason says the weight");
                prop_assert!(part.tokens.starts_with(&vec![2; context]), "the system context stays");
                let ends_whole = part.tokens.last() == Some(&5);
                let last = part.weights.iter().rposition(|&weight| weight > 0.0);
                if let Some(last) = last.filter(|_| !ends_whole) {
                    prop_assert!(last + 1 < part.tokens.len() || part.tokens[last] != 1, "a cut turn has no stop target");
                }
            }
            if fit.dropped + fit.untrained == 0 {
                let weight: f32 = fit.parts.iter().flat_map(|part| &part.weights).sum();
                prop_assert_eq!(weight, rendered.weights().iter().sum::<f32>());
            }
        }

        #[test]
        fn a_target_keeps_its_system_context_and_itself(
            context in 1usize..30, turns in prop::collection::vec((1usize..20, 0usize..60, any::<bool>()), 1..8),
            max_tokens in 2usize..150,
        ) {
            let mut rendered = rendered(context, &turns);
            for span in &mut rendered.spans {
                span.reason = Reason::Context(ContextReason::History);
            }
            let target = rendered.spans.len() - 2;
            rendered.spans[target].reason = Reason::Trained(TrainReason::Stop);
            let fit = fit_target(&rendered, max_tokens, Long::CutTurns);
            let out: usize = fit.parts.iter().map(|part| part.tokens.len()).sum();
            prop_assert_eq!(rendered.tokens.len(), out + fit.dropped);
            let last = rendered.tokens.len() - rendered.turn_starts[rendered.turn_starts.len() - 1];
            prop_assert_eq!(fit.parts.len(), usize::from(context + last <= max_tokens));
            for part in &fit.parts {
                prop_assert!(part.tokens.len() <= max_tokens);
                prop_assert!(part.tokens.starts_with(&vec![2; context]) && rendered.tokens.ends_with(&part.tokens[context..]));
                prop_assert_eq!(part.weights.iter().sum::<f32>(), 1.0);
            }
        }

        #[test]
        fn a_text_in_windows_trains_every_token_but_the_first_once(length in 2usize..300, row_tokens in 2usize..80) {
            let spans = [(0..1, Reason::Context(ContextReason::Opening)), (1..length, Reason::Trained(TrainReason::Text))];
            let rendered = Rendered {
                tokens: (0..length as u32).collect(),
                spans: spans.map(|(range, reason)| Span { range, reason }).to_vec(),
                ..Rendered::default()
            };
            let trained = |fit: &super::Fit| -> Vec<u32> {
                let tokens = fit.parts.iter().flat_map(|part| part.tokens.iter().zip(&part.weights));
                tokens.filter(|(_, weight)| **weight > 0.0).map(|(token, _)| *token).collect()
            };
            let window = fit_text(&rendered, row_tokens, Long::Window);
            prop_assert_eq!(trained(&window), (1..length as u32).collect::<Vec<_>>());
            prop_assert!(window.parts.iter().all(|part| part.tokens.len() <= row_tokens && part.weights[0] == 0.0));
            let cut = fit_text(&rendered, row_tokens, Long::CutTurns);
            prop_assert_eq!(trained(&cut), (1..length.min(row_tokens) as u32).collect::<Vec<_>>());
            for fit in [window, cut] {
                let out: usize = fit.parts.iter().map(|part| part.tokens.len()).sum();
                prop_assert_eq!(length + fit.repeated, out + fit.dropped + fit.untrained);
            }
        }
    }
}
