//! Spans of a foreign template: what is said is marked, rendered once, and found again in what the template wrote.
//!
//! ```text
//! said       system: S    user: A    assistant: O
//! skeleton   <s>[INST] «0»⏎⏎«1» [/INST] «2»</s>        the template on marks
//! pieces     <s>[INST] S ⏎⏎ A  [/INST] O </s>          marks replaced by what they stand for
//! whole      the template on S, A and O                 must be the pieces, joined
//! ```
//!
//! What the template wrote itself may hold control tokens, what is said may not.

use serde_json::{Value, json};

use super::ChatTemplate;
use crate::document::{Content, ContextReason, Document, Piece, Reason, Role, TrainReason};
use crate::error::{Error, Result};
use crate::layout::{Ending, Said, Thought};
use crate::tokenizer::Tokenizer;

/// Around the number of a mark; private characters that no template looks for, and that have no other case.
const CONTENT: char = '\u{f8ff}';
const REASONING: char = '\u{f8fe}';
const OPENING: Reason = Reason::Context(ContextReason::Opening);

/// A document, or that the template changes what is said.
pub(crate) enum Recovered {
    /// The pieces add up to the whole.
    Document(Document),
    /// They do not.
    Rewritten,
}

/// Writes a transcript with a model's own template.
pub(crate) fn recover(
    template: &ChatTemplate,
    tokenizer: &Tokenizer,
    said: &[Said],
    ending: Ending,
) -> Result<Recovered> {
    for trims in [false, true] {
        let transcript = Transcript::new(said, trims);
        if let Some(document) = transcript.write(template, tokenizer, ending)? {
            return Ok(Recovered::Document(document));
        }
    }
    Ok(Recovered::Rewritten)
}

/// What is said, and the pieces that each mark stands for.
struct Transcript<'a> {
    said: &'a [Said],
    contents: Vec<Vec<Piece>>,
}

impl<'a> Transcript<'a> {
    /// `trims`: as templates do that take white space off both ends.
    fn new(said: &'a [Said], trims: bool) -> Self {
        let contents = said.iter().map(|said| if trims { trimmed(&said.pieces) } else { said.pieces.clone() });
        Self { said, contents: contents.collect() }
    }

    /// None where the pieces are not the whole.
    fn write(&self, template: &ChatTemplate, tokenizer: &Tokenizer, ending: Ending) -> Result<Option<Document>> {
        let thinking = match (ending, self.said.last().map(|said| &said.thought)) {
            (Ending::Open { thinking, .. }, _) => thinking,
            (Ending::Closed, Some(Thought::Trace(_))) => Some(true),
            (Ending::Closed, Some(Thought::Empty)) => Some(false),
            (Ending::Closed, _) => None,
        };
        let opens = matches!(ending, Ending::Open { .. });
        let mut form = Form { field: true };
        let mut skeleton = template.render(&self.marked(form), &[], opens, thinking)?;
        let last = self.said.len().saturating_sub(1);
        if self.trace().is_some() && !skeleton.contains(&mark(REASONING, last)) {
            // A template that does not know reasoning has it in the content.
            form = Form { field: false };
            skeleton = template.render(&self.marked(form), &[], opens, thinking)?;
        }
        let whole = template.render(&self.spoken(form), &[], opens, thinking)?;
        let prompt = match self.trains_last() {
            true => Some(template.render(&self.marked(form)[..last], &[], true, thinking)?),
            false => None,
        };
        let Some(answer_at) =
            prompt.map_or(Some(skeleton.len()), |text| skeleton.starts_with(&text).then_some(text.len()))
        else {
            let detail = "the prompt is not the beginning of prompt and answer, so the answer's tokens are not known";
            return Err(failed(template, detail.into()));
        };
        let mut document = self.pieces(template, tokenizer, &skeleton, answer_at)?;
        if document.to_text() != whole {
            return Ok(None);
        }
        if let Ending::Open { marker: Some(marker), .. } = ending {
            document.text(marker, OPENING);
        }
        Ok(Some(document))
    }

    fn trace(&self) -> Option<&str> {
        match &self.said.last()?.thought {
            Thought::Trace(trace) => Some(trace),
            _ => None,
        }
    }

    /// Whether the last answer is a target that begins where its prompt ends.
    fn trains_last(&self) -> bool {
        self.said.last().is_some_and(|said| said.thought != Thought::None && said.stop.is_trained())
    }

    fn marked(&self, form: Form) -> Vec<Value> {
        self.messages(form, |at| mark(CONTENT, at), |at| mark(REASONING, at))
    }

    fn spoken(&self, form: Form) -> Vec<Value> {
        let content = |at: usize| self.contents[at].iter().map(|piece| piece.content.as_str()).collect();
        self.messages(form, content, |_| self.trace().unwrap_or_default().to_string())
    }

    fn messages(
        &self,
        form: Form,
        content: impl Fn(usize) -> String,
        reasoning: impl Fn(usize) -> String,
    ) -> Vec<Value> {
        let last = self.said.len().saturating_sub(1);
        let message = |(at, said): (usize, &Said)| {
            let role = said.role.as_str();
            match (at == last && self.trace().is_some(), form.field) {
                (false, _) => json!({ "role": role, "content": content(at) }),
                (true, true) => json!({ "role": role, "content": content(at), "reasoning_content": reasoning(at) }),
                (true, false) => {
                    let text = format!("<think>\n{}\n</think>\n\n{}", reasoning(at), content(at));
                    json!({ "role": role, "content": text })
                }
            }
        };
        self.said.iter().enumerate().map(message).collect()
    }

    /// The skeleton with its marks replaced. What follows an answer up to its first added token is its stop.
    fn pieces(
        &self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
        skeleton: &str,
        answer_at: usize,
    ) -> Result<Document> {
        let mut document = Document::default();
        let (mut at, mut stop) = (0, None);
        for (number, said) in self.said.iter().enumerate() {
            if said.starts_turn {
                document.start_turn();
            }
            let trace = (number + 1 == self.said.len()).then(|| self.trace()).flatten();
            let marks = trace.map(|_| mark(REASONING, number)).into_iter().chain([mark(CONTENT, number)]);
            for (is_content, name) in marks.map(|name| (name.contains(CONTENT), name)) {
                let found = skeleton[at..].find(&name).filter(|_| skeleton.matches(&name).count() == 1);
                let Some(found) = found else {
                    let what = if is_content { "content" } else { "reasoning" };
                    let detail = format!(
                        "the {what} of message {number} ({}) is not written once, in order",
                        said.role.as_str()
                    );
                    return Err(failed(template, detail));
                };
                self.own(template, tokenizer, &mut document, skeleton, at..at + found, answer_at, stop.take())?;
                match trace.filter(|_| !is_content) {
                    Some(trace) => document.text(trace, Reason::Trained(TrainReason::Thinking)),
                    None => document.pieces.extend(self.contents[number].iter().cloned()),
                }
                at += found + name.len();
            }
            stop = (said.role == Role::Assistant).then_some(said.stop);
        }
        self.own(template, tokenizer, &mut document, skeleton, at..skeleton.len(), answer_at, stop)?;
        Ok(document)
    }

    /// A stretch of the template's own words: the stop of the answer before it, then context, or format of the target.
    #[expect(clippy::too_many_arguments, reason = "one call site's loop, told apart for reading")]
    fn own(
        &self,
        template: &ChatTemplate,
        tokenizer: &Tokenizer,
        document: &mut Document,
        skeleton: &str,
        range: std::ops::Range<usize>,
        answer_at: usize,
        stop: Option<Reason>,
    ) -> Result<()> {
        let mut start = range.start;
        if let Some(reason) = stop {
            let own = &skeleton[range.clone()];
            let end = tokenizer.first_added(own)?;
            let Some(end) = end.or((!reason.is_trained()).then_some(0)) else {
                let detail = "no added token ends an answer, so the model would not learn to stop";
                return Err(failed(template, detail.into()));
            };
            document.template(&own[..end], reason);
            start += end;
        }
        let border = answer_at.clamp(start, range.end);
        document.template(&skeleton[start..border], OPENING);
        // Text after the last stop is nobody's.
        let reason = if stop.is_some() { OPENING } else { Reason::Trained(TrainReason::Format) };
        document.template(&skeleton[border..range.end], reason);
        Ok(())
    }
}

/// Whether reasoning is a field of its own.
#[derive(Clone, Copy)]
struct Form {
    field: bool,
}

fn mark(kind: char, number: usize) -> String {
    format!("{kind}{number}{kind}")
}

fn trimmed(pieces: &[Piece]) -> Vec<Piece> {
    let mut pieces = pieces.to_vec();
    if let Some(Content::Text(text)) = pieces.first_mut().map(|piece| &mut piece.content) {
        *text = text.trim_start().into();
    }
    while let Some(Content::Text(text)) = pieces.last_mut().map(|piece| &mut piece.content) {
        *text = text.trim_end().into();
        if !text.is_empty() {
            break;
        }
        pieces.pop();
    }
    pieces
}

fn failed(template: &ChatTemplate, detail: String) -> Error {
    Error::ChatTemplate { path: template.path().into(), detail }
}

impl Document {
    fn template(&mut self, text: &str, reason: Reason) {
        if !text.is_empty() {
            self.pieces.push(Piece { content: Content::Template(text.into()), reason });
        }
    }
}
