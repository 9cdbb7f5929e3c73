//! AdamW (Loshchilov and Hutter, arXiv 1711.05101) with clipping by the global norm.
//!
//! State is keyed by parameter path; weights and moments are float32. Decay is decoupled: `p *= 1 − lr·wd` before the
//! update. Clipping multiplies the gradient by `min(1, max / (norm + 1e-6))`.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde::{Deserialize, Serialize};
use worldloom_kernels::AdamWStep;
use worldloom_model::{Decoder, Gradients};

use crate::error::{Error, Result};

const FIRST: &str = "exp_avg.";
const SECOND: &str = "exp_avg_sq.";
const UPDATES: &str = "updates";

/// How weights are updated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OptimizerConfig {
    /// Peak learning rate; the schedule moves it.
    pub learning_rate: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// The gradient's global norm is cut to this.
    pub clip_norm: f64,
    /// Decay rate of the first moment. Default: 0.9, as in every published language model recipe.
    #[serde(default = "default_beta1")]
    pub beta1: f64,
    /// Decay rate of the second moment. Default: 0.95, as published for GPT-3, Llama and Qwen.
    #[serde(default = "default_beta2")]
    pub beta2: f64,
    /// Added outside the root. Default: 1e-8, as in the paper.
    #[serde(default = "default_epsilon")]
    pub epsilon: f64,
    /// Parameters whose path contains one of these are not decayed. Default: norms and embeddings.
    #[serde(default = "default_no_decay")]
    pub no_decay: Vec<String>,
}

fn default_beta1() -> f64 {
    0.9
}

fn default_beta2() -> f64 {
    0.95
}

fn default_epsilon() -> f64 {
    1e-8
}

fn default_no_decay() -> Vec<String> {
    vec!["norm".into(), "embed_tokens".into()]
}

impl OptimizerConfig {
    /// The published defaults with these three values.
    pub fn new(learning_rate: f64, weight_decay: f64, clip_norm: f64) -> Self {
        Self {
            learning_rate,
            weight_decay,
            clip_norm,
            beta1: default_beta1(),
            beta2: default_beta2(),
            epsilon: default_epsilon(),
            no_decay: default_no_decay(),
        }
    }

    /// Refuses values that cannot be meant.
    pub fn check(&self) -> Result<()> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let share = |value: f64| (0.0..1.0).contains(&value);
        for (field, value, is_good, expected) in [
            ("learning_rate", self.learning_rate, positive(self.learning_rate), "a number above 0"),
            ("weight_decay", self.weight_decay, share(self.weight_decay), "0 or more and below 1"),
            ("clip_norm", self.clip_norm, positive(self.clip_norm), "a number above 0"),
            ("beta1", self.beta1, share(self.beta1), "0 or more and below 1"),
            ("beta2", self.beta2, share(self.beta2), "0 or more and below 1"),
            ("epsilon", self.epsilon, positive(self.epsilon), "a number above 0"),
        ] {
            if !is_good {
                return Err(Error::config(&format!("optimizer.{field}"), format!("{value}, expected {expected}")));
            }
        }
        Ok(())
    }

    fn decay_of(&self, path: &str) -> f64 {
        if self.no_decay.iter().any(|part| path.contains(part.as_str())) { 0.0 } else { self.weight_decay }
    }
}

#[derive(Debug, Clone, PartialEq)]
struct Moments {
    first: Vec<f32>,
    second: Vec<f32>,
}

/// The optimizer's state.
#[derive(Debug, Clone, PartialEq)]
pub struct AdamW {
    config: OptimizerConfig,
    updates: u64,
    moments: BTreeMap<String, Moments>,
}

impl AdamW {
    /// Moments of zero for every parameter.
    pub fn new(config: &OptimizerConfig, decoder: &Decoder) -> Self {
        let mut moments = BTreeMap::new();
        decoder.for_each_parameter(&mut |path, _, values| {
            let zeros = vec![0.0; values.len()];
            moments.insert(path.to_string(), Moments { first: zeros.clone(), second: zeros });
        });
        Self { config: config.clone(), updates: 0, moments }
    }

    /// Updates made.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// One update. `gradient_norm` is the gradients' global norm, which the caller has found finite.
    pub fn update(&mut self, decoder: Decoder, gradients: &Gradients, gradient_norm: f64, rate: f64) -> Decoder {
        self.updates += 1;
        let clip = (self.config.clip_norm / (gradient_norm + 1e-6)).min(1.0);
        let gradients: BTreeMap<&str, &[f32]> = gradients.iter().collect();
        let (config, updates, moments) = (&self.config, self.updates, &mut self.moments);
        decoder.update_parameters(&mut |path, _, values| {
            let moments = moments.get_mut(path).expect("moments were made for every parameter of this decoder");
            let step = AdamWStep {
                learning_rate: rate,
                weight_decay: config.decay_of(path),
                beta1: config.beta1,
                beta2: config.beta2,
                epsilon: config.epsilon,
                step: updates,
                gradient_scale: clip as f32,
            };
            worldloom_kernels::adamw(values, gradients[path], &mut moments.first, &mut moments.second, &step);
        })
    }

    /// Writes the moments under `exp_avg.PATH` and `exp_avg_sq.PATH`.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let wrong = |error: safetensors::SafeTensorError| Error::file(path, error);
        let mut views = Vec::new();
        for (name, moments) in &self.moments {
            for (prefix, values) in [(FIRST, &moments.first), (SECOND, &moments.second)] {
                let view = TensorView::new(Dtype::F32, vec![values.len()], bytemuck::cast_slice(values));
                views.push((format!("{prefix}{name}"), view.map_err(wrong)?));
            }
        }
        let metadata = [(UPDATES.to_string(), self.updates.to_string())].into();
        safetensors::serialize_to_file(views, Some(metadata), path).map_err(wrong)
    }

    /// Reads what [`AdamW::save`] wrote for the same decoder; strict about names and sizes.
    pub(crate) fn load(config: &OptimizerConfig, decoder: &Decoder, path: &Path) -> Result<Self> {
        let bytes = fs_err::read(path)?;
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(|error| Error::file(path, error))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| Error::file(path, error))?;
        let updates =
            header.metadata().as_ref().and_then(|pairs| pairs.get(UPDATES)).and_then(|text| text.parse().ok());
        let updates = updates.ok_or_else(|| Error::file(path, "no number of updates in its metadata"))?;
        let mut state = Self { updates, ..Self::new(config, decoder) };
        let expected = state.moments.len() * 2;
        if file.len() != expected {
            return Err(Error::file(path, format!("{} tensors, expected {expected}", file.len())));
        }
        for (name, moments) in &mut state.moments {
            for (prefix, values) in [(FIRST, &mut moments.first), (SECOND, &mut moments.second)] {
                let key = format!("{prefix}{name}");
                let view = file.tensor(&key).map_err(|error| Error::file(path, error))?;
                if view.dtype() != Dtype::F32 || view.data().len() != values.len() * 4 {
                    let found = format!("`{key}` is {:?} {:?}", view.dtype(), view.shape());
                    return Err(Error::file(path, format!("{found}, expected F32 [{}]", values.len())));
                }
                for (value, four) in values.iter_mut().zip(view.data().chunks_exact(4)) {
                    *value = f32::from_le_bytes([four[0], four[1], four[2], four[3]]);
                }
            }
        }
        Ok(state)
    }
}
