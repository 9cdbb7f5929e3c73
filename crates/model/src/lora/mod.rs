//! LoRA: adapters on chosen projections, the only parameters that are trained and stored.
//!
//! A projection is chosen by its path, such as `model.layers.3.self_attn.q_proj`; the experts of a layer are one
//! (`model.layers.3.mlp.experts.up_proj`) with an adapter for each expert. Embedding, head, router and norms have none.

mod files;
mod merge;

pub(crate) use merge::Merge;

use crate::parts::{Adapter, Dropout, DropoutSeed, ExpertAdapter, Source};
use crate::{Decoder, Error, Precision};
use burn::module::Module;
use burn::tensor::Device;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use regex::Regex;
use serde::{Deserialize, Serialize};

/// Which projections get an adapter, and of what kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoraConfig {
    /// Rows of `A` and columns of `B`.
    pub rank: usize,
    /// The adapters' output is multiplied by `alpha / rank`.
    pub alpha: f64,
    /// Share of an adapter's inputs that is left out in training.
    pub dropout: f64,
    /// Regular expression that is found in the paths of the chosen projections.
    pub targets: String,
}

impl LoraConfig {
    /// What the adapters' output is multiplied by.
    pub fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Refuses values that cannot be meant.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| Err(Error::Lora { reason });
        if self.rank == 0 {
            return refuse("`rank` is 0, expected at least 1".to_owned());
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return refuse(format!("`alpha` is {}, expected a number above 0", self.alpha));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse(format!("`dropout` is {}, expected 0 or more and below 1", self.dropout));
        }
        self.regex().map(drop)
    }

    fn regex(&self) -> Result<Regex, Error> {
        Regex::new(&self.targets).map_err(|error| Error::Lora { reason: format!("`targets`: {error}") })
    }
}

/// What a decoder knows of its adapters.
#[derive(Clone, Debug)]
pub(crate) struct Lora {
    pub(crate) config: LoraConfig,
    pub(crate) seed: DropoutSeed,
}

impl Decoder {
    /// Freezes every parameter and puts fresh adapters beside the chosen projections: `A` is drawn evenly from
    /// ±1/√inputs by the seed, `B` is zero, so that nothing has changed yet.
    pub fn with_lora(self, config: &LoraConfig, seed: u64, device: &Device) -> Result<Decoder, Error> {
        config.check()?;
        let regex = config.regex()?;
        let mut stream = 0;
        let fresh = &mut |path: &str, shape: &[usize]| {
            stream += 1;
            Ok(if path.ends_with(".lora_B") { vec![0.0; shape.iter().product()] } else { uniform(shape, seed, stream) })
        };
        self.adapted(config, &|path| regex.is_match(path), Source { values: fresh, device, precision: Precision::F32 })
    }

    /// Whether there are adapters.
    pub fn is_adapted(&self) -> bool {
        self.lora.is_some()
    }

    /// What the adapters are, if there are any.
    pub fn lora_config(&self) -> Option<&LoraConfig> {
        self.lora.as_ref().map(|lora| &lora.config)
    }

    /// Leaves out inputs of the adapters by this seed from now on, or none of them.
    pub fn set_dropout(&self, seed: Option<u64>) {
        self.lora.iter().for_each(|lora| lora.seed.set(seed));
    }

    /// The paths of all projections that can have an adapter.
    pub fn adaptable_projections(&self) -> Vec<String> {
        let none = &mut |_: &str, _: &[usize]| Ok(Vec::new());
        let device = self.model.embed_tokens.weight.device();
        let config = LoraConfig { rank: 1, alpha: 1.0, dropout: 0.0, targets: String::new() };
        let mut adapters =
            Adapters::new(&config, &|_| false, Source { values: none, device: &device, precision: Precision::F32 });
        self.clone().adapt(&mut adapters).expect("nothing is chosen, so nothing is read");
        adapters.seen
    }

    fn adapted(
        self,
        config: &LoraConfig,
        is_chosen: &dyn Fn(&str) -> bool,
        source: Source<'_, Error>,
    ) -> Result<Decoder, Error> {
        self.check_dtypes()?;
        let mut adapters = Adapters::new(config, is_chosen, source);
        let mut decoder = self.no_grad();
        decoder.adapt(&mut adapters)?;
        let Adapters { chosen, seen, seed, .. } = adapters;
        if chosen.is_empty() {
            let reason = format!("`targets` is found in none of {} paths, such as {}", seen.len(), examples(&seen));
            return Err(Error::Lora { reason });
        }
        decoder.lora = Some(Lora { config: config.clone(), seed });
        Ok(decoder)
    }
}

/// Makes the adapters of projections that show themselves one after the other.
pub(crate) struct Adapters<'a, 's> {
    config: &'a LoraConfig,
    is_chosen: &'a dyn Fn(&str) -> bool,
    source: Source<'s, Error>,
    seed: DropoutSeed,
    chosen: Vec<String>,
    seen: Vec<String>,
}

impl<'a, 's> Adapters<'a, 's> {
    fn new(config: &'a LoraConfig, is_chosen: &'a dyn Fn(&str) -> bool, source: Source<'s, Error>) -> Adapters<'a, 's> {
        Adapters { config, is_chosen, source, seed: DropoutSeed::default(), chosen: Vec::new(), seen: Vec::new() }
    }

    /// The adapter of a projection of this shape, if it is chosen.
    pub(crate) fn of(&mut self, path: &str, [outputs, inputs]: [usize; 2]) -> Result<Option<Adapter>, Error> {
        if !self.choose(path) {
            return Ok(None);
        }
        let rank = self.config.rank;
        let dropout = Dropout { share: self.config.dropout, stream: self.chosen.len() as u64, seed: self.seed.clone() };
        Ok(Some(Adapter {
            lora_A: self.source.parameter(&format!("{path}.lora_A"), [rank, inputs])?,
            lora_B: self.source.parameter(&format!("{path}.lora_B"), [outputs, rank])?,
            scale: self.config.scale(),
            dropout,
        }))
    }

    /// The adapters of a projection of all experts, if it is chosen.
    pub(crate) fn of_experts(
        &mut self,
        path: &str,
        [experts, outputs, inputs]: [usize; 3],
    ) -> Result<Option<ExpertAdapter>, Error> {
        if !self.choose(path) {
            return Ok(None);
        }
        if self.config.dropout > 0.0 {
            let reason = format!("`dropout` is {}, but {path} are experts, which train without", self.config.dropout);
            return Err(Error::Lora { reason });
        }
        let rank = self.config.rank;
        Ok(Some(ExpertAdapter {
            lora_A: self.source.parameter(&format!("{path}.lora_A"), [experts, rank, inputs])?,
            lora_B: self.source.parameter(&format!("{path}.lora_B"), [experts, outputs, rank])?,
            scale: self.config.scale(),
        }))
    }

    fn choose(&mut self, path: &str) -> bool {
        self.seen.push(path.to_owned());
        let is_chosen = (self.is_chosen)(path);
        if is_chosen {
            self.chosen.push(path.to_owned());
        }
        is_chosen
    }
}

fn examples(paths: &[String]) -> String {
    let last = |path: &String| path.rsplit('.').next().unwrap_or_default().to_owned();
    let mut kinds: Vec<String> = Vec::new();
    for path in paths {
        if !kinds.iter().any(|kind| last(kind) == last(path)) {
            kinds.push(path.clone());
        }
    }
    kinds.join(", ")
}

/// Numbers drawn evenly from ±1/√width, `width` the last axis.
fn uniform(shape: &[usize], seed: u64, stream: u64) -> Vec<f32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(stream);
    let bound = 1.0 / (*shape.last().expect("a matrix has axes") as f32).sqrt();
    (0..shape.iter().product()).map(|_| bound * (2.0 * generator.random::<f32>() - 1.0)).collect()
}
