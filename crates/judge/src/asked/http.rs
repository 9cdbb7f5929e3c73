//! A model behind an endpoint.

use crate::endpoint::{BlockingEndpoint, ChatReply, ChatRequest, Failure, Finish, Message, Parameters};

use super::judge::{Respondent, Said};

/// Asks through a client; its retries, limits and cache are the client's.
pub struct EndpointRespondent {
    endpoint: BlockingEndpoint,
    parameters: Parameters,
}

impl EndpointRespondent {
    /// One answer is read of each reply, whatever `n` says.
    pub fn new(endpoint: BlockingEndpoint, parameters: Parameters) -> Self {
        Self { endpoint, parameters }
    }
}

impl Respondent for EndpointRespondent {
    fn respond(&self, conversations: &[Vec<Message>], draw: u32) -> Vec<Said> {
        let request = |conversation: &Vec<Message>| ChatRequest {
            draw,
            ..ChatRequest::new(conversation.clone(), self.parameters.clone())
        };
        let requests: Vec<ChatRequest> = conversations.iter().map(request).collect();
        self.endpoint.chat_all(&requests).into_iter().map(said).collect()
    }
}

fn said(reply: Result<ChatReply, Failure>) -> Said {
    let reply = match reply {
        Ok(reply) => reply,
        Err(Failure::Rejected { .. }) => return Said::Rejected,
        Err(Failure::Keep { .. }) => return Said::NotKept,
        Err(Failure::Unavailable { .. } | Failure::Malformed { .. }) => return Said::Nothing,
    };
    let Some(choice) = reply.choices.into_iter().next() else { return Said::Nothing };
    if choice.refusal.is_some() || choice.finish == Finish::ContentFilter {
        return Said::Refused;
    }
    match choice.content {
        Some(text) if !text.trim().is_empty() => Said::Text(text),
        _ => Said::Nothing,
    }
}
