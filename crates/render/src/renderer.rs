//! Documents as tokens, each token with a reason; and the way back from sampled tokens to text.

use std::ops::Range;

use worldloom_schema::Trajectory;

use crate::chat::{ChatForm, ChatTemplate, Recovered, recover};
use crate::document::{Content, ContextReason, Control, Document, Reason, Role, TrainReason};
use crate::error::{Error, Refusal, Result};
use crate::layout::{
    Ending, OBSERVATION_MARKER, PromptStyle, Said, Thinking, check_taggable, context, cpt_said, native, prompt_said,
    refused, sft_said,
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
    /// The loss weight of earlier observations: 0 but for an SFT that says otherwise.
    pub history_weight: f32,
}

impl Rendered {
    /// The loss weight of each token.
    pub fn weights(&self) -> Vec<f32> {
        let mut weights = Vec::with_capacity(self.tokens.len());
        for span in &self.spans {
            let weight = match span.reason {
                Reason::Context(ContextReason::Action) => self.action_weight,
                Reason::Context(ContextReason::History) => self.history_weight,
                reason => reason.weight(),
            };
            weights.resize(span.range.end, weight);
        }
        weights
    }

    /// The reason of each token.
    pub fn reasons(&self) -> Vec<Reason> {
        let mut reasons = Vec::with_capacity(self.tokens.len());
        self.spans.iter().for_each(|span| reasons.resize(span.range.end, span.reason));
        reasons
    }

    /// The trained tokens, in order.
    pub fn trained_tokens(&self) -> Vec<u32> {
        let trained = self.spans.iter().filter(|span| span.reason.is_trained());
        trained.flat_map(|span| &self.tokens[span.range.clone()]).copied().collect()
    }
}

/// Writes trajectories as tokens, with one tokenizer, one chat format and one family of templates.
#[derive(Debug, Clone)]
pub struct Renderer {
    tokenizer: Tokenizer,
    templates: Templates,
    form: ChatForm,
    /// The model's own chat template, where that is the format.
    own: Option<ChatTemplate>,
    /// What that ends an answer with.
    own_stop: Option<u32>,
    /// What ends a text that is no trajectory.
    text_end: Option<u32>,
    thinking: Thinking,
}

impl Renderer {
    /// In plain ChatML. Refuses a tokenizer without its turn markers.
    pub fn new(tokenizer: Tokenizer, templates: Templates) -> Result<Self> {
        Self::with_chat(tokenizer, templates, ChatForm::Chatml)
    }

    /// In a chat format; `own` reads the template beside the tokenizer. Refuses a tokenizer without the turn markers of
    /// a native format, and one that does not give back what it is given in pieces.
    pub fn with_chat(tokenizer: Tokenizer, templates: Templates, form: ChatForm) -> Result<Self> {
        if form == ChatForm::Own {
            let template = ChatTemplate::beside(tokenizer.path())?;
            return Self::with_template(tokenizer, templates, template);
        }
        tokenizer.require(Control::TurnStart)?;
        tokenizer.require(Control::TurnEnd)?;
        Self::of(tokenizer, templates, form, None)
    }

    /// In the format of a model's own template. Refuses a tokenizer that does not give back what it is given in pieces.
    pub fn with_template(tokenizer: Tokenizer, templates: Templates, template: ChatTemplate) -> Result<Self> {
        Self::of(tokenizer, templates, ChatForm::Own, Some(template))
    }

    fn of(tokenizer: Tokenizer, templates: Templates, form: ChatForm, own: Option<ChatTemplate>) -> Result<Self> {
        tokenizer.check_pieces()?;
        let own_stop = own.as_ref().and_then(|template| stop_of(template, &tokenizer));
        let text_end = tokenizer.text_end()?;
        Ok(Self { tokenizer, templates, form, own, own_stop, text_end, thinking: Thinking::default() })
    }

    /// What SFT targets do about thinking.
    pub fn with_thinking(self, thinking: Thinking) -> Self {
        Self { thinking, ..self }
    }

    /// What SFT targets do about thinking.
    pub fn thinking(&self) -> Thinking {
        self.thinking
    }

    /// The style of a prompt that asks for tags: with thinking, unless targets do not think.
    pub fn tagged(&self, version: u8) -> PromptStyle {
        match self.thinking {
            Thinking::Off => PromptStyle::TaggedWithoutThinking { version },
            Thinking::Trace | Thinking::Mixed => PromptStyle::Tagged { version },
        }
    }

    /// The ids that end a completion: the vocabulary's, and what the model's own template ends an answer with.
    pub fn stop_tokens(&self) -> Vec<u32> {
        let mut stops = self.tokenizer.stop_tokens();
        if let Some(own) = self.own_stop.filter(|own| !stops.contains(own)) {
            stops.insert(0, own);
        }
        stops
    }

    /// The chat format.
    pub fn chat(&self) -> ChatForm {
        self.form
    }

    /// The model's own chat template, where that is the format.
    pub(crate) fn own(&self) -> Option<&ChatTemplate> {
        self.own.as_ref()
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
        let said = cpt_said(&self.templates, trajectory, CPT_VERSION)?;
        self.write(trajectory, 0, &said, Ending::Closed)
    }

    /// One target turn for SFT: its thinking, tags, observation and stop are trained.
    pub fn render_sft(&self, trajectory: &Trajectory, turn: usize, version: u8) -> Result<Rendered> {
        let said = sft_said(&self.templates, trajectory, turn, version, self.thinking)?;
        self.write(trajectory, turn, &said, Ending::Closed)
    }

    /// A text that is no trajectory: all of it is trained but the first token, which nothing predicts, and it ends with
    /// the vocabulary's end of text (`<|endoftext|>`, else the `eos_token` of `tokenizer_config.json`, else the end of a
    /// turn). `None` where text would form a control token.
    ///
    /// # Errors
    /// A vocabulary in which nothing ends a text.
    pub fn render_text(&self, text: &str) -> Result<Option<Rendered>> {
        let endless = || Error::NoTextEnd { path: self.tokenizer.path().into() };
        let end = self.text_end.ok_or_else(endless)?;
        let Some(mut tokens) = self.tokenizer.encode_untrusted(text)? else { return Ok(None) };
        tokens.push(end);
        let has_control_text = self.tokenizer.has_control_text(text);
        let borders =
            [(0..1, Reason::Context(ContextReason::Opening)), (1..tokens.len(), Reason::Trained(TrainReason::Text))];
        let spans = borders.into_iter().filter(|(range, _)| range.end <= tokens.len() && !range.is_empty());
        let spans = spans.map(|(range, reason)| Span { range, reason }).collect();
        Ok(Some(Rendered { tokens, spans, has_control_text, ..Rendered::default() }))
    }

    /// A prompt for one turn. The observation of that turn is not looked at.
    pub fn render_prompt(&self, trajectory: &Trajectory, turn: usize, style: PromptStyle) -> Result<Rendered> {
        let (said, ending) = prompt_said(&self.templates, trajectory, turn, style)?;
        self.write(trajectory, turn, &said, ending)
    }

    /// A prompt for RL: as [`Renderer::render_prompt`] with tags and the template of RL, refusing turns whose truth
    /// could not be read back from its tags.
    pub fn render_rl(&self, trajectory: &Trajectory, turn: usize, version: u8) -> Result<Rendered> {
        Stage::Rl.check_version(version)?;
        check_taggable(trajectory, turn)?;
        self.render_prompt(trajectory, turn, self.tagged(version))
    }

    fn write(&self, trajectory: &Trajectory, turn: usize, said: &[Said], ending: Ending) -> Result<Rendered> {
        let document = match &self.own {
            None => native(self.form, said, ending),
            Some(template) => match recover(template, &self.tokenizer, said, ending)? {
                Recovered::Document(document) => document,
                Recovered::Rewritten => return Err(refused(trajectory, turn, Refusal::TemplateRewrites)),
            },
        };
        self.encode(&document)?.ok_or_else(|| refused(trajectory, turn, Refusal::ControlFormed))
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
        let stops = self.stop_tokens();
        let tokens = match tokens.split_last() {
            Some((last, before)) if stops.contains(last) => before,
            _ => tokens,
        };
        self.tokenizer.decode_going_on(tokens)
    }
}

/// The token that ends an answer in a model's own template; none where it cannot be seen.
fn stop_of(template: &ChatTemplate, tokenizer: &Tokenizer) -> Option<u32> {
    let stop = Reason::Trained(TrainReason::Stop);
    let answer = Said { stop, ..context(Role::Assistant, "o", ContextReason::History) };
    let said = [context(Role::User, "a", ContextReason::Action), answer];
    let Recovered::Document(document) = recover(template, tokenizer, &said, Ending::Closed).ok()? else { return None };
    let stop = document.pieces.iter().find(|piece| piece.reason == stop)?;
    tokenizer.added_in(stop.content.as_str()).ok()?.first().map(|&(_, id)| id)
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
    /// Why each part of it has its weight, which is that of all; and where the part ends, in bytes.
    parts: Vec<(Reason, usize)>,
    /// It ends in a tag that is text here: the next text belongs to it.
    is_open: bool,
}

impl Pending {
    fn weight(&self) -> f32 {
        self.parts.first().map_or(0.0, |(reason, _)| reason.weight())
    }
}

impl Encoder<'_> {
    /// Takes a piece; false where text forms a control token.
    fn piece(&mut self, content: &Content, reason: Reason) -> Result<bool> {
        match content {
            Content::Template(text) => self.template(text, reason),
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

    /// Text of a chat template: its added tokens, and the text between them together with what stands around it.
    fn template(&mut self, text: &str, reason: Reason) -> Result<bool> {
        let (mut from, mut is_plain) = (0, true);
        for (range, id) in self.tokenizer.added_in(text)? {
            if from < range.start {
                is_plain &= self.append(&text[from..range.start], reason, true, true)?;
            }
            is_plain &= self.flush()?;
            self.push(&[id], reason);
            from = range.end;
        }
        if from < text.len() {
            is_plain &= self.append(&text[from..], reason, true, true)?;
        }
        Ok(is_plain)
    }

    fn append(&mut self, text: &str, reason: Reason, joins: bool, is_open: bool) -> Result<bool> {
        match &mut self.pending {
            Some(pending) if joins && pending.weight() == reason.weight() => {
                pending.text.push_str(text);
                pending.parts.push((reason, pending.text.len()));
                pending.is_open = is_open;
                Ok(true)
            }
            _ => {
                let is_plain = self.flush()?;
                self.pending = Some(Pending { text: text.into(), parts: vec![(reason, text.len())], is_open });
                Ok(is_plain)
            }
        }
    }

    /// A token has the reason of the part in which it starts.
    fn flush(&mut self) -> Result<bool> {
        let Some(Pending { text, parts, .. }) = self.pending.take() else { return Ok(true) };
        let before = self.rendered.tokens.last().copied();
        if let [(reason, _)] = parts[..] {
            let tokens = self.tokenizer.encode_after(before, &text)?;
            self.push(tokens.as_deref().unwrap_or_default(), reason);
            return Ok(tokens.is_some());
        }
        let Some(tokens) = self.tokenizer.encode_with_starts(before, &text)? else { return Ok(false) };
        let part_of = |start: usize| parts.partition_point(|&(_, end)| end <= start).min(parts.len() - 1);
        for run in tokens.chunk_by(|a, b| parts[part_of(a.1)].0 == parts[part_of(b.1)].0) {
            let ids: Vec<u32> = run.iter().map(|&(id, _)| id).collect();
            self.push(&ids, parts[part_of(run[0].1)].0);
        }
        Ok(true)
    }

    fn push(&mut self, tokens: &[u32], reason: Reason) {
        let start = self.rendered.tokens.len();
        self.rendered.tokens.extend_from_slice(tokens);
        if !tokens.is_empty() {
            self.rendered.spans.push(Span { range: start..self.rendered.tokens.len(), reason });
        }
    }
}
