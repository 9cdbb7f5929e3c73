//! What an ingest did, and the writer that counts it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use worldloom_schema::{DOCUMENT_FILE, Document, Reject, TRAJECTORY_FILE, TableWriter, Trajectory};

use crate::error::{Error, Result};
use crate::read::{Converted, Made};

/// Characters of trajectories that are held before they are written.
const GROUP_CHARS: usize = 64 << 20;
/// Trajectories of a row group where they are short.
const GROUP_ROWS: usize = 16 << 10;

/// What one source gave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceCounts {
    /// Trajectories written.
    pub trajectories: u64,
    /// Their turns.
    pub turns: u64,
    /// Documents written.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub documents: u64,
    /// Rejected rows by rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rejects: BTreeMap<String, u64>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// What an ingest did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Files, rows, trajectories, turns, rejects, and every repair and thing left out, by name.
    pub counts: BTreeMap<String, u64>,
    /// Rejected rows by rule.
    pub rejects_by_rule: BTreeMap<String, u64>,
    /// Trajectories by format.
    pub formats: BTreeMap<String, u64>,
    /// What each source gave.
    pub sources: BTreeMap<String, SourceCounts>,
}

impl Report {
    pub(crate) fn add(&mut self, name: &str, number: u64) {
        *self.counts.entry(name.into()).or_default() += number;
    }

    /// Adds the counts of a part.
    pub(crate) fn merge(&mut self, other: &Report) {
        let add = |into: &mut BTreeMap<String, u64>, from: &BTreeMap<String, u64>| {
            from.iter().for_each(|(name, number)| *into.entry(name.clone()).or_default() += number);
        };
        add(&mut self.counts, &other.counts);
        add(&mut self.rejects_by_rule, &other.rejects_by_rule);
        add(&mut self.formats, &other.formats);
        for (name, counts) in &other.sources {
            let source = self.sources.entry(name.clone()).or_default();
            source.trajectories += counts.trajectories;
            source.turns += counts.turns;
            source.documents += counts.documents;
            add(&mut source.rejects, &counts.rejects);
        }
    }
}

/// What a run makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    Trajectories,
    Documents,
}

impl Product {
    /// The file it is written to.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Product::Trajectories => TRAJECTORY_FILE,
            Product::Documents => DOCUMENT_FILE,
        }
    }
}

enum Table {
    Trajectories(TableWriter<Trajectory>),
    Documents(TableWriter<Document>),
}

/// Writes in order and counts.
pub(crate) struct Writer {
    table: Table,
    rejects: TableWriter<Reject>,
    report: Report,
    examples: BTreeMap<String, String>,
    is_strict: bool,
    held_chars: usize,
}

impl Writer {
    pub(crate) fn create(product: Product, made: &Path, rejects: &Path, is_strict: bool) -> Result<Self> {
        let table = match product {
            Product::Trajectories => Table::Trajectories(TableWriter::create_with(made, GROUP_ROWS)?),
            Product::Documents => Table::Documents(TableWriter::create_with(made, GROUP_ROWS)?),
        };
        let rejects = TableWriter::create_with(rejects, GROUP_ROWS)?;
        Ok(Self { table, rejects, report: Report::default(), examples: BTreeMap::new(), is_strict, held_chars: 0 })
    }

    pub(crate) fn push(&mut self, converted: Converted) -> Result<()> {
        self.report.add("rows", converted.rows);
        for (name, number) in converted.counts {
            self.report.add(name, number);
        }
        converted.outcomes.into_iter().try_for_each(|outcome| match outcome {
            Ok(Made::Trajectory(trajectory)) => self.push_trajectory(*trajectory),
            Ok(Made::Document(document)) => self.push_document(*document),
            Err(reject) => self.push_reject(reject),
        })
    }

    fn push_trajectory(&mut self, trajectory: Trajectory) -> Result<()> {
        let turns = trajectory.turns.len() as u64;
        self.report.add("trajectories", 1);
        self.report.add("turns", turns);
        *self.report.formats.entry(trajectory.format.clone()).or_default() += 1;
        let source = self.report.sources.entry(trajectory.source.clone()).or_default();
        source.trajectories += 1;
        source.turns += turns;
        let chars = |turn: &worldloom_schema::Turn| turn.action.len() + turn.observation.len();
        self.held_chars += trajectory.turns.iter().map(chars).sum::<usize>();
        if let Table::Trajectories(table) = &mut self.table {
            table.push(trajectory)?;
        }
        self.end_group()
    }

    fn push_document(&mut self, document: Document) -> Result<()> {
        self.report.add("documents", 1);
        self.report.add("characters", document.text.chars().count() as u64);
        self.report.sources.entry(document.source.clone()).or_default().documents += 1;
        self.held_chars += document.text.len();
        if let Table::Documents(table) = &mut self.table {
            table.push(document)?;
        }
        self.end_group()
    }

    fn end_group(&mut self) -> Result<()> {
        if self.held_chars > GROUP_CHARS {
            self.held_chars = 0;
            match &mut self.table {
                Table::Trajectories(table) => table.end_group()?,
                Table::Documents(table) => table.end_group()?,
            }
        }
        Ok(())
    }

    fn push_reject(&mut self, reject: Reject) -> Result<()> {
        let Reject { source, file, row, byte_offset, rule, detail } = &reject;
        let example = format!("`{file}` row {row} at byte {byte_offset}: {detail}");
        if self.is_strict {
            return Err(Error::Strict { rule: rule.clone(), example });
        }
        tracing::debug!(file, row, byte_offset, rule, detail, "row rejected");
        self.report.add("rejects", 1);
        *self.report.rejects_by_rule.entry(rule.clone()).or_default() += 1;
        let source = self.report.sources.entry(source.clone()).or_default();
        *source.rejects.entry(rule.clone()).or_default() += 1;
        self.examples.entry(rule.clone()).or_insert(example);
        Ok(self.rejects.push(reject)?)
    }

    /// The counts, and the first example of each rule.
    pub(crate) fn finish(self) -> Result<(Report, BTreeMap<String, String>)> {
        match self.table {
            Table::Trajectories(table) => table.finish()?,
            Table::Documents(table) => table.finish()?,
        };
        self.rejects.finish()?;
        Ok((self.report, self.examples))
    }
}
