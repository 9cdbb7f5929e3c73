//! The open episodes, and the file that finished ones go to.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use super::session::{Refusal, Session};
use crate::error::Result;

/// Name of the file inside the folder for episodes.
const EPISODES_FILE: &str = "episodes.jsonl";

/// A session that its requests share.
pub(crate) type Shared = Arc<Mutex<Session>>;

/// Episodes by name. Clients go away without a word: where a new one has no room, those that nobody has used for a
/// while are closed.
pub(crate) struct Episodes {
    most: usize,
    idle: Duration,
    open: Mutex<HashMap<String, Shared>>,
    log: Option<Mutex<fs_err::File>>,
}

impl Episodes {
    /// At most so many at one time, each safe until it has been idle for so long.
    pub(crate) fn new(most: usize, idle: Duration, folder: Option<&Path>) -> Result<Self> {
        let log = match folder {
            None => None,
            Some(folder) => {
                fs_err::create_dir_all(folder)?;
                let file = fs_err::OpenOptions::new().create(true).append(true).open(folder.join(EPISODES_FILE))?;
                Some(Mutex::new(file))
            }
        };
        Ok(Self { most, idle, open: Mutex::new(HashMap::new()), log })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Shared>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.open().len()
    }

    /// Opens an episode. A name that is taken is refused: who sends it may not be who opened it.
    pub(crate) fn insert(&self, session: Session) -> std::result::Result<Shared, Refusal> {
        let id = session.id.clone();
        let shared = Arc::new(Mutex::new(session));
        let (abandoned, opened) = {
            let mut open = self.open();
            let wants_room = open.len() >= self.most || open.contains_key(&id);
            let abandoned = if wants_room { self.take_abandoned(&mut open) } else { Vec::new() };
            let opened = if open.contains_key(&id) {
                let message = format!("an episode `{id}` is open already; close it first");
                Err(Refusal::new("ALREADY_OPEN", message))
            } else if open.len() >= self.most {
                let message = format!("{} episodes are open already", self.most);
                Err(Refusal::new("CAPACITY_REACHED", message))
            } else {
                open.insert(id, shared.clone());
                Ok(shared)
            };
            (abandoned, opened)
        };
        abandoned.iter().for_each(|session| self.end(session));
        opened
    }

    /// Takes out what has been idle for too long. One that is locked is at work.
    fn take_abandoned(&self, open: &mut HashMap<String, Shared>) -> Vec<Shared> {
        let is_abandoned = |session: &Shared| match session.try_lock() {
            Ok(session) => session.idle() >= self.idle,
            Err(TryLockError::Poisoned(session)) => session.into_inner().idle() >= self.idle,
            Err(TryLockError::WouldBlock) => false,
        };
        let abandoned: Vec<Shared> = open.extract_if(|_, session| is_abandoned(session)).map(|(_, it)| it).collect();
        if !abandoned.is_empty() {
            tracing::info!(episodes = abandoned.len(), "closed episodes that nobody used");
        }
        abandoned
    }

    pub(crate) fn get(&self, id: &str) -> std::result::Result<Shared, Refusal> {
        let found = self.open().get(id).cloned();
        found.ok_or_else(|| Refusal::new("SESSION_ERROR", format!("no episode `{id}` is open; reset first")))
    }

    /// Ends an episode and writes it down; false where there is none. Waits for a step in progress.
    pub(crate) fn close(&self, id: &str) -> bool {
        let found = self.open().remove(id);
        found.inspect(|session| self.end(session)).is_some()
    }

    /// Ends this very episode, unless its name has gone to another since.
    pub(crate) fn close_this(&self, session: &Shared) {
        let id = session.lock().unwrap_or_else(PoisonError::into_inner).id.clone();
        let is_this = self.open().get(&id).is_some_and(|open| Arc::ptr_eq(open, session));
        if is_this {
            self.close(&id);
        }
    }

    pub(crate) fn close_all(&self) {
        let all: Vec<Shared> = self.open().drain().map(|(_, session)| session).collect();
        all.iter().for_each(|session| self.end(session));
    }

    fn end(&self, session: &Shared) {
        let line = session.lock().unwrap_or_else(PoisonError::into_inner).end();
        let (Some(log), Some(line)) = (&self.log, line) else { return };
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all((line + "\n").as_bytes()).and_then(|()| file.flush()) {
            tracing::error!(%error, "an episode could not be written");
        }
    }
}
