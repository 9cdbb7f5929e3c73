//! What the judge is told: ours, or the authors' where the user has them.
//!
//! A user template is a Python format string with the four slots of [`JudgeParts`]; braces that are meant are doubled.
//! Slots are filled once: what is filled in is not looked at again.

use std::collections::{BTreeMap, BTreeSet};

use super::prediction::DOMAINS;
use super::python::strip;
use super::row::JudgeParts;

const USER: &str = include_str!("text/user.txt");
const COMMON: &str = include_str!("text/system.txt");
const BY_DOMAIN: [(&str, &str); 7] = [
    ("android", include_str!("text/android.txt")),
    ("mcp", include_str!("text/mcp.txt")),
    ("os", include_str!("text/os.txt")),
    ("search", include_str!("text/search.txt")),
    ("swe", include_str!("text/swe.txt")),
    ("terminal", include_str!("text/terminal.txt")),
    ("web", include_str!("text/web.txt")),
];

/// Why a template or a set of prompts cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PromptFault {
    /// A slot that nothing fills.
    #[error("slot `{{{name}}}` is unknown; known: context, world_model_input, predicted_observation, ground_truth")]
    Slot {
        /// What stands between the braces.
        name: String,
    },
    /// A brace that belongs to no slot.
    #[error("a lone `{brace}` at byte {byte}; a brace that is meant is doubled")]
    Brace {
        /// Which one.
        brace: char,
        /// Where.
        byte: usize,
    },
    /// A template without one of the two texts to compare.
    #[error("slot `{{{slot}}}` is missing")]
    Missing {
        /// Its name.
        slot: &'static str,
    },
}

/// A user template and a system prompt for each domain.
#[derive(Debug, Clone)]
pub struct JudgePrompts {
    template: Vec<Piece>,
    systems: BTreeMap<String, String>,
    is_own_template: bool,
    are_own_systems: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Slot(Slot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    Context,
    WorldModelInput,
    PredictedObservation,
    GroundTruth,
}

impl Slot {
    const ALL: [Slot; 4] = [Slot::Context, Slot::WorldModelInput, Slot::PredictedObservation, Slot::GroundTruth];

    fn name(self) -> &'static str {
        match self {
            Slot::Context => "context",
            Slot::WorldModelInput => "world_model_input",
            Slot::PredictedObservation => "predicted_observation",
            Slot::GroundTruth => "ground_truth",
        }
    }

    fn of(self, parts: &JudgeParts) -> &str {
        match self {
            Slot::Context => &parts.context,
            Slot::WorldModelInput => &parts.world_model_input,
            Slot::PredictedObservation => &parts.predicted_observation,
            Slot::GroundTruth => &parts.ground_truth,
        }
    }
}

impl Default for JudgePrompts {
    fn default() -> Self {
        let systems =
            BY_DOMAIN.iter().map(|(domain, own)| (domain.to_string(), format!("{}\n\n{}", COMMON.trim(), own.trim())));
        let template = parse(USER).expect("our own template is well formed");
        Self { template, systems: systems.collect(), is_own_template: true, are_own_systems: true }
    }
}

impl JudgePrompts {
    /// The same with other system prompts by domain, in place of all of ours.
    pub fn with_systems(self, systems: BTreeMap<String, String>) -> Self {
        Self { systems, are_own_systems: false, ..self }
    }

    /// The same with another user template.
    pub fn with_template(self, template: &str) -> Result<Self, PromptFault> {
        let pieces = parse(template)?;
        for slot in [Slot::PredictedObservation, Slot::GroundTruth] {
            if !pieces.contains(&Piece::Slot(slot)) {
                return Err(PromptFault::Missing { slot: slot.name() });
            }
        }
        Ok(Self { template: pieces, is_own_template: false, ..self })
    }

    /// Whose prompts rows of these domains are judged with, and whether that is comparable: only where all were given.
    pub fn whose(&self, domains: &BTreeSet<String>) -> String {
        let missing = self.missing().into_iter().filter(|domain| domains.contains(*domain));
        let missing = missing.collect::<Vec<_>>().join(", ");
        let (systems, template) = match (self.are_own_systems, self.is_own_template) {
            (true, true) => return "our prompts, not comparable with published scores".into(),
            (false, false) if missing.is_empty() => return "prompts as given".into(),
            (true, false) => ("our system prompts", "user template as given"),
            (false, true) => ("system prompts as given", "our user template"),
            (false, false) => ("system prompts as given", "user template as given"),
        };
        let none = if missing.is_empty() { String::new() } else { format!(" (none for {missing})") };
        format!("{systems}{none}, {template}, not comparable with published scores")
    }

    /// The system prompt of a domain; empty for an unknown one.
    pub fn system(&self, domain: &str) -> &str {
        self.systems.get(domain).map_or("", String::as_str)
    }

    /// Domains of the benchmark without a system prompt.
    pub fn missing(&self) -> Vec<&'static str> {
        DOMAINS.into_iter().filter(|domain| !self.systems.contains_key(*domain)).collect()
    }

    /// The user's message, stripped at both ends.
    pub fn user(&self, parts: &JudgeParts) -> String {
        let pieces = self.template.iter().map(|piece| match piece {
            Piece::Text(text) => text.as_str(),
            Piece::Slot(slot) => slot.of(parts),
        });
        strip(&pieces.collect::<String>()).into()
    }
}

fn parse(template: &str) -> Result<Vec<Piece>, PromptFault> {
    let (mut pieces, mut text, mut at) = (Vec::new(), String::new(), 0);
    while let Some(found) = template[at..].find(['{', '}']).map(|offset| at + offset) {
        text.push_str(&template[at..found]);
        let rest = &template[found..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            text.push_str(&rest[..1]);
            at = found + 2;
        } else if let Some((name, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
            pieces.push(Piece::Slot(slot(name)?));
            at = found + name.len() + 2;
        } else {
            return Err(PromptFault::Brace { brace: if rest.starts_with('{') { '{' } else { '}' }, byte: found });
        }
    }
    text.push_str(&template[at..]);
    pieces.push(Piece::Text(text));
    Ok(pieces)
}

fn slot(name: &str) -> Result<Slot, PromptFault> {
    let found = Slot::ALL.into_iter().find(|slot| slot.name() == name);
    found.ok_or_else(|| PromptFault::Slot { name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> JudgeParts {
        JudgeParts {
            context: "{ground_truth} {{x}}".into(),
            world_model_input: "in".into(),
            predicted_observation: "out".into(),
            ground_truth: "true".into(),
        }
    }

    #[test]
    fn slots_are_filled_once_and_doubled_braces_are_one() {
        let prompts = JudgePrompts::default().with_template(" {context}|{{{ground_truth}}}|{predicted_observation} ");
        assert_eq!(prompts.unwrap().user(&parts()), "{ground_truth} {{x}}|{true}|out");
    }

    #[test]
    fn a_template_that_cannot_be_filled_is_refused() {
        let with = |template: &str| JudgePrompts::default().with_template(template).unwrap_err();
        assert_eq!(with("{truth}"), PromptFault::Slot { name: "truth".into() });
        assert!(matches!(with("a } b"), PromptFault::Brace { brace: '}', byte: 2 }));
        assert!(matches!(with("{ground_truth} {"), PromptFault::Brace { brace: '{', .. }));
        assert_eq!(with("{ground_truth}"), PromptFault::Missing { slot: "predicted_observation" });
    }

    #[test]
    fn it_is_said_which_prompts_are_whose() {
        let ours = JudgePrompts::default;
        let template = "{predicted_observation} {ground_truth}";
        let systems = || BTreeMap::from([("mcp".to_string(), "judge".to_string())]);
        let domains = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>();
        let check = |prompts: &JudgePrompts, names: &[&str], expected: &str| {
            assert_eq!(
                prompts.whose(&domains(names)).replace(", not comparable with published scores", " (!)"),
                expected
            );
        };
        check(&ours(), &["mcp"], "our prompts (!)");
        let only_template = ours().with_template(template).unwrap();
        check(&only_template, &["mcp"], "our system prompts, user template as given (!)");
        check(&ours().with_systems(systems()), &["mcp"], "system prompts as given, our user template (!)");
        let both = only_template.with_systems(systems());
        check(&both, &["mcp", "robotics"], "prompts as given");
        check(&both, &["mcp", "os"], "system prompts as given (none for os), user template as given (!)");
    }

    #[test]
    fn every_domain_has_a_prompt_of_ours_that_says_what_to_write() {
        let prompts = JudgePrompts::default();
        assert!(prompts.missing().is_empty());
        for domain in DOMAINS {
            let system = prompts.system(domain);
            for word in ["final_evaluation", "factuality", "consistency", "realism", "quality", "format", "1 to 5"] {
                assert!(system.contains(word), "{domain}: no {word}");
            }
        }
        assert_eq!(prompts.system("robotics"), "");
        let user = prompts.user(&parts());
        assert!(["in", "out", "true"].iter().all(|part| user.contains(part)), "{user}");
    }
}
