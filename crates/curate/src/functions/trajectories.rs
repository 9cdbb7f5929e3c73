//! What the rules look at in a whole trajectory.

use std::path::PathBuf;
use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float64Builder, LargeBinaryBuilder, LargeStringArray, LargeStringBuilder, StructArray,
    UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;
use regex::RegexSet;
use serde::{Deserialize, Serialize};

use super::turns::{OwnTest, applies, regex_set};
use super::view::{WordsView, text};
use super::{Function, Settings, TurnsView, from_json, ours, texts};
use crate::language;
use crate::minhash::{MinHash, to_bytes};
use crate::overlap::Overlaps;
use crate::rules::{Removes, Rules};
use crate::settings::NearDuplicates;
use crate::tools;

/// `(domain, task description, action space, turns, settings)` → facts about a trajectory: `total_chars` of its actions
/// and observations, `language`, the first rule of `undeclared_tool`, `environment_failure` and own patterns that it
/// breaks as `own_rule`, and a `signature` where near duplicates are looked for.
pub(crate) const TRAJECTORY_FACTS: &str = "worldloom_trajectory_facts";
/// `(id, turns or text, settings)` → the share of words and the longest run of words that stand in evaluation texts;
/// nothing of what is named among them.
pub(crate) const OVERLAP: &str = "worldloom_evaluation_overlap";

/// Settings of [`TRAJECTORY_FACTS`].
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FactSettings {
    pub(crate) rules: Rules,
    pub(crate) near_duplicates: Option<NearDuplicates>,
}

fn fields() -> Fields {
    vec![
        Field::new("total_chars", DataType::UInt64, false),
        Field::new("language", DataType::LargeUtf8, false),
        Field::new("own_rule", DataType::LargeUtf8, false),
        Field::new("signature", DataType::LargeBinary, true),
    ]
    .into()
}

pub(super) fn trajectory_facts() -> Function<TrajectoryTests> {
    Function::new(TRAJECTORY_FACTS, 4, DataType::Struct(fields()), facts_body)
}

/// The rules of trajectories, ready to be asked.
#[derive(Debug)]
pub(super) struct TrajectoryTests {
    rules: Rules,
    failures: RegexSet,
    own: Vec<OwnTest>,
    hashes: Option<MinHash>,
}

impl Settings for TrajectoryTests {
    fn read(json: &str) -> Result<Self> {
        let FactSettings { rules, near_duplicates } = from_json(json)?;
        let failures = regex_set(&rules.environment_failures.patterns)?;
        let own = OwnTest::all(&rules, Removes::Trajectory)?;
        Ok(Self { failures, own, rules, hashes: near_duplicates.map(|near| near.hashes()) })
    }
}

impl TrajectoryTests {
    /// The first rule of its own that a trajectory breaks, or nothing.
    fn rule(&self, domain: &str, action_space: &str, turns: &TurnsView, row: usize) -> &str {
        if applies(&self.rules.undeclared_tools.domains, domain) && calls_undeclared(action_space, turns, row) {
            return "undeclared_tool";
        }
        let failed = |turn| {
            let (observation, kind) = (turns.observation(turn), turns.kind(turn));
            (kind == "tree" && observation.trim().is_empty()) || self.failures.is_match(observation)
        };
        if applies(&self.rules.environment_failures.domains, domain) && turns.of(row).any(failed) {
            return "environment_failure";
        }
        let own = self.own.iter().find(|own| turns.of(row).any(|turn| own.finds(domain, turns, turn)));
        own.map_or("", |own| own.rule.name.as_str())
    }
}

fn calls_undeclared(action_space: &str, turns: &TurnsView, row: usize) -> bool {
    let Some(declared) = tools::declared(action_space) else { return false };
    turns.of(row).any(|turn| tools::called(turns.action(turn)).iter().any(|name| !declared.contains(name)))
}

fn facts_body(tests: &TrajectoryTests, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let columns: Vec<ArrayRef> = arguments[..3].iter().map(texts).collect::<Result<_>>()?;
    let columns: Vec<&LargeStringArray> = columns.iter().map(|column| column.as_string::<i64>()).collect();
    let turns = TurnsView::read(&arguments[3])?;
    let (mut chars, mut languages) = (UInt64Builder::new(), LargeStringBuilder::new());
    let (mut own_rules, mut signatures) = (LargeStringBuilder::new(), LargeBinaryBuilder::new());
    let mut words = Vec::new();
    for row in 0..turns.rows() {
        let [domain, task, action_space] = [0, 1, 2].map(|at| text(columns[at], row));
        let length = |turn| turns.action(turn).chars().count() + turns.observation(turn).chars().count();
        chars.append_value(turns.of(row).map(length).sum::<usize>() as u64);
        languages.append_value(match &tests.rules.languages {
            Some(rule) => {
                let texts = std::iter::once(task).chain(turns.of(row).map(|turn| turns.observation(turn)));
                language::guess(texts, rule.min_confidence, rule.min_letters)
            }
            None => "",
        });
        own_rules.append_value(tests.rule(domain, action_space, &turns, row));
        words.clear();
        signatures.append_option(tests.hashes.as_ref().and_then(|hashes| {
            turns.words(row, &mut words);
            Some(to_bytes(&hashes.signature(&words)?))
        }));
    }
    let columns: Vec<ArrayRef> = vec![
        Arc::new(chars.finish()),
        Arc::new(languages.finish()),
        Arc::new(own_rules.finish()),
        Arc::new(signatures.finish()),
    ];
    Ok(Arc::new(StructArray::try_new(fields(), columns, None)?))
}

/// Settings of [`OVERLAP`]: where the runs of the evaluation texts lie. The hash of the file is part of the settings, so
/// that another list is not taken for one read before.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OverlapSettings {
    pub(crate) runs: PathBuf,
    pub(crate) hash: String,
}

#[derive(Debug)]
pub(super) struct OverlapTest(Overlaps);

impl Settings for OverlapTest {
    fn read(json: &str) -> Result<Self> {
        let settings: OverlapSettings = from_json(json)?;
        Ok(Self(Overlaps::read(&settings.runs).map_err(ours)?))
    }
}

fn overlap_fields() -> Fields {
    vec![Field::new("share", DataType::Float64, false), Field::new("longest", DataType::UInt64, false)].into()
}

pub(super) fn overlap() -> Function<OverlapTest> {
    Function::new(OVERLAP, 2, DataType::Struct(overlap_fields()), overlap_body)
}

fn overlap_body(test: &OverlapTest, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let ids = texts(&arguments[0])?;
    let ids = ids.as_string::<i64>();
    let rows = WordsView::read(&arguments[1])?;
    let (mut shares, mut longest) = (Float64Builder::new(), UInt64Builder::new());
    let mut words = Vec::new();
    for row in 0..ids.len() {
        words.clear();
        if !test.0.has_named(text(ids, row)).map_err(ours)? {
            rows.add(row, &mut words);
        }
        let overlap = test.0.of(&words).map_err(ours)?;
        shares.append_value(overlap.share);
        longest.append_value(overlap.longest);
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(shares.finish()), Arc::new(longest.finish())];
    Ok(Arc::new(StructArray::try_new(overlap_fields(), columns, None)?))
}
