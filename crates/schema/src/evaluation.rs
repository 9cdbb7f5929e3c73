//! Evaluation v1: what `evaluate pool` found, for the terminal table and the report page.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::trajectory::System;

/// Name of the file inside an evaluation artifact.
pub const EVALUATION_FILE: &str = "evaluation.json";

/// A mean with its bootstrap interval, clustered by episode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Number of values.
    pub n: u64,
    /// Number of clusters (episodes).
    pub clusters: u64,
}

/// The measures of one predictor on one set of turns.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measures {
    /// Share of predictions equal to the truth.
    pub exact: Interval,
    /// Share equal after masking volatile parts and trailing blanks.
    pub normalised: Interval,
    /// Mean F1 over lines.
    pub line_f1: Interval,
    /// Mean rubric on the 0–100 scale.
    pub rubric: Interval,
    /// Share of completions without a usable prediction, by reason.
    pub faults: BTreeMap<String, f64>,
    /// Further means by name, where they were taken: the rubric's dimensions on the 0–100 scale (`format`, …), and what
    /// code measures by itself as shares (`unit_f1`, `unit_precision`, `unit_recall`, `no_change`, `error_class`,
    /// `valid`, `length_ratio`; on rule axes `checks`, the share of the checks made from the truth that pass).
    #[serde(default)]
    pub more: BTreeMap<String, Interval>,
}

/// Predictions of about the same confidence, and how many of them were right.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CalibrationBin {
    /// Mean of `exp(mean log-prob of a completion's tokens)`.
    pub confidence: f64,
    /// Share that matches the truth after masking.
    pub matches: f64,
    /// Number of completions.
    pub n: u64,
}

/// What makes predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredictorKind {
    /// A checkpoint of the run.
    Stage,
    /// A checkpoint of the same shape that went past stages.
    Ablation,
    /// A trivial rule.
    Baseline,
}

/// One row of the stage table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Predictor {
    /// `base`, `cpt`, `sft`, `rl`, or the baseline's name.
    pub name: String,
    /// Checkpoint or rule.
    pub kind: PredictorKind,
    /// How it was asked, such as `v1, no thinking` or `v0, thinking and tags`.
    pub asked: String,
    /// Over all turns.
    pub all: Measures,
    /// By turn class: `empty`, `echo`, `state`, `error`.
    pub by_class: BTreeMap<String, Measures>,
    /// By command family.
    pub by_family: BTreeMap<String, Measures>,
    /// By domain.
    #[serde(default)]
    pub by_domain: BTreeMap<String, Measures>,
    /// By kind of observation: `text`, `json`, `tree`, `diff`.
    #[serde(default)]
    pub by_kind: BTreeMap<String, Measures>,
    /// By rule axis: the turns whose flag `axis` says `control`, `error` or `long`; the last also by distance, as
    /// `long, distance  4`.
    #[serde(default)]
    pub by_axis: BTreeMap<String, Measures>,
    /// From the least confident predictions to the most; empty for rules.
    #[serde(default)]
    pub calibration: Vec<CalibrationBin>,
    /// Completions by length: upper bound in tokens (powers of two) to number; empty for rules.
    #[serde(default)]
    pub lengths: BTreeMap<u64, u64>,
    /// Share of the completions that ended at the longest length instead of by themselves; none for rules.
    #[serde(default)]
    pub cut_share: Option<f64>,
}

/// A paired difference between two predictors on the same turns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The earlier one.
    pub from: String,
    /// The later one.
    pub to: String,
    /// `normalised`, `line_f1`, `rubric`, `exact` or a dimension of the rubric.
    pub measure: String,
    /// `all`, a class, or `domain:` and a domain.
    pub turns: String,
    /// later − earlier.
    pub interval: Interval,
}

/// What one predictor said to one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// The predicted observation, or the raw completion when it has none.
    pub text: String,
    /// The thinking before it, if any.
    pub thinking: Option<String>,
    /// Equal after masking.
    pub normalised: bool,
    /// Rubric, 0–100.
    pub rubric: Option<f64>,
    /// Why there is no usable prediction.
    pub fault: Option<String>,
}

/// A turn with all predictions beside the truth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Example {
    /// Trajectory and turn.
    pub id: String,
    /// Kind of environment.
    #[serde(default)]
    pub domain: String,
    /// Turn class.
    pub class: String,
    /// Command family.
    pub family: String,
    /// What the world model is told before the first turn.
    #[serde(default)]
    pub system: System,
    /// Earlier turns, action and observation.
    pub history: Vec<(String, String)>,
    /// The action.
    pub action: String,
    /// What the environment answered.
    pub truth: String,
    /// By predictor name.
    pub predictions: BTreeMap<String, Prediction>,
}

/// The whole evaluation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Seed of the sampled turns, decoding and bootstrap.
    pub seed: u64,
    /// Number of evaluation turns and episodes used.
    pub turns: u64,
    /// Number of episodes.
    pub episodes: u64,
    /// Share of turns by class.
    pub class_shares: BTreeMap<String, f64>,
    /// Rows of the table, stages first.
    pub predictors: Vec<Predictor>,
    /// Paired differences between successive stages, and between the last stage and each ablation and baseline.
    pub differences: Vec<Difference>,
    /// Sampled turns.
    pub examples: Vec<Example>,
}

impl Evaluation {
    /// Reads `evaluation.json` from an artifact folder.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(EVALUATION_FILE);
        let text = fs_err::read_to_string(&path)?;
        serde_json::from_str(&text).map_err(|error| Error::Json { path, detail: error.to_string() })
    }

    /// Writes `evaluation.json` into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(EVALUATION_FILE);
        let text = serde_json::to_string_pretty(self).map_err(|error| Error::write(&path, error))?;
        Ok(fs_err::write(&path, text + "\n")?)
    }
}
