//! Which rows are drawn when: a function of seed and step (and of what the rows are), never of what ran before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_schema::Row;

use crate::batch::micro_batches_by;
use crate::data::{Data, Facts, Part, Scan};
use crate::error::{Error, Result};
use crate::order::Order;
use crate::seeds::{Purpose, split_seed};
use crate::supervised::StageConfig;

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Attribute {
    /// Tokens of the row.
    Tokens,
    /// Tokens with a weight above 0.
    TrainedTokens,
    /// Documents packed into it.
    Documents,
}

/// Rows in bins by an attribute, one bin after the other, in the first epochs; inside a bin and in later epochs they come
/// at random (arXiv 2108.06084 does so with lengths).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curriculum {
    /// What rows are sorted by.
    pub by: Attribute,
    /// Bins of nearly equal numbers of rows.
    pub bins: usize,
    /// Epochs that go through the bins.
    pub epochs: u64,
    /// From the largest to the smallest. Default: from the smallest.
    #[serde(default)]
    pub descending: bool,
}

impl Curriculum {
    fn check(&self, rows: usize) -> Result<()> {
        if self.bins < 2 || self.bins > rows {
            let detail = format!("{}, expected 2 to {rows}, the rows that are trained on", self.bins);
            return Err(Error::config("curriculum.bins", detail));
        }
        if self.epochs == 0 {
            return Err(Error::config("curriculum.epochs", "0, expected at least 1"));
        }
        Ok(())
    }

    /// The bin of every row, by its place in `rows`.
    fn bins(&self, rows: &[usize], facts: &[Facts]) -> Vec<usize> {
        let value = |row: usize| match self.by {
            Attribute::Tokens => facts[row].tokens,
            Attribute::TrainedTokens => facts[row].trained,
            Attribute::Documents => facts[row].documents,
        };
        let mut ranked: Vec<usize> = (0..rows.len()).collect();
        ranked.sort_by_key(|&at| value(rows[at]));
        if self.descending {
            ranked.reverse();
        }
        let mut bins = vec![0; rows.len()];
        ranked.into_iter().enumerate().for_each(|(rank, at)| bins[at] = rank * self.bins / rows.len());
        bins
    }
}

/// Which rows are drawn when.
pub(crate) struct Plan {
    /// Numbers of the rows that are trained on.
    pub(crate) trained: Vec<usize>,
    pub(crate) untrained_rows: usize,
    pub(crate) held_out: Vec<usize>,
    order: Draws,
    /// Rows drawn over the whole run.
    draws: u64,
    rows_per_step: u64,
    pub(crate) steps: u64,
    facts: Vec<Facts>,
    parts: Vec<Part>,
}

/// Rows that go through the decoder at once.
pub(crate) struct MicroBatch {
    /// Their numbers.
    pub(crate) rows: Vec<usize>,
    /// Tokens that are computed, padding included.
    pub(crate) places: usize,
}

/// What is drawn at a position.
enum Draws {
    /// A place in `trained`, by random access.
    Permuted(Order),
    /// Row numbers by position, where parts are mixed or sorted.
    Listed(Vec<u32>),
}

impl Plan {
    pub(crate) fn new(config: &StageConfig, data: &Data, found: Scan, has_validation_data: bool) -> Result<Self> {
        let wanted = config.validation.and_then(|validation| validation.held_out_rows).unwrap_or(0);
        if config.validation.is_some() && (wanted > 0) == has_validation_data {
            let detail = "give either validation data or a number of rows above 0";
            return Err(Error::config("validation.held_out_rows", detail));
        }
        if wanted >= found.trained.len() {
            let detail = format!("{wanted} of {} rows with targets: none is left to train on", found.trained.len());
            return Err(Error::config("validation.held_out_rows", detail));
        }
        let pick = Order::new(found.trained.len(), split_seed(config.seed, Purpose::HeldOut, 0));
        let mut held_out: Vec<usize> = (0..wanted as u64).map(|at| found.trained[pick.at(at)]).collect();
        held_out.sort_unstable();
        let trained: Vec<usize> =
            found.trained.into_iter().filter(|number| held_out.binary_search(number).is_err()).collect();
        let rows_per_step = config.rows_per_step as u64;
        let draws = match (config.steps, config.epochs) {
            (Some(steps), None) if steps > 0 => steps * rows_per_step,
            (None, Some(epochs)) if epochs > 0.0 && epochs.is_finite() => {
                ((epochs * trained.len() as f64).round() as u64).max(1)
            }
            _ => return Err(Error::config("steps", "give either `steps` or `epochs`, above 0")),
        };
        let steps = draws.div_ceil(rows_per_step);
        config.schedule.check(steps)?;
        let order = match (&config.mixture, config.curriculum) {
            (None, _) if data.parts.len() > 1 => {
                let names: Vec<&str> = data.parts.iter().map(|part| part.name.as_str()).collect();
                return Err(Error::config(
                    "mixture",
                    format!("missing: give a weight to each of {}", names.join(", ")),
                ));
            }
            (None, None) => Draws::Permuted(Order::new(trained.len(), config.seed)),
            (mixture, curriculum) => {
                let mut streams = streams(config, data, &trained, mixture.as_ref())?;
                if let Some(curriculum) = curriculum {
                    for stream in &mut streams {
                        stream.sort_by(curriculum, &found.facts)?;
                    }
                }
                Draws::Listed(mix(&mut streams, draws, &found.facts))
            }
        };
        let (untrained_rows, facts, parts) = (found.untrained, found.facts, data.parts.clone());
        Ok(Self { trained, untrained_rows, held_out, order, draws, rows_per_step, steps, facts, parts })
    }

    /// Numbers of the rows of a step, from 0.
    pub(crate) fn rows_of(&self, step: u64) -> Vec<usize> {
        let from = step * self.rows_per_step;
        let to = (from + self.rows_per_step).min(self.draws);
        (from..to).map(|position| self.row_at(position)).collect()
    }

    fn row_at(&self, position: u64) -> usize {
        match &self.order {
            Draws::Permuted(order) => self.trained[order.at(position)],
            Draws::Listed(rows) => rows[position as usize] as usize,
        }
    }

    /// The longest rows that can meet in a step.
    pub(crate) fn longest_rows(&self, count: usize) -> Vec<usize> {
        let count = count.min(self.rows_per_step as usize);
        let mut numbers = self.trained.clone();
        numbers.sort_by_key(|&number| std::cmp::Reverse(self.facts[number].computed));
        numbers.truncate(count);
        numbers
    }

    /// `Σ w` over rows.
    pub(crate) fn weight(&self, numbers: &[usize]) -> f64 {
        numbers.iter().map(|&number| self.facts[number].weight).sum()
    }

    /// Tokens of rows, and those of them that are trained.
    pub(crate) fn tokens(&self, numbers: &[usize]) -> (u64, u64) {
        let sum = |of: fn(&Facts) -> u32| numbers.iter().map(|&number| u64::from(of(&self.facts[number]))).sum();
        (sum(|facts| facts.tokens), sum(|facts| facts.trained))
    }

    /// The micro-batches of a step's rows, each with its places.
    pub(crate) fn micro_batches(&self, numbers: &[usize], rows_per_micro_batch: usize) -> Vec<MicroBatch> {
        let length = |at: usize| self.facts[numbers[at]].computed as usize;
        let lengths: Vec<usize> = (0..numbers.len()).map(length).collect();
        let of_places = |places: Vec<usize>| MicroBatch {
            places: places.iter().map(|&at| lengths[at]).max().unwrap_or(0) * places.len(),
            rows: places.into_iter().map(|at| numbers[at]).collect(),
        };
        micro_batches_by(&lengths, rows_per_micro_batch).into_iter().map(of_places).collect()
    }

    /// Share of the places of micro-batches that hold padding.
    pub(crate) fn padding(&self, micro_batches: &[MicroBatch]) -> f64 {
        let rows = micro_batches.iter().flat_map(|batch| &batch.rows);
        let used: usize = rows.map(|&number| self.facts[number].computed as usize).sum();
        let places: usize = micro_batches.iter().map(|batch| batch.places).sum();
        if places == 0 { 0.0 } else { 1.0 - used as f64 / places as f64 }
    }

    /// Tokens by part among rows; empty where there is one part.
    pub(crate) fn tokens_by_part(&self, rows: impl Iterator<Item = usize>) -> BTreeMap<String, u64> {
        let mut tokens = BTreeMap::new();
        if self.parts.len() > 1 {
            tokens.extend(self.parts.iter().map(|part| (part.name.clone(), 0)));
            for row in rows {
                let part = self.parts.partition_point(|part| part.rows.end <= row);
                *tokens.entry(self.parts[part].name.clone()).or_default() += u64::from(self.facts[row].tokens);
            }
        }
        tokens
    }

    /// Tokens by part in the first `draws` rows of the run.
    pub(crate) fn realised(&self, draws: u64) -> BTreeMap<String, u64> {
        self.tokens_by_part((0..if self.parts.len() > 1 { draws } else { 0 }).map(|position| self.row_at(position)))
    }
}

/// The endless permuted rows of one part.
struct Stream {
    rows: Vec<usize>,
    order: Order,
    /// Bin of each place in `rows`, and the epochs that go through the bins.
    bins: Option<(Vec<usize>, u64)>,
    /// Share of the run's tokens.
    weight: f64,
    /// The epoch being drawn from, reversed.
    epoch: Vec<usize>,
    epochs: u64,
}

impl Stream {
    fn sort_by(&mut self, curriculum: Curriculum, facts: &[Facts]) -> Result<()> {
        curriculum.check(self.rows.len())?;
        self.bins = Some((curriculum.bins(&self.rows, facts), curriculum.epochs));
        Ok(())
    }

    fn next(&mut self) -> usize {
        if self.epoch.is_empty() {
            let len = self.rows.len() as u64;
            self.epoch = (0..len).map(|at| self.order.at(self.epochs * len + at)).collect();
            if let Some((bins, _)) = self.bins.as_ref().filter(|(_, epochs)| self.epochs < *epochs) {
                self.epoch.sort_by_key(|&at| bins[at]);
            }
            self.epoch.reverse();
            self.epochs += 1;
        }
        self.epoch.pop().map_or(0, |at| self.rows[at])
    }
}

/// One stream for each part that has rows to train on; weights as shares.
fn streams(
    config: &StageConfig,
    data: &Data,
    trained: &[usize],
    mixture: Option<&BTreeMap<String, f64>>,
) -> Result<Vec<Stream>> {
    let stream = |rows: Vec<usize>, seed: u64, weight: f64| Stream {
        order: Order::new(rows.len(), seed),
        rows,
        bins: None,
        weight,
        epoch: Vec::new(),
        epochs: 0,
    };
    let Some(mixture) = mixture else { return Ok(vec![stream(trained.to_vec(), config.seed, 1.0)]) };
    if let Some(name) = mixture.keys().find(|name| data.parts.iter().all(|part| part.name != **name)) {
        let names: Vec<&str> = data.parts.iter().map(|part| part.name.as_str()).collect();
        return Err(Error::config(
            &format!("mixture.{name}"),
            format!("no such rows, there are: {}", names.join(", ")),
        ));
    }
    let total: f64 = mixture.values().sum();
    let mut streams = Vec::new();
    for (number, part) in data.parts.iter().enumerate() {
        let field = format!("mixture.{}", part.name);
        let weight = *mixture.get(&part.name).ok_or_else(|| Error::config(&field, "missing"))?;
        if !(weight > 0.0 && weight.is_finite()) {
            return Err(Error::config(&field, format!("{weight}, expected a number above 0")));
        }
        let rows: Vec<usize> = trained.iter().copied().filter(|row| part.rows.contains(row)).collect();
        if rows.is_empty() {
            return Err(Error::config(&field, "none of these rows has a target"));
        }
        let seed = split_seed(config.seed, Purpose::Part, number as u64);
        streams.push(stream(rows, seed, weight / total));
    }
    Ok(streams)
}

/// Draws from whichever stream is furthest behind its share of the tokens.
fn mix(streams: &mut [Stream], draws: u64, facts: &[Facts]) -> Vec<u32> {
    let mut drawn = vec![0u64; streams.len()];
    let mut rows = Vec::with_capacity(draws as usize);
    for _ in 0..draws {
        let total: u64 = drawn.iter().sum();
        let behind = |at: usize| streams[at].weight * (total + 1) as f64 - drawn[at] as f64;
        let next = (0..streams.len()).max_by(|&a, &b| behind(a).total_cmp(&behind(b)).then(b.cmp(&a))).unwrap_or(0);
        let row = streams[next].next();
        drawn[next] += u64::from(facts[row].tokens);
        rows.push(row as u32);
    }
    rows
}

/// Reads rows by number.
pub(crate) fn read(data: &Data, numbers: &[usize]) -> Result<Vec<Row>> {
    numbers.iter().map(|&number| data.rows.row(number)).collect()
}
