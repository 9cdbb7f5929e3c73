//! AdamW (Loshchilov and Hutter, arXiv 1711.05101), and Muon for the matrices of the blocks where asked; clipping by the
//! global norm.
//!
//! State is keyed by parameter path; weights and moments are float32: where the decoder holds rounded weights, the updates are
//! made in *masters* of single precision, and the decoder gets them rounded. Decay is decoupled: `p *= 1 − lr·wd` before the
//! update. Clipping multiplies the gradient by `min(1, max / (norm + 1e-6))`.

mod config;

use std::collections::BTreeMap;
use std::path::Path;

use rayon::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use worldloom_kernels::{AdamWStep, MuonStep};
use worldloom_model::{Decoder, Gradients};

pub use self::config::{MuonConfig, OptimizerConfig, ParameterGroup};
use crate::error::{Error, Result};

const FIRST: &str = "exp_avg.";
const SECOND: &str = "exp_avg_sq.";
const MOMENTUM: &str = "momentum_buffer.";
const UPDATES: &str = "updates";

/// What is remembered of a parameter.
#[derive(Debug, Clone, PartialEq)]
enum Moments {
    AdamW { first: Vec<f32>, second: Vec<f32> },
    Muon { momentum: Vec<f32>, matrices: Matrices },
}

/// Numbers and columns of a matrix, or of each of several stacked ones.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Matrices {
    size: usize,
    columns: usize,
}

impl Matrices {
    fn of(shape: &[usize]) -> Self {
        let columns = shape.last().copied().unwrap_or(1).max(1);
        let rows = if shape.len() > 1 { shape[shape.len() - 2] } else { 1 };
        Self { size: (rows * columns).max(1), columns }
    }
}

impl Moments {
    /// Names in the file and values.
    fn named(&self) -> Vec<(&'static str, &Vec<f32>)> {
        match self {
            Self::AdamW { first, second } => vec![(FIRST, first), (SECOND, second)],
            Self::Muon { momentum, .. } => vec![(MOMENTUM, momentum)],
        }
    }

    fn named_mut(&mut self) -> Vec<(&'static str, &mut Vec<f32>)> {
        match self {
            Self::AdamW { first, second } => vec![(FIRST, first), (SECOND, second)],
            Self::Muon { momentum, .. } => vec![(MOMENTUM, momentum)],
        }
    }
}

/// The optimizer's settings and state.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimizer {
    config: OptimizerConfig,
    updates: u64,
    moments: BTreeMap<String, Moments>,
    /// The weights in float32, where the decoder holds rounded ones; empty elsewhere.
    masters: BTreeMap<String, Vec<f32>>,
}

impl Optimizer {
    /// Moments of zero for every parameter that training changes.
    pub fn new(config: &OptimizerConfig, decoder: &Decoder) -> Self {
        let mut moments = BTreeMap::new();
        decoder.for_each_trained_shape(&mut |path, shape| {
            let zeros = vec![0.0; shape.iter().product()];
            let of_path = match config.muon_of(path, shape) {
                Some(_) => Moments::Muon { momentum: zeros, matrices: Matrices::of(shape) },
                None => Moments::AdamW { first: zeros.clone(), second: zeros },
            };
            moments.insert(path.to_string(), of_path);
        });
        Self { config: config.clone(), updates: 0, moments, masters: BTreeMap::new() }
    }

    /// Takes the weights of `exact` as those that updates are made in; the decoder that is updated holds them rounded.
    pub(crate) fn with_masters(mut self, exact: &Decoder) -> Self {
        exact.for_each_trained(&mut |path, _, values| {
            self.masters.insert(path.to_string(), values.to_vec());
        });
        self
    }

    /// A weight in float32, where the decoder's may be rounded.
    pub(crate) fn master_of(&self, path: &str) -> Option<&[f32]> {
        self.masters.get(path).map(Vec::as_slice)
    }

    /// Updates made.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// One update. `gradient_norm` is the gradients' global norm, which the caller has found finite. The gradients are
    /// used up: those of Muon's matrices become directions.
    pub fn update(&mut self, decoder: Decoder, gradients: &mut Gradients, gradient_norm: f64, rate: f64) -> Decoder {
        self.updates += 1;
        let clip = (self.config.clip_norm / (gradient_norm + 1e-6)).min(1.0) as f32;
        self.find_directions(gradients, clip);
        let gradients: BTreeMap<&str, &[f32]> = gradients.iter().collect();
        let (config, updates, moments, masters) = (&self.config, self.updates, &mut self.moments, &mut self.masters);
        let mut update = |path: &str, values: &mut [f32]| {
            let moments = moments.get_mut(path).expect("moments were made for every parameter of this decoder");
            let (gradient, decay) = (gradients[path], config.decay_of(path));
            let rate = rate * config.rate_scale_of(path);
            match moments {
                Moments::Muon { matrices: Matrices { size, columns }, .. } => {
                    for (values, direction) in values.chunks_exact_mut(*size).zip(gradient.chunks_exact(*size)) {
                        worldloom_kernels::muon(values, direction, *columns, rate, decay);
                    }
                }
                Moments::AdamW { first, second } => {
                    let step = AdamWStep {
                        learning_rate: rate,
                        weight_decay: decay,
                        beta1: config.beta1,
                        beta2: config.beta2,
                        epsilon: config.epsilon,
                        step: updates,
                        gradient_scale: clip,
                    };
                    worldloom_kernels::adamw(values, gradient, first, second, &step);
                }
            }
        };
        decoder.update_parameters(&mut |path, _, values| match masters.get_mut(path) {
            Some(master) => {
                update(path, master);
                values.copy_from_slice(master);
            }
            None => update(path, values),
        })
    }

    /// Turns the gradients of Muon's matrices into directions, all matrices at the same time.
    fn find_directions(&mut self, gradients: &mut Gradients, clip: f32) {
        let Some(muon) = &self.config.muon else { return };
        let step = MuonStep { momentum: muon.momentum, iterations: muon.iterations, gradient_scale: clip };
        let mut gradients: BTreeMap<&str, &mut [f32]> = gradients.iter_mut().collect();
        let mut all = Vec::new();
        for (path, moments) in &mut self.moments {
            if let (Moments::Muon { momentum, matrices }, Some(gradient)) = (moments, gradients.remove(path.as_str())) {
                let Matrices { size, columns } = *matrices;
                let each = gradient.chunks_exact_mut(size).zip(momentum.chunks_exact_mut(size));
                all.extend(each.map(|(gradient, momentum)| (gradient, momentum, columns)));
            }
        }
        all.into_par_iter().for_each(|(gradient, momentum, columns)| {
            worldloom_kernels::muon_direction(gradient, momentum, columns, &step);
        });
    }

    /// Writes the moments under `exp_avg.PATH` and `exp_avg_sq.PATH`, or `momentum_buffer.PATH`, as torch names them.
    pub(crate) fn save(&self, path: &Path) -> Result<()> {
        let wrong = |error: safetensors::SafeTensorError| Error::file(path, error);
        let mut views = Vec::new();
        for (name, moments) in &self.moments {
            for (prefix, values) in moments.named() {
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
        let expected: usize = state.moments.values().map(|moments| moments.named().len()).sum();
        if file.len() != expected {
            return Err(Error::file(path, format!("{} tensors, expected {expected}", file.len())));
        }
        for (name, moments) in &mut state.moments {
            for (prefix, values) in moments.named_mut() {
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
