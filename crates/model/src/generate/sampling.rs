//! Which token comes next, given its logits.

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use worldloom_kernels::decode::exponentials;

use super::Error;

/// Probabilities that are added before the running total is compared with the draw.
const DRAW_BLOCK: usize = 64;

/// How tokens are chosen and when a completion ends.
///
/// The truncations apply in the order of the fields to the probabilities at `temperature`; what remains is drawn in
/// proportion. Training against the log-probs supposes that nothing is truncated.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Longest completion, the stop token included.
    pub max_new_tokens: usize,
    /// Divides the logits. 0 takes the most probable token (the first of several) and leaves the rest without effect.
    pub temperature: f32,
    /// Divides the positive logits of tokens that were seen in the prompt or before, and multiplies the negative ones
    /// (CTRL, arXiv 1909.05858). 1 changes nothing.
    pub repetition_penalty: f32,
    /// Keeps the `k` most probable tokens.
    pub top_k: Option<usize>,
    /// Keeps the fewest most probable tokens whose share of what `top_k` left is at least this.
    pub top_p: Option<f32>,
    /// Drops tokens less probable than this share of the most probable one.
    pub min_p: Option<f32>,
    /// Tokens that end a completion.
    pub stop_ids: Vec<u32>,
}

impl Sampling {
    /// The most probable token each time.
    pub fn greedy(max_new_tokens: usize, stop_ids: Vec<u32>) -> Sampling {
        Sampling::plain(max_new_tokens, 0.0, stop_ids)
    }

    /// Draws from the whole distribution at `temperature`.
    pub fn plain(max_new_tokens: usize, temperature: f32, stop_ids: Vec<u32>) -> Sampling {
        Sampling {
            max_new_tokens,
            temperature,
            repetition_penalty: 1.0,
            top_k: None,
            top_p: None,
            min_p: None,
            stop_ids,
        }
    }

    /// Refuses parameters out of their range.
    pub(super) fn check(&self, request: usize) -> Result<(), Error> {
        let refuse = |parameter, found: String, expected| Err(Error::Sampling { request, parameter, found, expected });
        if !(self.temperature.is_finite() && self.temperature >= 0.0) {
            return refuse("temperature", self.temperature.to_string(), "a number of at least 0");
        }
        if !(self.repetition_penalty.is_finite() && self.repetition_penalty > 0.0) {
            return refuse("repetition_penalty", self.repetition_penalty.to_string(), "a number above 0");
        }
        if self.top_k == Some(0) {
            return refuse("top_k", "0".to_owned(), "at least 1");
        }
        match (self.top_p, self.min_p) {
            (Some(share), _) if !(share > 0.0 && share <= 1.0) => {
                refuse("top_p", share.to_string(), "a number above 0 and at most 1")
            }
            (_, Some(share)) if !(0.0..=1.0).contains(&share) => {
                refuse("min_p", share.to_string(), "a number from 0 to 1")
            }
            _ => Ok(()),
        }
    }

    fn is_truncated(&self) -> bool {
        self.top_k.is_some()
            || self.top_p.is_some_and(|share| share < 1.0)
            || self.min_p.is_some_and(|share| share > 0.0)
    }
}

/// The stream of random numbers of one completion.
pub(super) fn stream(seed: u64, completion: usize) -> ChaCha8Rng {
    let mut stream = ChaCha8Rng::seed_from_u64(seed);
    stream.set_stream(completion as u64);
    stream
}

/// A token and its log-prob, or nothing when the logits are not finite; `seen` are the tokens before it. The penalty
/// moves the choice, and the log-prob is that of the model without it. Uses one number of `stream`, and uses up `logits`.
pub(super) fn choose_token(
    logits: &mut [f32],
    seen: [&[u32]; 2],
    sampling: &Sampling,
    stream: &mut ChaCha8Rng,
) -> Option<(u32, f32)> {
    if sampling.repetition_penalty == 1.0 {
        return sample(logits, sampling, stream);
    }
    let mut penalised = logits.to_vec();
    penalise(&mut penalised, logits, seen, sampling.repetition_penalty);
    let (token, _) = sample(&mut penalised, sampling, stream)?;
    if sampling.temperature > 0.0 {
        logits.iter_mut().for_each(|logit| *logit /= sampling.temperature);
    }
    let (largest, sum) = exponentials(logits);
    (largest.is_finite() && sum.is_finite()).then(|| (token, (logits[token as usize] / sum).ln()))
}

/// The `count` most probable tokens with their log-probs, as [`Completion::log_probs`](super::Completion::log_probs) has
/// them; of equals the first. Nothing where the logits are not finite.
pub(super) fn most_probable(logits: &[f32], temperature: f32, count: usize) -> Vec<(u32, f32)> {
    let mut weights = logits.to_vec();
    if temperature > 0.0 {
        weights.iter_mut().for_each(|logit| *logit /= temperature);
    }
    let (largest, sum) = exponentials(&mut weights);
    if !(largest.is_finite() && sum.is_finite()) {
        return Vec::new();
    }
    let mut tokens: Vec<u32> = (0..weights.len() as u32).collect();
    let by_weight = |a: &u32, b: &u32| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b));
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, by_weight);
        tokens.truncate(count);
    }
    tokens.sort_by(by_weight);
    tokens.into_iter().map(|token| (token, (weights[token as usize] / sum).ln())).collect()
}

fn penalise(penalised: &mut [f32], logits: &[f32], seen: [&[u32]; 2], penalty: f32) {
    for &token in seen.into_iter().flatten() {
        let logit = logits[token as usize];
        // From the model's logit each time: a token that was seen twice is penalised once.
        penalised[token as usize] = if logit > 0.0 { logit / penalty } else { logit * penalty };
    }
}

/// A token and its log-prob without regard to what was seen, or nothing when the logits are not finite. Uses one number of `stream`, and uses up
/// `logits`.
pub(super) fn sample(logits: &mut [f32], sampling: &Sampling, stream: &mut ChaCha8Rng) -> Option<(u32, f32)> {
    let draw: f64 = stream.random();
    let greedy = (sampling.temperature == 0.0).then(|| first_largest(logits));
    if greedy.is_none() && sampling.temperature != 1.0 {
        logits.iter_mut().for_each(|logit| *logit /= sampling.temperature);
    }
    let (largest, sum) = exponentials(logits);
    let weights = &*logits;
    if !(largest.is_finite() && sum.is_finite()) {
        return None;
    }
    let token = match greedy {
        Some(token) => token,
        None if sampling.is_truncated() => draw_truncated(weights, sum, sampling, draw),
        None => draw_from(weights, draw),
    };
    Some((token as u32, (weights[token] / sum).ln()))
}

fn first_largest(logits: &[f32]) -> usize {
    let larger = |best: usize, token: usize| if logits[token] > logits[best] { token } else { best };
    (1..logits.len()).fold(0, larger)
}

/// The index at which the running total of `weights` passes the share `draw` of the whole.
fn draw_from(weights: &[f32], draw: f64) -> usize {
    let total = |weights: &[f32]| weights.iter().map(|weight| f64::from(*weight)).sum::<f64>();
    let blocks: Vec<f64> = weights.chunks(DRAW_BLOCK).map(total).collect();
    let mut rest = draw * blocks.iter().sum::<f64>();
    // Should rounding let the draw pass an end, it is the last block or the last token of a block.
    let mut block = 0;
    while block + 1 < blocks.len() && rest >= blocks[block] {
        rest -= blocks[block];
        block += 1;
    }
    let start = block * DRAW_BLOCK;
    let weights = &weights[start..weights.len().min(start + DRAW_BLOCK)];
    let token = weights.iter().position(|weight| {
        rest -= f64::from(*weight);
        rest < 0.0
    });
    start + token.unwrap_or(weights.len() - 1)
}

/// Draws from the tokens that the truncations leave. `sum` is that of all weights.
fn draw_truncated(weights: &[f32], sum: f32, sampling: &Sampling, draw: f64) -> usize {
    let most = sampling.top_k.unwrap_or(weights.len()).min(weights.len());
    let share = sampling.top_p.filter(|share| *share < 1.0);
    let mut tokens: Vec<usize> = (0..weights.len()).collect();
    let mut num_sorted = if share.is_none() { most } else { most.min(DRAW_BLOCK) };
    loop {
        sort_most_probable(&mut tokens, weights, num_sorted);
        let Some(share) = share else { break };
        // What the share refers to is known once `top_k` has sorted its tokens, and from the start without it.
        let whole = if sampling.top_k.is_none() {
            f64::from(sum)
        } else if num_sorted == most {
            tokens[..most].iter().map(|token| f64::from(weights[*token])).sum()
        } else {
            f64::INFINITY
        };
        if let Some(kept) = fewest(&tokens[..num_sorted], weights, f64::from(share) * whole) {
            num_sorted = kept;
            break;
        }
        if num_sorted == most {
            break;
        }
        num_sorted = (num_sorted * 8).min(most);
    }
    let kept = &tokens[..num_sorted];
    let least = sampling.min_p.unwrap_or(0.0) * weights[kept[0]];
    let kept: Vec<usize> = kept.iter().copied().filter(|token| weights[*token] >= least).collect();
    let kept_weights: Vec<f32> = kept.iter().map(|token| weights[*token]).collect();
    kept[draw_from(&kept_weights, draw)]
}

/// Puts the `count` most probable tokens first, in falling order, equal ones by their number.
fn sort_most_probable(tokens: &mut [usize], weights: &[f32], count: usize) {
    let order = |a: &usize, b: &usize| weights[*b].total_cmp(&weights[*a]).then(a.cmp(b));
    if count < tokens.len() {
        tokens.select_nth_unstable_by(count, order);
    }
    tokens[..count].sort_unstable_by(order);
}

/// How many of the sorted tokens it takes to reach `target`, if they do.
fn fewest(tokens: &[usize], weights: &[f32], target: f64) -> Option<usize> {
    let mut total = 0.0;
    let reached = tokens.iter().position(|token| {
        total += f64::from(weights[*token]);
        total >= target
    });
    reached.map(|last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 6] = [0.0, 2.0, -1.0, 2.0, 1.0, -3.0];

    fn sampling(temperature: f32) -> Sampling {
        Sampling::plain(1, temperature, Vec::new())
    }

    /// How often each token comes in 20,000 draws.
    fn shares(logits: &[f32], sampling: &Sampling) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        let mut numbers = stream(5, 0);
        for _ in 0..20_000 {
            let (token, _) = sample(&mut logits.to_vec(), sampling, &mut numbers).unwrap();
            counts[token as usize] += 1.0;
        }
        counts.iter().map(|count| count / 20_000.0).collect()
    }

    /// The softmax in float64, without the tokens that `keep` drops.
    fn softmax(logits: &[f32], temperature: f64, keep: impl Fn(usize) -> bool) -> Vec<f64> {
        let weight = |(token, logit): (usize, &f32)| {
            if keep(token) { (f64::from(*logit) / temperature).exp() } else { 0.0 }
        };
        let weights: Vec<f64> = logits.iter().enumerate().map(weight).collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    }

    fn check_shares(logits: &[f32], sampling: &Sampling, keep: impl Fn(usize) -> bool) {
        let expected = softmax(logits, f64::from(sampling.temperature), keep);
        for (token, (share, expected)) in shares(logits, sampling).iter().zip(expected).enumerate() {
            // Five deviations of a share of 20,000 draws.
            let tolerance = 5.0 * (expected * (1.0 - expected) / 20_000.0).sqrt();
            assert!((share - expected).abs() <= tolerance, "{sampling:?}, token {token}: {share} {expected}");
        }
    }

    #[test]
    fn tokens_come_as_often_as_their_probability_says() {
        let many: Vec<f32> = (0..300).map(|i| (i as f32 * 1.7).sin() * 3.0).collect();
        for temperature in [0.5, 1.0, 1.7] {
            check_shares(&LOGITS, &sampling(temperature), |_| true);
            check_shares(&many, &sampling(temperature), |_| true);
        }
    }

    #[test]
    fn truncations_leave_what_they_say() {
        let truncated = |top_k, top_p, min_p| Sampling { top_k, top_p, min_p, ..sampling(1.0) };
        check_shares(&LOGITS, &truncated(Some(2), None, None), |token| [1, 3].contains(&token));
        check_shares(&LOGITS, &truncated(Some(1), None, None), |token| token == 1);
        check_shares(&LOGITS, &truncated(Some(100), None, None), |_| true);
        // Shares: 0.391, 0.391, 0.144, 0.053, ...
        check_shares(&LOGITS, &truncated(None, Some(0.39), None), |token| token == 1);
        check_shares(&LOGITS, &truncated(None, Some(0.85), None), |token| [1, 3, 4].contains(&token));
        // Of the three that `top_k` leaves, two have 0.8446 of the sum.
        check_shares(&LOGITS, &truncated(Some(3), Some(0.84), None), |token| [1, 3].contains(&token));
        check_shares(&LOGITS, &truncated(None, None, Some(0.13)), |token| [0, 1, 3, 4].contains(&token));
        check_shares(&LOGITS, &truncated(None, Some(1.0), Some(1.0)), |token| [1, 3].contains(&token));
    }

    #[test]
    fn a_penalty_moves_the_choice_once_per_token_and_not_the_log_prob() {
        let penalised = Sampling { repetition_penalty: 1.5, ..sampling(1.0) };
        // 2.0 and 0.0 and -1.0 were seen; 2.0 twice.
        let (seen, mut counts, mut numbers) = ([&[1, 0][..], &[1, 2][..]], [0.0; 6], stream(7, 0));
        let plain = softmax(&LOGITS, 1.0, |_| true);
        for _ in 0..20_000 {
            let (token, log_prob) = choose_token(&mut LOGITS.to_vec(), seen, &penalised, &mut numbers).unwrap();
            assert!((f64::from(log_prob) - plain[token as usize].ln()).abs() < 1e-6);
            counts[token as usize] += 1.0;
        }
        let expected = softmax(&[0.0, 2.0 / 1.5, -1.5, 2.0, 1.0, -3.0], 1.0, |_| true);
        for (token, (count, expected)) in counts.iter().zip(expected).enumerate() {
            let tolerance = 5.0 * (expected * (1.0 - expected) / 20_000.0).sqrt();
            assert!((count / 20_000.0 - expected).abs() <= tolerance, "token {token}: {count} {expected}");
        }
    }

    #[test]
    fn a_long_tail_is_sorted_as_far_as_the_share_reaches() {
        let logits: Vec<f32> = (0..1000).map(|i| -(i as f32) * 1e-3).collect();
        let probabilities = softmax(&logits, 1.0, |_| true);
        let mut total = 0.0;
        let kept = probabilities
            .iter()
            .take_while(|p| {
                total += **p;
                total - **p < 0.7
            })
            .count();
        let most = Sampling { top_p: Some(0.7), ..sampling(1.0) };
        check_shares(&logits, &most, |token| token < kept);
    }

    #[test]
    fn log_probs_are_those_before_truncation_at_the_temperature() {
        for temperature in [0.7f32, 1.0] {
            let expected = softmax(&LOGITS, f64::from(temperature), |_| true);
            let truncated = Sampling { top_k: Some(2), ..sampling(temperature) };
            for completion in 0..20 {
                let mut numbers = stream(1, completion);
                let (token, log_prob) = sample(&mut LOGITS.to_vec(), &truncated, &mut numbers).unwrap();
                assert!((f64::from(log_prob) - expected[token as usize].ln()).abs() < 1e-6);
            }
        }
        let (token, log_prob) = sample(&mut LOGITS.to_vec(), &sampling(0.0), &mut stream(1, 0)).unwrap();
        assert_eq!(token, 1, "the first of the largest");
        assert!((f64::from(log_prob) - softmax(&LOGITS, 1.0, |_| true)[1].ln()).abs() < 1e-6);
    }

    #[test]
    fn logits_that_are_not_finite_give_no_token() {
        for broken in [f32::NAN, f32::INFINITY] {
            for temperature in [0.0, 1.0] {
                let mut logits = [0.0, broken, 1.0];
                assert_eq!(sample(&mut logits, &sampling(temperature), &mut stream(1, 0)), None);
            }
        }
        assert_eq!(sample(&mut [f32::NEG_INFINITY; 3], &sampling(1.0), &mut stream(1, 0)), None);
    }

    #[test]
    fn streams_of_one_seed_differ() {
        let number = |seed, completion| stream(seed, completion).random::<u64>();
        assert_ne!(number(1, 0), number(1, 1));
        assert_ne!(number(1, 0), number(2, 0));
        assert_eq!(number(1, 1), number(1, 1));
    }
}
