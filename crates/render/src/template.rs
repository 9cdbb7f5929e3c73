//! World-model system prompts: MiniJinja templates filled with a domain's blocks and the trajectory's dynamic parts.
//!
//! A template sees `title`, `role`, `state`, `effects`, `action`, `output`, `errors`, `exact`, `plausible`, `free`,
//! `examples`, `reference` (blocks of the domain), `common` (`procedure`, `principles`, `never`), and of the trajectory, empty where
//! there is none: `tools` (names on one line), `tool_definitions` (one tool a line, whole), `task`, `initial_state`,
//! `instruction`, `demonstrations`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use minijinja::{Environment, UndefinedBehavior, context};
use worldloom_schema::{Domain, System};

use crate::blocks::parse_blocks;
use crate::error::{Error, Result};
use crate::family::{Family, bundled};
use crate::stage::Stage;
use crate::tools::{is_cut, tool_lines, tools_line};
use crate::values::to_jinja;

/// Name of the file with the domain blocks inside a folder of templates.
const DOMAINS_FILE: &str = "domains.json";
/// Name of the file with the words that ask for thinking and tags.
const TAG_INSTRUCTION_FILE: &str = "tag_instruction.txt";
/// Hexadecimal digits of a template's hash.
const HASH_LENGTH: usize = 16;

/// The parts of a trajectory that a prompt is to show, and the variables that show them.
const DYNAMIC_PARTS: [(&str, &[&str]); 5] = [
    ("tools", &["tools", "tool_definitions"]),
    ("task", &["task"]),
    ("initial_state", &["initial_state"]),
    ("instruction", &["instruction"]),
    ("demonstrations", &["demonstrations"]),
];

/// A family of templates with its versions.
#[derive(Debug, Clone)]
pub struct Templates {
    family: String,
    content: Family,
    environment: Environment<'static>,
    hashes: BTreeMap<u8, String>,
    /// Per version: the variables it uses.
    variables: BTreeMap<u8, BTreeSet<String>>,
}

impl Templates {
    /// The bundled family of at most eight lines each, versions 0 to 11.
    pub fn compact() -> Result<Self> {
        Self::bundled("compact")
    }

    /// The bundled family with this name: `compact` or `full`.
    pub fn bundled(family: &str) -> Result<Self> {
        Self::new(family, bundled(family)?)
    }

    /// A folder with `v0.jinja`, `v1.jinja`, …; a `domains.json` in it replaces the domain blocks of `compact`, and a
    /// `tag_instruction.txt` its words for thinking and tags.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        let mut family = bundled("compact")?;
        family.sources.clear();
        for entry in fs_err::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let version = name.strip_prefix('v').and_then(|name| name.strip_suffix(".jinja"));
            if let Some(version) = version.and_then(|version| version.parse::<u8>().ok()) {
                family.sources.insert(version, fs_err::read_to_string(&path)?);
            }
        }
        let (domains, words) = (folder.join(DOMAINS_FILE), folder.join(TAG_INSTRUCTION_FILE));
        if domains.exists() {
            family.blocks = parse_blocks(&domains, &fs_err::read_to_string(&domains)?)?;
        }
        if words.exists() {
            family.tag_instruction = fs_err::read_to_string(&words)?.trim_end().into();
        }
        Self::new(&folder.display().to_string(), family)
    }

    pub(crate) fn new(name: &str, family: Family) -> Result<Self> {
        check_disjoint(name, &family.sources)?;
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let (mut hashes, mut variables) = (BTreeMap::new(), BTreeMap::new());
        for (&version, source) in &family.sources {
            let failed =
                |error: minijinja::Error| Error::Template { family: name.into(), version, detail: error.to_string() };
            let template = format!("v{version}");
            environment.add_template_owned(template.clone(), source.clone()).map_err(failed)?;
            let used = environment.get_template(&template).map_err(failed)?.undeclared_variables(false);
            variables.insert(version, used.into_iter().collect());
            hashes.insert(version, blake3::hash(source.as_bytes()).to_hex()[..HASH_LENGTH].to_string());
        }
        Ok(Self { family: name.into(), content: family, environment, hashes, variables })
    }

    /// Name of the family, or the folder.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// Name of the family, or of the folder without where it lies.
    pub fn name(&self) -> String {
        let name = Path::new(&self.family).file_name();
        name.map_or_else(|| self.family.clone(), |name| name.to_string_lossy().into_owned())
    }

    /// All that it says.
    pub(crate) fn content(&self) -> &Family {
        &self.content
    }

    /// Hash of all that it says.
    pub fn hash_of_all(&self) -> String {
        worldloom_schema::hash_json(&json(&self.content))
    }

    /// Whether both say the same, whatever they are called.
    pub fn is_same(&self, other: &Self) -> bool {
        self.content == other.content
    }

    /// The versions there are, ascending.
    pub fn versions(&self) -> Vec<u8> {
        self.content.sources.keys().copied().collect()
    }

    /// The first version of a stage.
    pub fn first_of(&self, stage: Stage) -> Result<u8> {
        let first = self.versions().into_iter().find(|&version| Stage::of_version(version) == stage);
        first.ok_or_else(|| self.missing(stage.first_version()))
    }

    /// Hash of a version's text.
    pub fn hash(&self, version: u8) -> Option<&str> {
        self.hashes.get(&version).map(String::as_str)
    }

    /// The words at the end of the last user turn where tags are expected.
    pub fn tag_instruction(&self) -> &str {
        &self.content.tag_instruction
    }

    /// Refuses a version that does not exist.
    pub fn check(&self, version: u8) -> Result<()> {
        if self.content.sources.contains_key(&version) {
            return Ok(());
        }
        Err(self.missing(version))
    }

    fn missing(&self, version: u8) -> Error {
        let known: Vec<_> = self.content.sources.keys().map(|version| format!("v{version}")).collect();
        Error::NoTemplate { family: self.family.clone(), version, known: known.join(", ") }
    }

    /// The system prompt of a trajectory.
    pub fn system_prompt(&self, version: u8, domain: Domain, system: &System) -> Result<String> {
        self.check(version)?;
        let failed = |detail: String| Error::Template { family: self.family.clone(), version, detail };
        let blocks =
            self.content.blocks.get(&domain).ok_or_else(|| failed(format!("no blocks for domain {domain}")))?;
        let template = self.environment.get_template(&format!("v{version}")).map_err(|e| failed(e.to_string()))?;
        let tools = system.action_space.as_deref();
        let text = template
            .render(context! {
                common => to_jinja(&json(&self.content.common)),
                tools => tools.map(tools_line).unwrap_or_default(),
                tool_definitions => tools.map(tool_lines).unwrap_or_default(),
                task => if blocks.shows_task { system.task_description.trim() } else { "" },
                initial_state => system.initial_state.as_deref().unwrap_or_default().trim(),
                instruction => system.simulation_instruction.as_deref().unwrap_or_default().trim(),
                demonstrations => system.demonstrations.join("\n\n").trim(),
                ..to_jinja(&json(blocks))
            })
            .map_err(|error| failed(error.to_string()))?;
        Ok(text.trim().to_string())
    }

    /// The parts that the trajectory has and the template does not show.
    pub fn omitted(&self, version: u8, domain: Domain, system: &System) -> Vec<&'static str> {
        let shows_task = self.content.blocks.get(&domain).is_some_and(|blocks| blocks.shows_task);
        let filled = |text: &Option<String>| text.as_deref().is_some_and(|text| !text.trim().is_empty());
        let has = |part: &str| match part {
            "tools" => filled(&system.action_space),
            "task" => shows_task && !system.task_description.trim().is_empty(),
            "initial_state" => filled(&system.initial_state),
            "instruction" => filled(&system.simulation_instruction),
            _ => !system.demonstrations.is_empty(),
        };
        let Some(used) = self.variables.get(&version) else { return Vec::new() };
        let shows = |names: &[&str]| names.iter().any(|name| used.contains(*name));
        let unseen = DYNAMIC_PARTS.iter().filter(|(part, names)| has(part) && !shows(names)).map(|(part, _)| *part);
        let is_cut =
            !shows(&["tool_definitions"]) && shows(&["tools"]) && system.action_space.as_deref().is_some_and(is_cut);
        unseen.chain(is_cut.then_some("tools_beyond_their_first_400_characters")).collect()
    }
}

fn json(blocks: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(blocks).expect("blocks and families are texts and lists")
}

/// No stage may see the template of another: two versions that say the same are refused.
fn check_disjoint(family: &str, sources: &BTreeMap<u8, String>) -> Result<()> {
    let mut seen: BTreeMap<String, u8> = BTreeMap::new();
    for (&version, source) in sources {
        let words = source.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(first) = seen.insert(words, version) {
            return Err(Error::SameTemplate { family: family.into(), first, second: version });
        }
    }
    Ok(())
}
