//! Documents as tokens, each token with a reason; and the way back from sampled tokens to text.

use std::ops::Range;

use worldloom_schema::Trajectory;

use crate::document::{Content, ContextReason, Control, Document, Reason};
use crate::error::{Refusal, Result};
use crate::layout::{
    OBSERVATION_MARKER, PromptStyle, check_taggable, cpt_document, prompt_document, refused, sft_document,
};
use crate::stage::Stage;
use crate::template::Templates;
use crate::tokenizer::Tokenizer;

/// The template version of CPT.
pub const CPT_VERSION: u8 = 1;
/// The template version of RL.
pub const RL_VERSION: u8 = 0;

/// Tokens with one reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Where they stand.
    pub range: Range<usize>,
    /// Why they are trained or not.
    pub reason: Reason,
}

/// A document as tokens. The spans cover all tokens, in order, without gaps; weights are read off them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rendered {
    /// The tokens.
    pub tokens: Vec<u32>,
    /// The spans.
    pub spans: Vec<Span>,
    /// Per turn (action and observation): its first token.
    pub turn_starts: Vec<usize>,
    /// Whether text in it spells an added token.
    pub has_control_text: bool,
    /// The loss weight of actions: 0 but for a CPT that says otherwise.
    pub action_weight: f32,
}

impl Rendered {
    /// The loss weight of each token.
    pub fn weights(&self) -> Vec<f32> {
        let mut weights = Vec::with_capacity(self.tokens.len());
        for span in &self.spans {
            let is_action = span.reason == Reason::Context(ContextReason::Action);
            let weight = if is_action { self.action_weight } else { span.reason.weight() };
            weights.resize(span.range.end, weight);
        }
        weights
    }

    /// The trained tokens, in order.
    pub fn trained_tokens(&self) -> Vec<u32> {
        let trained = self.spans.iter().filter(|span| span.reason.is_trained());
        trained.flat_map(|span| &self.tokens[span.range.clone()]).copied().collect()
    }
}

/// Writes trajectories as tokens, with one tokenizer and one family of templates.
#[derive(Debug, Clone)]
pub struct Renderer {
    tokenizer: Tokenizer,
    templates: Templates,
}

impl Renderer {
    /// Refuses a tokenizer without ChatML turn markers.
    pub fn new(tokenizer: Tokenizer, templates: Templates) -> Result<Self> {
        tokenizer.require(Control::TurnStart)?;
        tokenizer.require(Control::TurnEnd)?;
        Ok(Self { tokenizer, templates })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The templates.
    pub fn templates(&self) -> &Templates {
        &self.templates
    }

    /// A whole trajectory for CPT: turns with `keep` are trained.
    pub fn render_cpt(&self, trajectory: &Trajectory) -> Result<Rendered> {
        let document = cpt_document(&self.templates, trajectory, CPT_VERSION)?;
        self.encode_of(trajectory, 0, &document)
    }

    /// One target turn for SFT: its thinking, tags, observation and stop are trained.
    pub fn render_sft(&self, trajectory: &Trajectory, turn: usize, version: u8) -> Result<Rendered> {
        let document = sft_document(&self.templates, trajectory, turn, version)?;
        self.encode_of(trajectory, turn, &document)
    }

    /// A prompt for one turn. The observation of that turn is not looked at.
    pub fn render_prompt(&self, trajectory: &Trajectory, turn: usize, style: PromptStyle) -> Result<Rendered> {
        let document = prompt_document(&self.templates, trajectory, turn, style)?;
        self.encode_of(trajectory, turn, &document)
    }

    /// A prompt for RL: as [`Renderer::render_prompt`] with tags and the template of RL, refusing turns whose truth
    /// could not be read back from its tags.
    pub fn render_rl(&self, trajectory: &Trajectory, turn: usize, version: u8) -> Result<Rendered> {
        Stage::Rl.check_version(version)?;
        check_taggable(trajectory, turn)?;
        self.render_prompt(trajectory, turn, PromptStyle::Tagged { version })
    }

    fn encode_of(&self, trajectory: &Trajectory, turn: usize, document: &Document) -> Result<Rendered> {
        self.encode(document)?.ok_or_else(|| refused(trajectory, turn, Refusal::ControlFormed))
    }

    /// Encodes piece by piece; `None` where text would form a control token whatever we do.
    ///
    /// A tag that is no token of this vocabulary is text and is encoded together with the text around it.
    pub fn encode(&self, document: &Document) -> Result<Option<Rendered>> {
        let mut encoder = Encoder { tokenizer: &self.tokenizer, rendered: Rendered::default(), pending: None };
        let mut turn_starts = document.turn_starts.iter().peekable();
        for (at, piece) in document.pieces.iter().enumerate() {
            if turn_starts.next_if(|&&start| start == at).is_some() {
                if !encoder.flush()? {
                    return Ok(None);
                }
                let start = encoder.rendered.tokens.len();
                encoder.rendered.turn_starts.push(start);
            }
            if !encoder.piece(&piece.content, piece.reason)? {
                return Ok(None);
            }
        }
        if !encoder.flush()? {
            return Ok(None);
        }
        Ok(Some(encoder.rendered))
    }

    /// The text of a completion, without the stop token at its end.
    pub fn completion_text(&self, tokens: &[u32]) -> Result<String> {
        let stops = self.tokenizer.stop_tokens();
        let tokens = match tokens.split_last() {
            Some((last, before)) if stops.contains(last) => before,
            _ => tokens,
        };
        self.tokenizer.decode(tokens)
    }
}

/// The observation in a plain answer. A plain prompt ends after the marker, so the completion is the observation; a
/// whole answer starts with the marker, which goes.
pub fn plain_observation(text: &str) -> &str {
    text.strip_prefix(OBSERVATION_MARKER).unwrap_or(text)
}

struct Encoder<'a> {
    tokenizer: &'a Tokenizer,
    rendered: Rendered,
    pending: Option<Pending>,
}

/// Text that waits for what follows.
struct Pending {
    text: String,
    reason: Reason,
    /// It ends in a tag that is text here: the next text belongs to it.
    is_open: bool,
}

impl Encoder<'_> {
    /// Takes a piece; false where text forms a control token.
    fn piece(&mut self, content: &Content, reason: Reason) -> Result<bool> {
        match content {
            Content::Text(text) => {
                if !self.rendered.has_control_text {
                    self.rendered.has_control_text = self.tokenizer.has_control_text(text);
                }
                let joins = self.pending.as_ref().is_some_and(|pending| pending.is_open);
                self.append(text, reason, joins, false)
            }
            Content::Control(control) => match self.tokenizer.control(*control) {
                Some(id) => {
                    let is_plain = self.flush()?;
                    self.push(&[id], reason);
                    Ok(is_plain)
                }
                None => self.append(control.as_str(), reason, true, true),
            },
        }
    }

    fn append(&mut self, text: &str, reason: Reason, joins: bool, is_open: bool) -> Result<bool> {
        match &mut self.pending {
            Some(pending) if joins && pending.reason.weight() == reason.weight() => {
                pending.text.push_str(text);
                // The later reasons of an answer (observation) say more than the earlier (format).
                pending.reason = pending.reason.max(reason);
                pending.is_open = is_open;
                Ok(true)
            }
            _ => {
                let is_plain = self.flush()?;
                self.pending = Some(Pending { text: text.into(), reason, is_open });
                Ok(is_plain)
            }
        }
    }

    fn flush(&mut self) -> Result<bool> {
        let Some(pending) = self.pending.take() else { return Ok(true) };
        let tokens = self.tokenizer.encode_untrusted(&pending.text)?;
        if let Some(tokens) = &tokens {
            self.push(tokens, pending.reason);
        }
        Ok(tokens.is_some())
    }

    fn push(&mut self, tokens: &[u32], reason: Reason) {
        let start = self.rendered.tokens.len();
        self.rendered.tokens.extend_from_slice(tokens);
        if !tokens.is_empty() {
            self.rendered.spans.push(Span { range: start..self.rendered.tokens.len(), reason });
        }
    }
}
