//! Losses of the routers: the balance of the experts' load (Switch Transformers, arXiv 2101.03961, equations 4–6) and the
//! z-loss (ST-MoE, arXiv 2202.08906, equation 5).
//!
//! Both are means over the *rows* of all routers together, a row being a token in a block that has experts. With `E`
//! experts, `f_e` the choices of expert `e` per row and `P_e` the mean of its probability, `balance = E · Σ_e f_e P_e`,
//! which is `load_balancing_loss_func` of transformers; `z = mean(logsumexp(logits)²)`. `f` has no gradient and is that of
//! the whole optimizer step: it is counted before the first backward pass, by a pass without a graph. Then the loss is a
//! sum over rows, and micro-batches change nothing but rounding.

use crate::parts::Routing;
use crate::{Decoder, Layout};
use burn::module::Module;
use burn::tensor::{DType, Int, Tensor, TensorData, activation};

/// How often the routers of a decoder chose each expert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpertLoad {
    /// Choices of each expert, in all blocks together.
    chosen: Vec<u64>,
    /// Rows that chose.
    rows: u64,
}

impl ExpertLoad {
    /// Adds what was counted elsewhere.
    pub fn add(&mut self, other: &ExpertLoad) {
        self.chosen.resize(self.chosen.len().max(other.chosen.len()), 0);
        self.chosen.iter_mut().zip(&other.chosen).for_each(|(sum, chosen)| *sum += chosen);
        self.rows += other.rows;
    }

    /// Choices of each of so many experts, then the rows: numbers to be summed over processes.
    pub fn counts(&self, experts: usize) -> Vec<f64> {
        let chosen = (0..experts).map(|expert| self.chosen.get(expert).copied().unwrap_or(0));
        chosen.chain([self.rows]).map(|count| count as f64).collect()
    }

    /// What [`ExpertLoad::counts`] gave, or a sum of such.
    pub fn of_counts(counts: &[f64]) -> ExpertLoad {
        let (rows, chosen) = counts.split_last().unwrap_or((&0.0, &[]));
        ExpertLoad { chosen: chosen.iter().map(|&count| count as u64).collect(), rows: *rows as u64 }
    }

    /// Choices of each expert per row; they add up to the number of experts that a token passes.
    pub fn shares(&self) -> Vec<f64> {
        self.chosen.iter().map(|&chosen| chosen as f64 / self.rows.max(1) as f64).collect()
    }

    /// Choices of the busiest expert, as a multiple of what each would have if all had the same.
    pub fn busiest(&self) -> f64 {
        let (most, all) = (self.chosen.iter().max().copied().unwrap_or(0), self.chosen.iter().sum::<u64>());
        most as f64 * self.chosen.len() as f64 / all.max(1) as f64
    }

    fn count(&mut self, routing: &Routing, counted: &[bool]) {
        let ([.., experts], [.., per_token]) = (routing.logits.dims(), routing.choices.dims());
        self.chosen.resize(experts, 0);
        let choices: Vec<i64> = routing.choices.clone().into_data().iter::<i64>().collect();
        let rows = choices.chunks_exact(per_token).zip(counted).filter(|(_, counts)| **counts);
        for (choices, _) in rows {
            choices.iter().for_each(|&expert| self.chosen[expert as usize] += 1);
            self.rows += 1;
        }
    }
}

/// The routers' loss of an optimizer step, as the factors of what every row adds.
#[derive(Clone, Debug, PartialEq)]
pub struct RouterLoss {
    /// Of each expert's probability: `balance · E · f_e / rows`.
    of_probabilities: Vec<f32>,
    /// Of the square of the logarithm of the sum: `z / rows`.
    of_squares: f32,
}

impl RouterLoss {
    /// `balance` and `z` are the coefficients of the two losses, `load` what the whole step counted.
    pub fn new(load: &ExpertLoad, balance: f64, z: f64) -> RouterLoss {
        let (rows, shares) = (load.rows.max(1) as f64, load.shares());
        let scale = balance * shares.len() as f64 / rows;
        RouterLoss {
            of_probabilities: shares.iter().map(|share| (scale * share) as f32).collect(),
            of_squares: (z / rows) as f32,
        }
    }
}

/// A routers' loss and the tokens that count in it.
#[derive(Clone, Copy, Debug)]
pub struct RouterTerm<'a> {
    /// The step's.
    pub loss: &'a RouterLoss,
    /// Whether each token of the batch counts, row after row; padding does not.
    pub counted: &'a [bool],
}

impl RouterTerm<'_> {
    /// What one router adds, `[1]`, with its graph.
    pub(crate) fn of(&self, routing: &Routing) -> Tensor<1> {
        let ([batch, seq, experts], device) = (routing.logits.dims(), routing.logits.device());
        let number = |values: Vec<f32>, shape: [usize; 3]| {
            Tensor::<3>::from_data(TensorData::new(values, shape), (&device, DType::F32))
        };
        let counted = self.counted.iter().map(|&counts| f32::from(u8::from(counts))).collect();
        let counted = number(counted, [batch, seq, 1]);
        let factors = number(self.loss.of_probabilities.clone(), [1, 1, experts]);
        let balance = (activation::softmax(routing.logits.clone(), 2) * factors * counted.clone()).sum();
        if self.loss.of_squares == 0.0 {
            return balance;
        }
        let largest = routing.logits.clone().detach().max_dim(2);
        let log_sums = (routing.logits.clone() - largest.clone()).exp().sum_dim(2).log() + largest;
        balance + (log_sums.square() * counted).sum() * self.loss.of_squares
    }
}

/// Adds up the terms of all routers of a pass.
pub(crate) struct RouterSum<'a> {
    term: Option<RouterTerm<'a>>,
    sum: Option<Tensor<1>>,
}

impl<'a> RouterSum<'a> {
    pub(crate) fn new(term: Option<RouterTerm<'a>>) -> RouterSum<'a> {
        RouterSum { term, sum: None }
    }

    pub(crate) fn add(&mut self, routing: &Routing) {
        let Some(term) = &self.term else { return };
        let term = term.of(routing);
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + term,
            None => term,
        });
    }

    /// None where there is no term, or no router.
    pub(crate) fn into_sum(self) -> Option<Tensor<1>> {
        self.sum
    }
}

impl Decoder {
    /// Counts what the routers choose for the tokens that are `counted`, without a graph; nothing where no block has
    /// experts. Adapters' dropout is left as it is set.
    pub fn expert_load(&self, tokens: Tensor<2, Int>, layout: &Layout, counted: &[bool]) -> ExpertLoad {
        let [batch, seq] = tokens.dims();
        assert_eq!(counted.len(), batch * seq, "one word per token on whether it counts");
        let mut load = ExpertLoad::default();
        // As the training pass computes it, to the bit: with the same operations, and no parameter that wants a gradient.
        let decoder = self.clone().no_grad();
        decoder.watched_stream(tokens, layout, &mut |routing| load.count(routing, counted));
        load
    }
}
