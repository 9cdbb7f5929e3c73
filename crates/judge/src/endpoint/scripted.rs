//! A server on the loopback address that answers by script: for the tests of whatever asks through an endpoint.
//!
//! ```
//! use worldloom_judge::endpoint::scripted::{Answer, Server};
//! use worldloom_judge::endpoint::{BlockingEndpoint, ChatRequest, Endpoint, Message, Parameters};
//! let server = Server::start(|seen| match seen.number {
//!     0 => Answer::HangUp,
//!     _ => Answer::chat("four"),
//! })?;
//! let mut config = server.config("m");
//! config.first_pause_s = 0.001;
//! let endpoint = BlockingEndpoint::new(Endpoint::new(config, None)?)?;
//! let request = ChatRequest::new(vec![Message::user("2 + 2?")], Parameters::default());
//! let reply = endpoint.chat(&request)?;
//! assert_eq!(reply.choices[0].content.as_deref(), Some("four"));
//! assert_eq!(server.seen().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::config::EndpointConfig;

/// A request as the server saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    /// How many came before it.
    pub number: usize,
    /// Its path, such as `/v1/chat/completions`.
    pub path: String,
    /// Its headers, names in small letters.
    pub headers: Vec<(String, String)>,
    /// Its body; null where it is no JSON.
    pub body: Value,
}

impl Seen {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

/// What the server does.
#[derive(Debug, Clone)]
pub enum Answer {
    /// Answers.
    Reply {
        /// Status.
        status: u16,
        /// Further headers.
        headers: Vec<(String, String)>,
        /// Body.
        body: String,
    },
    /// Answers after a while.
    Slow(Duration, Box<Answer>),
    /// Closes the connection without a word.
    HangUp,
    /// Promises more bytes than it sends, and closes the connection.
    Torn,
    /// Says nothing and keeps the connection open.
    Silence,
}

impl Answer {
    /// Status 200 with a JSON body.
    pub fn json(body: &Value) -> Self {
        Self::text(200, body.to_string())
    }

    /// Any status and body.
    pub fn text(status: u16, body: impl Into<String>) -> Self {
        Answer::Reply { status, headers: Vec::new(), body: body.into() }
    }

    /// An error in the API's shape.
    pub fn error(status: u16, message: &str) -> Self {
        Self::text(status, json!({"error": {"message": message, "type": "scripted"}}).to_string())
    }

    /// A chat reply with one choice, 10 prompt tokens and 2 of the answer.
    pub fn chat(content: &str) -> Self {
        let message = json!({"role": "assistant", "content": content});
        Self::json(&json!({
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 2},
        }))
    }

    /// The same with one more header; only for answers with a body.
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Answer::Reply { headers, .. } = &mut self {
            headers.push((name.into(), value.into()));
        }
        self
    }
}

struct Shared {
    script: Box<dyn Fn(&Seen) -> Answer + Send + Sync>,
    seen: Mutex<Vec<Seen>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    is_closed: AtomicBool,
}

/// The server; dropped, it takes no further connection.
pub struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Server {
    /// Starts on a free port.
    pub fn start(script: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Box::new(script),
            seen: Mutex::default(),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
        });
        let server = Self { address, shared: shared.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if shared.is_closed.load(Ordering::SeqCst) {
                    break;
                }
                let shared = shared.clone();
                std::thread::spawn(move || shared.serve(stream));
            }
        });
        Ok(server)
    }

    /// The address with the version, as a configuration has it.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// A configuration for this server with pauses of milliseconds.
    pub fn config(&self, model: &str) -> EndpointConfig {
        EndpointConfig {
            first_pause_s: 0.001,
            longest_pause_s: 0.005,
            timeout_s: 5.0,
            deadline_s: 20.0,
            ..EndpointConfig::new(self.url(), model)
        }
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen().clone()
    }

    /// The most requests that were under way at one time.
    pub fn most_at_once(&self) -> usize {
        self.shared.most_at_once.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.is_closed.store(true, Ordering::SeqCst);
        // Wakes the one who waits for connections.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn seen(&self) -> std::sync::MutexGuard<'_, Vec<Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self, stream: TcpStream) {
        let Ok(Some(mut seen)) = read_request(&stream) else { return };
        let now = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_at_once.fetch_max(now, Ordering::SeqCst);
        {
            let mut all = self.seen();
            seen.number = all.len();
            all.push(seen.clone());
        }
        let mut answer = (self.script)(&seen);
        while let Answer::Slow(pause, then) = answer {
            std::thread::sleep(pause);
            answer = *then;
        }
        self.at_once.fetch_sub(1, Ordering::SeqCst);
        // The other side may have gone: that is its business.
        let _ = write_answer(stream, answer);
    }
}

fn read_request(stream: &TcpStream) -> std::io::Result<Option<Seen>> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let Some(path) = line.split(' ').nth(1).map(str::to_string) else { return Ok(None) };
    let mut headers = Vec::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.to_lowercase(), value.trim().to_string()));
        }
    }
    let mut seen = Seen { number: 0, path, headers, body: Value::Null };
    let length = seen.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    seen.body = serde_json::from_slice(&body).unwrap_or_default();
    Ok(Some(seen))
}

fn write_answer(mut stream: TcpStream, answer: Answer) -> std::io::Result<()> {
    match answer {
        Answer::HangUp | Answer::Slow(..) => Ok(()),
        Answer::Torn => stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"choices\": "),
        Answer::Silence => stream.read_to_end(&mut Vec::new()).map(|_| ()),
        Answer::Reply { status, headers, body } => {
            let mut head = format!(
                "HTTP/1.1 {status} Scripted\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n",
                body.len()
            );
            headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
            stream.write_all(format!("{head}\r\n{body}").as_bytes())?;
            stream.flush()
        }
    }
}
