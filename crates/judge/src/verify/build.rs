//! From true observations to verifiers that were tried.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use worldloom_schema::Prompt;

use super::corrupt::corruptions;
use super::derive::candidates;
use super::{Check, Verifier};

/// What became of prompts and checks. Every prompt has a verifier or a reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// Prompts read.
    pub prompts: u64,
    /// Verifiers kept.
    pub kept: u64,
    /// Prompts without one, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Checks derived.
    pub checks: u64,
    /// Those kept.
    pub checks_kept: u64,
    /// Checks that do not pass on the truth they were derived from.
    pub failed_on_truth: u64,
    /// Checks that no corrupted truth fails: they say nothing.
    pub never_failed: u64,
    /// Verifiers kept by domain.
    pub by_domain: BTreeMap<String, u64>,
}

impl BuildReport {
    /// Adds what became of one prompt.
    pub fn add(&mut self, other: &BuildReport) {
        self.prompts += other.prompts;
        self.kept += other.kept;
        self.checks += other.checks;
        self.checks_kept += other.checks_kept;
        self.failed_on_truth += other.failed_on_truth;
        self.never_failed += other.never_failed;
        for (mine, theirs) in [(&mut self.dropped, &other.dropped), (&mut self.by_domain, &other.by_domain)] {
            theirs.iter().for_each(|(name, count)| *mine.entry(name.clone()).or_default() += count);
        }
    }
}

/// The verifier of a prompt, or why there is none.
///
/// A check is kept if it passes on the truth and fails on at least one corrupted truth; the verifier if all corrupted
/// truths fail it. Observations of images, and those the environment cut, are not deterministic and have none.
pub fn build(prompt: &Prompt) -> (Option<Verifier>, BuildReport) {
    let mut report = BuildReport { prompts: 1, ..BuildReport::default() };
    let drop = |mut report: BuildReport, reason: &str| {
        report.dropped.insert(reason.into(), 1);
        (None, report)
    };
    if let Some(flag) = prompt.flags.iter().find(|flag| NOT_DETERMINISTIC.contains(&flag.as_str())) {
        return drop(report, &format!("flag_{flag}"));
    }
    let truth = &prompt.observation;
    let before = prompt.history.last().map(|turn| turn.observation.as_str());
    let wrong = corruptions(truth, before);
    let derived = candidates(truth, before);
    report.checks = derived.len() as u64;
    let one = |check: &Check| Verifier {
        prompt_id: prompt.prompt_id.clone(),
        masks: Vec::new(),
        checks: vec![check.clone()],
    };
    let mut checks = Vec::new();
    for check in derived {
        let alone = one(&check);
        if !alone.passes(truth) {
            report.failed_on_truth += 1;
        } else if wrong.iter().all(|wrong| alone.passes(wrong)) {
            report.never_failed += 1;
        } else {
            checks.push(check);
        }
    }
    if checks.is_empty() {
        return drop(report, "no_check_left");
    }
    let verifier = Verifier { prompt_id: prompt.prompt_id.clone(), masks: Vec::new(), checks };
    if !verifier.passes(truth) {
        return drop(report, "fails_on_truth");
    }
    if wrong.iter().any(|wrong| verifier.passes(wrong)) {
        return drop(report, "passes_a_corrupted_truth");
    }
    report.kept = 1;
    report.checks_kept = verifier.checks.len() as u64;
    report.by_domain.insert(prompt.domain.as_str().into(), 1);
    (Some(verifier), report)
}

/// Flags of turns whose observation cannot be foreseen or was not kept whole.
const NOT_DETERMINISTIC: [&str; 4] = ["truncated", "nondeterministic", "env_failure", "image"];

#[cfg(test)]
mod tests {
    use worldloom_schema::{Domain, PromptTurn};

    use super::*;
    use crate::text::normalised_match;

    fn prompt(domain: Domain, before: &str, observation: &str) -> Prompt {
        Prompt {
            prompt_id: "t#1".into(),
            trajectory_id: "t".into(),
            turn: 1,
            domain,
            task_group: "g".into(),
            tokens: vec![1],
            initial_state: None,
            history: vec![PromptTurn { action: "first".into(), observation: before.into() }],
            action: "second".into(),
            observation: observation.into(),
            flags: Vec::new(),
        }
    }

    const TREE: &str = "RootWebArea 'Shop'\n\t[1] link 'Home'\n\t[2] list\n\t\t[3] listitem 'Fig'";

    #[test]
    fn every_form_has_a_verifier_that_passes_the_truth_and_fails_what_is_wrong() {
        let changed = TREE.replace("'Fig'", "'Plum 2'");
        for (domain, before, truth) in [
            (Domain::Terminal, "a", "fig.txt\nplum.txt"),
            (Domain::Terminal, "a", "cat: x: No such file or directory"),
            (Domain::Terminal, "a", ""),
            (Domain::Terminal, "a", "-rw-r--r-- 1 u u 4 Nov 29 17:25 fig"),
            (Domain::Mcp, "{}", r#"{"id": 7, "items": [{"name": "fig"}], "next": null}"#),
            (Domain::Swe, "", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two 2\n+three 3"),
            (Domain::Web, TREE, &changed),
            (Domain::Search, "", "| name | n |\n|---|---|\n| fig | 1 |"),
        ] {
            let prompt = prompt(domain, before, truth);
            let (verifier, report) = build(&prompt);
            let verifier = verifier.unwrap_or_else(|| panic!("{truth:?}: {report:?}"));
            assert!(verifier.passes(truth));
            verifier.validate().unwrap();
            assert_eq!(Verifier::parse(&serde_json::to_string(&verifier).unwrap()).unwrap(), verifier);
            for wrong in corruptions(truth, Some(before)) {
                assert!(!verifier.passes(&wrong), "{truth:?} passes {wrong:?}");
            }
            assert_eq!(report.checks, report.checks_kept + report.failed_on_truth + report.never_failed);
        }
    }

    #[test]
    fn what_is_volatile_does_not_count() {
        let (verifier, _) = build(&prompt(Domain::Terminal, "", "-rw-r--r-- 1 u u 4 Nov 29 17:25 fig"));
        assert!(verifier.unwrap().passes("-rw-r--r-- 1 u u 4 Dec  1 08:00 fig"));
    }

    #[test]
    fn turns_that_cannot_be_foreseen_have_none_and_say_why() {
        let flagged = Prompt { flags: vec!["truncated".into()], ..prompt(Domain::Terminal, "", "fig") };
        let (verifier, report) = build(&flagged);
        assert_eq!((verifier, report.dropped["flag_truncated"]), (None, 1));
    }

    #[test]
    fn corruptions_are_never_the_truth() {
        for truth in ["", "a", "7", "a\nb\nc", "ok", "é1"] {
            let found = corruptions(truth, Some("before"));
            assert!(
                found.len() >= 3 && found.iter().all(|wrong| !normalised_match(truth, wrong)),
                "{truth}: {found:?}"
            );
        }
    }
}
