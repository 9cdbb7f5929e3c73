//! What a domain says in every template: one sentence a part in a compact family, a list of points in a full one.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use worldloom_schema::Domain;

use crate::error::{Error, Result};

/// A part of a domain: a text, or points.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Part {
    /// One text.
    Text(String),
    /// Points, each a line.
    Points(Vec<String>),
}

impl Default for Part {
    fn default() -> Self {
        Part::Points(Vec::new())
    }
}

/// A small exchange that shows the form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// What comes in.
    pub action: String,
    /// What goes out.
    pub observation: String,
}

/// A chapter of what is known about a domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chapter {
    /// What it is about.
    pub title: String,
    /// What is known, each a line.
    pub points: Vec<String>,
}

/// What a domain says in every template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// A name for it in a heading.
    #[serde(default)]
    pub title: String,
    /// What the model is.
    pub role: Part,
    /// What it keeps track of.
    pub state: Part,
    /// How actions change the state.
    #[serde(default)]
    pub effects: Part,
    /// What comes in.
    pub action: Part,
    /// What goes out.
    pub output: Part,
    /// How errors look.
    pub errors: Part,
    /// What has to be right to the letter.
    #[serde(default)]
    pub exact: Part,
    /// What has to be believable and is kept from then on.
    #[serde(default)]
    pub plausible: Part,
    /// What only has to have the right form.
    #[serde(default)]
    pub free: Part,
    /// Exchanges for trajectories that bring no demonstrations of their own.
    #[serde(default)]
    pub examples: Vec<Example>,
    /// What is known about such environments, for long layouts.
    #[serde(default)]
    pub reference: Vec<Chapter>,
    /// Whether the agent's task is told.
    pub shows_task: bool,
}

/// What all domains of a full family say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommonBlocks {
    /// Steps from an action to its observation.
    pub procedure: Vec<String>,
    /// What a good answer is.
    pub principles: Vec<String>,
    /// What never happens.
    pub never: Vec<String>,
}

/// The blocks of all seven domains in one JSON object.
pub(crate) fn parse_blocks(path: &Path, text: &str) -> Result<BTreeMap<Domain, Blocks>> {
    let blocks: BTreeMap<Domain, Blocks> = parse(path, text)?;
    if let Some(missing) = Domain::ALL.iter().find(|domain| !blocks.contains_key(domain)) {
        return Err(Error::Domains { path: path.into(), detail: format!("no blocks for domain {missing}") });
    }
    Ok(blocks)
}

pub(crate) fn parse<T: for<'a> Deserialize<'a>>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::Domains { path: path.into(), detail: error.to_string() })
}
