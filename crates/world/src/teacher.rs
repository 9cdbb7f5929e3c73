//! A teacher: a model behind an endpoint, or a checkpoint in process, that is asked in chats and whose thinking is heard.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use worldloom_judge::asked::Said;
use worldloom_judge::endpoint::{
    BlockingEndpoint, ChatChoice, ChatReply, ChatRequest, Failure, Finish, Message, Parameters,
};
use worldloom_render::ChatForm;

use crate::error::{Error, Result};
use crate::judges::{JudgePlace, LocalRespondent, endpoint_in};

/// Of its cache and its log.
const NAME: &str = "teacher";

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TeacherConfig {
    /// A model behind an OpenAI-compatible endpoint.
    Http {
        /// The endpoint and the bounds on asking it.
        endpoint: Box<worldloom_judge::endpoint::EndpointConfig>,
        /// How it answers. What is not given is the server's default.
        #[serde(default)]
        parameters: Box<Parameters>,
    },
    /// A checkpoint loaded in process: a folder with `config.json`, weights and `tokenizer.json`.
    Local {
        /// The folder.
        model: PathBuf,
        /// Longest answer, the thinking included.
        max_new_tokens: usize,
        /// Temperature of its answers.
        temperature: f32,
        /// The chat format. Default: that of its training, or of its chat template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        chat: Option<ChatForm>,
    },
}

impl TeacherConfig {
    /// The same with relative paths from `base`.
    pub fn from_base(mut self, base: &Path) -> Self {
        if let TeacherConfig::Local { model, .. } = &mut self {
            *model = base.join(&*model);
        }
        self
    }

    /// Files and folders that decide its answers.
    pub fn paths(&self) -> Vec<&Path> {
        match self {
            TeacherConfig::Http { .. } => Vec::new(),
            TeacherConfig::Local { model, .. } => vec![model],
        }
    }

    /// Opens it; answers of an endpoint are cached in `teacher-cache/` of the place and logged in `teacher.jsonl`.
    pub fn open(&self, place: &JudgePlace<'_>) -> Result<Teacher> {
        Ok(match self {
            TeacherConfig::Http { endpoint, parameters } => {
                let (endpoint, parameters) = (endpoint_in(endpoint, place, NAME)?, *parameters.clone());
                Teacher::Http { endpoint, parameters, log: place.folder.join(format!("{NAME}.jsonl")) }
            }
            TeacherConfig::Local { model, max_new_tokens, temperature, chat } => {
                let local = LocalRespondent::load(model, *chat, *max_new_tokens, *temperature, place.device)?;
                Teacher::Local(Box::new(local))
            }
        })
    }
}

/// Who is asked, opened.
pub enum Teacher {
    /// Behind an endpoint.
    Http {
        /// The client.
        endpoint: BlockingEndpoint,
        /// How it answers.
        parameters: Parameters,
        /// Where its requests are logged.
        log: PathBuf,
    },
    /// In process.
    Local(Box<LocalRespondent>),
}

/// What a teacher answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// It said this, and thought that apart from it where its server keeps the two apart.
    Said {
        /// The thinking.
        reasoning: Option<String>,
        /// The answer.
        content: String,
    },
    /// The provider would not answer.
    Refused,
    /// The answer was cut by its length.
    Cut,
    /// The server would not take this question: it is too long, or of a form that it does not know.
    Rejected,
    /// There was none: not reachable, or empty. A later run may have one.
    Unavailable {
        /// Why.
        why: String,
    },
}

impl Teacher {
    /// An answer to each conversation, in their order; another `draw` is answered anew.
    ///
    /// # Errors
    /// An endpoint that takes no question of ours at all (a wrong key, an unknown model), and answers that cannot be
    /// kept: what comes after would be lost or paid for twice.
    pub fn ask(&self, conversations: &[Vec<Message>], draw: u32) -> Result<Vec<Reply>> {
        match self {
            Teacher::Http { endpoint, parameters, log } => {
                let request = |conversation: &Vec<Message>| ChatRequest {
                    draw,
                    ..ChatRequest::new(conversation.clone(), parameters.clone())
                };
                let requests: Vec<ChatRequest> = conversations.iter().map(request).collect();
                let replies = endpoint.chat_all(&requests).into_iter();
                let read = |reply: std::result::Result<ChatReply, Failure>| match reply {
                    Ok(reply) => Ok(of_choice(reply.choices)),
                    Err(failure) => of_failure(failure).map_err(|source| Error::Asking { log: log.clone(), source }),
                };
                replies.map(read).collect()
            }
            Teacher::Local(local) => {
                let answers = local.answers(conversations, draw)?;
                Ok(answers.into_iter().map(of_said).collect())
            }
        }
    }
}

/// Refuses a share that is none.
pub(crate) fn check_share(field: &'static str, share: f64) -> Result<()> {
    match (0.0..=1.0).contains(&share) {
        true => Ok(()),
        false => Err(Error::config(field, format!("{share}, expected 0 to 1"))),
    }
}

/// Refuses a run that was left without too many answers; `why` is the last reason of the teacher's, where it gave one,
/// and requests are logged in `folder`.
pub(crate) fn check_answered(
    unavailable: u64,
    queries: u64,
    limit: f64,
    why: Option<&str>,
    folder: &Path,
) -> Result<()> {
    if unavailable as f64 <= limit * queries as f64 {
        return Ok(());
    }
    let logs = [NAME, "judge"].map(|name| folder.join(format!("{name}.jsonl")));
    let logs: Vec<String> = logs.iter().filter(|log| log.exists()).map(|log| format!("`{}`", log.display())).collect();
    let why = why.map(|why| format!("; the last reason: {why}")).unwrap_or_default();
    let logs = if logs.is_empty() { String::new() } else { format!("; requests are in {}", logs.join(" and ")) };
    Err(Error::Unanswered { unavailable, queries, limit, details: why + &logs })
}

/// Writes a report.
pub(crate) fn write_report(path: &Path, report: &impl Serialize) -> Result<()> {
    Ok(fs_err::write(path, serde_json::to_string_pretty(report).map_err(std::io::Error::from)? + "\n")?)
}

/// A server that refuses the question and not the one who asks may take others.
fn of_failure(failure: Failure) -> std::result::Result<Reply, Failure> {
    match failure {
        Failure::Keep { .. } => Err(failure),
        Failure::Rejected { status, .. } if !is_of_the_question(status) => Err(failure),
        Failure::Rejected { .. } => Ok(Reply::Rejected),
        failure => Ok(Reply::Unavailable { why: failure.to_string() }),
    }
}

/// Key, payment, right, path, method and proxy are the same for every question.
fn is_of_the_question(status: u16) -> bool {
    (400..500).contains(&status) && !matches!(status, 401..=405 | 407)
}

/// A checkpoint that says nothing had no room or did not end: asked again, it would not either.
fn of_said(said: Said) -> Reply {
    match said {
        Said::Text(content) => Reply::Said { reasoning: None, content },
        Said::Refused => Reply::Refused,
        Said::Nothing | Said::Rejected | Said::NotKept => Reply::Cut,
    }
}

fn of_choice(choices: Vec<ChatChoice>) -> Reply {
    let empty = || Reply::Unavailable { why: "the answer is empty".into() };
    let Some(choice) = choices.into_iter().next() else { return empty() };
    match (choice.finish, choice.refusal, choice.content) {
        (Finish::ContentFilter, ..) | (_, Some(_), _) => Reply::Refused,
        (Finish::Length, ..) => Reply::Cut,
        (_, _, Some(content)) if !content.trim().is_empty() => Reply::Said { reasoning: choice.reasoning, content },
        _ => empty(),
    }
}
