//! Measures predictors on the evaluation pool: checkpoints of a run, and trivial rules beside them.
//!
//! Every predictor is asked the same turns, each with its true history. A *fault* (no usable prediction) counts as a
//! miss in every measure and is listed by reason. Intervals resample whole episodes.

mod baselines;
mod config;
mod examples;
mod outcome;
mod summary;
mod turns;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::Device;
use serde_json::json;
use worldloom_judge::Judge;
use worldloom_schema::{Evaluation, Predictor, PredictorKind};

pub use config::EvaluateConfig;

use crate::error::Result;
use crate::model::{Asked, WorldModel};
use baselines::Baseline;
use outcome::Outcome;
use turns::EvaluationTurns;
pub(crate) use turns::drawn;

/// Name of the file with every prediction, one turn a line.
pub const PREDICTIONS_FILE: &str = "predictions.jsonl";
/// Name of the file with the counts.
pub const REPORT_FILE: &str = "report.json";

/// Hears how many turns are answered, and of how many.
pub type Progress<'a> = &'a (dyn Fn(u64, u64) + Sync);

/// A checkpoint to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// Its name in the tables, such as `sft`.
    pub name: String,
    /// Folder with `config.json`, the weights and `tokenizer.json`.
    pub model: PathBuf,
    /// How it is asked.
    pub asked: Asked,
    /// Whether it went past stages, and is compared with the last one.
    pub is_ablation: bool,
}

/// What is measured, on what and by whom.
pub struct Inputs<'a> {
    /// The checkpoints, in the order of training.
    pub stages: &'a [Stage],
    /// Parquet file of the evaluation pool.
    pub eval_pool: &'a Path,
    /// Parquet file of a training pool, for the most frequent observations.
    pub training_pool: &'a Path,
    /// Gives the rubric.
    pub judge: &'a dyn Judge,
    /// Where weights are read to.
    pub device: &'a Device,
}

/// What an evaluation found.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// `turns`, `episodes`, `turns_in_pool`, `turns_left_out`, `predictors`; all that `report.json` holds.
    pub counts: BTreeMap<String, u64>,
    /// The tables, in `evaluation.json`.
    pub evaluation: Evaluation,
}

/// One predictor with its outcome for every turn.
struct Measured {
    name: String,
    kind: PredictorKind,
    asked: String,
    outcomes: Vec<Outcome>,
}

/// Writes `evaluation.json`, `predictions.jsonl` and `report.json` into the existing folder `out`.
pub fn run(config: &EvaluateConfig, inputs: &Inputs<'_>, out: &Path, progress: Progress<'_>) -> Result<Report> {
    config.check()?;
    let turns = EvaluationTurns::read(inputs.eval_pool, config.max_turns, config.seed)?;
    let baselines = Baseline::all(inputs.training_pool)?;
    let (total, num_turns) = ((inputs.stages.len() * turns.len()) as u64, turns.len() as u64);
    let mut measured = Vec::new();
    for (index, stage) in inputs.stages.iter().enumerate() {
        let before = index as u64 * num_turns;
        let model = WorldModel::load(&stage.model, &config.form(), config.precision, inputs.device)?;
        let model = model.with_limits(config.limits());
        let advance = &mut |done: usize, _: usize| progress(before + done as u64, total);
        let answers = model.answer(&turns.questions(), stage.asked, &config.decoding(), advance)?;
        let outcomes = outcome::measure_answers(inputs.judge, &turns, answers);
        let (name, asked) = (stage.name.clone(), stage.asked.describe());
        let kind = if stage.is_ablation { PredictorKind::Ablation } else { PredictorKind::Stage };
        measured.push(Measured { name, kind, asked, outcomes });
    }
    for baseline in &baselines {
        let outcomes = outcome::measure_baseline(inputs.judge, &turns, baseline);
        let (name, asked) = (baseline.name().into(), baseline.describe().into());
        measured.push(Measured { name, kind: PredictorKind::Baseline, asked, outcomes });
    }
    let evaluation = assemble(config, &turns, &measured);
    outcome::write_predictions(&out.join(PREDICTIONS_FILE), &turns, &measured)?;
    evaluation.write(out)?;
    let counts = counts(&turns, &measured);
    fs_err::write(out.join(REPORT_FILE), format!("{:#}\n", json!({ "counts": counts })))?;
    Ok(Report { counts, evaluation })
}

fn assemble(config: &EvaluateConfig, turns: &EvaluationTurns, measured: &[Measured]) -> Evaluation {
    let predictor = |measured: &Measured| Predictor {
        name: measured.name.clone(),
        kind: measured.kind,
        asked: measured.asked.clone(),
        all: summary::full_measures(config, turns, &measured.outcomes, &|_| true),
        by_class: summary::by(config, turns, &measured.outcomes, &|turn| &turn.class),
        by_family: summary::by(config, turns, &measured.outcomes, &|turn| &turn.family),
        by_domain: summary::full_by(config, turns, &measured.outcomes, &|turn| turn.domain),
        by_kind: summary::full_by(config, turns, &measured.outcomes, &|turn| turn.kind),
        by_axis: summary::by_axis(config, turns, &measured.outcomes),
        calibration: summary::calibration(&measured.outcomes),
        lengths: summary::lengths(&measured.outcomes),
        cut_share: summary::cut_share(&measured.outcomes),
    };
    Evaluation {
        seed: config.seed,
        turns: turns.len() as u64,
        episodes: turns.num_episodes(),
        class_shares: turns.class_shares(),
        predictors: measured.iter().map(predictor).collect(),
        differences: summary::differences(config, turns, measured),
        examples: examples::choose(config, turns, measured),
    }
}

fn counts(turns: &EvaluationTurns, measured: &[Measured]) -> BTreeMap<String, u64> {
    let counts = [
        ("turns", turns.len() as u64),
        ("episodes", turns.num_episodes()),
        ("turns_in_pool", turns.in_pool),
        ("turns_left_out", turns.left_out),
        ("predictors", measured.len() as u64),
    ];
    counts.into_iter().map(|(name, count)| (name.to_string(), count)).collect()
}
