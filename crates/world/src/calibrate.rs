//! How far judges can be trusted: whether they tell the real observation from a predicted one without being told, and
//! whether they rank predictions and predictors alike (arXiv 2606.24597, its choice of a judge).
//!
//! What is judged are the predictions that `evaluate pool` left beside the truth. All intervals resample trajectories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use worldloom_judge::asked::{Picked, pick_real};
use worldloom_judge::{
    Dimension, Interval, JudgeContext, JudgeOutcome, JudgeQuery, Scores, Unavailable, clustered_mean,
    clustered_statistic, normalised_match, rank_agreement, rank_agreement_interval, told,
};
use worldloom_schema::{TableReader, Trajectory};

use crate::error::{Error, Result};
use crate::evaluate::drawn;
use crate::judges::{JudgeConfig, JudgePlace};
use crate::teacher::write_report;

/// Where the figures are written.
pub const CALIBRATION_FILE: &str = "calibration.json";

/// What decides a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CalibrateConfig {
    /// The judges by a name of their own.
    pub judges: BTreeMap<String, JudgeConfig>,
    /// Seed of the drawn turns and the bootstrap.
    pub seed: u64,
    /// At most this many of the evaluated turns, drawn by seed. Default: 100.
    #[serde(default = "default_max_turns")]
    pub max_turns: usize,
    /// Whose predictions are judged, by their names in the evaluation. Default: everyone's, trivial rules included.
    #[serde(default)]
    pub predictors: Vec<String>,
    /// Bootstrap resamples. Default: 1,000.
    #[serde(default = "default_resamples")]
    pub resamples: usize,
}

fn default_max_turns() -> usize {
    100
}

fn default_resamples() -> usize {
    1000
}

impl CalibrateConfig {
    fn check(&self) -> Result<()> {
        if self.judges.is_empty() {
            return Err(Error::config("judges", "there is none"));
        }
        for (field, count) in [("max_turns", self.max_turns), ("resamples", self.resamples)] {
            if count == 0 {
                return Err(Error::config(field, "0, expected at least 1"));
            }
        }
        Ok(())
    }
}

/// What a calibration is given.
pub struct CalibrateInputs<'a> {
    /// `predictions.jsonl` of `evaluate pool`.
    pub predictions: &'a Path,
    /// The pool that was evaluated: histories and initial states.
    pub pool: &'a Path,
    /// Where judges are opened; each has a folder of its own in it.
    pub place: &'a JudgePlace<'a>,
    /// Set to stop before the next judge or predictor; answers of endpoints are kept.
    pub stop: &'a AtomicBool,
    /// Hears how many predictions are judged, and of how many.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Turns that were judged.
    pub turns: usize,
    /// Trajectories they come from.
    pub trajectories: usize,
    /// Predictions without a fault, by predictor.
    pub predictions: BTreeMap<String, usize>,
    /// By judge.
    pub judges: BTreeMap<String, JudgeFigures>,
    /// Each pair of judges.
    pub agreements: Vec<Agreement>,
}

/// What one judge did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgeFigures {
    /// Its rubric, `5 · mean` from 5 to 25: lenient or strict.
    pub rubric: Option<Interval>,
    /// The same by predictor.
    pub by_predictor: BTreeMap<String, Interval>,
    /// Its dimensions, 1 to 5.
    pub dimensions: BTreeMap<String, Interval>,
    /// Predictions it gave no scores, by reason.
    pub unscored: BTreeMap<String, usize>,
    /// Its choices without the truth; none where it is no single model.
    pub blind: Option<Blind>,
}

/// A judge's choices between truth and prediction, each pair in both orders.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Blind {
    /// Share of choices that were the truth: 0.5 is chance.
    pub accuracy: Option<Interval>,
    /// The same by predictor: the lower, the harder its predictions are to tell.
    pub by_predictor: BTreeMap<String, Interval>,
    /// The same by domain.
    pub by_domain: BTreeMap<String, Interval>,
    /// Share of choices that were what stood first: 0.5 for one who looks at the texts.
    pub first_share: Option<Interval>,
    /// Pairs without an answer in both orders.
    pub unanswered: usize,
    /// Predictions that equal the truth, between which there is nothing to choose.
    pub equal: usize,
}

/// How far two judges agree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// A judge.
    pub one: String,
    /// Another one.
    pub other: String,
    /// Spearman's correlation of their rubrics over predictions.
    pub predictions: Option<Interval>,
    /// The same over the predictors' means, of three or more.
    pub predictors: Option<Interval>,
}

/// A line of the evaluation's predictions.
#[derive(Deserialize)]
struct Line {
    id: String,
    truth: String,
    predictions: BTreeMap<String, Said>,
}

#[derive(Deserialize)]
struct Said {
    text: String,
    fault: Option<String>,
}

/// A prediction to be judged.
struct Sample<'a> {
    trajectory: &'a str,
    predictor: &'a str,
    query: JudgeQuery<'a>,
}

/// Asks every judge about every prediction, and writes what it found.
pub fn calibrate(config: &CalibrateConfig, inputs: &CalibrateInputs<'_>, out: &Path) -> Result<Calibration> {
    config.check()?;
    let mut lines = read_lines(inputs.predictions)?;
    if lines.len() > config.max_turns {
        lines = drawn(lines, config.max_turns, &mut ChaCha8Rng::seed_from_u64(config.seed));
    }
    let names = predictors(config, &lines)?;
    let episodes = TableReader::<Trajectory>::open(inputs.pool)?.collect::<worldloom_schema::Result<Vec<_>>>()?;
    let by_id: BTreeMap<&str, &Trajectory> =
        episodes.iter().map(|episode| (episode.trajectory_id.as_str(), episode)).collect();
    let turns = lines.iter().map(|line| find(line, &by_id, inputs.pool)).collect::<Result<Vec<_>>>()?;
    let histories: Vec<Vec<(&str, &str)>> = turns.iter().map(|(episode, turn)| told(&episode.turns[..*turn])).collect();
    let mut samples = Vec::new();
    for ((line, (episode, turn)), history) in lines.iter().zip(&turns).zip(&histories) {
        let context = JudgeContext::of(episode, *turn, history);
        for (name, said) in line.predictions.iter().filter(|(name, said)| names.contains(*name) && said.fault.is_none())
        {
            let query = JudgeQuery { context, truth: &line.truth, prediction: &said.text };
            samples.push(Sample { trajectory: &episode.trajectory_id, predictor: name, query });
        }
    }
    let asked = Asked { config, inputs, samples: &samples };
    let mut judged = BTreeMap::new();
    for (number, (name, judge)) in config.judges.iter().enumerate() {
        judged.insert(name.as_str(), asked.judge(name, judge, number)?);
    }
    let mut predictions: BTreeMap<String, usize> = names.iter().map(|name| (name.clone(), 0)).collect();
    samples.iter().for_each(|sample| *predictions.entry(sample.predictor.to_string()).or_default() += 1);
    let scores = |judge: &str| &judged[judge].1;
    let pairs = pairs_of(&config.judges.keys().map(String::as_str).collect::<Vec<_>>());
    let agreements = pairs.into_iter().map(|(one, other)| asked.agreement((one, scores(one)), (other, scores(other))));
    let found = Calibration {
        turns: lines.len(),
        trajectories: turns.iter().map(|(episode, _)| &episode.trajectory_id).collect::<BTreeSet<_>>().len(),
        predictions,
        agreements: agreements.collect(),
        judges: judged.into_iter().map(|(name, (figures, _))| (name.to_string(), figures)).collect(),
    };
    write_report(&out.join(CALIBRATION_FILE), &found)?;
    Ok(found)
}

/// The judges' work on the samples.
struct Asked<'a> {
    config: &'a CalibrateConfig,
    inputs: &'a CalibrateInputs<'a>,
    samples: &'a [Sample<'a>],
}

impl Asked<'_> {
    /// What a judge did, and its scores sample by sample.
    fn judge(&self, name: &str, config: &JudgeConfig, number: usize) -> Result<(JudgeFigures, Vec<Option<Scores>>)> {
        let folder = self.inputs.place.folder.join(name);
        fs_err::create_dir_all(&folder)?;
        let place = JudgePlace { folder: &folder, ..*self.inputs.place };
        let (judge, respondent) = config.open_with_respondent(&place)?;
        let mut outcomes = vec![JudgeOutcome::Unavailable; self.samples.len()];
        let mut picked = vec![None; self.samples.len()];
        let (total, mut done) = (self.samples.len() * self.config.judges.len(), self.samples.len() * number);
        // Predictor by predictor, so that a run that is stopped has asked for something whole.
        for predictor in self.samples.iter().map(|sample| sample.predictor).collect::<BTreeSet<_>>() {
            if self.inputs.stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped { done: done as u64, total: total as u64 });
            }
            let of: Vec<usize> =
                (0..self.samples.len()).filter(|&at| self.samples[at].predictor == predictor).collect();
            let queries: Vec<JudgeQuery<'_>> = of.iter().map(|&at| self.samples[at].query).collect();
            for (&at, outcome) in of.iter().zip(judge.score_all(&queries)) {
                outcomes[at] = outcome;
            }
            if let Some(respondent) = &respondent {
                let unlike: Vec<usize> = of.iter().copied().filter(|&at| !self.is_equal(at)).collect();
                let queries: Vec<JudgeQuery<'_>> = unlike.iter().map(|&at| self.samples[at].query).collect();
                for (at, choice) in unlike.into_iter().zip(pick_real(respondent.as_ref(), &queries, config.tries())) {
                    picked[at] = Some(choice);
                }
            }
            done += of.len();
            (self.inputs.progress)(done as u64, total as u64);
        }
        let scores: Vec<Option<Scores>> = outcomes.iter().map(JudgeOutcome::scores).collect();
        let rubric: Vec<Option<f64>> = scores.iter().map(|scores| scores.map(|scores| 5.0 * scores.mean())).collect();
        let mut unscored = BTreeMap::new();
        for outcome in outcomes.iter().filter(|outcome| outcome.scores().is_none()) {
            *unscored.entry(reason(*outcome).to_string()).or_default() += 1;
        }
        let dimension = |dimension: Dimension| {
            let values: Vec<Option<f64>> =
                scores.iter().map(|scores| scores.map(|scores| scores.get(dimension).value())).collect();
            Some((dimension.as_str().to_string(), self.mean(&values, |_| true)?))
        };
        let blind = respondent.is_some().then(|| {
            let choices = |of: fn(Picked) -> Option<f64>| -> Vec<Option<f64>> {
                picked.iter().map(|picked| picked.and_then(of)).collect()
            };
            let hits = choices(Picked::accuracy);
            let asked = picked.iter().flatten().count();
            Blind {
                accuracy: self.mean(&hits, |_| true),
                by_predictor: self.by(&hits, |sample| sample.predictor),
                by_domain: self.by(&hits, |sample| sample.query.context.domain.as_str()),
                first_share: self.mean(&choices(Picked::first_share), |_| true),
                unanswered: asked - hits.iter().flatten().count(),
                equal: picked.len() - asked,
            }
        });
        let figures = JudgeFigures {
            rubric: self.mean(&rubric, |_| true),
            by_predictor: self.by(&rubric, |sample| sample.predictor),
            dimensions: Dimension::ALL.into_iter().filter_map(dimension).collect(),
            unscored,
            blind,
        };
        Ok((figures, scores))
    }

    fn is_equal(&self, at: usize) -> bool {
        normalised_match(self.samples[at].query.truth, self.samples[at].query.prediction)
    }

    /// Mean of the values of these samples.
    fn mean(&self, values: &[Option<f64>], of: impl Fn(&Sample<'_>) -> bool) -> Option<Interval> {
        let values = self.samples.iter().zip(values).filter(|(sample, _)| of(sample));
        let values: Vec<(&str, f64)> =
            values.filter_map(|(sample, value)| value.map(|value| (sample.trajectory, value))).collect();
        clustered_mean(&values, self.config.resamples, self.config.seed)
    }

    fn by<F>(&self, values: &[Option<f64>], name: F) -> BTreeMap<String, Interval>
    where
        F: for<'s> Fn(&'s Sample<'s>) -> &'s str,
    {
        let names: BTreeSet<&str> = self.samples.iter().map(&name).collect();
        let of = |wanted: &str| Some((wanted.to_string(), self.mean(values, |sample| name(sample) == wanted)?));
        names.into_iter().filter_map(of).collect()
    }

    fn agreement(&self, one: (&str, &[Option<Scores>]), other: (&str, &[Option<Scores>])) -> Agreement {
        let (resamples, seed) = (self.config.resamples, self.config.seed);
        let both = self
            .samples
            .iter()
            .zip(one.1.iter().zip(other.1))
            .filter_map(|(sample, (one, other))| Some((sample, one.as_ref()?.mean(), other.as_ref()?.mean())));
        let both: Vec<(&Sample<'_>, f64, f64)> = both.collect();
        let pairs: Vec<(&str, f64, f64)> = both.iter().map(|(sample, a, b)| (sample.trajectory, *a, *b)).collect();
        let by_name: Vec<(&str, (&str, f64, f64))> =
            both.iter().map(|(sample, a, b)| (sample.trajectory, (sample.predictor, *a, *b))).collect();
        Agreement {
            one: one.0.into(),
            other: other.0.into(),
            predictions: rank_agreement_interval(&pairs, resamples, seed),
            predictors: clustered_statistic(&by_name, resamples, seed, agreement_of_means),
        }
    }
}

/// Rank correlation of the predictors' means under two judges.
fn agreement_of_means(values: &[(&str, f64, f64)]) -> Option<f64> {
    let mut sums: BTreeMap<&str, (f64, f64, f64)> = BTreeMap::new();
    for (predictor, one, other) in values {
        let sum = sums.entry(predictor).or_default();
        *sum = (sum.0 + one, sum.1 + other, sum.2 + 1.0);
    }
    rank_agreement(&sums.into_values().map(|(one, other, count)| (one / count, other / count)).collect::<Vec<_>>())
}

/// Each pair of names once.
fn pairs_of<'a>(names: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let after = |(at, &one): (usize, &&'a str)| names[at + 1..].iter().map(move |&other| (one, other));
    names.iter().enumerate().flat_map(after).collect()
}

fn reason(outcome: JudgeOutcome) -> &'static str {
    Unavailable::of(outcome).as_str()
}

fn read_lines(path: &Path) -> Result<Vec<Line>> {
    let text = fs_err::read_to_string(path)?;
    let line = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| Error::Predictions { path: path.into(), detail: format!("line {}: {error}", number + 1) })
    };
    let lines = text.lines().enumerate().map(line).collect::<Result<Vec<_>>>()?;
    match lines.is_empty() {
        true => Err(Error::Predictions { path: path.into(), detail: "it is empty".into() }),
        false => Ok(lines),
    }
}

/// The names whose predictions are judged; every one that is asked for must be there.
fn predictors(config: &CalibrateConfig, lines: &[Line]) -> Result<BTreeSet<String>> {
    let all: BTreeSet<String> = lines.iter().flat_map(|line| line.predictions.keys().cloned()).collect();
    if let Some(name) = config.predictors.iter().find(|name| !all.contains(*name)) {
        let names = all.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::config("predictors", format!("there is no `{name}`; there are {names}")));
    }
    Ok(if config.predictors.is_empty() { all } else { config.predictors.iter().cloned().collect() })
}

/// The turn of a line, `trajectory_id#turn`.
fn find<'a>(line: &Line, by_id: &BTreeMap<&str, &'a Trajectory>, pool: &Path) -> Result<(&'a Trajectory, usize)> {
    let place = || {
        let (trajectory, turn) = line.id.rsplit_once('#')?;
        let (episode, turn) = (*by_id.get(trajectory)?, turn.parse().ok()?);
        let is_same = episode.turns.get::<usize>(turn)?.observation == line.truth;
        is_same.then_some((episode, turn))
    };
    place().ok_or_else(|| Error::Predictions {
        path: pool.into(),
        detail: format!(
            "it has no turn `{}` with the truth of the evaluation; give the pools that were evaluated",
            line.id
        ),
    })
}

impl Calibration {
    /// Lines for a terminal.
    pub fn table(&self) -> Vec<String> {
        let text = |interval: &Option<Interval>, digits: usize| match interval {
            None => "-".to_string(),
            Some(Interval { mean, low, high, .. }) => format!("{mean:.digits$} ({low:.digits$} to {high:.digits$})"),
        };
        let mut lines = vec![format!("{} turns of {} trajectories", self.turns, self.trajectories)];
        for (name, judge) in &self.judges {
            let blind = match &judge.blind {
                None => "is no single model".to_string(),
                Some(blind) => format!(
                    "picks the real one in {}, what stands first in {}",
                    text(&blind.accuracy, 2),
                    text(&blind.first_share, 2)
                ),
            };
            lines.push(format!("{name}: rubric {} of 25; {blind}", text(&judge.rubric, 1)));
            let unscored = judge.unscored.iter().map(|(reason, count)| format!("{name}: {count} unscored, {reason}"));
            lines.extend(unscored);
        }
        lines.extend(self.agreements.iter().map(|agreement| {
            let Agreement { one, other, predictions, predictors } = agreement;
            format!(
                "{one} and {other} rank predictions alike by {}, predictors by {}",
                text(predictions, 2),
                text(predictors, 2)
            )
        }));
        lines
    }
}
