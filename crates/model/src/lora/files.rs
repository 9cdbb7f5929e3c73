//! Adapters in and out, as PEFT names them: `adapter_config.json` and `adapter_model.safetensors`.

use super::LoraConfig;
use crate::config::Keys;
use crate::parts::Source;
use crate::weights::{Checkpoint, Files, Placed, SaveDType};
use crate::{Decoder, Error, Precision};
use burn::tensor::Device;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const PREFIX: &str = "base_model.model.";
const EXPERTS: &str = ".mlp.experts.";

/// Keys of a config that would change the computation, and the values that do not.
const FIXED: [(&str, &[&str]); 10] = [
    ("peft_type", &["\"LORA\""]),
    ("bias", &["\"none\""]),
    ("use_rslora", &["false"]),
    ("use_dora", &["false"]),
    ("fan_in_fan_out", &["false"]),
    ("rank_pattern", &["{}"]),
    ("alpha_pattern", &["{}"]),
    ("modules_to_save", &["[]"]),
    ("layer_replication", &[]),
    ("alora_invocation_tokens", &[]),
];

impl Decoder {
    /// Writes the adapters, and nothing else, into `dir`; `base` names the model they belong to.
    ///
    /// Panics if there are none.
    pub fn save_adapter(&self, dir: &Path, base: &str) -> Result<(), Error> {
        let lora = self.lora.as_ref().expect("only a decoder with adapters has any to save");
        fs_err::create_dir_all(dir)?;
        let mut tensors: Vec<(String, Vec<usize>)> = Vec::new();
        self.for_each_trained_shape(&mut |name, shape| tensors.extend(peft_tensors(name, shape)));
        let placed: Vec<Placed<'_>> =
            tensors.iter().map(|(name, shape)| Placed::numbers(name, shape, SaveDType::F32)).collect();
        let mut files = Files::create_one(&dir.join(WEIGHTS), &placed)?;
        let mut result = Ok(());
        self.for_each_trained(&mut |name, shape, values| {
            let mut rest = values;
            for (tensor, shape) in peft_tensors(name, shape) {
                let (values, after) = rest.split_at(shape.iter().product());
                rest = after;
                if result.is_ok() {
                    result = files.write_numbers(&tensor, 0, values, SaveDType::F32);
                }
            }
        });
        result?;
        let modules: BTreeSet<String> =
            tensors.iter().filter_map(|(name, _)| Some(module_of(name)?.0.to_owned())).collect();
        let config = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": lora.config.rank,
            "lora_alpha": lora.config.alpha,
            "lora_dropout": lora.config.dropout,
            "target_modules": modules,
            "bias": "none",
            "fan_in_fan_out": false,
            "use_rslora": false,
            "use_dora": false,
            "inference_mode": true,
        });
        Ok(fs_err::write(dir.join(CONFIG), format!("{config:#}\n"))?)
    }

    /// Freezes every parameter and puts the adapters of a folder beside the projections they belong to.
    pub fn with_adapter(self, dir: &Path, device: &Device) -> Result<Decoder, Error> {
        let file = Checkpoint::of_file(&dir.join(WEIGHTS))?;
        let names = || file.tensors.keys();
        let foreign: Vec<String> = names().filter(|name| module_of(name).is_none()).cloned().collect();
        let modules: BTreeSet<String> =
            names().filter_map(|name| module_of(name)).map(|(module, _)| projection_of(module)).collect();
        let config = read_config(&dir.join(CONFIG))?;
        let mut taken = BTreeSet::new();
        let values = &mut |name: &str, shape: &[usize]| {
            let mut values = Vec::with_capacity(shape.iter().product());
            for (tensor, shape) in peft_tensors(name, shape) {
                file.read_whole(&tensor, &shape, &mut values)?;
                taken.insert(tensor);
            }
            Ok(values)
        };
        let decoder = self.adapted(
            &config,
            &|path| modules.contains(path),
            Source { values, device, precision: Precision::F32 },
        )?;
        let unused = names().filter(|name| !taken.contains(*name)).cloned();
        let unused: BTreeSet<String> = unused.chain(foreign).collect();
        match unused.is_empty() {
            true => Ok(decoder),
            false => Err(Error::UnexpectedTensors { folder: dir.to_owned(), tensors: unused.into_iter().collect() }),
        }
    }
}

/// The tensors of an adapter's matrix: one, or one for each expert.
fn peft_tensors(name: &str, shape: &[usize]) -> Vec<(String, Vec<usize>)> {
    match name.split_once(EXPERTS) {
        None => vec![(format!("{PREFIX}{name}.weight"), shape.to_vec())],
        Some((layer, rest)) => (0..shape[0])
            .map(|expert| (format!("{PREFIX}{layer}{EXPERTS}{expert}.{rest}.weight"), shape[1..].to_vec()))
            .collect(),
    }
}

/// The module of a tensor, and which matrix it is.
fn module_of(tensor: &str) -> Option<(&str, &str)> {
    let (module, matrix) = tensor.strip_prefix(PREFIX)?.strip_suffix(".weight")?.rsplit_once('.')?;
    matches!(matrix, "lora_A" | "lora_B").then_some((module, matrix))
}

/// The projection that a module is part of: all experts are one.
fn projection_of(module: &str) -> String {
    match module.split_once(EXPERTS) {
        Some((layer, rest)) => match rest.split_once('.') {
            Some((_, projection)) => format!("{layer}{EXPERTS}{projection}"),
            None => module.to_owned(),
        },
        None => module.to_owned(),
    }
}

fn read_config(path: &Path) -> Result<LoraConfig, Error> {
    let wrong = |source| Error::ConfigSyntax { origin: path.display().to_string(), source };
    let keys: Map<String, Value> = serde_json::from_str(&fs_err::read_to_string(path)?).map_err(wrong)?;
    for (key, values) in FIXED {
        let found = keys.get(key).filter(|value| !value.is_null()).map(Value::to_string);
        if let Some(found) = found.filter(|found| !values.contains(&found.as_str())) {
            let supported = if values.is_empty() { "null".to_owned() } else { values.join(", ") };
            return Err(Error::Unsupported { key: key.to_owned(), found, supported });
        }
    }
    let mut keys = Keys::of(keys);
    let config = LoraConfig {
        rank: keys.required("r")?,
        alpha: keys.required("lora_alpha")?,
        dropout: keys.optional("lora_dropout")?.unwrap_or(0.0),
        targets: "as in the adapter's file".to_owned(),
    };
    config.check()?;
    Ok(config)
}
