//! The bundled families of templates: `compact`, at most eight lines each, and `full`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use worldloom_schema::Domain;

use crate::blocks::{Blocks, CommonBlocks, parse, parse_blocks};
use crate::error::{Error, Result};

macro_rules! versions {
    ($family:literal) => {
        [
            include_str!(concat!("../templates/", $family, "/v0.jinja")),
            include_str!(concat!("../templates/", $family, "/v1.jinja")),
            include_str!(concat!("../templates/", $family, "/v2.jinja")),
            include_str!(concat!("../templates/", $family, "/v3.jinja")),
            include_str!(concat!("../templates/", $family, "/v4.jinja")),
            include_str!(concat!("../templates/", $family, "/v5.jinja")),
            include_str!(concat!("../templates/", $family, "/v6.jinja")),
            include_str!(concat!("../templates/", $family, "/v7.jinja")),
            include_str!(concat!("../templates/", $family, "/v8.jinja")),
            include_str!(concat!("../templates/", $family, "/v9.jinja")),
            include_str!(concat!("../templates/", $family, "/v10.jinja")),
            include_str!(concat!("../templates/", $family, "/v11.jinja")),
        ]
    };
}

/// A domain of the full family: its blocks, and what is known about such environments.
macro_rules! domain {
    ($domain:ident, $name:literal) => {
        (
            Domain::$domain,
            include_str!(concat!("../templates/full/domains/", $name, ".json")),
            include_str!(concat!("../templates/full/reference/", $name, ".json")),
        )
    };
}

const COMPACT: [&str; 12] = versions!("compact");
const FULL: [&str; 12] = versions!("full");
const COMPACT_DOMAINS: &str = include_str!("../templates/domains.json");
const FULL_COMMON: &str = include_str!("../templates/full/common.json");
const FULL_DOMAINS: [(Domain, &str, &str); 7] = [
    domain!(Mcp, "mcp"),
    domain!(Search, "search"),
    domain!(Terminal, "terminal"),
    domain!(Swe, "swe"),
    domain!(Android, "android"),
    domain!(Web, "web"),
    domain!(Os, "os"),
];
const FULL_TAG_INSTRUCTION: &str = include_str!("../templates/full/tag_instruction.txt");

/// Stands at the end of the last user turn where tags are expected, in the compact family.
pub const TAG_INSTRUCTION: &str =
    "Think first, then write the output between <predicted_observation> and </predicted_observation>.";

/// What a family is made of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Family {
    pub(crate) sources: BTreeMap<u8, String>,
    pub(crate) blocks: BTreeMap<Domain, Blocks>,
    pub(crate) common: CommonBlocks,
    pub(crate) tag_instruction: String,
}

/// The bundled family with this name.
pub(crate) fn bundled(name: &str) -> Result<Family> {
    match name {
        "compact" => Ok(Family {
            sources: numbered(&COMPACT),
            blocks: parse_blocks(Path::new("domains.json"), COMPACT_DOMAINS)?,
            common: CommonBlocks::default(),
            tag_instruction: TAG_INSTRUCTION.into(),
        }),
        "full" => {
            let blocks = FULL_DOMAINS.iter().map(|&(domain, blocks, reference)| {
                let named = |folder: &str| PathBuf::from(format!("full/{folder}/{domain}.json"));
                let blocks: Blocks = parse(&named("domains"), blocks)?;
                let reference = parse(&named("reference"), reference)?;
                Ok((domain, Blocks { reference, ..blocks }))
            });
            Ok(Family {
                sources: numbered(&FULL),
                blocks: blocks.collect::<Result<_>>()?,
                common: parse(Path::new("full/common.json"), FULL_COMMON)?,
                tag_instruction: FULL_TAG_INSTRUCTION.trim_end().into(),
            })
        }
        other => Err(Error::Config {
            field: "family",
            detail: format!("unknown family `{other}`; bundled: compact, full; a folder of yours goes in `templates`"),
        }),
    }
}

fn numbered(sources: &[&str]) -> BTreeMap<u8, String> {
    sources.iter().enumerate().map(|(version, source)| (version as u8, source.to_string())).collect()
}
