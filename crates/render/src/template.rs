//! World-model system prompts: MiniJinja templates filled with a domain's blocks and the trajectory's dynamic parts.
//!
//! A template sees `role`, `state`, `action`, `output`, `errors` (blocks of the domain) and `tools`, `task`,
//! `initial_state`, `instruction`, `demonstrations` (of the trajectory; empty where there is none).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use minijinja::{Environment, UndefinedBehavior, context};
use serde::Deserialize;
use worldloom_schema::{Domain, System};

use crate::error::{Error, Result};
use crate::tools::tools_line;

const COMPACT: [&str; 12] = [
    include_str!("../templates/compact/v0.jinja"),
    include_str!("../templates/compact/v1.jinja"),
    include_str!("../templates/compact/v2.jinja"),
    include_str!("../templates/compact/v3.jinja"),
    include_str!("../templates/compact/v4.jinja"),
    include_str!("../templates/compact/v5.jinja"),
    include_str!("../templates/compact/v6.jinja"),
    include_str!("../templates/compact/v7.jinja"),
    include_str!("../templates/compact/v8.jinja"),
    include_str!("../templates/compact/v9.jinja"),
    include_str!("../templates/compact/v10.jinja"),
    include_str!("../templates/compact/v11.jinja"),
];
const DOMAINS: &str = include_str!("../templates/domains.json");
/// Name of the file with the domain blocks inside a folder of templates.
const DOMAINS_FILE: &str = "domains.json";

/// What a domain says in every template.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blocks {
    /// What the model is.
    pub role: String,
    /// What it keeps track of.
    pub state: String,
    /// What comes in.
    pub action: String,
    /// What goes out.
    pub output: String,
    /// How errors look.
    pub errors: String,
    /// Whether the agent's task is told.
    pub shows_task: bool,
}

/// A family of templates with its versions.
#[derive(Debug, Clone)]
pub struct Templates {
    family: String,
    environment: Environment<'static>,
    versions: Vec<u8>,
    blocks: BTreeMap<Domain, Blocks>,
}

impl Templates {
    /// The bundled family of at most eight lines each, versions 0 to 11.
    pub fn compact() -> Result<Self> {
        let sources = COMPACT.iter().enumerate().map(|(version, source)| (version as u8, source.to_string()));
        Self::new("compact", sources, parse_blocks(Path::new(DOMAINS_FILE), DOMAINS)?)
    }

    /// The bundled family with this name.
    pub fn bundled(family: &str) -> Result<Self> {
        if family == "compact" {
            return Self::compact();
        }
        Err(Error::Config { field: "family", detail: format!("unknown family `{family}`; bundled: compact") })
    }

    /// A folder with `v0.jinja`, `v1.jinja`, …; a `domains.json` in it replaces the bundled domain blocks.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let mut sources = BTreeMap::new();
        for entry in fs_err::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let version = name.strip_prefix('v').and_then(|name| name.strip_suffix(".jinja"));
            if let Some(version) = version.and_then(|version| version.parse::<u8>().ok()) {
                sources.insert(version, fs_err::read_to_string(&path)?);
            }
        }
        let own: PathBuf = folder.join(DOMAINS_FILE);
        let blocks = if own.exists() {
            parse_blocks(&own, &fs_err::read_to_string(&own)?)?
        } else {
            parse_blocks(Path::new(DOMAINS_FILE), DOMAINS)?
        };
        Self::new(&folder.display().to_string(), sources, blocks)
    }

    fn new(
        family: &str,
        sources: impl IntoIterator<Item = (u8, String)>,
        blocks: BTreeMap<Domain, Blocks>,
    ) -> Result<Self> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let mut versions = Vec::new();
        for (version, source) in sources {
            environment.add_template_owned(format!("v{version}"), source).map_err(|error| Error::Template {
                family: family.into(),
                version,
                detail: error.to_string(),
            })?;
            versions.push(version);
        }
        Ok(Self { family: family.into(), environment, versions, blocks })
    }

    /// Name of the family, or the folder.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// The versions there are, ascending.
    pub fn versions(&self) -> &[u8] {
        &self.versions
    }

    /// Refuses a version that does not exist.
    pub fn check(&self, version: u8) -> Result<()> {
        if self.versions.contains(&version) {
            return Ok(());
        }
        let known: Vec<_> = self.versions.iter().map(|version| format!("v{version}")).collect();
        Err(Error::NoTemplate { family: self.family.clone(), version, known: known.join(", ") })
    }

    /// The system prompt of a trajectory.
    pub fn system_prompt(&self, version: u8, domain: Domain, system: &System) -> Result<String> {
        self.check(version)?;
        let failed = |detail: String| Error::Template { family: self.family.clone(), version, detail };
        let blocks = self.blocks.get(&domain).ok_or_else(|| failed(format!("no blocks for domain {domain}")))?;
        let template = self.environment.get_template(&format!("v{version}")).map_err(|e| failed(e.to_string()))?;
        let text = template
            .render(context! {
                role => blocks.role.as_str(),
                state => blocks.state.as_str(),
                action => blocks.action.as_str(),
                output => blocks.output.as_str(),
                errors => blocks.errors.as_str(),
                tools => system.action_space.as_deref().map(tools_line).unwrap_or_default(),
                task => if blocks.shows_task { system.task_description.trim() } else { "" },
                initial_state => system.initial_state.as_deref().unwrap_or_default().trim(),
                instruction => system.simulation_instruction.as_deref().unwrap_or_default().trim(),
                demonstrations => system.demonstrations.join("\n\n").trim(),
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(text.trim().to_string())
    }
}

fn parse_blocks(path: &Path, text: &str) -> Result<BTreeMap<Domain, Blocks>> {
    let blocks: BTreeMap<Domain, Blocks> =
        serde_json::from_str(text).map_err(|error| Error::Domains { path: path.into(), detail: error.to_string() })?;
    if let Some(missing) = Domain::ALL.iter().find(|domain| !blocks.contains_key(domain)) {
        return Err(Error::Domains { path: path.into(), detail: format!("no blocks for domain {missing}") });
    }
    Ok(blocks)
}
