//! `judge calibrate`: how far judges can be trusted, on the predictions of an evaluation.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};
use worldloom_world::JudgePlace;
use worldloom_world::calibrate::{CALIBRATION_FILE, CalibrateConfig, CalibrateInputs, Calibration, calibrate};

use super::{Counts, Role, Step, StepContext, variable};
use crate::config::{resolved, typed};
use crate::device::cpu;
use crate::pipeline::external;
use crate::signals::listen;

/// Compares judges.
pub(super) struct JudgeCalibrate;

impl Step for JudgeCalibrate {
    fn name(&self) -> &'static str {
        "judge calibrate"
    }

    fn about(&self) -> &'static str {
        "Let judges tell real observations from predicted ones, and say how far they rank alike, with intervals"
    }

    fn artifact(&self) -> &'static str {
        "calibration"
    }

    fn roles(&self) -> &'static [Role] {
        const ROLES: &[Role] = &[
            Role::required("evaluation", Some("evaluation"), "artifact of `evaluate pool`: its predictions"),
            Role::required("pools", Some("pools"), "the pools that were evaluated"),
        ];
        ROLES
    }

    fn resolve(&self, table: &toml::Table, base: &Path, origin: &str) -> Result<Value> {
        let mut config: CalibrateConfig = typed(table, origin)?;
        config.judges = config.judges.into_iter().map(|(name, judge)| (name, judge.from_base(base))).collect();
        resolved(&config)
    }

    fn external_inputs(&self, config: &Value) -> Result<Value> {
        let config: CalibrateConfig = serde_json::from_value(config.clone())?;
        let paths = config.judges.values().flat_map(|judge| judge.paths());
        let keys: Result<Vec<String>> = paths.map(|path| Ok(external(path)?.key)).collect();
        Ok(json!(keys?))
    }

    fn works_in_place(&self) -> bool {
        true
    }

    fn summary(&self, out: &Path) -> Result<Vec<String>> {
        let found: Calibration = serde_json::from_slice(&fs_err::read(out.join(CALIBRATION_FILE))?)?;
        Ok(found.table())
    }

    fn run(&self, context: &StepContext<'_>) -> Result<Counts> {
        let (evaluation, pools) = (context.input("evaluation")?, context.input("pools")?);
        let (device, progress) = (cpu(), context.advance());
        let place = JudgePlace { folder: &context.out, key: &variable, device: &device };
        let _listening = listen();
        let inputs = CalibrateInputs {
            predictions: &evaluation.join("predictions.jsonl"),
            pool: &pools.join("eval.parquet"),
            place: &place,
            stop: context.stop,
            progress: &progress,
        };
        let found = calibrate(&context.config()?, &inputs, &context.out)?;
        let predictions: usize = found.predictions.values().sum();
        let counts = [("turns", found.turns), ("predictions", predictions), ("judges", found.judges.len())];
        Ok(counts.into_iter().map(|(name, count)| (name.to_string(), count as u64)).collect())
    }
}
