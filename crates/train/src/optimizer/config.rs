//! What a user sets of the optimizer.

use serde::{Deserialize, Serialize};
use worldloom_model::Decoder;

use crate::error::{Error, Result};

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
    /// Muon for the matrices of the blocks, AdamW for the rest. Default: AdamW for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub muon: Option<MuonConfig>,
    /// Parameters that learn at a rate of their own. Default: none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<ParameterGroup>,
}

/// Parameters that learn slower or faster than the rest. The first group that names a parameter is its group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParameterGroup {
    /// Parameters whose path contains one of these, such as `embed_tokens` or `layers.0.`.
    pub paths: Vec<String>,
    /// Their learning rate as a multiple of the scheduled one; 0 keeps them as they are.
    pub learning_rate_scale: f64,
}

/// Muon (Jordan et al. 2024) at AdamW's learning rate (Liu et al., arXiv 2502.16982).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MuonConfig {
    /// Decay rate of the momentum, which is Nesterov's. Default: 0.95, as published.
    pub momentum: f64,
    /// Newton–Schulz iterations. Default: 5, as published.
    pub iterations: usize,
    /// Paths that keep AdamW although they are matrices. Default: embeddings, heads, routers, convolutions.
    pub adamw: Vec<String>,
}

impl Default for MuonConfig {
    fn default() -> Self {
        let adamw = ["embed_tokens", "lm_head", "mlp.gate.", "shared_expert_gate", "conv1d"];
        Self { momentum: 0.95, iterations: 5, adamw: adamw.map(String::from).into() }
    }
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
            muon: None,
            groups: Vec::new(),
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
        for group in &self.groups {
            let (scale, field) = (group.learning_rate_scale, "optimizer.groups.learning_rate_scale");
            if !scale.is_finite() || scale < 0.0 {
                return Err(Error::config(field, format!("{scale}, expected 0 or more")));
            }
        }
        match &self.muon {
            Some(muon) if !share(muon.momentum) => {
                let detail = format!("{}, expected 0 or more and below 1", muon.momentum);
                Err(Error::config("optimizer.muon.momentum", detail))
            }
            Some(MuonConfig { iterations: 0, .. }) => {
                Err(Error::config("optimizer.muon.iterations", "0, expected 1 or more"))
            }
            _ => Ok(()),
        }
    }

    /// Muon's settings for a parameter that is a matrix of a block, or several stacked ones.
    pub(super) fn muon_of(&self, path: &str, shape: &[usize]) -> Option<&MuonConfig> {
        let muon = self.muon.as_ref()?;
        let is_matrix = matches!(shape, [_, _] | [_, _, _]) && path.contains("layers.");
        (is_matrix && !muon.adamw.iter().any(|part| path.contains(part.as_str()))).then_some(muon)
    }

    /// Refuses a group that names no parameter, such as one of another family.
    pub(crate) fn check_groups(&self, decoder: &Decoder) -> Result<()> {
        let mut paths = Vec::new();
        decoder.for_each_trained_shape(&mut |path, _| paths.push(path.to_string()));
        for part in self.groups.iter().flat_map(|group| &group.paths) {
            if !paths.iter().any(|path| path.contains(part.as_str())) {
                let example = paths.first().map_or("", String::as_str);
                let detail = format!("`{part}` is in no parameter's path, expected a part of one such as `{example}`");
                return Err(Error::config("optimizer.groups.paths", detail));
            }
        }
        Ok(())
    }

    /// Multiple of the scheduled learning rate for a parameter.
    pub(super) fn rate_scale_of(&self, path: &str) -> f64 {
        let of_path = self.groups.iter().find(|group| group.paths.iter().any(|part| path.contains(part.as_str())));
        of_path.map_or(1.0, |group| group.learning_rate_scale)
    }

    pub(super) fn decay_of(&self, path: &str) -> f64 {
        if self.no_decay.iter().any(|part| path.contains(part.as_str())) { 0.0 } else { self.weight_decay }
    }
}
