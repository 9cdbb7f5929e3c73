//! Reading the inputs and writing the two files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use worldloom_schema::{Artifact, Evaluation, Interval, MANIFEST, PredictorKind};

use crate::curves::Curves;
use crate::error::{Error, Result};
use crate::figures::{MEASURES, Measure, fault_share, further};
use crate::page;

/// Name of the page.
pub const HTML_FILE: &str = "report.html";
/// Name of the report as data.
pub const REPORT_FILE: &str = "report.json";

/// What a report is called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportConfig {
    /// Title of the page.
    pub title: String,
}

/// Where the results lie. Every part may be absent; the page says what it was not given.
#[derive(Debug, Clone, Default)]
pub struct ReportInput<'a> {
    /// Folder with `evaluation.json`.
    pub evaluation: Option<&'a Path>,
    /// Name and folder (with `metrics.jsonl`) of each training stage, in order.
    pub stages: Vec<(String, PathBuf)>,
    /// Name and `report.json` of each step, in order. A `manifest.json` beside it adds the step's key and inputs.
    pub reports: Vec<(String, PathBuf)>,
}

/// What the report is made of: counts, the last metrics of each stage and the figures of the stage table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Number of stages, curves, predictors, examples and steps shown.
    pub counts: BTreeMap<String, u64>,
    /// Last value of each metric by stage.
    pub stages: BTreeMap<String, BTreeMap<String, f64>>,
    /// All turns: predictor, then measure.
    pub predictors: BTreeMap<String, BTreeMap<String, Interval>>,
    /// Share of completions without a usable prediction by predictor.
    pub faults: BTreeMap<String, f64>,
}

/// A training stage as read.
pub(crate) struct Stage {
    pub(crate) name: String,
    pub(crate) curves: Curves,
}

/// A step as read.
pub(crate) struct Step {
    pub(crate) name: String,
    /// The step's report: counts first, then whatever else it says.
    pub(crate) report: Map<String, Value>,
    /// The manifest beside it.
    pub(crate) manifest: Option<worldloom_schema::Manifest>,
}

impl Step {
    /// A number of the report's `counts`.
    pub(crate) fn count(&self, name: &str) -> Option<u64> {
        self.report.get("counts")?.get(name)?.as_u64()
    }
}

/// Everything the page shows.
pub(crate) struct Content {
    pub(crate) title: String,
    pub(crate) evaluation: Option<Evaluation>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) steps: Vec<Step>,
}

/// Writes `report.html` and `report.json` into the existing folder `out`.
pub fn run(config: &ReportConfig, input: &ReportInput<'_>, out: &Path) -> Result<Report> {
    let content = read(config, input)?;
    let (html, figures) = page::render(&content)?;
    fs_err::write(out.join(HTML_FILE), html)?;
    let report = summary(&content, figures);
    let text = serde_json::to_string_pretty(&report).expect("maps of finite numbers are JSON");
    fs_err::write(out.join(REPORT_FILE), text + "\n")?;
    Ok(report)
}

fn read(config: &ReportConfig, input: &ReportInput<'_>) -> Result<Content> {
    let stage = |(name, folder): &(String, PathBuf)| Ok(Stage { name: name.clone(), curves: Curves::read(folder)? });
    Ok(Content {
        title: config.title.clone(),
        evaluation: input.evaluation.map(Evaluation::read).transpose()?,
        stages: input.stages.iter().map(stage).collect::<Result<_>>()?,
        steps: input.reports.iter().map(|(name, path)| read_step(name, path)).collect::<Result<_>>()?,
    })
}

fn read_step(name: &str, path: &Path) -> Result<Step> {
    let text = fs_err::read_to_string(path)?;
    let report = serde_json::from_str(&text)
        .map_err(|error| Error::StepReport { path: path.into(), detail: error.to_string() })?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let manifest = match folder.join(MANIFEST).exists() {
        true => Some(Artifact::open_any(folder)?.manifest),
        false => None,
    };
    Ok(Step { name: name.into(), report, manifest })
}

fn summary(content: &Content, figures: u64) -> Report {
    let mut report = Report::default();
    for stage in &content.stages {
        report.stages.insert(stage.name.clone(), stage.curves.last_values());
    }
    let predictors = content.evaluation.iter().flat_map(|evaluation| &evaluation.predictors);
    for predictor in predictors {
        let figure = |measure: &Measure| Some((measure.name.to_string(), *measure.of(&predictor.all)?));
        report.predictors.insert(predictor.name.clone(), MEASURES.iter().chain(further()).filter_map(figure).collect());
        report.faults.insert(predictor.name.clone(), fault_share(&predictor.all));
        let kind = match predictor.kind {
            PredictorKind::Stage => "stages_evaluated",
            PredictorKind::Ablation => "ablations",
            PredictorKind::Baseline => "baselines",
        };
        *report.counts.entry(kind.into()).or_default() += 1;
    }
    let examples = content.evaluation.as_ref().map_or(0, |evaluation| evaluation.examples.len());
    let parts = [("stages", content.stages.len()), ("steps", content.steps.len()), ("examples", examples)];
    report.counts.extend(parts.map(|(name, count)| (name.to_string(), count as u64)));
    report.counts.insert("figures".into(), figures);
    report
}
