//! The page and the terminal table on small hand-made results.
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod drawings;
mod page;
mod support;
