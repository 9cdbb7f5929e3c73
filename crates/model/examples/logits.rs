//! Writes the logits of a model folder for given token ids, for comparison with another implementation:
//! `logits DIR OUT.safetensors 1 2 3 …`.

use std::path::Path;

use burn::tensor::Device;
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};
use worldloom_model::{Layout, load, token_tensor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, out, ids @ ..] = arguments.as_slice() else { return Err("usage: logits DIR OUT ID…".into()) };
    let ids = ids.iter().map(|id| id.parse()).collect::<Result<Vec<u32>, _>>()?;
    let device = Device::flex();
    let (decoder, config) = load(Path::new(folder), &device)?;
    let layout = Layout::causal(1, ids.len(), &device);
    let logits = decoder.logits(token_tensor(&ids, 1, ids.len(), &device), &layout);
    let values = logits.into_data().try_to_vec::<f32>().map_err(|error| format!("{error:?}"))?;
    let view = TensorView::new(Dtype::F32, vec![ids.len(), config.vocab_size], bytemuck::cast_slice(&values))?;
    serialize_to_file([("logits", view)], None, Path::new(out))?;
    Ok(())
}
