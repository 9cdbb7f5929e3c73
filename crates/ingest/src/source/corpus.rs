//! Texts for `ingest --as corpus`: a text or Markdown file is one document, a row of JSON or of a file of columns one by
//! its text field.

use worldloom_schema::{Document, document_id};

use super::{FormatInfo, Origin, Source};
use crate::json::{self, Value};
use crate::piece::{Piece, Shape, Sink};
use crate::refusal::Refusal;

/// Endings of files that are one text.
pub(crate) const TEXT_ENDINGS: [&str; 7] = [".txt", ".md", ".markdown", ".rst", ".org", ".tex", ".adoc"];

/// A file that is one text.
pub(crate) struct TextFile {
    pub(crate) licence: Option<String>,
}

impl Source for TextFile {
    fn name(&self) -> &'static str {
        "text"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "A text or Markdown file as one document".into(),
            example: "# Pies\n\nA pear pie wants pears.".into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::File
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        piece.file().is_some_and(|file| TEXT_ENDINGS.iter().any(|ending| file.name.ends_with(ending)))
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let Some(file) = piece.file() else { return Ok(()) };
        if file.bytes.contains(&0) {
            return Err(Refusal::new("binary", "a NUL byte in a text file"));
        }
        let text = file.text(out.counts).into_owned();
        let is_markdown = file.name.ends_with(".md") || file.name.ends_with(".markdown");
        let title = text.lines().find_map(|line| line.strip_prefix("# ")).filter(|_| is_markdown);
        let title = title.map(|title| title.trim().to_string());
        push(text, title, self.licence.clone(), origin, out)
    }
}

/// A row whose field is a text.
pub(crate) struct TextRows {
    pub(crate) field: String,
    pub(crate) licence: Option<String>,
}

impl Source for TextRows {
    fn name(&self) -> &'static str {
        "text-rows"
    }

    fn info(&self) -> FormatInfo {
        FormatInfo {
            name: self.name().into(),
            description: "JSON or column rows with a text field, one document each".into(),
            example: r#"{"text": "A pear pie wants pears.", "title": "Pies"}"#.into(),
        }
    }

    fn shape(&self) -> Shape {
        Shape::Row
    }

    fn detects(&self, piece: &Piece<'_>) -> bool {
        let Some(Ok(Value::Object(fields))) = piece.row().map(Value::parse) else { return false };
        fields.contains_key(&self.field)
    }

    fn read(&self, piece: &Piece<'_>, origin: &Origin<'_>, out: &mut Sink<'_>) -> Result<(), Refusal> {
        let row = piece.row().unwrap_or_default();
        let fields = match Value::parse(row).map_err(|error| Refusal::json(&error))? {
            Value::Object(fields) => fields,
            other => return Err(Refusal::field_type("row", "an object", other.kind())),
        };
        let Some(text) = json::text(&fields, &self.field)? else {
            return Err(Refusal::new("no_text", format!("nothing in field `{}`", self.field)));
        };
        let plain = |name: &str| json::text(&fields, name).ok().flatten();
        let licence = plain("license").or(plain("licence")).or(self.licence.clone());
        push(text, plain("title"), licence, origin, out)
    }
}

fn push(
    text: String,
    title: Option<String>,
    licence: Option<String>,
    origin: &Origin<'_>,
    out: &mut Sink<'_>,
) -> Result<(), Refusal> {
    if text.trim().is_empty() {
        return Err(Refusal::new("no_text", "an empty text"));
    }
    out.push_document(Document {
        document_id: document_id(&text),
        source: origin.source.into(),
        source_path: origin.file.into(),
        source_row: origin.row,
        licence,
        title,
        text,
    });
    Ok(())
}
