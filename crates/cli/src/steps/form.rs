//! The form that a model is asked in, on its way from rows and prompts to the trained model.

use std::path::Path;

use anyhow::Result;
use worldloom_render::{
    CHAT_TEMPLATE, ChatForm, PromptForm, REPORT_FILE, RenderReport, TEMPLATE_FILE, TOKENIZER_FILE, Tokenizer,
};

use crate::config::UserError;

/// The form of the rows that a model is to be trained on. Rows of two forms are refused, and rows of other tokens.
pub(super) fn form_of_rows(model: &Path, rows: &[&Path]) -> Result<Option<PromptForm>> {
    rows.iter().try_for_each(|folder| check_tokenizer(model, folder))?;
    let Some(form) = PromptForm::of_all_rendered(rows)? else { return Ok(None) };
    form.check_chat_template(model)?;
    let before = PromptForm::read(model)?;
    let thinking = form.thinking.or(before.and_then(|before| before.thinking));
    Ok(Some(PromptForm { thinking, ..form }))
}

/// The form of prompts, which must be that of the model.
pub(super) fn form_of_prompts(model: &Path, prompts: &Path, tokenizer: &Tokenizer) -> Result<PromptForm> {
    check_tokenizer(model, prompts)?;
    Ok(PromptForm::of_prompts(prompts, model, tokenizer)?)
}

/// Writes the form beside the tokenizer of a trained model. Other programs ask it as its chat template says, so that is
/// made to say the same where it can.
pub(super) fn write_form(form: &PromptForm, model: &Path) -> Result<()> {
    form.write(model)?;
    let told = ChatForm::of_folder(model)?;
    match form.chat {
        ChatForm::Chatml if told != Some(ChatForm::Chatml) => {
            fs_err::write(model.join(TEMPLATE_FILE), CHAT_TEMPLATE)?;
        }
        chat if chat != ChatForm::Own && told != Some(chat) => {
            let (model, chat) = (model.display(), chat.as_str());
            tracing::warn!(%model, "trained in the chat format `{chat}`, which its chat template does not write");
        }
        _ => {}
    }
    Ok(())
}

/// Refuses what was rendered with another tokenizer than the model's, where it has one.
fn check_tokenizer(model: &Path, rendered: &Path) -> Result<()> {
    let (file, report) = (model.join(TOKENIZER_FILE), rendered.join(REPORT_FILE));
    if !file.exists() || !report.exists() {
        return Ok(());
    }
    let report: RenderReport = serde_json::from_slice(&fs_err::read(&report)?)?;
    let found = worldloom_schema::hash_file(&file)?;
    if found == report.tokenizer {
        return Ok(());
    }
    let (rendered, model) = (rendered.display(), file.display());
    let message =
        format!("`{rendered}` was rendered with a tokenizer of hash {}, and `{model}` has {found}", report.tokenizer);
    Err(UserError::new(message).hint("render it with `--tokenizer` at the model's folder").into())
}
