//! Vocabularies that put a space before a text: pieces go on from each other, and nothing is put between them.

use std::path::Path;

use serde_json::{Value, json};
use worldloom_render::{
    ChatForm, ChatTemplate, Content, ContextReason, Document, Error, Piece, PromptStyle, Reason, Renderer, Templates,
    Tokenizer, TrainReason,
};

use crate::support::{shared, terminal};

/// A token for each character, as SentencePiece has them: bytes for those it does not know, `▁` for a space.
fn characters(normalizer: Value, pre_tokenizer: Value, decoder: Value) -> Value {
    let mut pieces: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
    pieces.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    pieces.push("▁".into());
    pieces.extend(('!'..='~').map(String::from));
    let vocab: serde_json::Map<String, Value> =
        pieces.iter().enumerate().map(|(id, piece)| (piece.clone(), json!(id))).collect();
    let added = pieces[..3].iter().enumerate().map(|(id, content)| {
        json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
    });
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added.collect::<Vec<_>>(),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": null, "decoder": decoder,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocab, "merges": [],
        },
    })
}

fn replaced() -> Value {
    json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"})
}

/// The decoder of SentencePiece's vocabularies: it takes off the space that was put before.
fn stripping() -> Value {
    json!({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ]})
}

fn opened(json: &Value) -> Tokenizer {
    Tokenizer::from_bytes(json.to_string().as_bytes(), Path::new("pieces/tokenizer.json")).unwrap()
}

/// One that puts a space before each text between added tokens, by its normalizer or by its pre-tokenizer, and one that
/// puts it before the first.
fn spaced() -> [Tokenizer; 3] {
    let prepend = json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replaced()]});
    let metaspace =
        |scheme: &str| json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false});
    [
        opened(&characters(prepend, Value::Null, stripping())),
        opened(&characters(Value::Null, metaspace("always"), stripping())),
        opened(&characters(Value::Null, metaspace("first"), stripping())),
    ]
}

const SOURCE: &str = "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %} {{ m.content }}{{ eos_token }}{% else %}[{{ m.role }}] {{ m.content }} [/]{% endif %}{% endfor %}{% if add_generation_prompt %} {% endif %}";

fn renderer(tokenizer: Tokenizer) -> worldloom_render::Result<Renderer> {
    let template = ChatTemplate::new(Path::new("pieces/chat_template.jinja"), SOURCE, "<s>", "</s>")?;
    Renderer::with_template(tokenizer, Templates::compact()?, template)
}

fn document(observation: &str) -> Document {
    let context = Reason::Context(ContextReason::Action);
    let mut document = Document::default();
    let mut piece = |content, reason| document.pieces.push(Piece { content, reason });
    for _ in 0..2 {
        piece(Content::Template("<s>[user] ".into()), Reason::Context(ContextReason::Opening));
        piece(Content::Text("ls  -l\n".into()), context);
        piece(Content::Template(" [/] ".into()), context);
        piece(Content::Text(observation.into()), Reason::Trained(TrainReason::Observation));
        piece(Content::Template("</s>".into()), Reason::Trained(TrainReason::Stop));
        piece(Content::Template("\n".into()), Reason::Context(ContextReason::Separator));
    }
    document
}

#[test]
fn a_space_is_put_where_a_text_begins_and_nowhere_else() {
    for tokenizer in spaced() {
        let renderer = renderer(tokenizer.clone()).unwrap();
        for observation in ["a.txt", "  two\n\n\tB", "héllo 你好", " "] {
            let document = document(observation);
            let rendered = renderer.encode(&document).unwrap().unwrap();
            let whole = tokenizer.encode_trusted(&document.to_text()).unwrap();
            assert_eq!(rendered.tokens, whole, "{observation:?}: a token a character, so pieces are the whole");
            let answer = rendered.spans.iter().find(|span| span.reason == Reason::Trained(TrainReason::Observation));
            let answer = rendered.tokens[answer.unwrap().range.clone()].to_vec();
            assert_eq!(renderer.completion_text(&answer).unwrap(), observation);
            let stop = tokenizer.encode_trusted("</s>").unwrap();
            assert_eq!(renderer.completion_text(&[&answer[..], &stop].concat()).unwrap(), observation);
        }
    }
}

#[test]
fn a_target_begins_with_its_first_letter() {
    for tokenizer in spaced() {
        let renderer = renderer(tokenizer).unwrap();
        let trajectory = terminal(&[("ls", "fig", true), ("cat f", "  plum", true)]);
        let target = renderer.render_sft(&trajectory, 1, 2).unwrap();
        let text = renderer.completion_text(&target.trained_tokens()).unwrap();
        let expected =
            "<think>\ncwd: ~ | turn 1 of TRACE\n</think>\n\n<predicted_observation>\n  plum\n</predicted_observation>";
        assert_eq!(text, expected);
        let row = renderer.render_cpt(&trajectory).unwrap();
        let prompt = renderer.render_prompt(&trajectory, 1, PromptStyle::Plain { version: 1 }).unwrap();
        assert_eq!(row.tokens[..prompt.tokens.len()], prompt.tokens[..]);
        assert_eq!(renderer.completion_text(&row.tokens[prompt.tokens.len()..]).unwrap(), "  plum");
    }
}

#[test]
fn a_tokenizer_that_changes_what_is_said_is_refused_with_what_to_do() {
    let lowercase = json!({"type": "Sequence", "normalizers": [{"type": "Lowercase"}, replaced()]});
    let error = renderer(opened(&characters(lowercase, Value::Null, stripping()))).unwrap_err();
    assert!(matches!(error, Error::Tokenizer { .. }), "{error}");
    let error = error.to_string();
    for words in ["pieces/tokenizer.json", r#""  a\n\n\tB  c ""#, r#""  a\n\n\tb  c ""#, "use a tokenizer that keeps"] {
        assert!(error.contains(words), "no `{words}` in: {error}");
    }
}

#[test]
fn a_published_sentencepiece_vocabulary_gives_the_template_s_own_rows() {
    let Some(folder) = shared("models/stories260k") else { return };
    let tokenizer = Tokenizer::open(&folder).unwrap();
    let renderer = renderer(tokenizer.clone()).unwrap();
    let trajectory = terminal(&[("ls", "fig", true), ("cat f", "  plum\n\tB", true)]);
    let row = renderer.render_cpt(&trajectory).unwrap();
    let trained = renderer.completion_text(&row.trained_tokens()).unwrap();
    let answers = "**Environment Observation:**\nfig</s>**Environment Observation:**\n  plum\n\tB";
    assert_eq!(trained.trim_end_matches("</s>"), answers);
    // The only other chat form is one that it cannot write.
    let native = Renderer::with_chat(tokenizer, Templates::compact().unwrap(), ChatForm::Chatml);
    assert!(matches!(native, Err(Error::NoControl { .. })));
}
