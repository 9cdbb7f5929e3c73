//! `metrics.jsonl` to curves.
//!
//! A line is a JSON object. Every number in it is a value at its `step`, numbers in objects under a dotted name
//! (`parts.format`). What was measured before the update (`validation_before`) is the value of `validation` a step earlier.
//! Missing fields and nulls leave a gap; a line that is not a JSON object is an error.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// Name of the metrics file in a stage's folder.
const METRICS_FILE: &str = "metrics.jsonl";
/// A curve has at most this many points; more are averaged in equal spans of steps.
const MAX_POINTS: usize = 300;

/// Values by step.
pub(crate) type Curve = Vec<(f64, f64)>;

/// All curves of one stage.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Curves {
    /// Number of lines.
    pub(crate) steps: u64,
    by_name: BTreeMap<String, Curve>,
}

impl Curves {
    /// Reads a stage's folder.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(METRICS_FILE);
        let bytes = fs_err::read(&path)?;
        let mut curves = Self::default();
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let fields: Map<String, Value> = serde_json::from_slice(line).map_err(|error| Error::Metrics {
                path: path.clone(),
                line: index + 1,
                detail: error.to_string(),
            })?;
            curves.add(fields);
        }
        Ok(curves)
    }

    fn add(&mut self, mut fields: Map<String, Value>) {
        self.steps += 1;
        let step = fields.get("step").and_then(Value::as_f64).unwrap_or(self.steps as f64);
        if let Some(Value::Object(before)) = fields.remove("validation_before") {
            self.add_numbers("validation.", &before, step - 1.0);
        }
        self.add_numbers("", &fields, step);
    }

    fn add_numbers(&mut self, prefix: &str, fields: &Map<String, Value>, step: f64) {
        for (name, value) in fields {
            match value {
                Value::Object(inner) => self.add_numbers(&format!("{prefix}{name}."), inner, step),
                _ => {
                    if let Some(number) = value.as_f64().filter(|number| number.is_finite()) {
                        self.by_name.entry(format!("{prefix}{name}")).or_default().push((step, number));
                    }
                }
            }
        }
    }

    /// One curve, thinned for drawing.
    pub(crate) fn thinned(&self, name: &str) -> Option<Curve> {
        self.by_name.get(name).map(|curve| thin(curve))
    }

    /// Names that start with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        self.by_name.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// The last value of every curve but the step itself.
    pub(crate) fn last_values(&self) -> BTreeMap<String, f64> {
        let last = |(name, curve): (&String, &Curve)| Some((name.clone(), curve.last()?.1));
        self.by_name.iter().filter(|(name, _)| *name != "step").filter_map(last).collect()
    }
}

/// Means over equal spans of points, at the mean step of each span.
fn thin(curve: &[(f64, f64)]) -> Curve {
    let per_point = curve.len().div_ceil(MAX_POINTS).max(1);
    let mean = |span: &[(f64, f64)]| {
        let count = span.len() as f64;
        (span.iter().map(|point| point.0).sum::<f64>() / count, span.iter().map(|point| point.1).sum::<f64>() / count)
    };
    curve.chunks(per_point).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Curves> {
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join(METRICS_FILE), text).unwrap();
        Curves::read(folder.path())
    }

    #[test]
    fn missing_fields_and_nulls_leave_gaps() {
        let text =
            "{\"step\":1,\"loss\":2.5}\n\n{\"step\":2,\"loss\":null}\n{\"step\":4,\"loss\":1.5,\"note\":\"x\"}\n";
        let curves = read(text).unwrap();
        assert_eq!(curves.steps, 3);
        assert_eq!(curves.thinned("loss").unwrap(), [(1.0, 2.5), (4.0, 1.5)]);
        assert_eq!(curves.thinned("validation_loss"), None);
    }

    #[test]
    fn numbers_in_objects_have_dotted_names() {
        let curves = read("{\"step\":7,\"parts\":{\"format\":4.5,\"quality\":2}}").unwrap();
        assert_eq!(curves.names("parts."), ["parts.format", "parts.quality"]);
        assert_eq!(curves.last_values()["parts.format"], 4.5);
    }

    #[test]
    fn what_was_measured_before_the_first_step_is_the_start_of_its_curve() {
        let curves =
            read("{\"step\":1,\"validation_before\":{\"loss\":3.5}}\n{\"step\":2,\"validation\":{\"loss\":2.5}}\n");
        assert_eq!(curves.unwrap().thinned("validation.loss").unwrap(), [(0.0, 3.5), (2.0, 2.5)]);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = read("{\"step\":1}\n{\"step\":2,\"lo\n").unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl") && error.contains("line 2"), "{error}");
        let error = read("[1, 2]\n").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn an_empty_file_has_no_curves() {
        assert_eq!(read("").unwrap(), Curves::default());
    }

    #[test]
    fn thinning_keeps_the_mean_and_the_bound() {
        let curve: Curve = (0..3000).map(|step| (step as f64, step as f64)).collect();
        let thinned = thin(&curve);
        assert!(thinned.len() <= MAX_POINTS);
        let mean = thinned.iter().map(|point| point.1).sum::<f64>() / thinned.len() as f64;
        assert!((mean - 1499.5).abs() < 1e-9);
    }
}
