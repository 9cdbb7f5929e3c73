//! A checkpoint written once more in another form, one parameter in memory at a time, and read back.

use super::load::Parameters;
use super::numbers::SaveDType;
use super::save::{SaveOptions, save_shown};
use crate::Error;
use burn::tensor::Device;
use std::path::Path;

/// Writes the checkpoint of `from` into `to`, then reads it back and compares: bit for bit in single precision, otherwise
/// with the numbers rounded to the asked type. Answers how many numbers there are.
///
/// What it takes in memory is the largest parameter. `from` and `to` are different folders.
///
/// # Errors
/// Those of [`load`](crate::load) for either folder, those of [`save_with`](crate::save_with), and
/// [`Error::ReadBack`].
pub fn export(from: &Path, to: &Path, options: &SaveOptions, device: &Device) -> Result<u64, Error> {
    let parameters = Parameters::open(from, device)?;
    save_shown(parameters.shapes(), &|read| parameters.read_each(read), &parameters.config, to, options)?;
    compare(&parameters, &Parameters::open(to, device)?, options.dtype)?;
    Ok(parameters.shapes().iter().map(|parameter| parameter.num_elements() as u64).sum())
}

fn compare(ours: &Parameters, again: &Parameters, dtype: SaveDType) -> Result<(), Error> {
    assert_eq!(ours.shapes(), again.shapes(), "a config that was written and read again asks for the same parameters");
    for parameter in ours.shapes() {
        let expected = ours.read(&parameter.name);
        let mut rest = expected.as_slice();
        let mut differs = None;
        again.read_in_parts(&parameter.name, &mut |found| {
            let (expected, after) = rest.split_at(found.len());
            rest = after;
            let mut pairs = expected.iter().map(|&value| dtype.round(value)).zip(found.iter().copied());
            differs = differs.or(pairs.find(|(expected, found)| expected.to_bits() != found.to_bits()));
        });
        if let Some((expected, found)) = differs {
            return Err(Error::ReadBack {
                folder: again.folder().to_owned(),
                parameter: parameter.name.clone(),
                expected,
                found,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Decoder, ModelConfig, save};

    #[test]
    fn a_number_that_comes_back_as_another_is_named_with_its_parameter() {
        let config = ModelConfig::from_json(
            r#"{"model_type": "llama", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 12,
                "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16}"#,
        )
        .unwrap();
        let device = Device::flex();
        let [ours, again] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let decoder = Decoder::init(&config, 1, &device);
        save(&decoder, &config, ours.path(), SaveDType::F32).unwrap();
        let open = |dir: &Path| Parameters::open(dir, &device).unwrap();
        for dtype in [SaveDType::F32, SaveDType::BF16] {
            save(&decoder, &config, again.path(), dtype).unwrap();
            compare(&open(ours.path()), &open(again.path()), dtype).unwrap();
        }
        let changed = decoder.update_parameters(&mut |name, _, values| {
            if name == "model.layers.0.mlp.up_proj.weight" {
                values[5] = 7.0;
            }
        });
        save(&changed, &config, again.path(), SaveDType::F32).unwrap();
        let error = compare(&open(ours.path()), &open(again.path()), SaveDType::F32).unwrap_err();
        let Error::ReadBack { parameter, found, .. } = &error else { panic!("{error}") };
        assert_eq!((parameter.as_str(), *found), ("model.layers.0.mlp.up_proj.weight", 7.0));
    }
}
