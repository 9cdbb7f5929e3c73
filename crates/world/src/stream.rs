//! From sampled tokens to text as it grows, up to the first stop text.

use std::ops::Range;

use worldloom_render::Tokenizer;

use crate::error::Result;

/// Decodes tokens one by one. Text comes out as soon as it is sure: characters of several tokens wait for the last of
/// them, and what may become a stop text waits until it is one or is none.
#[derive(Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    stops: Vec<String>,
    tokens: Vec<u32>,
    /// The tokens from here on are decoded together; those before `read` came out already.
    start: usize,
    read: usize,
    /// Decoded, and held back.
    held: String,
    is_stopped: bool,
}

impl TextStream {
    /// An empty text that ends before the first of `stops`.
    pub fn new(tokenizer: Tokenizer, stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|stop| !stop.is_empty()).collect();
        Self { tokenizer, stops, tokens: Vec::new(), start: 0, read: 0, held: String::new(), is_stopped: false }
    }

    /// Whether a stop text came.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// The text that a further token makes sure; empty after a stop text.
    pub fn push(&mut self, token: u32) -> Result<String> {
        if self.is_stopped {
            return Ok(String::new());
        }
        self.tokens.push(token);
        let before = self.tokenizer.decode_going_on(&self.tokens[self.start..self.read])?;
        let after = self.tokenizer.decode_going_on(&self.tokens[self.start..])?;
        if after.ends_with(char::REPLACEMENT_CHARACTER) || after.len() <= before.len() {
            return Ok(String::new());
        }
        self.held.push_str(after.get(before.len()..).unwrap_or_default());
        (self.start, self.read) = (self.read, self.tokens.len());
        Ok(self.release(false))
    }

    /// The rest, once no token follows.
    pub fn finish(&mut self) -> Result<String> {
        if self.is_stopped {
            return Ok(String::new());
        }
        let before = self.tokenizer.decode_going_on(&self.tokens[self.start..self.read])?;
        let after = self.tokenizer.decode_going_on(&self.tokens[self.start..])?;
        self.held.push_str(after.get(before.len()..).unwrap_or_default());
        self.start = self.tokens.len();
        self.read = self.start;
        Ok(self.release(true))
    }

    fn release(&mut self, is_last: bool) -> String {
        let first = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(end) = first {
            self.is_stopped = true;
            self.held.truncate(end);
            return std::mem::take(&mut self.held);
        }
        if is_last {
            return std::mem::take(&mut self.held);
        }
        let begun = |stop: &String| {
            let ends = (1..stop.len().min(self.held.len() + 1)).rev().filter(|&end| stop.is_char_boundary(end));
            ends.into_iter().find(|&end| self.held.ends_with(&stop[..end])).unwrap_or(0)
        };
        let kept = self.stops.iter().map(begun).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, rest)
    }
}

/// Places of the tokens whose text overlaps a range of bytes of the whole text. Tokens that share a character share its
/// bytes; a stop token at the end stands at the byte after the text.
pub(crate) fn tokens_within(
    tokenizer: &Tokenizer,
    tokens: &[u32],
    stops: &[u32],
    range: &Range<usize>,
) -> Result<Vec<usize>> {
    let mut stream = TextStream::new(tokenizer.clone(), Vec::new());
    let (mut within, mut waiting, mut end) = (Vec::new(), Vec::new(), 0);
    let mut come = |waiting: &mut Vec<usize>, len: usize| {
        let start = end;
        end += len;
        if start < range.end && range.start < end {
            within.append(waiting);
        }
        waiting.clear();
    };
    for (place, token) in tokens.iter().enumerate() {
        let is_stop = place + 1 == tokens.len() && stops.contains(token);
        let text = if is_stop { stream.finish()? } else { stream.push(*token)? };
        if is_stop {
            come(&mut waiting, text.len());
            waiting.push(place);
            come(&mut waiting, 1);
        } else {
            waiting.push(place);
            if !text.is_empty() {
                come(&mut waiting, text.len());
            }
        }
    }
    come(&mut waiting, stream.finish()?.len());
    Ok(within)
}

/// Splits text as it grows into thinking and the answer: a `<think>` block that opens the text, and what follows it.
#[derive(Debug, Default)]
pub struct ThinkingSplitter {
    state: State,
    held: String,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    /// Nothing but white space came.
    #[default]
    Opening,
    /// The line breaks before the thinking are dropped.
    Opened,
    Thinking,
    /// The line breaks between thinking and answer are dropped.
    Between,
    Answer,
}

const OPEN: &str = "<think>";
const CLOSE: &str = "</think>";

impl ThinkingSplitter {
    /// Thinking and answer that further text makes sure.
    pub fn push(&mut self, text: &str) -> (String, String) {
        self.held.push_str(text);
        self.advance(false)
    }

    /// The rest, once no text follows.
    pub fn finish(&mut self) -> (String, String) {
        self.advance(true)
    }

    fn advance(&mut self, is_last: bool) -> (String, String) {
        let (mut thinking, mut answer) = (String::new(), String::new());
        loop {
            match self.state {
                State::Opening => {
                    let trimmed = self.held.trim_start();
                    if let Some(rest) = trimmed.strip_prefix(OPEN) {
                        self.held = rest.to_string();
                        self.state = State::Opened;
                    } else if OPEN.starts_with(trimmed) && !is_last {
                        break;
                    } else {
                        self.state = State::Answer;
                    }
                }
                State::Opened => {
                    let start = self.held.len() - self.held.trim_start_matches('\n').len();
                    self.held.drain(..start);
                    if self.held.is_empty() {
                        break;
                    }
                    self.state = State::Thinking;
                }
                State::Thinking => match self.held.find(CLOSE) {
                    Some(end) => {
                        thinking.push_str(self.held[..end].trim_end_matches('\n'));
                        self.held.drain(..end + CLOSE.len());
                        self.state = State::Between;
                    }
                    None => {
                        let sure = if is_last { self.held.len() } else { sure_of(&self.held, CLOSE) };
                        thinking.extend(self.held.drain(..sure));
                        break;
                    }
                },
                State::Between => {
                    let start = self.held.len() - self.held.trim_start_matches(['\n', ' ']).len();
                    self.held.drain(..start);
                    if self.held.is_empty() {
                        break;
                    }
                    self.state = State::Answer;
                }
                State::Answer => {
                    answer.push_str(&std::mem::take(&mut self.held));
                    break;
                }
            }
        }
        (thinking, answer)
    }
}

/// How much of a text belongs to what stands before a tag, whatever follows: all but line breaks at the end and a
/// beginning of the tag behind them.
fn sure_of(text: &str, tag: &str) -> usize {
    let begun = (1..tag.len()).rev().find(|&end| text.ends_with(&tag[..end])).unwrap_or(0);
    text[..text.len() - begun].trim_end_matches('\n').len()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_space_that_a_completion_begins_with_stays_where_a_decoder_takes_off_a_text_s_first() {
        let spaces =
            serde_json::json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": false});
        let file = serde_json::json!({
            "version": "1.0", "added_tokens": [], "pre_tokenizer": spaces, "decoder": spaces,
            "model": {"type": "BPE", "unk_token": "<unk>", "vocab": {"<unk>": 0, "▁": 1, "a": 2, "b": 3}, "merges": []},
        });
        let tokenizer = Tokenizer::from_bytes(file.to_string().as_bytes(), Path::new("tokenizer.json")).unwrap();
        let mut stream = TextStream::new(tokenizer, Vec::new());
        let pushed: String = [1, 2, 1, 1, 3].map(|token| stream.push(token).unwrap()).concat();
        assert_eq!(pushed + &stream.finish().unwrap(), " a  b");
    }

    /// Thinking and answer, pushed in pieces of every size.
    fn check(text: &str, thinking: &str, answer: &str) {
        for size in 1..=text.len().max(1) {
            let mut splitter = ThinkingSplitter::default();
            let mut found = (String::new(), String::new());
            let pieces: Vec<char> = text.chars().collect();
            let pushed = pieces.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut parts: Vec<(String, String)> = pushed.map(|piece| splitter.push(&piece)).collect();
            parts.push(splitter.finish());
            parts.into_iter().for_each(|(a, b)| {
                found.0 += &a;
                found.1 += &b;
            });
            assert_eq!((found.0.as_str(), found.1.as_str()), (thinking, answer), "{text:?} by {size}");
        }
    }

    #[test]
    fn a_block_that_opens_the_text_is_thinking_and_the_rest_is_the_answer() {
        check("<think>\ncwd: ~\n\n| x\n</think>\n\nfig\n", "cwd: ~\n\n| x", "fig\n");
        check("  <think>a</think>b</think>", "a", "b</think>");
        check("fig", "", "fig");
        check("", "", "");
        check(" fig <think>", "", " fig <think>");
        check("<thin", "", "<thin");
        check("<think>never ends\n</thi", "never ends\n</thi", "");
        check("<think></think>", "", "");
    }
}
