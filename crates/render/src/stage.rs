//! The three training stages and the template versions that belong to each.

use serde::{Deserialize, Serialize};
use worldloom_schema::Pool;

use crate::error::{Error, Result};

/// What the rows are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Continued pretraining: whole trajectories, template v1.
    Cpt,
    /// Supervised fine-tuning: one target turn a row, templates v2 and higher.
    Sft,
    /// Reinforcement learning: prompts, template v0.
    Rl,
}

impl Stage {
    /// The stage that owns a template version: no template is shared.
    pub fn of_version(version: u8) -> Stage {
        match version {
            0 => Stage::Rl,
            1 => Stage::Cpt,
            _ => Stage::Sft,
        }
    }

    /// The lowest template version that it owns.
    pub(crate) fn first_version(self) -> u8 {
        match self {
            Stage::Rl => 0,
            Stage::Cpt => 1,
            Stage::Sft => 2,
        }
    }

    /// Refuses another stage's template.
    pub fn check_version(self, version: u8) -> Result<()> {
        let owner = Stage::of_version(version);
        if owner == self { Ok(()) } else { Err(Error::StageVersion { version, stage: self, owner }) }
    }

    /// The pool it reads.
    pub fn pool(self) -> Pool {
        match self {
            Stage::Cpt => Pool::Cpt,
            Stage::Sft => Pool::Sft,
            Stage::Rl => Pool::Rl,
        }
    }

    /// The name as it is written.
    pub fn as_str(self) -> &'static str {
        self.pool().as_str()
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
