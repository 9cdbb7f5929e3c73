//! Weights in: memory-mapped, one parameter at a time, strict about names, shapes and kinds.

use super::checkpoint::{Checkpoint, Stored};
use super::plan::{Piece, Plan, Spelling};
use super::{CONFIG, EMBEDDING, HEAD, numbers};
use crate::parameters::ReadParameter;
use crate::parts::Source;
use crate::{Decoder, Error, ModelConfig, ParameterShape, Precision, parameter_shapes};
use burn::tensor::Device;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;

/// Parts of published checkpoints that are no text decoder: vision, and the heads that predict several tokens.
const OTHER_PARTS: [&str; 4] = ["model.visual.", "visual.", "mtp.", "model.mtp."];

/// Numbers of a file that are read before its pages are let go.
const PART: usize = 1 << 18;

/// Reads a checkpoint: `config.json`, and `model.safetensors` or the shards that an index names.
///
/// Numbers may be `F32`, `BF16` or `F16` and become single precision, in which they are exact. Every tensor that the
/// config asks for must be there in its shape, and no other, except a head that repeats a tied embedding, and the vision
/// and multi-token parts of a checkpoint, which are passed over. Nothing is read before all of that is known.
pub fn load(dir: &Path, device: &Device) -> Result<(Decoder, ModelConfig), Error> {
    load_in(dir, Precision::F32, device)
}

/// As [`load`], with the matrices held in `precision`: rounded to the nearest where the file has more bits.
///
/// # Errors
/// Besides those of [`load`]: the device does not have the precision.
pub fn load_in(dir: &Path, precision: Precision, device: &Device) -> Result<(Decoder, ModelConfig), Error> {
    precision.check(device)?;
    let parameters = Parameters::open(dir, device)?;
    let values = &mut |name: &str, _: &[usize]| -> Result<Vec<f32>, Error> { Ok(parameters.read(name)) };
    let decoder = Decoder::from_values(&parameters.config, Source { values, device, precision })?;
    Ok((decoder, parameters.config))
}

/// The parameters of a checkpoint that was found whole, to be read one after the other.
pub(crate) struct Parameters {
    pub(crate) config: ModelConfig,
    checkpoint: Checkpoint,
    shapes: Vec<ParameterShape>,
    plan: Plan,
}

impl Parameters {
    /// Reads the headers and checks them.
    pub(crate) fn open(dir: &Path, device: &Device) -> Result<Parameters, Error> {
        let config = ModelConfig::from_file(&dir.join(CONFIG))?;
        let checkpoint = Checkpoint::open(dir)?;
        let shapes = parameter_shapes(&config, device);
        let plan = plan(&checkpoint, &shapes);
        check(&checkpoint, &plan, &config)?;
        Ok(Parameters { config, checkpoint, shapes, plan })
    }

    /// Shows every parameter in the decoder's order.
    pub(crate) fn read_each(&self, read: ReadParameter<'_>) {
        self.shapes.iter().for_each(|ParameterShape { name, shape }| read(name, shape, &self.read(name)));
    }

    /// Names and shapes in the decoder's order.
    pub(super) fn shapes(&self) -> &[ParameterShape] {
        &self.shapes
    }

    /// Where they are read from.
    pub(super) fn folder(&self) -> &Path {
        &self.checkpoint.folder
    }

    /// The numbers of one parameter.
    pub(super) fn read(&self, name: &str) -> Vec<f32> {
        let mut values = Vec::with_capacity(self.plan.pieces(name).iter().map(|piece| piece.range.len()).sum());
        self.parts(name).for_each(|(stored, part)| self.checkpoint.read(stored, part, &mut values));
        values
    }

    /// Shows the numbers of one parameter in order, some at a time.
    pub(super) fn read_in_parts(&self, name: &str, read: &mut dyn FnMut(&[f32])) {
        let mut values = Vec::with_capacity(PART);
        for (stored, part) in self.parts(name) {
            values.clear();
            self.checkpoint.read(stored, part, &mut values);
            read(&values);
        }
    }

    /// Where the numbers of one parameter lie, some at a time: what was read of a file counts as ours until it is let go.
    fn parts(&self, name: &str) -> impl Iterator<Item = (&Stored, Range<usize>)> {
        self.plan.pieces(name).iter().flat_map(|Piece { tensor, range }| {
            let stored = &self.checkpoint.tensors[tensor];
            range.clone().step_by(PART).map(move |start| (stored, start..range.end.min(start + PART)))
        })
    }
}

/// Where a checkpoint has the parameters.
pub(super) fn plan(checkpoint: &Checkpoint, parameters: &[ParameterShape]) -> Plan {
    Spelling::found_in(&checkpoint.tensors, |spelling| Plan::new(parameters, spelling))
}

/// Whether a tensor belongs to a part of the checkpoint that is not the text decoder.
pub(super) fn is_other_part(tensor: &str) -> bool {
    OTHER_PARTS.iter().any(|prefix| tensor.starts_with(prefix))
}

/// Every tensor of the plan is there in its shape, and no other.
pub(super) fn check(checkpoint: &Checkpoint, plan: &Plan, config: &ModelConfig) -> Result<(), Error> {
    check_head(checkpoint, plan, config)?;
    let folder = || checkpoint.folder.clone();
    for (tensor, expected) in &plan.tensors {
        let missing = || Error::MissingTensor { folder: folder(), tensor: tensor.clone() };
        let stored = checkpoint.tensors.get(tensor).ok_or_else(missing)?;
        check_form(checkpoint, tensor, stored, expected)?;
    }
    let planned: BTreeSet<&str> = plan.tensors.iter().map(|(tensor, _)| tensor.as_str()).collect();
    let is_known = |tensor: &str| planned.contains(tensor) || is_other_part(tensor) || tensor == HEAD;
    let unexpected: Vec<String> = checkpoint.tensors.keys().filter(|tensor| !is_known(tensor)).cloned().collect();
    if unexpected.is_empty() { Ok(()) } else { Err(Error::UnexpectedTensors { folder: folder(), tensors: unexpected }) }
}

impl Checkpoint {
    /// Appends all numbers of a tensor, which must be there in this shape.
    pub(crate) fn read_whole(&self, tensor: &str, shape: &[usize], out: &mut Vec<f32>) -> Result<(), Error> {
        let missing = || Error::MissingTensor { folder: self.folder.clone(), tensor: tensor.to_owned() };
        let stored = self.tensors.get(tensor).ok_or_else(missing)?;
        check_form(self, tensor, stored, shape)?;
        self.read(stored, 0..shape.iter().product(), out);
        Ok(())
    }
}

fn check_form(checkpoint: &Checkpoint, tensor: &str, stored: &Stored, expected: &[usize]) -> Result<(), Error> {
    let (path, tensor) = (checkpoint.path(stored).to_owned(), tensor.to_owned());
    if !numbers::is_read(stored.dtype) {
        return Err(Error::WrongType { path, tensor, found: format!("{:?}", stored.dtype) });
    }
    if stored.shape != expected {
        return Err(Error::WrongShape { path, tensor, expected: expected.to_vec(), found: stored.shape.clone() });
    }
    Ok(())
}

/// The head must be there if it is not tied; tied, it may be there once more, with the same bytes.
fn check_head(checkpoint: &Checkpoint, plan: &Plan, config: &ModelConfig) -> Result<(), Error> {
    let head = checkpoint.tensors.get(HEAD);
    if !config.tie_word_embeddings {
        return if head.is_some() { Ok(()) } else { Err(Error::HeadMissing { folder: checkpoint.folder.clone() }) };
    }
    let embedding = plan.pieces(EMBEDDING).first().and_then(|piece| checkpoint.tensors.get(&piece.tensor));
    if let (Some(head), Some(embedding)) = (head, embedding) {
        let is_same = head.dtype == embedding.dtype && checkpoint.bytes(head) == checkpoint.bytes(embedding);
        checkpoint.release(head);
        checkpoint.release(embedding);
        if !is_same {
            return Err(Error::TiedHeadDiffers { folder: checkpoint.folder.clone() });
        }
    }
    Ok(())
}
