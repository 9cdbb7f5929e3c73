//! What the rules look at in a document.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, LargeBinaryBuilder, LargeStringBuilder, StructArray, UInt64Builder,
};
use datafusion::arrow::datatypes::{DataType, Field, Fields};
use datafusion::common::Result;

use super::trajectories::FactSettings;
use super::view::text;
use super::{Function, Settings, from_json, texts};
use crate::language;
use crate::minhash::{MinHash, to_bytes};
use crate::rules::Languages;
use crate::words::add_words;

/// `(text, settings)` → facts about a document: `total_chars`, `language`, and a `signature` where near duplicates are
/// looked for.
pub(crate) const DOCUMENT_FACTS: &str = "worldloom_document_facts";

fn fields() -> Fields {
    vec![
        Field::new("total_chars", DataType::UInt64, false),
        Field::new("language", DataType::LargeUtf8, false),
        Field::new("signature", DataType::LargeBinary, true),
    ]
    .into()
}

pub(super) fn document_facts() -> Function<DocumentTests> {
    Function::new(DOCUMENT_FACTS, 1, DataType::Struct(fields()), body)
}

/// What is asked of documents, ready to be asked.
#[derive(Debug)]
pub(super) struct DocumentTests {
    languages: Option<Languages>,
    hashes: Option<MinHash>,
}

impl Settings for DocumentTests {
    fn read(json: &str) -> Result<Self> {
        let FactSettings { rules, near_duplicates } = from_json(json)?;
        Ok(Self { languages: rules.languages, hashes: near_duplicates.map(|near| near.hashes()) })
    }
}

fn body(tests: &DocumentTests, arguments: &[ArrayRef]) -> Result<ArrayRef> {
    let column = texts(&arguments[0])?;
    let column = column.as_string::<i64>();
    let (mut chars, mut languages) = (UInt64Builder::new(), LargeStringBuilder::new());
    let mut signatures = LargeBinaryBuilder::new();
    let mut words = Vec::new();
    for row in 0..column.len() {
        let text = text(column, row);
        chars.append_value(text.chars().count() as u64);
        languages.append_value(match &tests.languages {
            Some(rule) => language::guess(std::iter::once(text), rule.min_confidence, rule.min_letters),
            None => "",
        });
        signatures.append_option(tests.hashes.as_ref().and_then(|hashes| {
            words.clear();
            add_words(text, &mut words);
            Some(to_bytes(&hashes.signature(&words)?))
        }));
    }
    let columns: Vec<ArrayRef> =
        vec![Arc::new(chars.finish()), Arc::new(languages.finish()), Arc::new(signatures.finish())];
    Ok(Arc::new(StructArray::try_new(fields(), columns, None)?))
}
