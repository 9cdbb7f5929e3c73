//! Secrets and personal data are masked: each value by a word of its kind and a short hash, the same everywhere.
//!
//! ```text
//! curl -H "Authorization: Bearer ghp_…36 letters…" 10.20.0.7   →   curl -H "Authorization: Bearer TOKEN_5a09c1f2" HOST_77d0e3b1
//! ```
//!
//! The hash depends on the value and the config's seed: who knows neither cannot go back, and one value has one mask in
//! all turns of all trajectories, so that what an action names is what the observation shows. A mask is never masked
//! again.

mod kinds;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_schema::Trajectory;

use crate::error::Result;
use kinds::Detector;
pub use kinds::SecretKind;

/// What is masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secrets {
    /// The kinds; all of them unless said otherwise.
    #[serde(default = "all_kinds")]
    pub kinds: Vec<SecretKind>,
    /// Ends of host names that are private besides the common ones, such as `.example-corp.com`.
    #[serde(default)]
    pub private_hosts: Vec<String>,
    /// Values that are left as they are, such as `support@example-corp.com`.
    #[serde(default)]
    pub allow: Vec<String>,
}

fn all_kinds() -> Vec<SecretKind> {
    SecretKind::ALL.into()
}

/// How often each kind was masked.
pub type SecretCounts = BTreeMap<String, u64>;

/// Masks texts.
#[derive(Debug)]
pub struct Masker {
    seed: u64,
    detectors: Vec<Detector>,
    allow: Vec<String>,
}

impl Masker {
    /// A masker of these kinds.
    pub fn new(secrets: &Secrets, seed: u64) -> Result<Self> {
        let detectors = kinds::detectors(&secrets.kinds, &secrets.private_hosts)?;
        Ok(Self { seed, detectors, allow: secrets.allow.clone() })
    }

    /// The text with its secrets masked; counts them.
    pub fn mask(&self, text: &mut String, counts: &mut SecretCounts) {
        for detector in &self.detectors {
            let masked = self.mask_kind(detector, text, counts);
            if let Cow::Owned(masked) = masked {
                *text = masked;
            }
        }
    }

    fn mask_kind<'t>(&self, detector: &Detector, text: &'t str, counts: &mut SecretCounts) -> Cow<'t, str> {
        if !detector.may_be_in(text) {
            return Cow::Borrowed(text);
        }
        let mut masked = String::new();
        let mut done = 0;
        for found in detector.find(text) {
            let value = &text[found.clone()];
            if kinds::is_mask(value) || self.allow.iter().any(|allowed| allowed == value) {
                continue;
            }
            masked.push_str(&text[done..found.start]);
            masked.push_str(&self.word(detector.kind, value));
            done = found.end;
            *counts.entry(detector.kind.as_str().into()).or_default() += 1;
        }
        if done == 0 {
            return Cow::Borrowed(text);
        }
        masked.push_str(&text[done..]);
        Cow::Owned(masked)
    }

    /// The mask of a value. Line ends do not count: a key is the same in JSON and in a file.
    fn word(&self, kind: SecretKind, value: &str) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(kind.word().as_bytes());
        let plain = value.replace("\\r", "").replace("\\n", "");
        hasher.update(plain.split_whitespace().collect::<String>().as_bytes());
        format!("{}_{}", kind.word(), &hasher.finalize().to_hex()[..8])
    }

    /// Masks every text of a trajectory.
    pub fn mask_trajectory(&self, trajectory: &mut Trajectory, counts: &mut SecretCounts) {
        let system = &mut trajectory.system;
        let mut texts = vec![&mut system.task_description];
        let optional = [&mut system.action_space, &mut system.initial_state, &mut system.simulation_instruction];
        texts.extend(optional.into_iter().flatten());
        texts.extend(system.demonstrations.iter_mut());
        for turn in &mut trajectory.turns {
            texts.extend([&mut turn.action, &mut turn.observation]);
            texts.extend([&mut turn.reasoning, &mut turn.pre_state, &mut turn.trace].into_iter().flatten());
        }
        texts.into_iter().for_each(|text| self.mask(text, counts));
    }
}
