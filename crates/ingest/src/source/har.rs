//! HTTP archives (HAR 1.2), as browsers, Playwright and proxies export them: what a page asked its servers for, and what they
//! answered.
//!
//! An entry is a turn. The action is method and address, the type of a body and the body; the observation is the status, the
//! type and the place that a redirect names, and the body. Other headers, cookies and times are not taken. A page's parts that
//! are no text or only its looks (pictures, fonts, sound, style sheets, scripts) are left out, counted, and so are requests
//! that nothing answered. A body that the export does not have makes its turn `truncated`.
//! Task group: the host of the first request.

use base64::Engine;
use serde::Deserialize;
use worldloom_schema::{ActionKind, Domain, System, Turn};

use super::format::{Drafts, RowFormat, one};
use super::{Draft, Origin};
use crate::episode::turn;
use crate::json::{self, Fields};
use crate::refusal::{Counts, Refusal, count};

/// The format.
pub(crate) static FORMAT: RowFormat = RowFormat {
    name: "har",
    description: "HTTP archives (HAR) of browsers and proxies: `log` with `entries`, each a request and its response",
    example: r#"{"log": {"version": "1.2", "creator": {"name": "WebInspector", "version": "1"}, "pages": [{"id": "p1", "title": "Orders"}], "entries": [{"request": {"method": "GET", "url": "https://shop.example.com/orders"}, "response": {"status": 200, "statusText": "OK", "content": {"size": 11, "mimeType": "application/json", "text": "{\"open\": 2}"}, "redirectURL": ""}}]}}"#,
    detects,
    read,
};

/// Types of what is not text, or only a page's looks, by how they begin.
const ASSETS: [&str; 9] = [
    "image/",
    "font/",
    "audio/",
    "video/",
    "text/css",
    "text/javascript",
    "application/javascript",
    "application/x-javascript",
    "application/wasm",
];

#[derive(Deserialize)]
struct Entry {
    request: Request,
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    method: String,
    url: String,
    post_data: Option<Posted>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Posted {
    mime_type: Option<String>,
    text: Option<String>,
    params: Option<Vec<Param>>,
}

#[derive(Deserialize)]
struct Param {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: i64,
    status_text: Option<String>,
    content: Option<Content>,
    #[serde(rename = "redirectURL")]
    redirect_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Content {
    size: Option<i64>,
    mime_type: Option<String>,
    text: Option<String>,
    encoding: Option<String>,
}

fn detects(fields: &Fields<'_>) -> bool {
    matches!(json::object(fields, "log"), Ok(Some(log)) if log.contains_key("entries") && log.contains_key("creator"))
}

fn read(fields: &Fields<'_>, _: &Origin<'_>, counts: &mut Counts) -> Result<Drafts, Refusal> {
    let log = json::object(fields, "log")?.unwrap_or_default();
    let (mut turns, mut group) = (Vec::new(), None);
    for (at, raw) in json::list(&log, "entries")?.unwrap_or_default().into_iter().enumerate() {
        let entry: Entry = serde_json::from_str(raw.get()).map_err(|error| Refusal::json(&error).at("entries", at))?;
        let host = || url::Url::parse(&entry.request.url).ok()?.host_str().map(String::from);
        group = group.or_else(host);
        turns.extend(exchange(entry, counts));
    }
    let pages = json::objects(&log, "pages")?;
    let titles = pages.iter().filter_map(|page| json::text(page, "title").ok().flatten());
    let titles: Vec<String> = titles.filter(|title| !title.trim().is_empty()).collect();
    let system = System { task_description: titles.join("\n"), ..System::default() };
    Ok(one(Draft { domain: Some(Domain::Web), task_group: group, system, turns, ..Draft::default() }))
}

/// The turn of an entry, unless it is left out.
fn exchange(entry: Entry, counts: &mut Counts) -> Option<Turn> {
    let Entry { request, response } = entry;
    let content = response.content.unwrap_or_default();
    let kind = content.mime_type.as_deref().unwrap_or_default().to_lowercase();
    if ASSETS.iter().any(|asset| kind.starts_with(asset)) {
        count(counts, "page_assets_left_out", 1);
        return None;
    }
    if response.status <= 0 {
        count(counts, "requests_without_a_response", 1);
        return None;
    }
    let mut action = format!("{} {}", request.method, request.url);
    if let Some(posted) = request.post_data {
        let body = posted.text.filter(|text| !text.is_empty()).or_else(|| posted.params.map(form)).unwrap_or_default();
        push_part(&mut action, "content-type", posted.mime_type.as_deref());
        push_body(&mut action, &body);
    }
    let mut observation =
        format!("{} {}", response.status, response.status_text.unwrap_or_default()).trim_end().to_string();
    push_part(&mut observation, "content-type", content.mime_type.as_deref());
    push_part(&mut observation, "location", response.redirect_url.as_deref());
    let is_missing = content.text.is_none() && content.size.unwrap_or(0) > 0;
    push_body(&mut observation, &body(&content, &kind, counts));
    if is_missing {
        count(counts, "bodies_not_recorded", 1);
    }
    let made = turn(action, ActionKind::Text, observation);
    Some(Turn { is_error: Some(response.status >= 400), truncated: is_missing, ..made })
}

/// The body as text; of what is no text, the size.
fn body(content: &Content, kind: &str, counts: &mut Counts) -> String {
    let text = content.text.as_deref().unwrap_or_default();
    if content.encoding.as_deref() != Some("base64") {
        return text.into();
    }
    let kind = kind.split(';').next().unwrap_or_default().trim_end();
    let is_text = kind.starts_with("text/") || kind.ends_with("json") || kind.ends_with("xml");
    match base64::engine::general_purpose::STANDARD.decode(text) {
        Ok(bytes) if is_text => String::from_utf8(bytes).unwrap_or_else(|error| {
            count(counts, "repaired_invalid_utf8", 1);
            String::from_utf8_lossy(error.as_bytes()).into_owned()
        }),
        Ok(bytes) => format!("[{} bytes]", bytes.len()),
        Err(_) => text.into(),
    }
}

/// The fields of a form, as they are sent.
fn form(params: Vec<Param>) -> String {
    let mut text = url::form_urlencoded::Serializer::new(String::new());
    for Param { name, value } in &params {
        text.append_pair(name, value.as_deref().unwrap_or_default());
    }
    text.finish()
}

fn push_part(text: &mut String, name: &str, value: Option<&str>) {
    if let Some(value) = value.filter(|value| !value.is_empty()) {
        *text = format!("{text}\n{name}: {value}");
    }
}

fn push_body(text: &mut String, body: &str) {
    if !body.is_empty() {
        *text = format!("{text}\n\n{body}");
    }
}
