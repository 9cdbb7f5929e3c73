//! A decoder that learns: gradients summed over micro-batches, guards, one update.

use burn::module::Module;
use burn::tensor::Device;
use worldloom_model::{Decoder, Gradients, Losses, ReadParameter, RouterLoss};

use crate::batch::{Batch, Pass, WeighRows};
use crate::error::{Error, Result};
use crate::lanes::Lanes;
use crate::optimizer::Optimizer;
use crate::ranks::{Ranks, sum_buckets};
use crate::seeds::{Purpose, split_seed};

pub(crate) struct Learner {
    /// None only while an update moves it.
    decoder: Option<Decoder>,
    pub(crate) optimizer: Optimizer,
    gradients: Gradients,
    pub(crate) device: Device,
    /// Of the masks of dropout.
    seed: u64,
    /// Whether blocks are computed again in the backward pass: memory, not results.
    pub(crate) recompute: bool,
    /// Where micro-batches are computed.
    pub(crate) lanes: Lanes,
    /// The routers' loss of this step, where there is one.
    routers: Option<RouterLoss>,
    /// Its value so far.
    router_loss: f64,
}

impl Learner {
    pub(crate) fn new(decoder: Decoder, optimizer: Optimizer, device: &Device, seed: u64) -> Self {
        let gradients = Gradients::zeros(&decoder);
        Self {
            decoder: Some(decoder),
            optimizer,
            gradients,
            device: device.clone(),
            seed,
            recompute: false,
            lanes: Lanes::default(),
            routers: None,
            router_loss: 0.0,
        }
    }

    pub(crate) fn decoder(&self) -> &Decoder {
        self.decoder.as_ref().expect("the decoder is only away during an update")
    }

    pub(crate) fn start_step(&mut self) {
        self.gradients.reset();
        self.routers = None;
        self.router_loss = 0.0;
    }

    /// From here to the end of the step the routers have this loss too.
    pub(crate) fn balance(&mut self, routers: RouterLoss) {
        self.routers = Some(routers);
    }

    /// The routers' loss of the micro-batches of this step so far.
    pub(crate) fn router_loss(&self) -> f64 {
        self.router_loss
    }

    /// Every weight as training has it: what an update is made in, which may be finer than what computes.
    pub(crate) fn for_each_weight(&self, read: ReadParameter<'_>) {
        let optimizer = &self.optimizer;
        self.decoder().for_each_parameter(&mut |path, shape, values| {
            read(path, shape, optimizer.master_of(path).unwrap_or(values));
        });
    }

    /// Adds the gradients of micro-batches in their order; returns their share of the step's loss.
    pub(crate) fn add(&mut self, batches: &[Batch], temperature: f32, place: &Place<'_>) -> Result<f64> {
        self.add_weighed(batches, temperature, None, place)
    }

    /// The same with weights that follow from the log-probs.
    pub(crate) fn add_weighed(
        &mut self,
        batches: &[Batch],
        temperature: f32,
        weigh: Option<&WeighRows<'_>>,
        place: &Place<'_>,
    ) -> Result<f64> {
        let routers = self.routers.clone();
        let pass = Pass { temperature, weigh, routers: routers.as_ref(), recompute: self.recompute };
        let (mut loss, trained) = (0.0, batches.iter().filter(|batch| !batch.is_untrained()).collect::<Vec<_>>());
        for batches in trained.chunks(self.lanes.count()) {
            loss += match batches {
                [batch] => self.add_one(batch, &pass, place)?,
                _ => self.add_side_by_side(batches, &pass, place)?,
            };
        }
        Ok(loss)
    }

    /// Each on a copy of the decoder that shares its numbers, so that the graphs have nothing in common, and with sums of
    /// its own, which are added in order.
    fn add_side_by_side(&mut self, batches: &[&Batch], pass: &Pass<'_>, place: &Place<'_>) -> Result<f64> {
        let device = &self.device;
        let copies = batches.iter().map(|&batch| (batch, self.decoder().clone().fork(device)));
        let sums = self.lanes.map(copies, |(batch, decoder)| {
            let mut gradients = self.gradients.zeros_like();
            let losses = batch.accumulate(&decoder, pass, device, &mut gradients);
            (losses, gradients)
        });
        let mut loss = 0.0;
        for (losses, gradients) in sums {
            loss += self.count(losses, place)?;
            self.gradients.add(&gradients);
        }
        Ok(loss)
    }

    /// Adds the losses of a micro-batch up; returns its share of the step's loss.
    fn count(&mut self, losses: Losses, place: &Place<'_>) -> Result<f64> {
        if !losses.is_finite() {
            return Err(place.not_finite("loss"));
        }
        self.router_loss += f64::from(losses.routers);
        Ok(f64::from(losses.nll))
    }

    fn add_one(&mut self, batch: &Batch, pass: &Pass<'_>, place: &Place<'_>) -> Result<f64> {
        let decoder = self.decoder.as_ref().expect("the decoder is only away during an update");
        let masks = split_seed(split_seed(self.seed, Purpose::Mask, place.step), Purpose::Mask, batch.number);
        decoder.set_dropout(Some(masks));
        let losses = batch.accumulate(decoder, pass, &self.device, &mut self.gradients);
        decoder.set_dropout(None);
        self.count(losses, place)
    }

    /// A forward and backward pass that changes nothing, so that running out of memory shows before the first step.
    pub(crate) fn rehearse(&mut self, batches: &[Batch], temperature: f32) {
        self.start_step();
        // What is not finite shows again in the step that it belongs to.
        let _ = self.add(batches, temperature, &Place { step: 0, rows: "before the first step".into() });
        self.start_step();
    }

    /// Makes the gradients of all ranks' micro-batches one.
    pub(crate) fn sum_gradients(&mut self, ranks: &dyn Ranks) -> Result<()> {
        sum_buckets(ranks, self.gradients.iter_mut().map(|(_, values)| values))
    }

    /// Hash of what training changes.
    pub(crate) fn fingerprint(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        self.decoder().for_each_trained(&mut |_, _, values| {
            hasher.update(bytemuck::cast_slice(values));
        });
        hasher.finalize().to_hex()[..32].into()
    }

    /// Clips and updates; returns the norm before clipping. Nothing has changed if the gradient is not finite.
    pub(crate) fn update(&mut self, rate: f64, place: &Place<'_>) -> Result<f64> {
        let norm = self.gradients.squared_norm().sqrt();
        if !norm.is_finite() {
            return Err(place.not_finite("gradient"));
        }
        let decoder = self.decoder.take().expect("the decoder is only away during an update");
        self.decoder = Some(self.optimizer.update(decoder, &mut self.gradients, norm, rate));
        Ok(norm)
    }

    /// Refuses weights that are not numbers: they never become a checkpoint.
    pub(crate) fn check_weights(&self, step: u64) -> Result<()> {
        let mut broken = None;
        self.decoder().for_each_trained(&mut |path, _, values| {
            if broken.is_none() && !values.iter().all(|value| value.is_finite()) {
                broken = Some(path.to_string());
            }
        });
        match broken {
            None => Ok(()),
            Some(path) => {
                Err(Place { step, rows: "after its update".into() }.not_finite(&format!("parameter `{path}`")))
            }
        }
    }
}

/// Where in a run something happens, for messages.
pub(crate) struct Place<'a> {
    pub(crate) step: u64,
    pub(crate) rows: std::borrow::Cow<'a, str>,
}

impl Place<'_> {
    /// A step over rows with these numbers.
    pub(crate) fn rows(step: u64, rows: &[usize]) -> Self {
        let list: Vec<String> = rows.iter().map(usize::to_string).collect();
        Self { step, rows: format!("rows {}", list.join(", ")).into() }
    }

    pub(crate) fn not_finite(&self, what: &str) -> Error {
        Error::NonFinite { step: self.step, what: what.into(), rows: self.rows.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizer::OptimizerConfig;
    use worldloom_model::ModelConfig;

    #[test]
    fn one_gradient_that_is_not_a_number_leaves_the_weights_as_they_were() {
        let model = ModelConfig::from_json(
            r#"{"model_type": "qwen3", "vocab_size": 8, "hidden_size": 4, "intermediate_size": 4,
                "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4,
                "rope_theta": 10000.0, "max_position_embeddings": 8, "tie_word_embeddings": true}"#,
        )
        .unwrap();
        let device = Device::flex().autodiff();
        let decoder = Decoder::init(&model, 1, &device);
        let optimizer = Optimizer::new(&OptimizerConfig::new(0.1, 0.1, 1.0), &decoder);
        let mut learner = Learner::new(decoder, optimizer.clone(), &device, 1);
        let weights = |learner: &Learner| {
            let mut all = Vec::new();
            learner.decoder().for_each_parameter(&mut |_, _, values| all.extend_from_slice(values));
            all
        };
        let before = weights(&learner);
        for value in [f32::NAN, f32::INFINITY] {
            learner.start_step();
            if let Some((_, gradient)) = learner.gradients.iter_mut().last() {
                gradient[0] = value;
            }
            let error = learner.update(0.1, &Place::rows(7, &[3, 5])).unwrap_err().to_string();
            assert!(error.contains("step 7") && error.contains("rows 3, 5") && error.contains("gradient"), "{error}");
            assert_eq!(weights(&learner), before);
            assert_eq!(learner.optimizer, optimizer);
        }
        assert!(learner.check_weights(7).is_ok());
    }
}
