//! The kinds of secrets and how each is found: a pattern, and what a pattern alone cannot tell.

use std::ops::Range;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A kind of secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretKind {
    /// A private key in PEM form.
    PrivateKey,
    /// Keys of cloud accounts: AWS, Google, Azure.
    CloudKey,
    /// Tokens with a known form: GitHub, GitLab, Slack, Hugging Face, OpenAI, Anthropic, Stripe, npm, PyPI, JWT; bearer
    /// headers.
    Token,
    /// What is assigned to a name such as `password` or `api_key`, or stands before the `@` of a URL.
    Password,
    /// An e-mail address.
    Email,
    /// A private address (RFC 1918) or a host under a private ending.
    PrivateHost,
}

impl SecretKind {
    /// All kinds, in the order in which they are masked.
    pub const ALL: [SecretKind; 6] = [
        SecretKind::PrivateKey,
        SecretKind::CloudKey,
        SecretKind::Token,
        SecretKind::Password,
        SecretKind::Email,
        SecretKind::PrivateHost,
    ];

    /// The name in configs and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            SecretKind::PrivateKey => "private_key",
            SecretKind::CloudKey => "cloud_key",
            SecretKind::Token => "token",
            SecretKind::Password => "password",
            SecretKind::Email => "email",
            SecretKind::PrivateHost => "private_host",
        }
    }

    /// The first part of its masks.
    pub(super) fn word(self) -> &'static str {
        match self {
            SecretKind::PrivateKey => "PRIVATE_KEY",
            SecretKind::CloudKey => "CLOUD_KEY",
            SecretKind::Token => "TOKEN",
            SecretKind::Password => "PASSWORD",
            SecretKind::Email => "EMAIL",
            SecretKind::PrivateHost => "HOST",
        }
    }

    /// The patterns; where one has a group, the group is the secret.
    fn patterns(self) -> &'static [&'static str] {
        match self {
            SecretKind::PrivateKey => &[
                r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:\\[nrt]|[A-Za-z0-9+/=:,\s-]){16,}?-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----",
                // A key whose end was cut off.
                r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:(?:\\[nrt]|\s)*[A-Za-z0-9+/=]{16,})+",
            ],
            SecretKind::CloudKey => &[
                r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}\b",
                r#"(?i)aws_?secret_?(?:access_?)?key(?:\\?["'])?\s*[:=]\s*(?:\\?["'])?([A-Za-z0-9/+]{40})(?:[^A-Za-z0-9/+]|$)"#,
                r"\bAIza[A-Za-z0-9_-]{35}",
                r"(?i)\bAccountKey=([A-Za-z0-9+/]{60,90}={0,2})",
            ],
            SecretKind::Token => &[
                r"\bgh[pousr]_[A-Za-z0-9]{36,}",
                r"\bgithub_pat_[A-Za-z0-9_]{30,}",
                r"\bglpat-[A-Za-z0-9_-]{20,}",
                r"\bxox[abposr]-[A-Za-z0-9-]{10,}",
                r"\bhf_[A-Za-z0-9]{30,}",
                r"\bsk-(?:[A-Za-z0-9]+-)*[A-Za-z0-9_]{20,}",
                r"\b[sr]k_(?:live|test)_[A-Za-z0-9]{16,}",
                r"\bnpm_[A-Za-z0-9]{36}",
                r"\bpypi-[A-Za-z0-9_-]{50,}",
                r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
                r"(?i)\bbearer\s+([A-Za-z0-9._~+/-]{16,}=*)",
            ],
            SecretKind::Password => &[
                r#"(?i)(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?token|auth[_-]?token|client[_-]?secret)(?:\\?["'])?\s*[:=]\s*(?:\\?["'])?([A-Za-z0-9_./+=!@#%^&*~-]{8,})"#,
                r#"\b[a-z][a-z0-9+.-]*://[^\s/:@"'<>]+:([^\s/:@"'<>]+)@"#,
            ],
            SecretKind::Email => &[r"[A-Za-z0-9][A-Za-z0-9._%+-]*@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,24}\b"],
            SecretKind::PrivateHost => &[
                r"\b(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3}\b",
                r"(?i)\b(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:internal|intranet|corp|lan|home\.arpa|localdomain)\b",
            ],
        }
    }

    /// What a text has that holds such a secret; quicker to look for than the patterns.
    fn signs(self) -> &'static [&'static str] {
        match self {
            SecretKind::PrivateKey => &["PRIVATE KEY"],
            SecretKind::Email => &["@"],
            _ => &[],
        }
    }
}

/// Finds one kind.
#[derive(Debug)]
pub(super) struct Detector {
    pub(super) kind: SecretKind,
    patterns: Vec<Regex>,
}

/// The detectors of the kinds, in the order of [`SecretKind::ALL`].
pub(super) fn detectors(kinds: &[SecretKind], private_hosts: &[String]) -> Result<Vec<Detector>> {
    let mut detectors = Vec::new();
    for kind in SecretKind::ALL.into_iter().filter(|kind| kinds.contains(kind)) {
        let mut patterns: Vec<String> = kind.patterns().iter().map(|pattern| pattern.to_string()).collect();
        if kind == SecretKind::PrivateHost {
            let host = |ending: &String| format!(r"(?i)\b(?:[a-z0-9-]+\.)*[a-z0-9-]+{}\b", regex::escape(ending));
            patterns.extend(private_hosts.iter().map(host));
        }
        let compiled = patterns.iter().map(|pattern| Regex::new(pattern)).collect::<std::result::Result<_, _>>();
        let compiled = compiled.map_err(|error| Error::config("secrets.private_hosts", error, "ends of host names"))?;
        detectors.push(Detector { kind, patterns: compiled });
    }
    Ok(detectors)
}

impl Detector {
    pub(super) fn may_be_in(&self, text: &str) -> bool {
        let signs = self.kind.signs();
        signs.is_empty() || signs.iter().any(|sign| text.contains(sign))
    }

    /// Where secrets stand, from the left, none over another.
    pub(super) fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        for pattern in &self.patterns {
            found.extend(matches(pattern, text).filter(|range| self.is_secret(text, range)));
        }
        found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
        let mut end = 0;
        found.retain(|range| {
            let is_free = range.start >= end;
            if is_free {
                end = range.end;
            }
            is_free
        });
        found
    }

    fn is_secret(&self, text: &str, range: &Range<usize>) -> bool {
        let value = &text[range.clone()];
        match self.kind {
            SecretKind::Password => is_password(value),
            SecretKind::Email => is_personal_address(value),
            SecretKind::PrivateHost => is_host(value, &text[range.end..]),
            SecretKind::PrivateKey | SecretKind::CloudKey | SecretKind::Token => true,
        }
    }
}

/// The group of each match, or all of it.
fn matches<'p>(pattern: &'p Regex, text: &'p str) -> Box<dyn Iterator<Item = Range<usize>> + 'p> {
    if pattern.captures_len() == 1 {
        return Box::new(pattern.find_iter(text).map(|found| found.range()));
    }
    Box::new(pattern.captures_iter(text).filter_map(|groups| Some(groups.get(1)?.range())))
}

/// Letters and digits, or letters and signs: words such as `required` and paths are no passwords.
fn is_password(value: &str) -> bool {
    let has = |test: fn(&char) -> bool| value.chars().any(|letter| test(&letter));
    let is_path = value.starts_with(['/', '.', '~']) || value.contains("://");
    has(char::is_ascii_alphabetic) && has(char::is_ascii_digit) && !is_path
}

/// Addresses that belong to nobody (RFC 2606), `git@` of repository URLs, and names of files are left.
fn is_personal_address(value: &str) -> bool {
    const FILES: [&str; 13] =
        ["png", "jpg", "jpeg", "gif", "svg", "webp", "js", "ts", "css", "html", "json", "py", "rs"];
    let lower = value.to_lowercase();
    let Some((user, host)) = lower.rsplit_once('@') else { return false };
    let ending = host.rsplit('.').next().unwrap_or_default();
    let is_reserved = matches!(ending, "example" | "test" | "invalid" | "localhost")
        || ["example.com", "example.org", "example.net"]
            .iter()
            .any(|name| host == *name || host.ends_with(&format!(".{name}")));
    user != "git" && !is_reserved && !FILES.contains(&ending)
}

/// Numbers up to 255; names of packages (`com.shop.internal.Cart`) are no hosts.
fn is_host(value: &str, rest: &str) -> bool {
    let goes_on = rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
    if value.chars().all(|letter| letter.is_ascii_digit() || letter == '.') {
        return !goes_on && value.split('.').all(|part| part.parse::<u16>().is_ok_and(|part| part < 256));
    }
    let first = value.split('.').next().unwrap_or_default().to_lowercase();
    let is_package = ["com", "org", "net", "io", "java", "javax", "jdk", "sun", "kotlin"].contains(&first.as_str());
    !is_package && !goes_on && !rest.starts_with(['(', '_', '-'])
}

/// Whether a value is a mask.
pub(super) fn is_mask(value: &str) -> bool {
    let Some((word, hash)) = value.rsplit_once('_') else { return false };
    SecretKind::ALL.iter().any(|kind| kind.word() == word)
        && hash.len() == 8
        && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}
