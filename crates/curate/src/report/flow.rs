//! The flow: what each rule took, in the order in which the rules were asked, and what was left.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::Report;
use crate::rules::Rules;

/// A rule with what it took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowStep {
    /// The rule.
    pub rule: String,
    /// What it takes: `trajectories`, or `turns` of trajectories that stay.
    pub takes: String,
    /// How many it took.
    pub taken: u64,
    /// How many were left afterwards.
    pub left: u64,
}

/// All rules: those of trajectories, then those of turns.
pub(super) fn steps(rules: &Rules) -> Vec<FlowStep> {
    let step = |rule: &str, takes: &str| FlowStep { rule: rule.into(), takes: takes.into(), taken: 0, left: 0 };
    let trajectories = rules.trajectory_rules().into_iter().map(|rule| step(rule, "trajectories"));
    let turns = rules.turn_rules().into_iter().map(|rule| step(rule, "turns"));
    trajectories.chain(turns).collect()
}

/// Fills in the numbers once everything is counted.
pub(super) fn fill(report: &mut Report) {
    let read = |name: &str| report.counts.get(name).copied().unwrap_or(0);
    let mut left = [read("trajectories_read"), read("turns") + read("removed_turns")];
    for step in &mut report.flow {
        let (at, taken) = match step.takes.as_str() {
            "trajectories" => (0, &report.dropped_trajectories),
            _ => (1, &report.removed_turns),
        };
        step.taken = taken.get(&step.rule).copied().unwrap_or(0);
        left[at] -= step.taken;
        step.left = left[at];
    }
}

impl Report {
    /// The flow as a table for people: rules that took nothing are left out.
    pub fn flow_table(&self) -> String {
        let count = |name: &str| self.counts.get(name).copied().unwrap_or(0);
        let mut table = String::new();
        let kept = count("turns") + count("removed_turns");
        for (takes, start) in [("trajectories", count("trajectories_read")), ("turns", kept)] {
            line(&mut table, takes, "", start);
            for step in self.flow.iter().filter(|step| step.takes == takes && step.taken > 0) {
                line(&mut table, &format!("  {}", step.rule), &format!("-{}", grouped(step.taken)), step.left);
            }
        }
        if let Some(documents) = &self.documents {
            line(&mut table, "documents", "", documents.documents_read);
            let mut left = documents.documents_read;
            for (rule, taken) in &documents.dropped {
                left -= taken;
                line(&mut table, &format!("  {rule}"), &format!("-{}", grouped(*taken)), left);
            }
        }
        for (kind, number) in &self.masked_secrets {
            line(&mut table, &format!("masked {kind}"), "", *number);
        }
        for (pool, report) in &self.pools {
            let kept = format!("{} kept turns", grouped(report.kept_turns));
            let _ =
                writeln!(table, "{:24} {:>12} {:>14}   {kept}", format!("-> {pool}"), "", grouped(report.trajectories));
        }
        table
    }
}

fn line(table: &mut String, name: &str, taken: &str, left: u64) {
    // Writing to a string does not fail.
    let _ = writeln!(table, "{name:24} {taken:>12} {:>14}", grouped(left));
}

/// Digits in groups of three.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let starts_group = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    digits.char_indices().flat_map(|(at, digit)| starts_group(at).then_some(',').into_iter().chain([digit])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_groups_of_three() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567")] {
            assert_eq!(grouped(number), expected);
        }
    }
}
