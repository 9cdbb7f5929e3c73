//! What decides how an endpoint is asked.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::failure::SetupError;

/// An endpoint and the bounds on asking it. Address and model have no default.
///
/// ```
/// let text = r#"{"url": "http://127.0.0.1:8000/v1", "model": "judge", "concurrency": 32}"#;
/// let config: worldloom_judge::endpoint::EndpointConfig = serde_json::from_str(text)?;
/// assert_eq!((config.concurrency, config.attempts), (32, 6));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointConfig {
    /// Address up to and including the version: `https://host/v1`.
    pub url: String,
    /// The model's name at the endpoint.
    pub model: String,
    /// Name of the environment variable that holds the key; the program reads it. Default: no key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Stands for `url` in the cache, where the address changes and the model does not. Default: the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_name: Option<String>,
    /// Requests under way at once. Default: 8.
    #[serde(default = "defaults::concurrency")]
    pub concurrency: usize,
    /// Requests that may start in a minute. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<f64>,
    /// Tokens, of prompts and answers, that may be used in a minute. Default: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<f64>,
    /// Times a request is sent at most. Default: 6.
    #[serde(default = "defaults::attempts")]
    pub attempts: u32,
    /// Seconds an attempt may take. Default: 300.
    #[serde(default = "defaults::timeout_s")]
    pub timeout_s: f64,
    /// Seconds from the first attempt of a request after which none is begun or waited for. Default: 900.
    #[serde(default = "defaults::deadline_s")]
    pub deadline_s: f64,
    /// Pause after the first failure, in seconds; it doubles with each further one. Default: 1.
    #[serde(default = "defaults::first_pause_s")]
    pub first_pause_s: f64,
    /// Longest of these pauses, in seconds. Default: 60.
    #[serde(default = "defaults::longest_pause_s")]
    pub longest_pause_s: f64,
    /// Price of a million prompt tokens, in any currency, for the log. Default: 0.
    #[serde(default)]
    pub prompt_price: f64,
    /// Price of a million tokens of answers. Default: 0.
    #[serde(default)]
    pub answer_price: f64,
    /// Largest body of an answer that is read, in bytes. Default: 64 MiB.
    #[serde(default = "defaults::largest_answer")]
    pub largest_answer: usize,
}

impl EndpointConfig {
    /// With every default.
    pub fn new(url: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            model: model.into(),
            api_key_env: None,
            cache_name: None,
            concurrency: defaults::concurrency(),
            requests_per_minute: None,
            tokens_per_minute: None,
            attempts: defaults::attempts(),
            timeout_s: defaults::timeout_s(),
            deadline_s: defaults::deadline_s(),
            first_pause_s: defaults::first_pause_s(),
            longest_pause_s: defaults::longest_pause_s(),
            prompt_price: 0.0,
            answer_price: 0.0,
            largest_answer: defaults::largest_answer(),
        }
    }

    /// Refuses what cannot work, naming the field.
    pub fn check(&self) -> Result<(), SetupError> {
        let wrong = |field, detail: String| Err(SetupError::Config { field, detail });
        match reqwest::Url::parse(&self.url) {
            Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {}
            Ok(_) => return wrong("url", format!("`{}` is no http(s) address", self.url)),
            Err(error) => return wrong("url", format!("`{}`: {error}", self.url)),
        }
        if self.model.is_empty() {
            return wrong("model", "it is empty".into());
        }
        if self.concurrency == 0 || self.attempts == 0 || self.largest_answer == 0 {
            return wrong("concurrency, attempts, largest_answer", "0, expected at least 1".into());
        }
        for (field, seconds) in [("timeout_s", self.timeout_s), ("deadline_s", self.deadline_s)] {
            if !(seconds > 0.0 && seconds <= 1e9) {
                return wrong(field, format!("{seconds}, expected a number above 0 and at most 1e9"));
            }
        }
        for (field, found) in [
            ("first_pause_s", self.first_pause_s),
            ("longest_pause_s", self.longest_pause_s),
            ("prompt_price", self.prompt_price),
            ("answer_price", self.answer_price),
        ] {
            if Duration::try_from_secs_f64(found).is_err() {
                return wrong(field, format!("{found}, expected a number from 0 on"));
            }
        }
        for (field, limit) in
            [("requests_per_minute", self.requests_per_minute), ("tokens_per_minute", self.tokens_per_minute)]
        {
            if limit.is_some_and(|limit| !limit.is_finite() || limit < 1e-6) {
                return wrong(field, format!("{limit:?}, expected a number above 0"));
            }
        }
        Ok(())
    }

    /// The address of a path such as `chat/completions`; one that begins with `/` is from the root of the host.
    pub(super) fn address(&self, path: &str) -> String {
        if let (true, Ok(url)) = (path.starts_with('/'), reqwest::Url::parse(&self.url)) {
            return url.join(path).map_or_else(|_| path.into(), String::from);
        }
        format!("{}/{path}", self.url.trim_end_matches('/'))
    }

    /// Whether the server is this machine: no proxy stands between.
    pub(super) fn is_loopback(&self) -> bool {
        let host = reqwest::Url::parse(&self.url).ok().and_then(|url| url.host_str().map(str::to_string));
        host.is_some_and(|host| {
            let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
            host == "localhost" || address.is_ok_and(|address| address.is_loopback())
        })
    }

    /// The pause after the `failures`-th failure (from 1): doubling, up to the longest, times `jitter` from 0.5 to 1.
    pub(super) fn pause(&self, failures: u32, jitter: f64) -> Duration {
        let doubled = self.first_pause_s * 2f64.powi(failures.saturating_sub(1).min(40) as i32);
        Duration::from_secs_f64(doubled.min(self.longest_pause_s) * (0.5 + 0.5 * jitter.clamp(0.0, 1.0)))
    }

    /// What so many tokens cost.
    pub(super) fn cost(&self, prompt: u64, answer: u64) -> f64 {
        (prompt as f64 * self.prompt_price + answer as f64 * self.answer_price) / 1e6
    }
}

mod defaults {
    pub(super) fn concurrency() -> usize {
        8
    }
    pub(super) fn attempts() -> u32 {
        6
    }
    pub(super) fn timeout_s() -> f64 {
        300.0
    }
    pub(super) fn deadline_s() -> f64 {
        900.0
    }
    pub(super) fn first_pause_s() -> f64 {
        1.0
    }
    pub(super) fn longest_pause_s() -> f64 {
        60.0
    }
    pub(super) fn largest_answer() -> usize {
        64 << 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_work_is_refused_by_its_field() {
        let good = EndpointConfig::new("http://127.0.0.1:8000/v1/", "m");
        assert!(good.check().is_ok());
        let field = |change: &dyn Fn(&mut EndpointConfig)| {
            let mut config = good.clone();
            change(&mut config);
            match config.check() {
                Err(SetupError::Config { field, .. }) => field,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(field(&|config| config.url = "127.0.0.1:8000".into()), "url");
        assert_eq!(field(&|config| config.url = "ftp://host/v1".into()), "url");
        assert_eq!(field(&|config| config.model = String::new()), "model");
        assert_eq!(field(&|config| config.timeout_s = 0.0), "timeout_s");
        assert_eq!(field(&|config| config.deadline_s = f64::NAN), "deadline_s");
        assert_eq!(field(&|config| config.first_pause_s = -1.0), "first_pause_s");
        assert_eq!(field(&|config| config.requests_per_minute = Some(0.0)), "requests_per_minute");
        assert!(serde_json::from_str::<EndpointConfig>(r#"{"url":"http://h/v1","model":"m","retries":3}"#).is_err());
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_jitter_takes_at_most_half() {
        let config = EndpointConfig { longest_pause_s: 5.0, ..EndpointConfig::new("http://h/v1", "m") };
        let full: Vec<f64> = (1..6).map(|failures| config.pause(failures, 1.0).as_secs_f64()).collect();
        assert_eq!(full, [1.0, 2.0, 4.0, 5.0, 5.0]);
        assert_eq!(config.pause(2, 0.0).as_secs_f64(), 1.0);
        assert_eq!(config.pause(u32::MAX, 1.0).as_secs_f64(), 5.0);
    }

    #[test]
    fn addresses_have_one_slash_and_loopback_is_known() {
        let config = |url: &str| EndpointConfig::new(url, "m");
        assert_eq!(config("http://h/v1/").address("completions"), "http://h/v1/completions");
        assert_eq!(config("http://h:8/v1/").address("/reload"), "http://h:8/reload");
        for (url, is_loopback) in [
            ("http://127.0.0.1/v1", true),
            ("http://[::1]:80/v1", true),
            ("http://localhost/v1", true),
            ("https://h/v1", false),
        ] {
            assert_eq!(config(url).is_loopback(), is_loopback, "{url}");
        }
    }
}
