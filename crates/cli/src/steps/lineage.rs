//! Where a run comes from, as a tree of the artifacts below it: written before the first step, copied by every checkpoint.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use serde_json::{Map, Value, json};
use worldloom_schema::{Artifact, InputRef, hash_file};
use worldloom_train::LINEAGE;

use super::StepContext;

/// Artifacts below artifacts, at most.
const DEPTH: usize = 12;
/// Files that say what a model speaks.
const SPOKEN: [&str; 3] = ["tokenizer.json", "chat_template.jinja", "config.json"];

/// Writes `lineage.json` into the run's folder: code, config with its seeds, and every input down to the sources.
pub(super) fn write_lineage(context: &StepContext<'_>) -> Result<()> {
    let lineage = json!({
        "code": crate::pipeline::code_revision(),
        "config": context.config,
        "inputs": inputs(context.inputs, DEPTH),
    });
    fs_err::write(context.out.join(LINEAGE), serde_json::to_string_pretty(&lineage)? + "\n")?;
    Ok(())
}

fn inputs(inputs: &BTreeMap<String, InputRef>, depth: usize) -> Value {
    Value::Object(inputs.iter().map(|(role, input)| (role.clone(), of(input, depth))).collect())
}

fn of(input: &InputRef, depth: usize) -> Value {
    let mut node = Map::new();
    node.insert("path".into(), json!(input.path));
    node.insert("key".into(), json!(input.key));
    if let Ok(artifact) = Artifact::open_any(&input.path) {
        let manifest = artifact.manifest;
        node.insert("kind".into(), json!(manifest.kind));
        node.insert("code".into(), json!(manifest.code));
        node.insert("config".into(), manifest.config);
        node.insert("counts".into(), json!(manifest.counts));
        if depth > 0 {
            node.insert("inputs".into(), inputs(&manifest.inputs, depth - 1));
        }
    }
    let folder = super::model_folder(&input.path);
    for name in SPOKEN {
        if let Some(hash) = hash_of(&folder.join(name)) {
            node.insert(name.into(), json!(hash));
        }
    }
    Value::Object(node)
}

fn hash_of(file: &Path) -> Option<String> {
    file.is_file().then(|| hash_file(file).ok()).flatten()
}
