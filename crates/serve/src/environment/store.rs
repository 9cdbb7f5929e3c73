//! The open episodes, and the file that finished ones go to.

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::session::{Refusal, Session};
use crate::error::Result;

/// Name of the file inside the folder for episodes.
const EPISODES_FILE: &str = "episodes.jsonl";

/// A session that its requests share.
pub(crate) type Shared = Arc<Mutex<Session>>;

/// Episodes by name. A client that is in the middle of a step keeps its episode; another of the same name waits for it.
pub(crate) struct Episodes {
    most: usize,
    open: Mutex<HashMap<String, Shared>>,
    log: Option<Mutex<fs_err::File>>,
}

impl Episodes {
    pub(crate) fn new(most: usize, folder: Option<&Path>) -> Result<Self> {
        let log = match folder {
            None => None,
            Some(folder) => {
                fs_err::create_dir_all(folder)?;
                let file = fs_err::OpenOptions::new().create(true).append(true).open(folder.join(EPISODES_FILE))?;
                Some(Mutex::new(file))
            }
        };
        Ok(Self { most, open: Mutex::new(HashMap::new()), log })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<String, Shared>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.open().len()
    }

    /// Opens an episode in place of one of the same name, which is closed.
    pub(crate) fn insert(&self, session: Session) -> std::result::Result<Shared, Refusal> {
        let id = session.id.clone();
        let shared = Arc::new(Mutex::new(session));
        let before = {
            let mut open = self.open();
            if open.len() >= self.most && !open.contains_key(&id) {
                let message = format!("{} episodes are open already", self.most);
                return Err(Refusal::new("CAPACITY_REACHED", message));
            }
            open.insert(id, shared.clone())
        };
        if let Some(before) = before {
            self.write(&before);
        }
        Ok(shared)
    }

    pub(crate) fn get(&self, id: &str) -> std::result::Result<Shared, Refusal> {
        let found = self.open().get(id).cloned();
        found.ok_or_else(|| Refusal::new("SESSION_ERROR", format!("no episode `{id}` is open; reset first")))
    }

    /// Ends an episode and writes it down; false where there is none.
    pub(crate) fn close(&self, id: &str) -> bool {
        let found = self.open().remove(id);
        found.inspect(|session| self.write(session)).is_some()
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
        all.iter().for_each(|session| self.write(session));
    }

    fn write(&self, session: &Shared) {
        let Some(log) = &self.log else { return };
        let Some(line) = session.lock().unwrap_or_else(PoisonError::into_inner).to_line() else { return };
        let mut file = log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all((line + "\n").as_bytes()).and_then(|()| file.flush()) {
            tracing::error!(%error, "an episode could not be written");
        }
    }
}
