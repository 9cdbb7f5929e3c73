//! A model's own chat template, run as the `transformers` library runs it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Kwargs;
use minijinja::{Environment, ErrorKind};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::tokenizer::TOKENIZER_CONFIG_FILE;
use crate::values::{from_jinja, python_json, python_str, to_jinja};

/// Hexadecimal digits of a template's hash.
const HASH_LENGTH: usize = 16;
/// Name of the file with a chat template beside a tokenizer.
pub const TEMPLATE_FILE: &str = "chat_template.jinja";

/// A chat template beside a tokenizer; cheap to clone.
#[derive(Clone)]
pub struct ChatTemplate {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    hash: String,
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// Reads `chat_template.jinja`, or the `chat_template` of `tokenizer_config.json`, in the folder of a tokenizer.
    pub fn beside(tokenizer: &Path) -> Result<Self> {
        let folder = if tokenizer.is_dir() { tokenizer } else { tokenizer.parent().unwrap_or(Path::new(".")) };
        let detail = format!("no chat template: neither this file nor `chat_template` in {TOKENIZER_CONFIG_FILE}");
        Self::find(folder)?.ok_or_else(|| failed(&folder.join(TEMPLATE_FILE), detail))
    }

    /// The same, and none where there is neither.
    pub fn find(folder: &Path) -> Result<Option<Self>> {
        let config = folder.join(TOKENIZER_CONFIG_FILE);
        let options: Value = match config.exists() {
            true => serde_json::from_slice(&fs_err::read(&config)?).map_err(|e| failed(&config, e.to_string()))?,
            false => Value::Null,
        };
        let own = folder.join(TEMPLATE_FILE);
        let (path, source) = match (own.exists(), template_in(&options)) {
            (true, _) => (own.clone(), fs_err::read_to_string(&own)?),
            (false, Some(source)) => (config, source),
            (false, None) => return Ok(None),
        };
        Self::new(&path, &source, &special(&options, "bos_token"), &special(&options, "eos_token")).map(Some)
    }

    /// Parses a template; `path` is what errors name.
    pub fn new(path: &Path, source: &str, bos: &str, eos: &str) -> Result<Self> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.map_err(|error| failed(path, error.to_string()))?);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", tojson);
        environment.add_filter("string", |value: minijinja::Value| python_str(&from_jinja(&value)));
        environment.add_function("raise_exception", raise_exception);
        let hash = hash_of(source);
        let source = without_generation_tags(source);
        environment.add_template_owned("chat", source).map_err(|error| failed(path, error.to_string()))?;
        let inner = Inner { path: path.into(), hash, environment, bos: bos.into(), eos: eos.into() };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The file it was read from.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Hash of its text.
    pub fn hash(&self) -> &str {
        &self.inner.hash
    }

    /// The text of a conversation. `thinking` is given as `enable_thinking`.
    pub fn render(
        &self,
        messages: &[Value],
        tools: &[Value],
        opens_answer: bool,
        thinking: Option<bool>,
    ) -> Result<String> {
        let inner = &self.inner;
        let mut context = serde_json::Map::new();
        context.insert("messages".into(), Value::Array(messages.to_vec()));
        context.insert("tools".into(), if tools.is_empty() { Value::Null } else { Value::Array(tools.to_vec()) });
        context.insert("add_generation_prompt".into(), opens_answer.into());
        context.insert("bos_token".into(), inner.bos.as_str().into());
        context.insert("eos_token".into(), inner.eos.as_str().into());
        if let Some(thinking) = thinking {
            context.insert("enable_thinking".into(), thinking.into());
        }
        let fail = |error: minijinja::Error| {
            let detail = error.detail().map_or_else(|| error.to_string(), String::from);
            failed(&inner.path, detail)
        };
        let template = inner.environment.get_template("chat").map_err(fail)?;
        template.render(to_jinja(&Value::Object(context))).map_err(fail)
    }
}

impl std::fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChatTemplate").field("path", &self.inner.path).finish()
    }
}

/// White space at the ends says nothing: the published file of one template often differs in it.
pub(super) fn hash_of(source: &str) -> String {
    blake3::hash(source.trim().as_bytes()).to_hex()[..HASH_LENGTH].to_string()
}

fn template_in(options: &Value) -> Option<String> {
    match options.get("chat_template")? {
        Value::String(source) => Some(source.clone()),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry.get("name").and_then(Value::as_str) == Some("default"));
            default?.get("template")?.as_str().map(String::from)
        }
        _ => None,
    }
}

fn special(options: &Value, name: &str) -> String {
    let token = options.get(name);
    let text = token.and_then(|token| token.as_str().or_else(|| token.get("content")?.as_str()));
    text.unwrap_or_default().into()
}

/// `{% generation %}` marks what an assistant wrote for `transformers`; spans are recovered without it.
fn without_generation_tags(source: &str) -> String {
    let mut out = source.to_string();
    for name in ["generation", "endgeneration"] {
        for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
            let kept = format!("{open} if true {close}{open} endif {close}");
            out = out.replace(&format!("{open} {name} {close}"), &kept);
        }
    }
    out
}

fn tojson(value: minijinja::Value, options: Kwargs) -> std::result::Result<minijinja::Value, minijinja::Error> {
    let indent: Option<usize> = options.get("indent")?;
    let value = from_jinja(&value);
    let text = match indent {
        None => python_json(&value),
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let mut out = Vec::new();
            let style = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut serializer = serde_json::Serializer::with_formatter(&mut out, style);
            serde::Serialize::serialize(&value, &mut serializer)
                .map_err(|error| minijinja::Error::new(ErrorKind::InvalidOperation, error.to_string()))?;
            String::from_utf8_lossy(&out).into_owned()
        }
    };
    Ok(minijinja::Value::from_safe_string(text))
}

fn raise_exception(detail: String) -> std::result::Result<minijinja::Value, minijinja::Error> {
    Err(minijinja::Error::new(ErrorKind::InvalidOperation, detail))
}

fn failed(path: &Path, detail: String) -> Error {
    Error::ChatTemplate { path: path.into(), detail }
}
