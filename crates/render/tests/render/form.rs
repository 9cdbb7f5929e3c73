//! The form that a model is asked in travels whole, and two forms are told apart.

use std::path::Path;

use worldloom_render::{
    CHAT_TEMPLATE, ChatForm, ChatTemplate, FORM_FILE, FormSettings, PromptForm, Renderer, Stage, TEMPLATE_FILE,
    Templates, Thinking,
};

use crate::support::{own_tokenizer, shared, terminal};

fn form(chat: ChatForm, templates: Templates, thinking: Thinking, stage: Stage) -> PromptForm {
    let renderer = Renderer::with_chat(own_tokenizer(), templates, chat).unwrap().with_thinking(thinking);
    PromptForm::of(&renderer, stage)
}

/// A folder with the record of a form.
fn recorded(form: &PromptForm) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    form.write(folder.path()).unwrap();
    folder
}

fn of_model(folder: &Path, settings: &FormSettings) -> PromptForm {
    PromptForm::of_model(folder, settings).unwrap()
}

/// Templates of a folder that is gone afterwards.
fn own_templates() -> Templates {
    let folder = tempfile::tempdir().unwrap();
    let named = folder.path().join("ours");
    fs_err::create_dir(&named).unwrap();
    fs_err::write(named.join("v0.jinja"), "Nought in {{ state }}.").unwrap();
    fs_err::write(named.join("v1.jinja"), "One in {{ state }}.").unwrap();
    fs_err::write(named.join("tag_instruction.txt"), "In <predicted_observation> tags, please.\n").unwrap();
    Templates::from_folder(&named).unwrap()
}

#[test]
fn a_model_is_asked_in_the_very_tokens_of_its_training_whatever_that_was() {
    let episode = terminal(&[("ls", "a.txt\n", true), ("pwd", "/home", true)]);
    for chat in ChatForm::NATIVE {
        for templates in [Templates::compact().unwrap(), Templates::bundled("full").unwrap(), own_templates()] {
            for thinking in [Thinking::Trace, Thinking::Off] {
                let made = form(chat, templates.clone(), thinking, Stage::Rl);
                let folder = recorded(&made);
                let read = of_model(folder.path(), &FormSettings::default());
                assert_eq!((read.chat, read.thinking), (chat, Some(thinking)));
                assert!(read.templates.is_same(&templates));
                let trained = made.renderer(own_tokenizer()).unwrap().render_rl(&episode, 1, 0).unwrap();
                let renderer = read.renderer(own_tokenizer()).unwrap();
                let asked = renderer.render_prompt(&episode, 1, renderer.tagged(0)).unwrap();
                assert_eq!(asked.tokens, trained.tokens);
            }
        }
    }
    let folder = recorded(&form(ChatForm::Chatml, own_templates(), Thinking::Trace, Stage::Rl));
    assert_eq!(of_model(folder.path(), &FormSettings::default()).templates.name(), "ours", "and not where it lay");
}

#[test]
fn what_the_user_says_goes_before_the_record_and_the_record_before_the_chat_template() {
    let folder =
        recorded(&form(ChatForm::Qwen3_5Think, Templates::bundled("full").unwrap(), Thinking::Off, Stage::Sft));
    fs_err::write(folder.path().join(TEMPLATE_FILE), CHAT_TEMPLATE).unwrap();
    assert_eq!(of_model(folder.path(), &FormSettings::default()).chat, ChatForm::Qwen3_5Think);
    let said = FormSettings { chat: Some(ChatForm::Qwen3), family: Some("compact".into()), templates: None };
    let form = of_model(folder.path(), &said);
    assert_eq!((form.chat, form.templates.name().as_str()), (ChatForm::Qwen3, "compact"));
    assert_eq!(form.thinking, Some(Thinking::Off), "nothing was said about thinking");
    let both = FormSettings { templates: Some("somewhere".into()), ..said };
    assert!(PromptForm::of_model(folder.path(), &both).unwrap_err().to_string().contains("one of them"));

    fs_err::remove_file(folder.path().join(FORM_FILE)).unwrap();
    let form = of_model(folder.path(), &FormSettings::default());
    assert_eq!((form.chat, form.thinking), (ChatForm::Chatml, None));
    fs_err::remove_file(folder.path().join(TEMPLATE_FILE)).unwrap();
    let error = PromptForm::of_model(folder.path(), &FormSettings::default()).unwrap_err();
    assert!(error.to_string().contains("does not say in which chat format"), "{error}");
    assert!(error.hint().unwrap().contains("chatml"));
}

#[test]
fn published_chat_templates_are_known_by_their_text() {
    let template = |source: &str| ChatTemplate::new(Path::new("chat_template.jinja"), source, "", "").unwrap();
    assert_eq!(ChatForm::of_template(&template(CHAT_TEMPLATE)), ChatForm::Chatml);
    assert_eq!(ChatForm::of_template(&template(&format!("\n{CHAT_TEMPLATE}\n"))), ChatForm::Chatml);
    assert_eq!(ChatForm::of_template(&template("{{ messages[0].content }}")), ChatForm::Own);
    let Some(folder) = shared("tokenizers/templates") else { return };
    let mut seen = 0;
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let form = ChatForm::of_template(&template(&fs_err::read_to_string(&path).unwrap()));
        let name = name.trim_end_matches("_training").replace("_2507", "");
        assert_eq!(form.as_str(), name);
        seen += 1;
    }
    assert_eq!(seen, 12);
    let of = |name: &str| ChatForm::of_folder(&shared("tokenizers").unwrap().join(name)).unwrap();
    assert_eq!([of("qwen3"), of("qwen3_5"), of("smollm2")], [Some(ChatForm::Qwen3), None, Some(ChatForm::Own)]);
}

#[test]
fn rows_of_two_forms_make_no_model_and_prompts_of_another_form_are_refused() {
    let compact = || Templates::compact().unwrap();
    let chatml = |thinking, stage| form(ChatForm::Chatml, compact(), thinking, stage);
    let cpt = recorded(&chatml(Thinking::Trace, Stage::Cpt));
    let sft = recorded(&chatml(Thinking::Off, Stage::Sft));
    let mixed = recorded(&chatml(Thinking::Trace, Stage::Sft));
    let joined = |folders: &[&tempfile::TempDir]| {
        PromptForm::of_all_rendered(&folders.iter().map(|folder| folder.path()).collect::<Vec<_>>())
    };
    assert!(joined(&[]).unwrap().is_none());
    assert_eq!(joined(&[&cpt]).unwrap().unwrap().thinking, None);
    assert_eq!(joined(&[&cpt, &sft]).unwrap().unwrap().thinking, Some(Thinking::Off));
    assert_eq!(joined(&[&sft, &mixed, &cpt]).unwrap().unwrap().thinking, Some(Thinking::Mixed));
    let other_chat = recorded(&form(ChatForm::Qwen3_5Think, compact(), Thinking::Trace, Stage::Rl));
    let same_prompts = recorded(&form(ChatForm::Qwen3, compact(), Thinking::Trace, Stage::Rl));
    let other_words =
        recorded(&form(ChatForm::Chatml, Templates::bundled("full").unwrap(), Thinking::Trace, Stage::Rl));
    for (other, word) in [(&other_chat, "chat format `qwen3_5_think`"), (&other_words, "templates `full`")] {
        let error = joined(&[&mixed, other]).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("one form"), "{error}");
        let error = PromptForm::of_prompts(other.path(), mixed.path(), &own_tokenizer()).unwrap_err();
        assert!(error.to_string().contains(word) && error.hint().is_some(), "{error}");
    }
    for prompts in [&mixed, &same_prompts] {
        PromptForm::of_prompts(prompts.path(), mixed.path(), &own_tokenizer()).unwrap();
    }
    let error = PromptForm::of_prompts(sft.path(), mixed.path(), &own_tokenizer()).unwrap_err().to_string();
    assert!(error.contains("asks without thinking"), "{error}");
    PromptForm::of_prompts(sft.path(), cpt.path(), &own_tokenizer()).unwrap();
}

#[test]
fn a_damaged_record_is_named_with_its_file() {
    let folder = recorded(&form(ChatForm::Chatml, Templates::compact().unwrap(), Thinking::Trace, Stage::Cpt));
    let file = folder.path().join(FORM_FILE);
    let whole = fs_err::read_to_string(&file).unwrap();
    let other = whole.replacen("\"version\": 1", "\"version\": 9", 1);
    for (text, word) in [
        ("", "EOF"),
        (&whole[..whole.len() / 2], "EOF"),
        (other.as_str(), "version 9, expected 1"),
        (&whole.replace("\"chatml\"", "\"chatmil\""), "chatmil"),
        ("[]", "invalid"),
    ] {
        fs_err::write(&file, text).unwrap();
        let error = PromptForm::of_model(folder.path(), &FormSettings::default()).unwrap_err().to_string();
        assert!(error.contains(FORM_FILE) && error.contains(word), "{error}");
    }
}

#[test]
fn a_chat_template_that_changed_since_is_refused() {
    let Some(tokenizer) = shared("tokenizers/smollm2") else { return };
    let read = || worldloom_render::Tokenizer::open(&tokenizer).unwrap();
    let renderer = Renderer::with_chat(read(), Templates::compact().unwrap(), ChatForm::Own).unwrap();
    let folder = recorded(&PromptForm::of(&renderer, Stage::Sft));
    fs_err::copy(tokenizer.join("tokenizer_config.json"), folder.path().join("tokenizer_config.json")).unwrap();
    assert_eq!(of_model(folder.path(), &FormSettings::default()).chat, ChatForm::Own);
    fs_err::write(folder.path().join(TEMPLATE_FILE), CHAT_TEMPLATE).unwrap();
    let error = PromptForm::of_model(folder.path(), &FormSettings::default()).unwrap_err().to_string();
    assert!(error.contains("put that template back"), "{error}");
}
