//! Which prompts come next: the seeded order, without those that are held out, and past those that would teach nothing.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::config::RlConfig;
use super::rollout::Score;
use crate::error::{Error, Result};
use crate::order::Order;
use crate::seeds::{Purpose, split_seed};

/// A curriculum by what the policy was seen to do: prompts that it always passes or always fails rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PassRates {
    /// The reward from which on a completion passes.
    pub pass: f64,
    /// A prompt rests if a smaller share of its last group passed. Default: 0, none rests for being hard.
    #[serde(default)]
    pub low: f64,
    /// A prompt rests if a larger share of its last group passed. Default: 0.99, those of which all passed.
    #[serde(default = "nearly_all")]
    pub high: f64,
    /// Times that a prompt at rest is passed over when its turn comes. Default: 1.
    #[serde(default = "once")]
    pub rests: u64,
}

fn nearly_all() -> f64 {
    0.99
}

fn once() -> u64 {
    1
}

impl PassRates {
    pub(super) fn check(&self) -> Result<()> {
        if !self.pass.is_finite() {
            return Err(Error::config("curriculum.pass", format!("{}, expected a reward", self.pass)));
        }
        if !(0.0 <= self.low && self.low <= self.high && self.high <= 1.0) {
            let detail = format!("{} to {}, expected shares from 0 to 1, in this order", self.low, self.high);
            return Err(Error::config("curriculum.low", detail));
        }
        Ok(())
    }
}

/// What was last seen of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Completions that passed, of those with a reward.
    passed: u64,
    scored: u64,
    /// Times it was passed over since.
    rested: u64,
}

/// Draws prompts. What it has seen is state: it is kept in checkpoints.
#[derive(Debug)]
pub(super) struct Drawer {
    order: Order,
    /// Numbers of the prompts that are trained on.
    trained: Vec<usize>,
    /// Numbers of those that are held out.
    pub(super) held_out: Vec<usize>,
    rates: Option<PassRates>,
    pub(super) seen: BTreeMap<usize, Seen>,
    /// Prompts passed over since this was last asked for.
    rested: u64,
}

impl Drawer {
    /// Of so many prompts.
    pub(super) fn new(config: &RlConfig, prompts: usize) -> Result<Self> {
        let count = config.validation.map_or(0, |validation| validation.held_out_prompts);
        if count >= prompts {
            let detail = format!("{count}, but there are {prompts} prompts");
            return Err(Error::config("validation.held_out_prompts", detail));
        }
        let drawn = Order::new(prompts, split_seed(config.seed, Purpose::HeldOut, 0));
        let mut held_out: Vec<usize> = (0..count as u64).map(|at| drawn.at(at)).collect();
        held_out.sort_unstable();
        let trained: Vec<usize> = (0..prompts).filter(|prompt| held_out.binary_search(prompt).is_err()).collect();
        let order = Order::new(trained.len(), config.seed);
        Ok(Self { order, trained, held_out, rates: config.curriculum, seen: BTreeMap::new(), rested: 0 })
    }

    /// The next prompt after `cursor` and `drawn`, which moves. Of a whole round of prompts at rest the last is taken.
    pub(super) fn draw(&mut self, cursor: u64, drawn: &mut u64) -> usize {
        for _ in 1..self.trained.len() {
            let prompt = self.next(cursor, drawn);
            if !self.passes_over(prompt) {
                return prompt;
            }
        }
        self.next(cursor, drawn)
    }

    fn next(&self, cursor: u64, drawn: &mut u64) -> usize {
        *drawn += 1;
        self.trained[self.order.at(cursor + *drawn - 1)]
    }

    fn passes_over(&mut self, prompt: usize) -> bool {
        let (Some(rates), Some(seen)) = (self.rates, self.seen.get_mut(&prompt)) else { return false };
        let rate = seen.passed as f64 / seen.scored as f64;
        let rests = (rate < rates.low || rate > rates.high) && seen.rested < rates.rests;
        if rests {
            seen.rested += 1;
            self.rested += 1;
        }
        rests
    }

    /// Remembers what came of a prompt; a group that the scorer failed on says nothing.
    pub(super) fn note(&mut self, prompt: usize, scores: &[Score]) {
        let Some(rates) = self.rates else { return };
        let rewards: Vec<f64> = scores.iter().filter_map(Score::reward).collect();
        if !rewards.is_empty() {
            let passed = rewards.iter().filter(|&&reward| reward >= rates.pass).count() as u64;
            self.seen.insert(prompt, Seen { passed, scored: rewards.len() as u64, rested: 0 });
        }
    }

    /// Prompts passed over since it was last asked.
    pub(super) fn take_rested(&mut self) -> u64 {
        std::mem::take(&mut self.rested)
    }
}
