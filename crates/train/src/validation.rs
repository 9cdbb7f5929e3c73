//! Measuring on rows that are not trained on: one law, weighted by tokens, all together and by domain.
//!
//! A *span* is a run of targets without a gap in one document: an answer. Greedy decoding from the true history gives
//! the span back exactly if and only if each of its tokens is the most probable after the ones before it, so one forward
//! pass tells which answers would be exact, without generating anything.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_model::RowStatistics;
use worldloom_schema::Row;

use crate::batch::{Batch, micro_batches};
use crate::data::{Data, Labels};
use crate::error::Result;
use crate::learner::Learner;
use crate::plan::read;
use crate::ranks::{Ranks, agree, dealt};

/// What was measured on some rows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// `Σ w·nll / Σ w`, in nats.
    pub loss: f64,
    /// `Σ nll / (ln 2 · bytes)` over the targets, where the bytes of tokens are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits_per_byte: Option<f64>,
    /// Mean entropy of the model at the targets, in nats.
    pub entropy: f64,
    /// Share of answers that greedy decoding would give exactly.
    pub exact: f64,
    /// Answers looked at.
    pub answers: u64,
}

/// What a step measured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// All rows.
    #[serde(flatten)]
    pub all: Score,
    /// By domain, where domains are known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, Score>,
}

/// Sums of one domain.
#[derive(Debug, Clone, Default)]
struct Sums {
    weighted_nll: f64,
    weight: f64,
    nll: f64,
    bytes: u64,
    entropy: f64,
    targets: u64,
    answers: u64,
    exact: u64,
}

impl Sums {
    fn score(&self) -> Score {
        let bits = self.nll / std::f64::consts::LN_2;
        Score {
            loss: self.weighted_nll / self.weight,
            bits_per_byte: (self.bytes > 0).then(|| bits / self.bytes as f64),
            entropy: self.entropy / self.targets.max(1) as f64,
            exact: self.exact as f64 / self.answers.max(1) as f64,
            answers: self.answers,
        }
    }
}

/// Measures on rows of `data` with these numbers, which the ranks share; every rank has the result.
pub(crate) fn measure(
    ranks: &dyn Ranks,
    learner: &Learner,
    data: &Data,
    numbers: &[usize],
    rows_per_micro_batch: usize,
) -> Result<Validation> {
    let rows = agree(ranks, read(data, numbers))?;
    let (mut all, mut domains) = (Sums::default(), BTreeMap::new());
    let micro_batches = micro_batches(&rows, rows_per_micro_batch);
    for (numbers, statistics) in micro_batches.iter().zip(statistics(ranks, learner, &rows, &micro_batches)?) {
        for (&at, statistics) in numbers.iter().zip(statistics) {
            add_row(&rows[at], &statistics, data.labels.as_ref(), &mut all, &mut domains);
        }
    }
    let domains = domains.into_iter().map(|(name, sums)| (name, sums.score())).collect();
    Ok(Validation { all: all.score(), domains })
}

/// Of every target of every row of every micro-batch, each computed by one rank.
fn statistics(
    ranks: &dyn Ranks,
    learner: &Learner,
    rows: &[Row],
    micro_batches: &[Vec<usize>],
) -> Result<Vec<Vec<Vec<RowStatistics>>>> {
    let costs: Vec<usize> =
        micro_batches.iter().map(|batch| batch.iter().map(|&at| rows[at].tokens.len()).sum()).collect();
    let mine = dealt(ranks, &costs);
    let batches = mine.iter().map(|&number| &micro_batches[number]);
    let measured = learner
        .lanes
        .map(batches, |numbers| Batch::of(rows, numbers, 1.0).statistics(learner.decoder(), &learner.device));
    if ranks.count() == 1 {
        return Ok(measured);
    }
    // Zeros of the others are added: every number stays what its rank found.
    let mut measured: BTreeMap<usize, _> = mine.into_iter().zip(measured).collect();
    let mut numbers = Vec::new();
    for (number, batch) in micro_batches.iter().enumerate() {
        match measured.remove(&number) {
            Some(found) => {
                let found: Vec<RowStatistics> = found.into_iter().flatten().collect();
                numbers.extend(found.iter().flat_map(|one| [one.nll, one.entropy, f32::from(u8::from(one.is_top))]));
            }
            None => numbers.resize(numbers.len() + 3 * batch.iter().map(|&at| targets(&rows[at])).sum::<usize>(), 0.0),
        }
    }
    ranks.sum_f32(&mut numbers)?;
    let mut all =
        numbers.chunks_exact(3).map(|one| RowStatistics { nll: one[0], entropy: one[1], is_top: one[2] > 0.5 });
    let mut of_row = |&at: &usize| all.by_ref().take(targets(&rows[at])).collect();
    Ok(micro_batches.iter().map(|batch| batch.iter().map(&mut of_row).collect()).collect())
}

/// How many targets a row has.
fn targets(row: &Row) -> usize {
    row.weights.iter().filter(|&&weight| weight != 0.0).count()
}

fn add_row(
    row: &Row,
    statistics: &[RowStatistics],
    labels: Option<&Labels>,
    all: &mut Sums,
    domains: &mut BTreeMap<String, Sums>,
) {
    // The row's own sum first, so that the loss is the one that rows alone would give.
    let (mut of_row, mut is_exact) = (0.0, true);
    let targets = (0..row.tokens.len()).filter(|&at| row.weights[at] != 0.0).zip(statistics).collect::<Vec<_>>();
    for (number, &(at, found)) in targets.iter().enumerate() {
        let (segment, weight) = (row.segments[at] as usize, f64::from(row.weights[at]));
        let mut sums = Sums {
            weighted_nll: weight * f64::from(found.nll),
            weight,
            nll: f64::from(found.nll),
            bytes: labels.map_or(0, |labels| labels.bytes_of(row.tokens[at])),
            entropy: f64::from(found.entropy),
            targets: 1,
            ..Sums::default()
        };
        is_exact &= found.is_top;
        let next = targets.get(number + 1).map(|&(next, _)| next);
        if next.is_none_or(|next| next != at + 1 || row.segments[next] != row.segments[at]) {
            (sums.answers, sums.exact) = (1, u64::from(is_exact));
            is_exact = true;
        }
        of_row += sums.weighted_nll;
        if let Some(domain) = labels.and_then(|labels| labels.domains.get(row.sources.get(segment)?)) {
            add(domains.entry(domain.clone()).or_default(), &sums);
        }
        add(all, &Sums { weighted_nll: 0.0, weight: 0.0, ..sums });
    }
    all.weighted_nll += of_row;
    all.weight += row.total_weight();
}

fn add(into: &mut Sums, other: &Sums) {
    into.weighted_nll += other.weighted_nll;
    into.weight += other.weight;
    into.nll += other.nll;
    into.bytes += other.bytes;
    into.entropy += other.entropy;
    into.targets += other.targets;
    into.answers += other.answers;
    into.exact += other.exact;
}

impl Labels {
    fn bytes_of(&self, token: u32) -> u64 {
        self.token_bytes.get(token as usize).copied().map_or(0, u64::from)
    }
}
