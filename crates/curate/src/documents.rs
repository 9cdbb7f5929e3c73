//! Documents beside trajectories: their rules, and `documents.parquet` for CPT.
//!
//! Licences, languages, near duplicates, decontamination and masks are those of the config for trajectories.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use worldloom_schema::{DOCUMENT_FILE, Document, Reject, Table, TableReader, TableWriter};

use crate::error::{Error, Result};
use crate::plans::Plans;
use crate::secrets::{Masker, SecretCounts};

/// What is asked of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Documents {
    /// A document with fewer characters is dropped.
    pub min_chars: u64,
    /// A document with more characters is dropped.
    pub max_chars: u64,
}

impl Documents {
    pub(crate) fn check(&self) -> Result<()> {
        match self.min_chars <= self.max_chars {
            true => Ok(()),
            false => Err(Error::config("documents.max_chars", self.max_chars, "min_chars or more")),
        }
    }
}

/// What became of the documents.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DocumentReport {
    /// Documents read.
    pub documents_read: u64,
    /// Documents by the rule that dropped them.
    pub dropped: BTreeMap<String, u64>,
    /// Documents written.
    pub documents: u64,
    /// Their characters.
    pub chars: u64,
    /// Documents written, by source.
    pub sources: BTreeMap<String, u64>,
    /// Secrets masked, by kind.
    pub masked_secrets: BTreeMap<String, u64>,
}

/// What becomes of the documents of one text; a row of the plan `document_verdicts`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct DocumentVerdict {
    document_id: String,
    rule: String,
}

impl Table for DocumentVerdict {
    const NAME: &'static str = "document_verdict";
    const VERSION: u32 = 1;
}

impl Plans<'_> {
    /// Runs the plans of documents.
    pub(crate) fn run_documents(&self, documents: &Documents) -> Result<()> {
        let runs = |name: &str| Some(self.engine.file(name)).filter(|path| path.exists());
        let (evaluation, pool) = (runs("evaluation.runs"), runs("pool.runs"));
        self.run("document_facts", || self.document_facts(evaluation.as_deref(), pool.as_deref()))?;
        self.run("document_rules", || self.document_rules(documents))?;
        if let Some(near) = &self.config.near_duplicates {
            self.run("document_sketches", || self.document_sketches())?;
            self.find_clusters(near, "document_")?;
        }
        if !self.engine.has("document_verdicts") {
            self.engine.store_table::<DocumentVerdict>("document_verdicts", self.document_verdicts()?)?;
        }
        if !self.engine.has("sorted_documents") {
            self.engine.store_table::<Document>("sorted_documents", self.sorted_documents()?)?;
        }
        Ok(())
    }

    /// Writes the documents that are left, masked, and lists the others; both come sorted by id.
    pub(crate) fn write_documents(
        &self,
        out: &Path,
        masker: Option<&Masker>,
        reject: &mut dyn FnMut(Reject) -> Result<()>,
    ) -> Result<DocumentReport> {
        let mut report = DocumentReport::default();
        let mut writer = TableWriter::create(&out.join(DOCUMENT_FILE))?;
        let mut verdicts = TableReader::<DocumentVerdict>::open(&self.engine.stored("document_verdicts"))?;
        let mut current: Option<DocumentVerdict> = None;
        for document in TableReader::<Document>::open(&self.engine.stored("sorted_documents"))? {
            let mut document = document?;
            report.documents_read += 1;
            let is_copy = current.as_ref().is_some_and(|verdict| verdict.document_id == document.document_id);
            if !is_copy {
                current = verdicts.next().transpose()?;
            }
            let rule = match (&current, is_copy && self.config.drop_exact_duplicates) {
                (_, true) => "exact_duplicate",
                (Some(verdict), _) => verdict.rule.as_str(),
                (None, _) => "unknown_document",
            };
            if !rule.is_empty() {
                *report.dropped.entry(rule.into()).or_default() += 1;
                reject(rejected(&document, rule))?;
                continue;
            }
            if let Some(masker) = masker {
                let mut counts = SecretCounts::new();
                masker.mask(&mut document.text, &mut counts);
                document.title.iter_mut().for_each(|title| masker.mask(title, &mut counts));
                counts.into_iter().for_each(|(kind, number)| *report.masked_secrets.entry(kind).or_default() += number);
            }
            report.documents += 1;
            report.chars += document.text.chars().count() as u64;
            *report.sources.entry(document.source.clone()).or_default() += 1;
            writer.push(document)?;
        }
        writer.finish()?;
        Ok(report)
    }
}

fn rejected(document: &Document, rule: &str) -> Reject {
    Reject {
        source: document.source.clone(),
        file: document.source_path.clone(),
        row: document.source_row,
        byte_offset: 0,
        rule: rule.into(),
        detail: format!("document {}: {} characters", document.document_id, document.text.chars().count()),
    }
}
