//! The parts of a config that are switched on by being there: near duplicates, decontamination, mixture; and limits of
//! single domains.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use crate::config::CurateConfig;
use crate::error::{Error, Result};
use crate::minhash::{MinHash, rows_per_band};

/// Limits of one domain; what is not given is as for all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// As [`CurateConfig::min_turns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_turns: Option<u32>,
    /// As [`CurateConfig::max_turns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_turns: Option<u32>,
    /// As [`CurateConfig::max_observation_chars`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_observation_chars: Option<u64>,
    /// As [`CurateConfig::max_action_chars`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_action_chars: Option<u64>,
    /// As [`CurateConfig::max_trajectory_chars`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_trajectory_chars: Option<u64>,
}

/// Near duplicates by MinHash over shingles of actions and observations.
///
/// Two trajectories are compared where a band of their signatures agrees. In a band's bucket each is compared with the
/// first and with the three before it, by id, so that a bucket of any size costs its size; clusters grow over chains.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NearDuplicates {
    /// The estimated Jaccard similarity from which two are near duplicates.
    pub threshold: f64,
    /// Words per shingle.
    pub shingle_words: usize,
    /// Places of a signature; the estimate's standard deviation is at most `0.5 / sqrt(places)`.
    #[serde(default = "default_places")]
    pub places: usize,
}

fn default_places() -> usize {
    128
}

impl NearDuplicates {
    pub(crate) fn check(&self) -> Result<()> {
        if !(self.threshold > 0.0 && self.threshold <= 1.0) {
            return Err(Error::config("near_duplicates.threshold", self.threshold, "above 0, at most 1"));
        }
        for (field, number, most) in [("shingle_words", self.shingle_words, 1000), ("places", self.places, 4096)] {
            if !(1..=most).contains(&number) {
                return Err(Error::config(&format!("near_duplicates.{field}"), number, &format!("1 to {most}")));
            }
        }
        Ok(())
    }

    pub(crate) fn hashes(&self) -> MinHash {
        MinHash::new(self.places, self.shingle_words)
    }

    pub(crate) fn rows_per_band(&self) -> usize {
        rows_per_band(self.places, self.threshold)
    }
}

/// Training trajectories that share too much with evaluation are dropped: their task group, or runs of words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decontaminate {
    /// Evaluation sets: files or folders of trajectories, benchmark rows or text. Applied to all pools.
    #[serde(default)]
    pub against: Vec<PathBuf>,
    /// Whether training pools are also compared with the evaluation pool of the same curation.
    pub own_evaluation: bool,
    /// Words of a run; the usual number is 13.
    pub run_words: usize,
    /// So many words in a row that stand in evaluation texts are a leak.
    pub longest_run: u64,
    /// More than this share of words in shared runs is a leak.
    pub largest_share: f64,
}

impl Decontaminate {
    pub(crate) fn check(&self) -> Result<()> {
        if self.run_words == 0 || self.longest_run == 0 {
            return Err(Error::config("decontaminate.run_words, longest_run", 0, "1 or more"));
        }
        if !(0.0..=1.0).contains(&self.largest_share) {
            return Err(Error::config("decontaminate.largest_share", self.largest_share, "0 to 1"));
        }
        if self.against.is_empty() && !self.own_evaluation {
            let expected = "evaluation sets, or own_evaluation = true";
            return Err(Error::config("decontaminate.against", "[]", expected));
        }
        Ok(())
    }
}

/// Balance of the training pools: of each domain or source so many trajectories stay that their numbers are as `n^alpha`
/// or as the weights, with as few dropped as that allows. Which stay is drawn by seed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mixture {
    /// What is balanced.
    pub by: MixtureKey,
    /// 1 leaves the numbers as they are, 0 makes them equal.
    #[serde(default = "as_it_is")]
    pub alpha: f64,
    /// Weights by name, instead of `alpha`; a name without one is dropped.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
}

impl Mixture {
    pub(crate) fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.alpha) {
            return Err(Error::config("mixture.alpha", self.alpha, "0 to 1"));
        }
        let is_wrong = |weight: &f64| !weight.is_finite() || *weight < 0.0;
        match self.weights.iter().find(|(_, weight)| is_wrong(weight)) {
            Some((name, weight)) => Err(Error::config(&format!("mixture.weights.{name}"), weight, "0 or more")),
            None => Ok(()),
        }
    }
}

fn as_it_is() -> f64 {
    1.0
}

/// What a mixture balances.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixtureKey {
    /// The seven domains.
    Domain,
    /// The sources.
    Source,
}
