//! The chat form equals the published one.

use serde_json::Value;
use worldloom_render::{CHAT_TEMPLATE, Document, Role};

use crate::support::{qwen_renderer, renderer};

fn role(name: &str) -> Role {
    match name {
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        other => panic!("{other}"),
    }
}

#[test]
fn plain_conversations_equal_the_published_template_token_for_token() {
    let chats: Vec<Value> = serde_json::from_str(include_str!("../golden/chats.json")).unwrap();
    assert_eq!(chats.len(), 6);
    let renderer = qwen_renderer();
    for chat in &chats {
        let messages = chat["messages"].as_array().unwrap().iter();
        let messages: Vec<(Role, &str)> = messages
            .map(|message| (role(message["role"].as_str().unwrap()), message["content"].as_str().unwrap()))
            .collect();
        let opens_answer = chat["options"]["add_generation_prompt"].as_bool().unwrap_or(false);
        let rendered = renderer.encode(&Document::chat(&messages, opens_answer)).unwrap().unwrap();
        let ids: Vec<u32> = chat["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        // One of the published templates greets by itself where no system message is given; those are not kept.
        assert_eq!(rendered.tokens, ids, "{} of {}", chat["name"], chat["template"]);
        assert_eq!(renderer.tokenizer().decode(&rendered.tokens).unwrap(), chat["text"].as_str().unwrap());
    }
}

#[test]
fn the_exported_chat_template_writes_what_we_write() {
    let conversations: [&[(Role, &str)]; 3] = [
        &[(Role::User, "ls")],
        &[(Role::System, "You are a bash terminal."), (Role::User, "ls"), (Role::Assistant, "a.txt")],
        &[(Role::User, "ls"), (Role::Assistant, ""), (Role::User, "pwd\n")],
    ];
    let environment = minijinja::Environment::new();
    for messages in conversations {
        for opens_answer in [false, true] {
            let listed: Vec<_> = messages
                .iter()
                .map(|(role, content)| minijinja::context! { role => role.as_str(), content => *content })
                .collect();
            let context = minijinja::context! { messages => listed, add_generation_prompt => opens_answer };
            let theirs = environment.render_str(CHAT_TEMPLATE, context).unwrap();
            let document = Document::chat(messages, opens_answer);
            assert_eq!(document.to_text(), theirs);
            let renderer = renderer();
            let tokens = renderer.encode(&document).unwrap().unwrap().tokens;
            assert_eq!(tokens, renderer.tokenizer().encode_trusted(&theirs).unwrap());
        }
    }
}
