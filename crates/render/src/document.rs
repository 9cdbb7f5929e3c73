//! A document: pieces of text and control tokens, each with the reason why it is trained or not. No tokens yet.
//!
//! Two turns of a terminal, the second kept by the turn mask, as CPT writes them:
//!
//! ```text
//! <|im_start|> system⏎You are a bash terminal. …      <|im_end|> ⏎      context: prompt
//! <|im_start|> user⏎### Turn 1⏎⏎**Action:**⏎```bash…  <|im_end|> ⏎      context: action
//! <|im_start|> assistant⏎                                               context: opening
//!              **Environment Observation:**⏎  a.txt   <|im_end|> ⏎      context: masked
//! <|im_start|> user⏎### Turn 2⏎⏎**Action:**⏎```bash…  <|im_end|> ⏎      context: action
//! <|im_start|> assistant⏎                                               context: opening
//!              **Environment Observation:**⏎                            trained: marker
//!                                             fig     <|im_end|>        trained: observation, stop
//!                                                                ⏎      context: separator
//! ```
//!
//! Pieces are encoded one by one, so that what the model samples after a prompt is tokenized as what it was trained on.

/// A token that only we may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Control {
    /// Opens a chat turn.
    TurnStart,
    /// Ends a chat turn: the stop token.
    TurnEnd,
    /// Opens the thinking.
    ThinkOpen,
    /// Closes the thinking.
    ThinkClose,
    /// Opens the predicted observation.
    ObservationOpen,
    /// Closes the predicted observation.
    ObservationClose,
    /// Opens a call of a tool.
    ToolCallOpen,
    /// Closes a call of a tool.
    ToolCallClose,
    /// Opens a tool's answer.
    ToolResponseOpen,
    /// Closes a tool's answer.
    ToolResponseClose,
}

impl Control {
    /// Those of our own tokenizers.
    pub const ALL: [Control; 6] = [
        Control::TurnStart,
        Control::TurnEnd,
        Control::ThinkOpen,
        Control::ThinkClose,
        Control::ObservationOpen,
        Control::ObservationClose,
    ];
    /// The tags that the extraction of a prediction looks for.
    pub const TAGS: [Control; 4] =
        [Control::ThinkOpen, Control::ThinkClose, Control::ObservationOpen, Control::ObservationClose];

    /// Every tag that is one token in some published vocabulary.
    const ALL_TAGS: [Control; 8] = [
        Control::ThinkOpen,
        Control::ThinkClose,
        Control::ObservationOpen,
        Control::ObservationClose,
        Control::ToolCallOpen,
        Control::ToolCallClose,
        Control::ToolResponseOpen,
        Control::ToolResponseClose,
    ];

    /// Its text.
    pub fn as_str(self) -> &'static str {
        match self {
            Control::TurnStart => "<|im_start|>",
            Control::TurnEnd => "<|im_end|>",
            Control::ThinkOpen => "<think>",
            Control::ThinkClose => "</think>",
            Control::ObservationOpen => "<predicted_observation>",
            Control::ObservationClose => "</predicted_observation>",
            Control::ToolCallOpen => "<tool_call>",
            Control::ToolCallClose => "</tool_call>",
            Control::ToolResponseOpen => "<tool_response>",
            Control::ToolResponseClose => "</tool_response>",
        }
    }
}

/// What a trained piece teaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TrainReason {
    /// The marker before a plain observation.
    Marker,
    /// The thinking.
    Thinking,
    /// Tags and what stands between them.
    Format,
    /// The observation.
    Observation,
    /// The stop token.
    Stop,
    /// A text that is no trajectory.
    Text,
}

/// Why a piece is context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextReason {
    /// The system prompt.
    Prompt,
    /// An action: what the environment is asked.
    Action,
    /// The opening of a turn, which the caller writes.
    Opening,
    /// An earlier observation of a row with one target.
    History,
    /// An observation that the turn mask leaves out.
    Masked,
    /// The line break after a stop token.
    Separator,
}

/// Why a piece has the weight it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// Weight 1.
    Trained(TrainReason),
    /// Weight 0.
    Context(ContextReason),
}

impl Reason {
    /// All, in the order of their codes in shards.
    pub const ALL: [Reason; 12] = [
        Reason::Context(ContextReason::Prompt),
        Reason::Context(ContextReason::Action),
        Reason::Context(ContextReason::Opening),
        Reason::Context(ContextReason::History),
        Reason::Context(ContextReason::Masked),
        Reason::Context(ContextReason::Separator),
        Reason::Trained(TrainReason::Marker),
        Reason::Trained(TrainReason::Thinking),
        Reason::Trained(TrainReason::Format),
        Reason::Trained(TrainReason::Observation),
        Reason::Trained(TrainReason::Stop),
        Reason::Trained(TrainReason::Text),
    ];

    /// The name in shards.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Context(ContextReason::Prompt) => "prompt",
            Reason::Context(ContextReason::Action) => "action",
            Reason::Context(ContextReason::Opening) => "opening",
            Reason::Context(ContextReason::History) => "history",
            Reason::Context(ContextReason::Masked) => "masked",
            Reason::Context(ContextReason::Separator) => "separator",
            Reason::Trained(TrainReason::Marker) => "marker",
            Reason::Trained(TrainReason::Thinking) => "thinking",
            Reason::Trained(TrainReason::Format) => "format",
            Reason::Trained(TrainReason::Observation) => "observation",
            Reason::Trained(TrainReason::Stop) => "stop",
            Reason::Trained(TrainReason::Text) => "text",
        }
    }

    /// The code in shards: its place in [`Reason::ALL`].
    pub(crate) fn code(self) -> u8 {
        Reason::ALL.iter().position(|&reason| reason == self).expect("ALL holds every reason; a test walks it") as u8
    }

    /// The loss weight.
    pub fn weight(self) -> f32 {
        match self {
            Reason::Trained(_) => 1.0,
            Reason::Context(_) => 0.0,
        }
    }

    /// Whether it is trained.
    pub fn is_trained(self) -> bool {
        matches!(self, Reason::Trained(_))
    }
}

/// What a piece holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A control token.
    Control(Control),
    /// Text, in which nothing becomes a control token whatever it says.
    Text(String),
    /// Text of a chat template, in which added tokens are tokens; it is encoded together with the text around it.
    Template(String),
}

impl Content {
    /// Its text.
    pub fn as_str(&self) -> &str {
        match self {
            Content::Control(control) => control.as_str(),
            Content::Text(text) | Content::Template(text) => text,
        }
    }
}

/// A part of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// What it holds.
    pub content: Content,
    /// Why it is trained or not.
    pub reason: Reason,
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The simulation's context.
    System,
    /// The action.
    User,
    /// The observation.
    Assistant,
    /// What a tool answered, in conversations that are no trajectories.
    Tool,
}

impl Role {
    /// The word in the turn's header.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        }
    }
}

/// Pieces in order, and where each turn (action and observation) starts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Document {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// Per turn: the number of its first piece.
    pub turn_starts: Vec<usize>,
}

impl Document {
    /// A plain ChatML conversation, all of it context; `opens_answer` adds the opening of the assistant's turn.
    pub fn chat(messages: &[(Role, &str)], opens_answer: bool) -> Self {
        let mut document = Document::default();
        for &(role, text) in messages {
            match role {
                Role::System => document.message(role, text, ContextReason::Prompt),
                Role::User | Role::Tool => document.message(role, text, ContextReason::Action),
                Role::Assistant => {
                    document.open_answer();
                    document.text(text, Reason::Context(ContextReason::History));
                    document.close(Reason::Context(ContextReason::History));
                }
            }
        }
        if opens_answer {
            document.open_answer();
        }
        document
    }

    /// Adds text.
    pub fn text(&mut self, text: impl Into<String>, reason: Reason) {
        let text = text.into();
        if !text.is_empty() {
            self.pieces.push(Piece { content: Content::Text(text), reason });
        }
    }

    /// Adds a control token.
    pub fn control(&mut self, control: Control, reason: Reason) {
        self.pieces.push(Piece { content: Content::Control(control), reason });
    }

    /// Adds our own words, in which tags are tags; they continue the text before them.
    pub fn words(&mut self, words: &str, reason: Reason) {
        let mut rest = words;
        while let Some((at, tag)) = first_tag(rest) {
            self.continue_text(&rest[..at], reason);
            self.control(tag, reason);
            rest = &rest[at + tag.as_str().len()..];
        }
        self.continue_text(rest, reason);
    }

    /// Adds our own words, in which tags are tags; they do not continue the text before them.
    pub(crate) fn words_apart(&mut self, words: &str, reason: Reason) {
        let mut apart = Document::default();
        apart.words(words, reason);
        self.pieces.extend(apart.pieces);
    }

    /// Adds text from outside that continues the text before it.
    pub(crate) fn continue_text(&mut self, text: &str, reason: Reason) {
        match self.pieces.last_mut() {
            Some(Piece { content: Content::Text(last), reason: same }) if *same == reason => last.push_str(text),
            _ => self.text(text, reason),
        }
    }

    /// Adds a whole system or user message.
    pub fn message(&mut self, role: Role, text: &str, reason: ContextReason) {
        self.open_message(role, text, reason);
        self.close(Reason::Context(reason));
    }

    /// Adds a system or user message that is not closed yet; header and text are encoded as one.
    pub fn open_message(&mut self, role: Role, text: &str, reason: ContextReason) {
        let reason = Reason::Context(reason);
        self.control(Control::TurnStart, reason);
        self.text(format!("{}\n{text}", role.as_str()), reason);
    }

    /// Adds pieces, the first of them as the continuation of the text before it.
    pub(crate) fn continue_pieces(&mut self, pieces: &[Piece]) {
        for (at, piece) in pieces.iter().enumerate() {
            match &piece.content {
                Content::Text(text) if at == 0 => self.continue_text(text, piece.reason),
                _ => self.pieces.push(piece.clone()),
            }
        }
    }

    /// Opens the assistant's turn, as the caller of the model does.
    pub fn open_answer(&mut self) {
        let reason = Reason::Context(ContextReason::Opening);
        self.control(Control::TurnStart, reason);
        self.text("assistant\n", reason);
    }

    /// Ends a turn: the stop token, and the line break that nobody predicts.
    pub fn close(&mut self, stop: Reason) {
        self.control(Control::TurnEnd, stop);
        self.text("\n", Reason::Context(ContextReason::Separator));
    }

    /// Marks the start of a turn (action and observation).
    pub fn start_turn(&mut self) {
        self.turn_starts.push(self.pieces.len());
    }

    /// All of it as text.
    pub fn to_text(&self) -> String {
        self.text_where(|_| true)
    }

    /// The trained part as text.
    pub fn trained_text(&self) -> String {
        self.text_where(Reason::is_trained)
    }

    fn text_where(&self, wanted: impl Fn(Reason) -> bool) -> String {
        let wanted = self.pieces.iter().filter(|piece| wanted(piece.reason));
        wanted.map(|piece| piece.content.as_str()).collect()
    }

    /// Whether any token would be trained.
    pub fn has_target(&self) -> bool {
        self.pieces.iter().any(|piece| piece.reason.is_trained())
    }
}

fn first_tag(text: &str) -> Option<(usize, Control)> {
    Control::ALL_TAGS.iter().filter_map(|&tag| Some((text.find(tag.as_str())?, tag))).min()
}
